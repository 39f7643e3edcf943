"""Files made to hurt whoever reads them: bombs, floods, and YAML's dark corners. Each is a located fault, at once.

`test_load_fuzz.py` draws files at random; here the shapes are known and the sizes are the largest.
"""

import json
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.errors import PolicyError, RemitError
from remit.policy import bases
from remit.policy.decide import decide
from remit.policy.digest import digest
from remit.policy.document import MAX_BYTES, MAX_PROBLEMS, MAX_VALUES
from remit.policy.model import Remit
from tests.unit.policy.remits import HEAD, load_text, view_of
from tests.unit.policy.test_properties import ACTIONS, bodies
from tests.unit.policy.test_properties import text as as_text

SECONDS = 2
ROOM = MAX_BYTES - 200


def told(text, files=None):
    """The problems of `text`; empty if it loads. Nothing but a RemitError escapes."""
    began = time.monotonic()
    try:
        load_text(text, files)
        return ()
    except PolicyError as error:
        assert len(error.problems) <= MAX_PROBLEMS
        for problem in error.problems:
            assert problem.line >= 1
            assert problem.column >= 1
            assert len(problem.message) < 3000
            if problem.code == "E_UNKNOWN_KEY":
                assert problem.hint
        return error.problems
    except RemitError as error:
        assert error.message
        return (error,)
    finally:
        assert time.monotonic() - began < SECONDS


def flood(head, unit, tail):
    """As many units as a file may hold bytes of."""
    made, length = [], 0
    while length < ROOM:
        made.append(unit(len(made)))
        length += len(made[-1])
    return HEAD + head + "".join(made)[: ROOM - 100].rsplit(unit(0)[-1], 1)[0] + unit(0)[-1] + tail


FLOODS = {
    "unknown keys": flood("", lambda i: f"process{i}: 1\n", ""),
    "doubled keys": flood("", lambda i: "a: 1\n", ""),
    "wrong types": flood("process: {exec: [", lambda i: "1,", "]}\n"),
    "wrong mappings": flood("network: {allow: [", lambda i: "{hos: 1},", "]}\n"),
    "empty mappings": flood("filesystem: {read: [", lambda i: "{},", "]}\n"),
    "good entries": flood("filesystem: {read: [", lambda i: f"./a{i},", "]}\n"),
    "empty lists": flood("x: [", lambda i: "[],", "]\n"),
    "bases": flood("extends: [", lambda i: f"./b{i},", "]\n"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_is_refused_at_once(name):
    assert told(FLOODS[name])


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "limits: {memory: " + "9" * ROOM + "}\n",
        HEAD + "limits: {memory: 1." + "9" * ROOM + "MiB}\n",
        HEAD + "mode: '" + "enforce" * (ROOM // 7) + "'\n",
        HEAD + "extends: " + "python" * (ROOM // 6) + "\n",
        HEAD + "description: " + "a" * ROOM + "\n",
        HEAD + "? " + "process" * (ROOM // 7) + "\n: 1\n",
        HEAD + "filesystem: {read: ['./" + "../" * (ROOM // 3) + "']}\n",
        HEAD + "filesystem: {deny: ['" + "a*" * (ROOM // 2) + "']}\n",
        HEAD + "state: {keep: ['" + "[" * ROOM + "']}\n",
        HEAD + "description: |\n" + " a\n" * (ROOM // 3),
    ],
    ids=range(10),
)
def test_one_huge_word_is_refused_at_once(text):
    assert told(text)


@pytest.mark.parametrize(
    ("head", "unit"),
    [
        ("state: {keep: [%s]}", "'*a%d*/**',"),
        ("filesystem: {deny: [%s]}", "'**/*a%d*',"),
        ("filesystem: {read: [%s]}", "/data/a%d,"),
        ("process: {exec: [%s]}", "a%d,"),
    ],
)
def test_long_lists_meet_long_lists_of_a_base_in_time(head, unit):
    base = "apiVersion: remit/v1\n" + head % "".join(unit % i for i in range(1000)) + "\n"
    child = HEAD + "extends: ./base.yaml\n" + head % "".join(unit % (i + 1) for i in range(1000)) + "\n"
    began = time.monotonic()
    try:
        load_text(child, {"/src/job/base.yaml": base})
    except PolicyError as error:
        assert error.code == "E_WIDENS"
    # A million pairs, on a busy machine.
    assert time.monotonic() - began < 3 * SECONDS


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &a [x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "E_ANCHOR"),
        ("a: &a\n  b: *a\n", "E_ANCHOR"),
        ("x: {<<: [{a: 1}, {b: 2}]}\n", "E_MERGE"),
        ("<<: *x\n", "E_MERGE"),
        ("x: !!python/object/apply:os.system [id]\n", "E_TAG"),
        ("x: !<tag:yaml.org,2002:python/name:os.system> y\n", "E_TAG"),
        ("x: !!binary aGk=\n", "E_TAG"),
        ("x: !!timestamp 2001-12-14\n", "E_TAG"),
        ("x: !!set {a, b}\n", "E_TAG"),
        ("!!map {a: 1}\n", "E_TAG"),
        ("? [a, b]\n: 1\n", "E_KEY"),
        ("? {a: b}\n: 1\n", "E_KEY"),
        ("0x10: a\n", "E_KEY"),
        ("~: a\n", "E_KEY"),
        ("? \n", "E_KEY"),
    ],
)
def test_the_dark_corners_of_yaml_are_refused_by_name(text, code):
    # A reference to nothing is the parser's own fault to find.
    assert told(text)[0].code in (code, "E_SYNTAX")
    assert told(HEAD + text)[0].code in (code, "E_SYNTAX")


@pytest.mark.parametrize("word", ["2001-12-14", "1:30", "0o17", ".nan", "-.inf", "1e400", "0b11", "017", "=", "<<"])
def test_what_older_yaml_reads_otherwise_is_no_limit(word):
    problems = told(HEAD + f"limits: {{memory: {word}, wall: {word}}}\n")
    assert {p.code for p in problems} <= {"E_VALUE", "E_TYPE"}
    assert problems


def test_the_worst_of_them_fits_into_little_memory():
    """A flood of faults, in a process of its own that may not have more."""
    code = (
        "import resource, sys\n"
        "text = sys.stdin.read()\n"
        "from tests.unit.policy.remits import problems\n"
        "import jsonschema_rs, yaml\n"
        "problems('agent: a')\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(len(problems(text)), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=FLOODS["wrong mappings"], capture_output=True, text=True, check=True
    )
    count, mebibytes = map(int, done.stdout.split())
    assert count >= 1
    assert mebibytes < 100


def test_a_file_of_as_many_values_as_may_be_is_read_and_one_more_is_not():
    filler = [f"A{i}: x" for i in range((MAX_VALUES - 11) // 2)]
    text = HEAD + "process: {env: {set: {%s}}}\n"
    assert [p.code for p in told(text % ",".join(filler))] in ([], ["E_VALUE"])
    more = [*filler, *(f"B{i}: x" for i in range(10))]
    assert [p.code for p in told(text % ",".join(more))] == ["E_TOO_LARGE"]


BASES = st.lists(st.sampled_from(bases.names()), max_size=2, unique=True)


@given(bodies(), BASES)
@settings(max_examples=200, deadline=None)
def test_a_remit_that_loads_survives_its_own_document(said, extends):
    try:
        effective = load_text(as_text(said, **({"extends": extends} if extends else {})))
    except PolicyError:
        return
    again = Remit.from_document(json.loads(json.dumps(effective.remit.as_document())))
    assert again == effective.remit
    assert digest(again) == effective.digest


@given(bodies(), bodies(), bodies(), st.lists(ACTIONS, min_size=5))
@settings(max_examples=80, deadline=None)
def test_no_grandchild_allows_what_a_grandparent_named_and_denied(top, middle, child, actions):
    files = {
        "/src/job/top.yaml": as_text(top),
        "/src/job/middle.yaml": as_text(middle, extends="./top.yaml"),
    }
    try:
        remit = load_text(as_text(child, extends="./middle.yaml"), files).remit
    except PolicyError as error:
        assert error.code == "E_WIDENS"
        return
    above = load_text(as_text(top)).remit
    view, view_above = view_of(remit), view_of(above)
    for action in actions:
        kind = type(action).__name__
        if kind == "Exec" and not ("exec" in top["process"] and "work_code" in top["process"]):
            continue
        if kind == "OpenFile" and not ("filesystem" in top and "exec" in top["process"]):
            continue
        if kind == "KeepFile" and not ("state" in top and "limits" in top):
            continue
        if decide(remit, action, view).allowed:
            assert decide(above, action, view_above).allowed, action

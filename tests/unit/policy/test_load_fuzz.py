"""Whatever a file holds, its author gets an effective remit or a `PolicyError`."""

import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

from remit.errors import PolicyError
from remit.policy.model import Effective
from remit.policy.schema import schema
from tests.unit.policy.remits import HEAD, load_text

KEYS = sorted({key for node in schema()["properties"].values() for key in node.get("properties", {})}) + sorted(
    schema()["properties"]
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(
        [
            "python",
            "./x",
            "../x",
            "/",
            "~",
            "~x",
            "/proc/x",
            "**",
            "../**",
            "512MiB",
            "5m",
            "1e400",
            "enforce",
            "observe",
            "9" * 40 + "h",
            "0.0000001TiB",
            "run",
            "none",
            "process.exec",
            "git?",
            "?",
            "/usr//x",
            "*.example.com",
            "10.0.0.0/8",
        ]
    ),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=5)
    ),
    max_leaves=20,
)
NODES = {
    name: st.dictionaries(st.sampled_from([*node.get("properties", {"x": 0})]), TREES, max_size=4) | TREES
    for name, node in schema()["properties"].items()
    if name not in ("apiVersion", "agent")
}


def only_policy_errors(text):
    def read(path):
        if path.endswith("x"):
            return "apiVersion: remit/v1\nextends: python\n"
        if path.endswith("y"):
            raise ValueError("embedded null byte")
        raise PermissionError(13, "Permission denied")

    from remit.policy.load import load

    try:
        effective = load(text, "remit.yaml", "/src/job", read, home="/home/u")
    except PolicyError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line >= 1
            assert problem.column >= 1
            assert problem.message
            assert problem.code.startswith("E_")
        return
    assert isinstance(effective, Effective)
    assert json.loads(json.dumps(effective.remit.as_document()))


@given(st.text() | st.binary() | st.text().map(lambda text: HEAD + text))
@settings(max_examples=500, deadline=None)
@example("\ud800")
@example("? ")
@example("{? : }")
@example("!")
@example("&")
@example("--- >\n")
@example("a: >-9\n")
@example("%TAG ! x\n---\n")
@example(HEAD + 'description: "\\U00110000"\n')
def test_any_text_is_a_remit_or_a_located_fault(text):
    only_policy_errors(text)


@given(st.fixed_dictionaries({"apiVersion": st.just("remit/v1"), "agent": st.just("a")}, optional=NODES))
@settings(max_examples=200, deadline=None)
def test_any_document_is_a_remit_or_a_located_fault(document):
    only_policy_errors(json.dumps(document, ensure_ascii=False))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_good_remit_with_a_few_characters_changed_is_a_remit_or_a_located_fault(data):
    text = HEAD + (
        "extends: [python, retrieval]\nprocess: {exec: [python3], env: {set: {A: b}}}\nfilesystem:\n  read:\n"
        "    - ./a\n    - {from: ./b, to: /workspace/c}\nstate: {keep: ['out/**']}\nlimits: {memory: 1GiB, wall: 5m}\n"
    )
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.text(":-{}[]'\"\n\t &*!|>%@`#?,~<é\0 0a", max_size=3)) + text[at + cut :]
    only_policy_errors(text)


def test_the_good_remit_of_the_fuzz_loads():
    assert load_text(HEAD + "extends: [python, retrieval]\nprocess: {exec: [python3]}\n").widened == ()

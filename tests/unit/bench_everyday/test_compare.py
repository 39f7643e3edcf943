"""A comparison that can't fail proves nothing: each way in which the inside can differ is counted."""

from __future__ import annotations

import re

import pytest

from everyday import report, sides
from everyday.cases import FOLDER, BadCase, Case, Rule, load, parse
from everyday.compare import Outcome, Result, differences, judge, passes, rate

CASE = Case("c", "g", ("true",), "binary")
GOOD = Result(0, b"out\n")


@pytest.mark.parametrize(
    ("inside", "found"),
    [
        (GOOD, ()),
        (Result(126, b"out\n"), ("exit status: 0 bare, 126 inside",)),
        (Result(0, b"other\n"), ("standard output",)),
        (Result(0, b""), ("standard output",)),
        (Result(0, b"out\n", b"said on standard error"), ()),
        (Result(0, b"out\n", files={"f": b""}), ("kept file f: inside only",)),
    ],
)
def test_what_differs_is_found(inside: Result, found: tuple[str, ...]) -> None:
    assert differences(GOOD, inside, ()) == found


def test_kept_files_are_compared_both_ways() -> None:
    bare = Result(0, b"", files={"a": b"1", "b": b"2", "c": b"3"})
    assert differences(bare, Result(0, b"", files={"a": b"1", "b": b"x"}), ()) == (
        "kept file b: content",
        "kept file c: bare only",
    )


def test_places_are_made_the_same_by_their_exact_path_alone() -> None:
    places = {"/tmp/e-1/work": "/workspace", "/tmp/e-1/work-other": "/elsewhere"}
    bare = Result(0, b"/tmp/e-1/work/f /tmp/e-1/work-other", places=places)
    assert differences(bare, Result(0, b"/workspace/f /elsewhere"), ()) == ()
    assert differences(bare, Result(0, b"/workspaces/f /elsewhere"), ()) == ("standard output",)


def test_a_normaliser_reaches_no_further_than_its_pattern() -> None:
    rules = (Rule(re.compile(r"took \d+ ms"), "took", "a duration is of the run"),)
    assert differences(Result(0, b"took 5 ms, 3 passed"), Result(0, b"took 9 ms, 3 passed"), rules) == ()
    assert differences(Result(0, b"took 5 ms, 3 passed"), Result(0, b"took 9 ms, 2 passed"), rules)


def test_bytes_that_are_no_text_are_compared() -> None:
    assert differences(Result(0, b"\xff"), Result(0, b"\xfe"), ()) == ("standard output",)


def test_a_difference_counts_and_an_explanation_does_not_take_it_away() -> None:
    blocked = Result(126, b"")
    assert judge(CASE, GOOD, blocked).state == "different"
    assert judge(CASE._replace(known="a reason"), GOOD, blocked).state == "different"
    outcomes = [judge(CASE, GOOD, GOOD)] * 98 + [judge(CASE, GOOD, blocked)]
    assert rate(outcomes) == 1 / 99
    assert not passes(outcomes)
    assert passes([judge(CASE, GOOD, GOOD)] * 99 + [judge(CASE, GOOD, blocked)])


def test_what_is_said_to_differ_and_does_not_is_a_mistake_of_the_case() -> None:
    for case in (CASE._replace(known="a reason"), CASE._replace(intended="a reason")):
        stale = judge(case, GOOD, GOOD)
        assert stale.state == "broken"
        assert not passes([stale, judge(CASE, GOOD, GOOD)])


def test_a_refusal_on_purpose_is_counted_apart() -> None:
    refused = judge(CASE._replace(intended="a reason"), GOOD, Result(1, b""))
    assert refused.state == "intended"
    assert report.as_json([refused, judge(CASE, GOOD, GOOD)])["counts"] == {"intended": 1, "same": 1}


def test_a_bare_run_that_fails_is_no_comparison() -> None:
    failed = Result(1, b"")
    assert judge(CASE, failed, failed).state == "broken"
    assert judge(CASE._replace(exit=1), failed, failed).state == "same"


def test_a_tool_that_is_not_here_is_never_green() -> None:
    outcome = sides.run(CASE._replace(needs=("no-such-tool-anywhere",)))
    assert (outcome.state, outcome.absent) == ("absent", ("no-such-tool-anywhere",))
    assert rate([outcome]) == 1.0
    assert not passes([outcome])


def test_a_setup_that_fails_here_breaks_its_case_and_no_other() -> None:
    outcome = sides.run(CASE._replace(setup="echo gone >&2; exit 3"))
    assert outcome.state == "broken"
    assert "ended with 3: gone" in outcome.differs[0]


def test_a_program_that_the_remit_does_not_grant_is_a_false_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real `remit run`, as far as the policy's own refusal, which needs no namespace."""
    monkeypatch.setattr(sides, "document", lambda case: {"apiVersion": "remit/v1", "agent": "a", "extends": "binary"})
    outcome = sides.run(CASE._replace(argv=("echo", "here"), needs=("echo",)))
    assert outcome.state == "different"
    assert outcome.bare is not None and outcome.bare.stdout == b"here\n"
    assert outcome.inside is not None and outcome.inside.exit != 0
    assert not passes([outcome])


def test_a_remit_is_the_base_and_what_the_case_adds() -> None:
    case = CASE._replace(base="node", exec=("jq",), env={"A": "b"}, keep=("*",), remit={"process": {"memfd": True}})
    made = sides.document(case)
    assert made["process"]["exec"] == ["node", "npm?", "npx?", "jq"]
    assert made["unsafe_widen"] == ["process.exec"]
    assert (made["process"]["env"], made["process"]["memfd"]) == ({"set": {"A": "b"}}, True)


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("{name: a, sh: x, argv: [y]}", "one of"),
        ("{name: a}", "one of"),
        ("{name: a, sh: x, normalize: []}", "unknown keys: normalize"),
        ("{name: a, sh: x, normalise: [{match: '.*', with: ''}]}", "reason"),
        ("{name: a, sh: x, normalise: [{match: '.*', with: '', why: because}]}", "reason"),
        ("{sh: x}", "name"),
    ],
)
def test_a_mistake_in_a_case_is_said(case: str, says: str) -> None:
    with pytest.raises(BadCase, match=says):
        list(parse(f"group: g\nbase: python\ncases: [{case}]\n", "f.yaml"))


def test_the_published_set_is_whole() -> None:
    cases = load(FOLDER)
    assert len(cases) >= 110
    assert {case.group for case in cases} >= {"python", "node", "git", "shell", "system", "network", "build"}
    assert all(case.base for case in cases)
    # A normaliser that takes everything away would make any two sides the same.
    words = "exit 3: 5 files, root agent x-y /usr/bin/git 127.0.0.1\n"
    for case in cases:
        for rule in case.normalise:
            assert rule.match.sub(rule.to, words) == words, case.name


def test_a_person_sees_both_outputs_of_a_difference() -> None:
    from rich.console import Console

    console = Console(record=True, width=100, quiet=True)
    console.quiet = False
    with console.capture() as said:
        report.show([judge(CASE, GOOD, Result(1, b"else\n", said="refused")), Outcome(CASE, "absent")], console)
    for word in (
        "exit status: 0 bare, 1 inside",
        "out",
        "else",
        "refused",
        "100.00%",
        "FAILS",
        "not on this machine: c",
    ):
        assert word in said.get()

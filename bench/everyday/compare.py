"""Compares the two sides of a case. Pure.

What every case may differ in are the three places that the inside has under other names: the work directory, the home
and the directory for temporary files, which `sides` hands over by their exact paths. All else is a normaliser of the
case's own, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from everyday.cases import Case, Rule

TARGET = 0.01


class Result(NamedTuple):
    """One side. `places`: path on this side -> its name inside. `said`: what Remit itself says, refusals among it."""

    exit: int
    stdout: bytes
    stderr: bytes = b""
    files: Mapping[str, bytes] = {}
    places: Mapping[str, str] = {}
    said: str = ""


class Outcome(NamedTuple):
    """`state`: same; different; intended (refused on purpose, says the case); absent (a tool is not on this machine);
    broken (one side is not what the case says of it)."""

    case: Case
    state: str
    differs: tuple[str, ...] = ()
    bare: Result | None = None
    inside: Result | None = None
    absent: tuple[str, ...] = ()


def judge(case: Case, bare: Result, inside: Result) -> Outcome:
    if bare.exit != case.exit:
        return Outcome(case, "broken", (f"the bare run ended with {bare.exit}, not {case.exit}",), bare, inside)
    differs = differences(bare, inside, case.normalise)
    if case.intended:
        if differs:
            return Outcome(case, "intended", differs, bare, inside)
        return Outcome(case, "broken", ("it is said to be refused on purpose, and nothing differs",), bare, inside)
    if case.known and not differs:
        return Outcome(case, "broken", ("it is said to differ, and nothing does",), bare, inside)
    return Outcome(case, "different" if differs else "same", differs, bare, inside)


def differences(bare: Result, inside: Result, rules: Sequence[Rule]) -> tuple[str, ...]:
    """What of the two is not the same, in words; empty if nothing is."""
    found = []
    if bare.exit != inside.exit:
        found.append(f"exit status: {bare.exit} bare, {inside.exit} inside")
    if normal(bare.stdout, bare.places, rules) != normal(inside.stdout, inside.places, rules):
        found.append("standard output")
    for name in sorted(bare.files.keys() | inside.files.keys()):
        if name not in inside.files:
            found.append(f"kept file {name}: bare only")
        elif name not in bare.files:
            found.append(f"kept file {name}: inside only")
        elif normal(bare.files[name], bare.places, rules) != normal(inside.files[name], inside.places, rules):
            found.append(f"kept file {name}: content")
    return tuple(found)


def normal(raw: bytes, places: Mapping[str, str], rules: Sequence[Rule]) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    for path in sorted(places, key=len, reverse=True):
        text = text.replace(path, places[path])
    for rule in rules:
        text = rule.match.sub(rule.to, text)
    return text


def rate(outcomes: Sequence[Outcome]) -> float:
    """Of the cases that ran on both sides and are not to be refused, how many differ. With none: 1, not a green 0."""
    ran = [outcome for outcome in outcomes if outcome.state in ("same", "different")]
    return sum(outcome.state == "different" for outcome in ran) / len(ran) if ran else 1.0


def passes(outcomes: Sequence[Outcome]) -> bool:
    return rate(outcomes) <= TARGET and not any(outcome.state == "broken" for outcome in outcomes)

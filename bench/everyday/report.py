"""What a person, or a program, is told of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from everyday.compare import TARGET, Outcome, Result, passes, rate

_STATES = ("same", "different", "intended", "broken", "absent")
_COLUMNS = ("same", "different", "refused on purpose", "broken", "not on this machine")
_SHOWN = 1500


def as_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "rate": rate(outcomes),
        "target": TARGET,
        "passes": passes(outcomes),
        "counts": Counter(outcome.state for outcome in outcomes),
        "cases": [
            {
                "name": outcome.case.name,
                "group": outcome.case.group,
                "state": outcome.state,
                "differs": outcome.differs,
                "absent": outcome.absent,
                "why": outcome.case.known or outcome.case.intended,
                "normalised": [rule.why for rule in outcome.case.normalise],
                **({} if outcome.state == "same" else {"bare": _side(outcome.bare), "inside": _side(outcome.inside)}),
            }
            for outcome in outcomes
        ],
    }


def _side(result: Result | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "exit": result.exit,
        "stdout": result.stdout.decode("utf-8", "backslashreplace"),
        "stderr": result.stderr.decode("utf-8", "backslashreplace"),
        "refused": result.said,
    }


def show(outcomes: Sequence[Outcome], console: Console) -> None:
    for outcome in outcomes:
        if outcome.state in ("different", "intended", "broken"):
            _difference(outcome, console)
    groups = Table("group", "cases", *_COLUMNS, title="everyday commands")
    for name in dict.fromkeys(outcome.case.group for outcome in outcomes):
        groups.add_row(name, *_numbers([outcome for outcome in outcomes if outcome.case.group == name]))
    groups.add_section()
    groups.add_row("all", *_numbers(outcomes))
    console.print(groups)
    for outcome in outcomes:
        if outcome.state == "absent":
            console.print(Text(f"not on this machine: {outcome.case.name} ({', '.join(outcome.absent)})"))
    verdict = "passes" if passes(outcomes) else "FAILS"
    console.print(
        Text(
            f"differs inside: {rate(outcomes):.2%} of what is not refused on purpose; target <= {TARGET:.0%}: {verdict}"
        )
    )


def _numbers(outcomes: Sequence[Outcome]) -> list[str]:
    counts = Counter(outcome.state for outcome in outcomes)
    return [str(len(outcomes)), *(str(counts[state]) for state in _STATES)]


def _difference(outcome: Outcome, console: Console) -> None:
    console.rule(Text(f"{outcome.case.group}: {outcome.case.name}: {outcome.state}"), align="left")
    console.print(Text("\n".join(outcome.differs)))
    if outcome.case.known or outcome.case.intended:
        console.print(Text(f"why: {outcome.case.known or outcome.case.intended}"))
    for label, result in (("bare", outcome.bare), ("inside", outcome.inside)):
        if result is not None:
            console.print(Text(f"--- {label}: exit {result.exit}\n{_tail(result.stdout)}{_tail(result.stderr)}"))
            if result.said:
                console.print(Text(f"refused: {result.said[:_SHOWN]}"))


def _tail(raw: bytes) -> str:
    text = raw.decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN else f"... {text[-_SHOWN:]}"

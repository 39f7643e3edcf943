"""What the broker itself answers, as data: the bodies are the same whichever HTTP carries them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from remit.policy.decide import Decision

_WITHOUT = "do without it"


class Answer(NamedTuple):
    """A whole response: `body` is JSON."""

    status: int
    body: bytes


def denied(what: str, decision: Decision, ask_for: str = "network.allow") -> Answer:
    """A request, or a connection on which nothing was asked yet, that the remit refuses."""
    steps = [_WITHOUT, f"or ask for a rule that allows it: {ask_for} in the remit"]
    said = {"error": "refused by the remit", "request": what, "rule": decision.rule, "reason": decision.reason}
    return _answer(403, said, steps)


def refused(status: int, reason: str) -> Answer:
    """No request that could be decided."""
    said = {"error": "refused by the broker", "reason": reason}
    return _answer(status, said, ["send a request that is read in one way"])


def unreachable(what: str, reason: str) -> Answer:
    """A request to a server that did not prove to be the one that was asked for."""
    said = {"error": "the server can't be spoken to", "request": what, "reason": reason}
    return _answer(502, said, ["nothing was sent to it", "its operator must put it right"])


def _answer(status: int, said: Mapping[str, str], steps: Sequence[str]) -> Answer:
    return Answer(status, json.dumps({**said, "next_steps": steps}).encode() + b"\n")

"""The fields of a remit and how each narrows: what a child may say when its base has spoken.

Rules of this room: pure. Every field has one order, from nothing to everything. `within` must be sound and need not be
complete: what is not provably narrower counts as wider, and the author can say so by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.policy import covers

Covers = Callable[[Any, Any], bool]
"""(base_entry, child_entry): is everything that the second grants granted by the first?"""


@dataclass(frozen=True, slots=True)
class Field:
    """`within(child, base)`: does the child grant no more? `meet(a, b)`: what both allow, None if nothing is.
    `fold(child, base)`: the value once the child is known to be within. `entry`: for lists of grants, whether one
    entry covers another."""

    within: Callable[[Any, Any], bool]
    meet: Callable[[Any, Any], Any]
    fold: Callable[[Any, Any], Any] = lambda child, base: child
    entry: Covers | None = None

    def excess(self, child: Any, base: Any) -> int | None:
        """The index of the first entry that grants more; None if the field is no list of grants."""
        if self.entry is None or not isinstance(child, tuple):
            return None
        for i, item in enumerate(child):
            if not any(self.entry(b, item) for b in base):
                return i
        return None


def _ordered(*order: str) -> Field:
    """Words from the strictest to the widest."""
    return Field(lambda c, b: order.index(c) <= order.index(b), lambda a, b: min(a, b, key=order.index))


def _entries(entry: Covers) -> Field:
    """Lists of grants."""

    def within(child: tuple[Any, ...], base: tuple[Any, ...]) -> bool:
        return all(any(entry(b, c) for b in base) for c in child)

    def meet(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [x for x in a if any(entry(y, x) for y in b)]
        return (*kept, *(y for y in b if any(entry(x, y) for x in a) and not any(entry(k, y) for k in kept)))

    return Field(within, meet, entry=entry)


def _union(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*a, *(x for x in b if x not in a))


def _merged(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, str]:
    return {**a, **b}


_NUMBER = Field(lambda c, b: bool(c <= b), min)
_CAP = Field(
    lambda c, b: b is None or (c is not None and bool(c <= b)),
    lambda a, b: min((x for x in (a, b) if x is not None), default=None),
)
"""A number, or None for as much as there is."""
_ADDS = Field(lambda c, b: True, _union, lambda c, b: _union(b, c))
"""Restrictions and labels: a child can add to them and take none away, so it can't widen here."""

FIELDS: dict[str, Field] = {
    "least_tier": _ordered("full", "delegated", "partial"),
    "labels": _ADDS,
    # Less on record than the base wants is more than it granted.
    "observe": _ordered("open", "exec+connect", "none"),
    "process.exec": _entries(covers.program),
    "process.work_code": _ordered("none", "install", "run"),
    "process.memfd": Field(lambda c, b: b or not c, lambda a, b: a and b),
    # It runs inside the same boundaries, but what it leaves is executable: another command is another grant.
    "process.install": Field(lambda c, b: bool(c == b), lambda a, b: a if a == b else ()),
    # Not a grant: the values are the author's own, and nothing of the caller's passes by them.
    "process.env.set": Field(lambda c, b: True, _merged, lambda c, b: _merged(b, c)),
    "process.env.pass": _entries(covers.same),
    "filesystem.read": _entries(covers.read),
    "filesystem.work.from": Field(lambda c, b: bool(c == b), lambda a, b: a if a == b else None),
    "filesystem.deny": _ADDS,
    "network.allow": _entries(covers.network),
    "network.limits.connections": _NUMBER,
    "network.limits.new_connections": _CAP,
    "network.limits.up": _CAP,
    "network.limits.down": _CAP,
    "network.limits.speed": _CAP,
    # Another way out hears what is said, and judges in another's place.
    "network.upstream": Field(lambda c, b: bool(c == b), lambda a, b: a if a == b else None),
    "tools.allow": _entries(covers.tool),
    "tools.deny": _ADDS,
    # `ask` speaks only of what `allow` covers (see `decide`), so more of it is less.
    "tools.ask": _ADDS,
    "credentials.use": _entries(covers.credential),
    "state.keep": _entries(covers.pattern),
    # Another place to write to on the host is another grant; a directory below it is not.
    "state.to": Field(covers.below, lambda a, b: a if covers.below(a, b) else b if covers.below(b, a) else None),
    "limits.cpu": _NUMBER,
    "limits.cpu_time": _NUMBER,
    "limits.memory": _NUMBER,
    "limits.processes": _NUMBER,
    "limits.wall": _NUMBER,
    "limits.disk": _NUMBER,
    "limits.files": _NUMBER,
    "limits.output": _NUMBER,
    "limits.open_files": _NUMBER,
}
"""By dotted name, as `unsafe_widen` names them."""

NEVER_WIDER = ("labels", "process.env.set", "filesystem.deny", "tools.deny", "tools.ask")
"""Fields in which nothing that a child says grants more."""

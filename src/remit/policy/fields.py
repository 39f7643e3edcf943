"""The fields of a remit and how each narrows: what a child may say when its base has spoken.

Rules of this room: pure. Every field has one order, from nothing to everything. `meet` is what two documents both
allow; `within` says whether one value grants no more than another. A field that is absent says nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from remit.policy.model import ReadGrant

_WORK_CODE = ("none", "install", "run")
_TIERS = ("full", "delegated", "partial")
_OBSERVE = ("none", "exec+connect", "open")


@dataclass(frozen=True, slots=True)
class Field:
    """`within(child, base)`: does the child grant no more? `meet(a, b)`: what both allow. `fold(child, base)`: the
    value once the child is known to be within (or widens by its word)."""

    within: Callable[[Any, Any], bool]
    meet: Callable[[Any, Any], Any]
    fold: Callable[[Any, Any], Any] = lambda child, base: child


def _ordered(order: tuple[str, ...]) -> Field:
    """Words from the strictest to the widest."""
    return Field(lambda c, b: order.index(c) <= order.index(b), lambda a, b: min(a, b, key=order.index))


def _entries(covers: Callable[[Any, Any], bool]) -> Field:
    """Lists of grants. `covers(base_entry, child_entry)`."""

    def within(child: tuple[Any, ...], base: tuple[Any, ...]) -> bool:
        return all(any(covers(b, c) for b in base) for c in child)

    def meet(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
        kept = [x for x in a if any(covers(y, x) for y in b)]
        return (*kept, *(y for y in b if y not in kept and any(covers(x, y) for x in a)))

    return Field(within, meet)


def _union(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*a, *(x for x in b if x not in a))


def covers_program(base: str, child: str) -> bool:
    return base.removesuffix("?") == child.removesuffix("?")


def covers_glob(base: str, child: str) -> bool:
    """Sound, not complete: what is not provably within counts as wider."""
    if base in (child, "**"):
        return True
    if ".." in child.split("/"):
        return False
    if base.endswith("/**"):
        stem = base[:-2]
        return not any(c in stem for c in "*?[{!") and child.startswith(stem)
    return False


def covers_read(base: ReadGrant, child: ReadGrant) -> bool:
    if base == child:
        return True
    rest = posixpath.relpath(child.source, base.source)
    return not rest.startswith("..") and child.to == posixpath.normpath(posixpath.join(base.to, rest))


_NUMBER = Field(lambda c, b: c <= b, min)
_EQUAL = _entries(lambda b, c: bool(b == c))
_ADDS = Field(lambda c, b: True, _union, lambda c, b: _union(b, c))
_FREE = Field(lambda c, b: True, lambda a, b: b)

FIELDS: dict[str, Field] = {
    "least_tier": _ordered(_TIERS),
    "labels": _ADDS,
    "process.exec": _entries(covers_program),
    "process.work_code": _ordered(_WORK_CODE),
    "process.memfd": Field(lambda c, b: b or not c, lambda a, b: a and b),
    # Not a grant: what the operator sets, the operator may set again.
    "process.env.set": Field(lambda c, b: True, lambda a, b: {**a, **b}, lambda c, b: {**b, **c}),
    "process.env.pass": _EQUAL,
    "filesystem.read": _entries(covers_read),
    "filesystem.work.from": Field(lambda c, b: bool(c == b), lambda a, b: a if a == b else None),
    "filesystem.deny": _ADDS,
    "network.allow": _EQUAL,
    "tools.allow": _EQUAL,
    "tools.deny": _ADDS,
    "tools.ask": _ADDS,
    "credentials.use": _EQUAL,
    "state.keep": _entries(covers_glob),
    "state.to": _FREE,
    "limits.cpu": _NUMBER,
    "limits.cpu_time": _NUMBER,
    "limits.memory": _NUMBER,
    "limits.processes": _NUMBER,
    "limits.wall": _NUMBER,
    "limits.disk": _NUMBER,
    "limits.files": _NUMBER,
    "limits.output": _NUMBER,
    "limits.open_files": _NUMBER,
    # More observation is never a grant, and less is the operator's choice.
    "observe": Field(lambda c, b: True, lambda a, b: max(a, b, key=_OBSERVE.index)),
}
"""By dotted name, as `unsafe_widen` names them."""

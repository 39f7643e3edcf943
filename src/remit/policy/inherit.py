"""`extends`: folds bases into a document, which may only narrow them.

Rules of this room: pure. A field that a base leaves out is open; one that it names is a ceiling. Several bases meet:
what all of them allow. To grant more takes `unsafe_widen` with the field's name, and a name there that is not needed is
a fault too, so that no permission outlives its reason. Other documents come through `read`; nothing here opens a file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy import bases, document, places, schema, units
from remit.policy.document import Document, Path
from remit.policy.fields import FIELDS
from remit.policy.parts import Entry, Parts, parts

MAX_DEPTH = 8
"""Documents that extend one another in a row."""
MAX_DOCUMENTS = 64
"""In all: lists of bases could otherwise multiply at every step."""

Read = Callable[[str], str | bytes]
"""An absolute path of another remit to its text. Raises OSError."""


@dataclass(slots=True)
class Folding:
    """One load. `documents` in the order in which they were met; `widened`: what some document widened by its word."""

    read: Read
    home: str
    documents: list[Document] = field(default_factory=list)
    widened: set[str] = field(default_factory=set)

    def parse(self, text: str | bytes, source: str) -> Document:
        parsed = document.parse(text, source)
        schema.validate(parsed)
        self.documents.append(parsed)
        return parsed

    def fold(self, doc: Document, directory: str | None, chain: tuple[str, ...]) -> Parts:
        """`doc` with its bases in it. `directory`: what its relative paths start from; None for a built-in base.
        `chain`: the documents that led here, itself last. Raises `PolicyError`."""
        own = parts(doc, directory, self.home)
        extends = doc.data.get("extends", [])
        named = [(("extends",), extends)] if isinstance(extends, str) else _numbered(extends)
        base: Parts = {}
        for path, name in named:
            other = self.base(doc, path, name, directory, chain)
            base = _met(base, other, doc, path)
        return self.narrowed(doc, own, base)

    def base(self, doc: Document, path: Path, name: str, directory: str | None, chain: tuple[str, ...]) -> Parts:
        def fail(code: str, message: str, hint: str | None = None) -> PolicyError:
            return PolicyError((doc.problem(path, code, message, hint),))

        if len(chain) >= MAX_DEPTH:
            raise fail("E_CHAIN", f"more than {MAX_DEPTH} remits extend one another", "flatten the chain")
        if len(self.documents) >= MAX_DOCUMENTS:
            raise fail("E_CHAIN", f"more than {MAX_DOCUMENTS} remits in all", "extend fewer of them")
        if not name.startswith(("./", "../", "/", "~/")):
            text: str | bytes | None = bases.text(name)
            if text is None:
                raise fail("E_BASE", f"there is no built-in base '{name}'", bases.suggestion(name))
            return self.fold(self.parse(text, f"built-in {name}"), None, (*chain, name))
        if directory is None:
            raise fail("E_BASE", "a built-in base extends built-in bases alone")
        where = places.absolute(name, directory, self.home)
        if where in chain:
            steps = " -> ".join((*chain[chain.index(where) :], where))
            raise fail("E_CYCLE", f"{where} extends itself: {steps}", "remove one `extends`")
        try:
            text = self.read(where)
        except OSError as error:
            hint = "the path starts from the directory of this file"
            raise fail("E_BASE", f"{where}: {error.strerror or error}", hint) from error
        except ValueError as error:
            raise fail("E_BASE", f"{where} can't be read: {error}") from error
        return self.fold(self.parse(text, where), posixpath.dirname(where), (*chain, where))

    def narrowed(self, doc: Document, own: Parts, base: Parts) -> Parts:
        allowed: list[str] = doc.data.get("unsafe_widen", [])
        problems: list[Problem] = []
        used: set[str] = set()
        merged = dict(base)
        for key, entry in own.items():
            before = base.get(key)
            if before is None:
                merged[key] = entry
            elif FIELDS[key].within(entry.value, before.value):
                merged[key] = Entry(FIELDS[key].fold(entry.value, before.value), entry.document, entry.path)
            elif key in allowed:
                used.add(key)
                merged[key] = entry
            else:
                problems.append(_widens(key, entry, before))
        for i, key in enumerate(allowed):
            if key not in used:
                path: Path = ("unsafe_widen", i)
                message = f"unsafe_widen names {key}, which grants no more here than its base"
                problems.append(
                    doc.problem(path, "E_UNUSED_WIDEN", message, "remove it: it would hide a mistake later")
                )
        if problems:
            raise PolicyError(tuple(sorted(problems, key=lambda p: (p.line, p.column))))
        self.widened |= used
        return merged


def _numbered(names: Iterable[str]) -> list[tuple[Path, str]]:
    return [(("extends", i), name) for i, name in enumerate(names)]


_ONE_ALONE = {"state.to": "keep files in different places", "network.upstream": "reach the world by different proxies"}


def _met(a: Parts, b: Parts, doc: Document, path: Path) -> Parts:
    """What both allow. Raises `PolicyError` where that can't be said."""
    met = {**a, **b}
    for key in a.keys() & b.keys():
        value = FIELDS[key].meet(a[key].value, b[key].value)
        if value is None and key in _ONE_ALONE:
            message = f"{a[key].document.source} and {b[key].document.source} {_ONE_ALONE[key]}"
            raise PolicyError((doc.problem(path, "E_CONFLICT", message, "extend one of them"),))
        # The one that the value is nearer to is the one to name when a child goes beyond it.
        nearer = a[key] if value == a[key].value else b[key]
        met[key] = Entry(value, nearer.document, nearer.path)
    return met


def _widens(key: str, entry: Entry, before: Entry) -> Problem:
    base = before.document.source
    at = FIELDS[key].excess(entry.value, before.value)
    granted = f"which says {shown(key, before.value)}"
    if at is None:
        path, message = entry.path, f"{key}: {shown(key, entry.value)} is more than its base {base} grants, {granted}"
    else:
        path = (*entry.path, at)
        message = f"{key}: {shown(key, (entry.value[at],))[1:-1]} is not granted by its base {base}, {granted}"
    if key in ("observe", "least_tier"):
        message = f"{key}: {entry.value} is less than its base {base} wants, {granted}"
    hint = f"narrow it, or take the responsibility by adding `unsafe_widen: [{key}]`"
    said = entry.document.data.get("unsafe_widen", [])
    if said:
        hint = f"narrow it, or take the responsibility: `unsafe_widen: [{', '.join([*said, key])}]`"
    return entry.document.problem(path, "E_WIDENS", message, hint)


_BYTES = tuple(f"limits.{name}" for name in ("memory", "disk", "output")) + tuple(
    f"network.limits.{name}" for name in ("up", "down", "speed")
)


def shown(key: str, value: Any) -> str:
    """A field's value as a person would write it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(_entry(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is not None and key in _BYTES:
        return units.show_size(value).replace(" ", "")
    if key in ("limits.wall", "limits.cpu_time"):
        return units.show_duration(value).replace(" ", "")
    return "nothing" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _entry(item: Any) -> str:
    for name in ("source", "tool", "name"):
        if hasattr(item, name):
            return str(getattr(item, name))
    return str(getattr(item, "host", "") or getattr(item, "cidr", "") or item)

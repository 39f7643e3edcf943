"""From text to an effective remit: parse, validate, fold the bases in, refuse what widens or can't be enforced yet.

Rules of this room: pure. Other documents come through `read`; nothing here opens a file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy import bases, document, schema
from remit.policy.digest import digest
from remit.policy.document import Document
from remit.policy.fields import FIELDS
from remit.policy.model import Effective, Filesystem, Limits, Process, Remit, State, Tools
from remit.policy.parts import Entry, Parts, parts

MAX_CHAIN = 8

Read = Callable[[str], str | bytes]
"""An absolute path of another remit to its text. Raises OSError."""

_LATER = {
    "network.allow": ("egress", "network"),
    "tools.allow": ("the tool gateway", "tools"),
    "tools.ask": ("the tool gateway", "tools"),
    "tools.deny": ("the tool gateway", "tools"),
    "credentials.use": ("the credential broker", "credentials"),
}
_BOUNDARIES = ("process", "filesystem", "network", "tools", "credentials", "state")


def load(text: str | bytes, source: str, directory: str, read: Read, *, home: str) -> Effective:
    """The effective remit of `text`. `source` is what messages call it; `directory` (absolute) is what its relative
    paths start from. Raises `PolicyError` with every problem of the first document at fault."""
    loading = _Loading(read, home)
    top = loading.document(text, source)
    if "agent" not in top.data:
        raise PolicyError((top.problem((), "E_MISSING", "the remit lacks 'agent'", "add `agent: my-agent`"),))
    merged = loading.fold(top, directory, (source,))
    problems = _not_yet(merged, loading.documents)
    if problems:
        raise PolicyError(tuple(problems))
    remit = _remit(top, merged, directory)
    sources = tuple(doc.source for doc in loading.documents)
    return Effective(remit, digest(remit), sources, tuple(sorted(loading.widened)))


@dataclass(slots=True)
class _Loading:
    read: Read
    home: str
    documents: list[Document] = field(default_factory=list)
    widened: set[str] = field(default_factory=set)

    def document(self, text: str | bytes, source: str) -> Document:
        parsed = document.parse(text, source)
        schema.validate(parsed)
        self.documents.append(parsed)
        return parsed

    def fold(self, doc: Document, directory: str | None, chain: tuple[str, ...]) -> Parts:
        own = parts(doc, directory, self.home)
        extends = doc.data.get("extends", [])
        names = [extends] if isinstance(extends, str) else extends
        base: Parts = {}
        for i, name in enumerate(names):
            path = ("extends", i) if not isinstance(extends, str) else ("extends",)
            other = self.base(doc, path, name, directory, chain)
            base = {
                key: _met(key, base[key], other[key]) if key in base and key in other else base.get(key, other.get(key))
                for key in {**base, **other}
            }
        return self.narrow(doc, own, base, names)

    def base(
        self, doc: Document, path: tuple[str | int, ...], name: str, directory: str | None, chain: tuple[str, ...]
    ) -> Parts:
        def fail(code: str, message: str, hint: str | None = None) -> PolicyError:
            return PolicyError((doc.problem(path, code, message, hint),))

        if len(chain) > MAX_CHAIN:
            raise fail("E_CHAIN", f"more than {MAX_CHAIN} remits extend one another", "flatten the chain")
        if not name.startswith(("./", "../", "/")):
            text = bases.text(name)
            if text is None:
                raise fail("E_BASE", f"there is no built-in base '{name}'", bases.suggestion(name))
            return self.fold(self.document(text, f"built-in {name}"), None, (*chain, name))
        if directory is None:
            raise fail("E_BASE", "a built-in base extends built-in bases alone")
        where = posixpath.normpath(posixpath.join(directory, name))
        if where in chain:
            raise fail("E_CYCLE", f"{where} extends itself: {' -> '.join((*chain, where))}", "remove one `extends`")
        try:
            text = self.read(where)
        except OSError as error:
            raise fail("E_BASE", f"{where}: {error.strerror or error}", "paths start from this file") from error
        return self.fold(self.document(text, where), posixpath.dirname(where), (*chain, where))

    def narrow(self, doc: Document, own: Parts, base: Parts, names: list[str]) -> Parts:
        allowed = doc.data.get("unsafe_widen", [])
        problems: list[Problem] = []
        used: set[str] = set()
        merged = dict(base)
        for key, entry in own.items():
            if key not in base:
                merged[key] = entry
                continue
            rule, before = FIELDS[key], base[key]
            wider = not rule.within(entry.value, before.value)
            if wider and key not in allowed:
                hint = f"narrow it, or say so by name: unsafe_widen: [{key}]"
                message = f"{key} grants more than its base {' and '.join(names)}, which says {_shown(before.value)}"
                problems.append(entry.problem("E_WIDENS", message, hint))
            elif wider:
                used.add(key)
                merged[key] = entry
            else:
                merged[key] = Entry(rule.fold(entry.value, before.value), entry.document, entry.path)
        for i, key in enumerate(allowed):
            if key not in used:
                message = f"unsafe_widen names {key}, which does not widen anything here"
                problems.append(doc.problem(("unsafe_widen", i), "E_UNUSED_WIDEN", message, "remove it"))
        if problems:
            raise PolicyError(tuple(sorted(problems, key=lambda p: (p.line, p.column))))
        self.widened |= used
        return merged


def _met(key: str, a: Entry, b: Entry) -> Entry:
    return Entry(FIELDS[key].meet(a.value, b.value), b.document, b.path)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(str(getattr(item, "to", item)) for item in value) + "]"
    return str(value)


def _not_yet(merged: Parts, documents: list[Document]) -> list[Problem]:
    """What the schema knows and no mechanism enforces yet is refused, never ignored."""
    problems: list[Problem] = []
    for key, (what, boundary) in _LATER.items():
        if key in merged and merged[key].value:
            message = f"{key}: {what} is not part of this version, so this can't be enforced"
            hint = f"leave {boundary} out (nothing is then allowed) until a version that has it"
            problems.append(merged[key].problem("E_NOT_YET", message, hint))
    for doc in documents:
        for path in [("mode",), *((boundary, "mode") for boundary in _BOUNDARIES)]:
            value: Any = doc.data
            for step in path:
                value = value.get(step, {}) if isinstance(value, Mapping) else {}
            if isinstance(value, str) and value != "enforce":
                message = f"{'.'.join(path)}: '{value}' is not part of this version; everything is enforced"
                problems.append(doc.problem(path, "E_NOT_YET", message, "say `enforce`, or leave it out"))
    return problems


def _remit(top: Document, merged: Parts, directory: str) -> Remit:
    def said(name: str, default: Any) -> Any:
        return merged[name].value if name in merged else default

    usual = Limits()
    process = Process(
        said("process.exec", ()),
        said("process.work_code", "none"),
        said("process.memfd", False),
        said("process.env.set", {}),
        said("process.env.pass", ()),
    )
    limits = Limits(
        float(said("limits.cpu", usual.cpu)),
        said("limits.cpu_time", None),
        said("limits.memory", usual.memory),
        said("limits.processes", usual.processes),
        said("limits.wall", usual.wall_ms),
        said("limits.disk", usual.disk),
        said("limits.files", usual.files),
        said("limits.output", usual.output),
        said("limits.open_files", usual.open_files),
    )
    return Remit(
        agent=top.data["agent"],
        description=top.data.get("description", ""),
        least_tier=said("least_tier", "delegated"),
        labels=tuple(sorted(said("labels", ()))),
        process=process,
        filesystem=Filesystem(
            said("filesystem.read", ()), said("filesystem.work.from", None), said("filesystem.deny", ())
        ),
        network=said("network.allow", ()),
        tools=Tools(said("tools.allow", ()), said("tools.deny", ()), said("tools.ask", ())),
        credentials=said("credentials.use", ()),
        state=State(said("state.keep", ()), said("state.to", posixpath.join(directory, "kept"))),
        limits=limits,
        observe=said("observe", "exec+connect"),
    )

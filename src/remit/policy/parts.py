"""One document's own words as values: units resolved, paths absolute; absent fields stay absent.

Rules of this room: pure. Paths are computed on text; whether they exist is found when a sandbox starts.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy import units
from remit.policy.document import Document, Path
from remit.policy.model import WORK, CredentialGrant, NetworkRule, ReadGrant, ToolRule

_NOT_INPUTS = ("/", "/proc", "/sys", "/dev", "/etc", "/usr", "/home", "/tmp")  # noqa: S108
"""Whole directories that the root itself is made of, or that hold everybody's; parts of them can be granted."""
_NEVER = ("/proc", "/sys", "/dev")
"""Below these, nothing: they are the kernel's."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A field's value and where it was said."""

    value: Any
    document: Document
    path: Path

    def problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        return self.document.problem(self.path, code, message, hint)


Parts = dict[str, Entry]
"""By dotted name: the fields that were said."""


def parts(document: Document, directory: str | None, home: str) -> Parts:
    """`directory`: what relative paths are relative to; None for a built-in base, which names no paths.
    Raises `PolicyError` for paths that can't be meant."""
    found: Parts = {}
    problems: list[Problem] = []

    def put(name: str, path: Path, value: Any) -> None:
        found[name] = Entry(value, document, path)

    def place(path: Path, text: str) -> str:
        try:
            return absolute(text, directory, home)
        except ValueError as error:
            problems.append(document.problem(path, "E_PATH", str(error), "write ./name, /name or ~/name"))
            return "/nonexistent"

    data = document.data
    for name in ("least_tier", "labels", "observe"):
        if name in data:
            put(name, (name,), tuple(data[name]) if isinstance(data[name], list) else data[name])
    process: Mapping[str, Any] = data.get("process", {})
    for key in ("exec", "work_code", "memfd"):
        if key in process:
            value = process[key]
            put(f"process.{key}", ("process", key), tuple(value) if key == "exec" else value)
    for key, value in process.get("env", {}).items():
        put(f"process.env.{key}", ("process", "env", key), tuple(value) if key == "pass" else dict(value))

    files: Mapping[str, Any] = data.get("filesystem", {})
    if "read" in files:
        grants = []
        for i, item in enumerate(files["read"]):
            at: Path = ("filesystem", "read", i)
            grant = _read_grant(item, lambda text, at=at: place(at, text), directory)
            reason = _bad_place(grant)
            if reason:
                problems.append(document.problem(at, "E_PATH", reason, "grant the part that is needed"))
            grants.append(grant)
        put("filesystem.read", ("filesystem", "read"), tuple(grants))
    if "from" in files.get("work", {}):
        at = ("filesystem", "work", "from")
        source = place(at, files["work"]["from"])
        if source == "/" or source.startswith(tuple(f"{d}/" for d in _NEVER)) or source in _NEVER:
            problems.append(document.problem(at, "E_PATH", f"{source} can't lie below the work directory"))
        put("filesystem.work.from", at, source)
    if "deny" in files:
        put("filesystem.deny", ("filesystem", "deny"), tuple(files["deny"]))

    if "allow" in data.get("network", {}):
        rules = tuple(
            NetworkRule(
                r.get("host", ""),
                r.get("cidr", ""),
                tuple(r["ports"]),
                tuple(r.get("methods", ())),
                tuple(r.get("paths", ())),
            )
            for r in data["network"]["allow"]
        )
        put("network.allow", ("network", "allow"), rules)
    for key in ("allow", "deny", "ask"):
        if key in data.get("tools", {}):
            tools = tuple(ToolRule(r["server"], r["tool"]) for r in data["tools"][key])
            put(f"tools.{key}", ("tools", key), tools)
    if "use" in data.get("credentials", {}):
        grants_ = tuple(
            CredentialGrant(c["name"], units.duration(c.get("ttl", "10m")), tuple(c.get("hosts", ())))
            for c in data["credentials"]["use"]
        )
        put("credentials.use", ("credentials", "use"), grants_)
    state: Mapping[str, Any] = data.get("state", {})
    if "keep" in state:
        for i, glob in enumerate(state["keep"]):
            if glob.startswith("/") or ".." in glob.split("/"):
                at = ("state", "keep", i)
                message = f"{glob!r} does not stay below the work directory"
                problems.append(document.problem(at, "E_PATH", message, "patterns are relative to /workspace"))
        put("state.keep", ("state", "keep"), tuple(state["keep"]))
    if "to" in state:
        put("state.to", ("state", "to"), place(("state", "to"), state["to"]))
    for key, value in data.get("limits", {}).items():
        put(f"limits.{key}", ("limits", key), _limit(document, key, value, problems))
    if problems:
        raise PolicyError(tuple(problems))
    return found


def _limit(document: Document, key: str, value: Any, problems: list[Problem]) -> Any:
    if key in ("memory", "disk", "output"):
        number = units.size(value)
        least = {"memory": 8 * 1024 * 1024, "disk": 64 * 1024, "output": 1}[key]
        if number < least:
            message = f"limits.{key}: {units.show_size(number)} is less than {units.show_size(least)}"
            problems.append(document.problem(("limits", key), "E_VALUE", message, "nothing would start"))
        return number
    if key in ("wall", "cpu_time"):
        number = units.duration(value)
        if number < 1:
            problems.append(document.problem(("limits", key), "E_VALUE", f"limits.{key} is zero", "say how long"))
        return number
    return value


def absolute(text: str, directory: str | None, home: str) -> str:
    """The host path that `text` means. Raises ValueError."""
    if "\0" in text:
        raise ValueError("a path holds no NUL")
    if text == "~" or text.startswith("~/"):
        return posixpath.normpath(home + text[1:])
    if text.startswith("~"):
        raise ValueError(f"{text!r}: only one's own ~ is read")
    if text.startswith("/"):
        return posixpath.normpath("/" + text.lstrip("/"))
    if directory is None:
        raise ValueError(f"{text!r}: a built-in base names no relative paths")
    return posixpath.normpath(posixpath.join(directory, text))


def _read_grant(item: str | Mapping[str, str], place: Any, directory: str | None) -> ReadGrant:
    if not isinstance(item, str):
        return ReadGrant(place(item["from"]), posixpath.normpath("/" + item["to"].lstrip("/")))
    source = place(item)
    if not item.startswith(("/", "~")) and directory is not None:
        rest = posixpath.relpath(source, directory)
        if rest != "." and not rest.startswith(".."):
            return ReadGrant(source, f"{WORK}/{rest}")
        if rest == ".":
            return ReadGrant(source, f"{WORK}/{posixpath.basename(source)}")
    return ReadGrant(source, source)


def _bad_place(grant: ReadGrant) -> str | None:
    if grant.source in ("/", *_NEVER) or grant.source.startswith(tuple(f"{d}/" for d in _NEVER)):
        return f"{grant.source} can't be an input"
    if grant.to in (*_NOT_INPUTS, WORK) or grant.to.startswith(tuple(f"{d}/" for d in _NEVER)):
        return f"an input can't appear at {grant.to}"
    return None

"""From text to an effective remit: parse, validate, fold the bases in, refuse what can't be enforced yet, fill in the
defaults.

Rules of this room: pure. Other documents come through `read`; nothing here opens a file. Only `PolicyError` is raised,
whatever the text is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy.digest import digest
from remit.policy.document import Document
from remit.policy.inherit import Folding, Read
from remit.policy.model import Effective, Filesystem, Limits, NetworkLimits, Process, Remit, State, Tools
from remit.policy.parts import Parts

_LATER = {
    "tools.allow": ("the tool gateway", "tools"),
    "tools.ask": ("the tool gateway", "tools"),
    "tools.deny": ("the tool gateway", "tools"),
    "credentials.use": ("the credential broker", "credentials"),
}
_BOUNDARIES = ("process", "filesystem", "network", "tools", "credentials", "state")


def load(text: str | bytes, source: str, directory: str, read: Read, *, home: str) -> Effective:
    """The effective remit of `text`. `source` is what messages call it; `directory` (absolute) is what its relative
    paths start from; `home` (absolute) is what ~ means; `read` gives the text of a local base by its absolute path and
    raises OSError. Raises `PolicyError` with every problem of the first document at fault."""
    folding = Folding(read, home)
    top = folding.parse(text, source)
    if "agent" not in top.data:
        raise PolicyError((top.problem((), "E_MISSING", "the remit lacks 'agent'", "add `agent: my-agent`"),))
    here = posixpath.normpath(posixpath.join(directory, posixpath.basename(source)))
    merged = folding.fold(top, directory, (here,))
    problems = _not_yet(merged, folding.documents)
    if problems:
        raise PolicyError(tuple(problems))
    remit = _remit(top, merged, directory)
    sources = tuple(dict.fromkeys(document.source for document in folding.documents))
    return Effective(remit, digest(remit), sources, tuple(sorted(folding.widened)))


def _not_yet(merged: Parts, documents: list[Document]) -> list[Problem]:
    """What the schema knows and no mechanism enforces yet is refused, never ignored."""
    problems: list[Problem] = []
    for key, (what, boundary) in _LATER.items():
        if key in merged and merged[key].value:
            message = f"{key}: {what} is not part of this version, so this can't be enforced"
            hint = f"leave `{boundary}:` out (nothing is then allowed) until a version that has it"
            problems.append(merged[key].problem("E_NOT_YET", message, hint))
    for document in documents:
        for path in [("mode",), *((boundary, "mode") for boundary in _BOUNDARIES)]:
            value: Any = document.data
            for step in path:
                value = value.get(step) if isinstance(value, Mapping) else None
            if value is not None and value != "enforce":
                message = f"{'.'.join(path)}: '{value}' is not part of this version, which enforces everything"
                problems.append(document.problem(path, "E_NOT_YET", message, "say `enforce`, or leave it out"))
    return problems


def _remit(top: Document, merged: Parts, directory: str) -> Remit:
    def said(name: str, default: Any) -> Any:
        return merged[name].value if name in merged else default

    usual = Limits()
    return Remit(
        agent=top.data["agent"],
        description=top.data.get("description", ""),
        least_tier=said("least_tier", "delegated"),
        labels=tuple(sorted(said("labels", ()))),
        process=Process(
            exec=said("process.exec", ()),
            work_code=said("process.work_code", "none"),
            memfd=said("process.memfd", False),
            env_set=said("process.env.set", {}),
            env_pass=said("process.env.pass", ()),
            install=said("process.install", ()),
        ),
        filesystem=Filesystem(
            read=said("filesystem.read", ()),
            work_from=said("filesystem.work.from", None),
            deny=said("filesystem.deny", ()),
        ),
        network=said("network.allow", ()),
        network_limits=NetworkLimits(
            connections=said("network.limits.connections", NetworkLimits().connections),
            new_connections=said("network.limits.new_connections", None),
            up=said("network.limits.up", None),
            down=said("network.limits.down", None),
            speed=said("network.limits.speed", None),
        ),
        upstream=said("network.upstream", None),
        tools=Tools(said("tools.allow", ()), said("tools.deny", ()), said("tools.ask", ())),
        credentials=said("credentials.use", ()),
        state=State(said("state.keep", ()), said("state.to", posixpath.normpath(posixpath.join(directory, "kept")))),
        limits=Limits(
            cpu=said("limits.cpu", usual.cpu),
            cpu_time_ms=said("limits.cpu_time", usual.cpu_time_ms),
            memory=said("limits.memory", usual.memory),
            processes=said("limits.processes", usual.processes),
            wall_ms=said("limits.wall", usual.wall_ms),
            disk=said("limits.disk", usual.disk),
            files=said("limits.files", usual.files),
            output=said("limits.output", usual.output),
            open_files=said("limits.open_files", usual.open_files),
        ),
        observe=said("observe", "exec+connect"),
    )

"""What an agent may try. Rules of this room: pure values; paths absolute and as seen inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Exec:
    """Start the program at `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """Open `path`; `write`: to change, make, remove or rename it."""

    path: str
    write: bool = False


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to `address` (an IP address in text) and `port`."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class ConnectUnix:
    """Connect to a unix socket; a name that starts with '@' is abstract."""

    path: str


@dataclass(frozen=True, slots=True)
class ResolveName:
    name: str


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class CallTool:
    server: str
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UseCredential:
    name: str
    host: str = ""


@dataclass(frozen=True, slots=True)
class KeepFile:
    """Copy `path` (relative to the work directory) out at the end. `kind`: file, directory, symlink or other;
    `size` in bytes."""

    path: str
    kind: str
    size: int


Action = Exec | OpenFile | Connect | ConnectUnix | ResolveName | HttpRequest | CallTool | UseCredential | KeepFile


@dataclass(frozen=True, slots=True)
class Task:
    """One job that somebody asked for. Carried through `decide` so that later rules can speak of it."""

    instruction: str = ""
    user: str = ""
    tenant: str = ""
    request: str = ""

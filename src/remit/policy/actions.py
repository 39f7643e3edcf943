"""What an agent may try.

Rules of this room: pure values; paths absolute and as seen inside. Named tuples, since every start pays for these
definitions; so two actions of different kinds may compare equal: ask for the type first.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Exec(NamedTuple):
    """Start the program at `path`."""

    path: str


class OpenFile(NamedTuple):
    """Open `path`; `write`: to change, make, remove or rename it."""

    path: str
    write: bool = False


class Connect(NamedTuple):
    """Connect to `address` (an IP address in text) and `port`."""

    address: str
    port: int


class ConnectUnix(NamedTuple):
    """Connect to a unix socket; a name that starts with '@' is abstract."""

    path: str


class ResolveName(NamedTuple):
    name: str


class ReachHost(NamedTuple):
    """Connect to `port` of the host called `name`, whatever its address is."""

    name: str
    port: int


class HttpRequest(NamedTuple):
    """`headers`: names in small letters with their values, in order. `body`: bytes that it says it carries; None where
    it does not say."""

    method: str
    host: str
    port: int
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: int | None = 0


class CallTool(NamedTuple):
    server: str
    tool: str
    arguments: Mapping[str, Any] = MappingProxyType({})


class UseCredential(NamedTuple):
    name: str
    host: str = ""


class KeepFile(NamedTuple):
    """Copy `path` (relative to the work directory) out at the end. `kind`: file, directory, symlink or other;
    `size` in bytes."""

    path: str
    kind: str
    size: int


Action = (
    Exec
    | OpenFile
    | Connect
    | ConnectUnix
    | ResolveName
    | ReachHost
    | HttpRequest
    | CallTool
    | UseCredential
    | KeepFile
)


class Task(NamedTuple):
    """One job that somebody asked for. Carried through `decide` so that later rules can speak of it."""

    instruction: str = ""
    user: str = ""
    tenant: str = ""
    request: str = ""

"""A remit, parsed: frozen values with units resolved and paths absolute.

Rules of this room: pure; named tuples, since every start pays for these definitions. `Remit` is always *effective*
(bases folded in, defaults filled): nothing downstream asks what an absent field means. Sizes are bytes, times
milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

WORK = "/workspace"
"""The work directory inside."""

MIB = 1024 * 1024


class ReadGrant(NamedTuple):
    """A read-only input: `source` on the host (absolute; its document's directory is already in it), `to` inside
    (absolute)."""

    source: str
    to: str


class Process(NamedTuple):
    """`exec` as written, a trailing ? kept. `work_code`: none, install or run. `install`: the command that fills the
    prefix; empty for none."""

    exec: tuple[str, ...] = ()
    work_code: str = "none"
    memfd: bool = False
    env_set: Mapping[str, str] = MappingProxyType({})
    env_pass: tuple[str, ...] = ()
    install: tuple[str, ...] = ()


class Filesystem(NamedTuple):
    """`work_from`: a host directory below the work directory, copy on write; None for an empty one."""

    read: tuple[ReadGrant, ...] = ()
    work_from: str | None = None
    deny: tuple[str, ...] = ()


class NetworkRule(NamedTuple):
    """One allowed destination: `host` (exact, or `*.` and a domain) or `cidr`; the other is empty.

    `headers`: names in small letters, each with the values of which it must have one; `max_body` in bytes.
    `allow_private`: networks that are not public and that the name may lead to all the same."""

    host: str
    cidr: str
    ports: tuple[int, ...]
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    headers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    max_body: int | None = None
    allow_private: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Does it allow all that may be said on such a connection, so that nobody needs to read it?"""
        return not self.methods and not self.paths and not self.headers and self.max_body is None


class NetworkLimits(NamedTuple):
    """Of one sandbox. `up`, `down`: bytes in all; `speed`: bytes a second of one connection, both ways together;
    `new_connections` a second. None: as much as the host gives."""

    connections: int = 1024
    new_connections: int | None = None
    up: int | None = None
    down: int | None = None
    speed: int | None = None


class Upstream(NamedTuple):
    """The proxy by which this host reaches the world. `auth_env`, `auth_file`: where `user:password` is, if it wants
    one. `resolve`: who finds the addresses of names, `here` or the `proxy`. `direct`: networks reached without it."""

    host: str
    port: int
    auth_env: str = ""
    auth_file: str = ""
    resolve: str = "here"
    direct: tuple[str, ...] = ()


class ToolRule(NamedTuple):
    """`tool`: a name in which * stands for any part."""

    server: str
    tool: str


class Tools(NamedTuple):
    """`deny` and `ask` speak of what `allow` covers: neither grants anything by itself."""

    allow: tuple[ToolRule, ...] = ()
    deny: tuple[ToolRule, ...] = ()
    ask: tuple[ToolRule, ...] = ()


class CredentialGrant(NamedTuple):
    """`hosts` empty: wherever the network boundary allows."""

    name: str
    provider: str = "env"
    ttl_ms: int = 600_000
    hosts: tuple[str, ...] = ()


class State(NamedTuple):
    """`to`: an absolute directory of the host."""

    keep: tuple[str, ...] = ()
    to: str = ""


class Limits(NamedTuple):
    """`cpu` in processors; `cpu_time_ms` None: only `cpu` and `wall_ms` bound it."""

    cpu: float = 1.0
    cpu_time_ms: int | None = None
    memory: int = 512 * MIB
    processes: int = 64
    wall_ms: int = 300_000
    disk: int = 256 * MIB
    files: int = 20_000
    output: int = 16 * MIB
    open_files: int = 1024


class Remit(NamedTuple):
    """One agent's policy, effective."""

    agent: str
    description: str = ""
    mode: str = "enforce"
    least_tier: str = "delegated"
    labels: tuple[str, ...] = ()
    process: Process = Process()
    filesystem: Filesystem = Filesystem()
    network: tuple[NetworkRule, ...] = ()
    network_limits: NetworkLimits = NetworkLimits()
    upstream: Upstream | None = None
    tools: Tools = Tools()
    credentials: tuple[CredentialGrant, ...] = ()
    state: State = State()
    limits: Limits = Limits()
    observe: str = "exec+connect"

    def as_document(self) -> dict[str, Any]:
        """JSON-ready data in canonical units: what the digest is over."""
        document: dict[str, Any] = _encode(self)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Remit:
        """The inverse of `as_document`. Raises KeyError or TypeError on anything that it did not write."""
        body = dict(document)
        process = dict(body["process"])
        files = dict(body["filesystem"])
        tools = body["tools"]
        body["labels"] = tuple(body["labels"])
        body["process"] = Process(
            tuple(process["exec"]),
            process["work_code"],
            process["memfd"],
            dict(process["env_set"]),
            tuple(process["env_pass"]),
            tuple(process["install"]),
        )
        reads = tuple(ReadGrant(**grant) for grant in files["read"])
        body["filesystem"] = Filesystem(reads, files["work_from"], tuple(files["deny"]))
        body["network"] = tuple(map(_network_rule, body["network"]))
        if "network_limits" in body:
            body["network_limits"] = NetworkLimits(**body["network_limits"])
        if "upstream" in body:
            body["upstream"] = Upstream(**{**body["upstream"], "direct": tuple(body["upstream"]["direct"])})
        body["tools"] = Tools(*(tuple(ToolRule(**rule) for rule in tools[k]) for k in ("allow", "deny", "ask")))
        body["credentials"] = tuple(
            CredentialGrant(c["name"], c["provider"], c["ttl_ms"], tuple(c["hosts"])) for c in body["credentials"]
        )
        body["state"] = State(tuple(body["state"]["keep"]), body["state"]["to"])
        body["limits"] = Limits(**body["limits"])
        return cls(**body)


def _network_rule(said: Mapping[str, Any]) -> NetworkRule:
    lists = {name: tuple(said.get(name, ())) for name in ("ports", "methods", "paths", "allow_private")}
    headers = tuple((name, tuple(values)) for name, values in said.get("headers", ()))
    return NetworkRule(**{**said, **lists, "headers": headers})


_LATER = {"headers", "max_body", "allow_private", "network_limits", "upstream"}
"""Said only where they say something: a remit without them keeps the digest that it had before there were any."""


def _encode(value: Any) -> Any:
    names = getattr(value, "_fields", None)
    if names is not None:
        usual = value._field_defaults
        said = zip(names, value, strict=True)
        return {name: _encode(item) for name, item in said if name not in _LATER or item != usual[name]}
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


class Effective(NamedTuple):
    """A remit with its origin: `sources` names every document that it came from, the outermost first; `widened` the
    fields in which a document granted more than its base, by its own word."""

    remit: Remit
    digest: str
    sources: tuple[str, ...]
    widened: tuple[str, ...] = ()

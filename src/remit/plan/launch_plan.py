"""The launch plan: everything that the launcher does, as frozen data with a version.

Rules of this room: pure values, as named tuples (a dataclass costs 0.6 ms to define, and there are twenty).
`as_document` gives what `contracts/launch-plan.v1.schema.json` describes and the launcher reads; `from_document` is its
inverse, so that golden fixtures hold both languages to one shape.
Paths of the host are `source`; all others are as seen inside: absolute, normalised, parents first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from remit.errors import UsageError
from remit.plan.template import Stamp

VERSION = 1


class Dir(NamedTuple):
    path: str
    mode: int = 0o755


class Symlink(NamedTuple):
    path: str
    target: str


class File(NamedTuple):
    path: str
    content: str
    mode: int = 0o644


class Bytes(NamedTuple):
    """A file that is no text."""

    path: str
    hex: str
    mode: int = 0o644


class Bind(NamedTuple):
    """A file or directory of the host, seen at `to`. `own`: as root, its owner is shown as the guest's own id.
    `expect`: the launcher refuses to go on if what it finds is something else."""

    source: str
    to: str
    kind: str
    write: bool = False
    exec: bool = False
    dev: bool = False
    own: bool = False
    expect: Stamp | None = None


class Scratch(NamedTuple):
    """A directory of the capped tmpfs, writable at `to`. `name`: work, tmp, shm, home or prefix."""

    name: str
    to: str
    exec: bool


class Overlay(NamedTuple):
    """`lower`, a directory of the host, below; with `write`, the capped tmpfs above; copy on write at `to`.
    Without, it is only read, and still an overlay: a socket or FIFO of the host seen through one is not the host's."""

    lower: str
    to: str
    write: bool
    exec: bool
    own: bool


class Proc(NamedTuple):
    to: str = "/proc"


class Devpts(NamedTuple):
    to: str = "/dev/pts"


class Mask(NamedTuple):
    """A name of the host's need not be text: in the document such a path has its `bytes` in hexadecimal beside it."""

    path: str


class Readonly(NamedTuple):
    path: str


class CgroupView(NamedTuple):
    controller: str
    to: str


RootOp = Dir | Symlink | File | Bytes | Bind | Scratch | Overlay | Proc | Devpts | Mask | Readonly | CgroupView
_OPS: Mapping[str, type[Any]] = {
    "dir": Dir,
    "symlink": Symlink,
    "file": File,
    "bytes": Bytes,
    "bind": Bind,
    "scratch": Scratch,
    "overlay": Overlay,
    "proc": Proc,
    "devpts": Devpts,
    "mask": Mask,
    "readonly": Readonly,
    "cgroup_view": CgroupView,
}
_NAMES: Mapping[type[Any], str] = {kind: name for name, kind in _OPS.items()}


class Identity(NamedTuple):
    """Ids inside, and on the host: None means the caller's own, the only ones an ordinary user may map."""

    uid: int
    gid: int
    host_uid: int | None
    host_gid: int | None


class ScratchSize(NamedTuple):
    bytes: int
    inodes: int


class LandlockRule(NamedTuple):
    """`access`: read, execute, write or device."""

    access: str
    paths: tuple[str, ...]


class Landlock(NamedTuple):
    min_abi: int
    rules: tuple[LandlockRule, ...]


class Seccomp(NamedTuple):
    """`filter`: default or default+memfd. `notify`: observe-exec-connect, observe-open or None."""

    filter: str
    notify: str | None


class CgroupSetting(NamedTuple):
    file: str
    value: str
    optional: bool = False


class CgroupGroup(NamedTuple):
    controller: str
    dir: str
    set: tuple[CgroupSetting, ...] = ()


class Cgroup(NamedTuple):
    version: int
    groups: tuple[CgroupGroup, ...]


class Rlimits(NamedTuple):
    """`cpu` in seconds for one process (None: the caller's own); `memlock` in bytes."""

    nofile: int
    nproc: int
    core: int
    cpu: int | None
    memlock: int


class Limits(NamedTuple):
    """Milliseconds and bytes. `watchdog`: sample the memory of the tree where no cgroup holds it."""

    wall_ms: int | None
    cpu_time_ms: int | None
    output_bytes: int | None
    memory_bytes: int
    watchdog: bool
    grace_ms: int


class Command(NamedTuple):
    path: str
    argv: tuple[str, ...]
    env: tuple[str, ...]
    cwd: str


class Network(NamedTuple):
    """What is opened for the broker outside. `address`: where names are answered; the sandbox's own too, unless it has
    `own`: then the broker's sockets are in a namespace beside it."""

    address: str
    dns: bool
    ports: tuple[int, ...]
    own: str | None = None


class LaunchPlan(NamedTuple):
    """`keep`: the scratch directory (work or prefix) that the launcher hands over at the end;
    it then waits. `stdio`: pipe or tty."""

    sandbox: str
    identity: Identity
    hostname: str
    scratch: ScratchSize
    root: tuple[RootOp, ...]
    landlock: Landlock
    seccomp: Seccomp
    cgroup: Cgroup | None
    rlimits: Rlimits
    limits: Limits
    stdio: str
    keep: str | None
    command: Command
    network: Network | None = None
    version: int = VERSION

    def as_document(self) -> dict[str, Any]:
        """The plan as JSON-ready data."""
        document: dict[str, Any] = _encode(self)
        return document

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LaunchPlan:
        """The inverse of `as_document`. Raises `UsageError` on another version, unknown or missing keys."""
        if document.get("version") != VERSION:
            raise UsageError(f"launch plan version {document.get('version')!r} is not {VERSION}")
        try:
            body = dict(document)
            body["root"] = tuple(_decode_op(op) for op in document["root"])
            body["identity"] = Identity(**document["identity"])
            body["scratch"] = ScratchSize(**document["scratch"])
            rules = tuple(LandlockRule(rule["access"], tuple(rule["paths"])) for rule in document["landlock"]["rules"])
            body["landlock"] = Landlock(document["landlock"]["min_abi"], rules)
            body["seccomp"] = Seccomp(**document["seccomp"])
            body["cgroup"] = _decode_cgroup(document["cgroup"])
            body["rlimits"] = Rlimits(**document["rlimits"])
            body["limits"] = Limits(**document["limits"])
            command = document["command"]
            body["command"] = Command(command["path"], tuple(command["argv"]), tuple(command["env"]), command["cwd"])
            network = document.get("network")
            body["network"] = network and Network(
                network["address"], network["dns"], tuple(network["ports"]), network.get("own")
            )
            return cls(**body)
        except (KeyError, TypeError) as error:
            raise UsageError(f"launch plan: {error}") from error


def _encode(value: Any) -> Any:
    names = getattr(value, "_fields", None)
    if names is not None:
        fields: dict[str, Any] = {}
        if type(value) in _NAMES:
            fields["op"] = _NAMES[type(value)]
        for name, item in zip(names, value, strict=True):
            # `from` is a keyword of Python's and the plan's own word.
            fields["from" if name == "source" else name] = _encode(item)
        if isinstance(value, Mask) and not _is_text(value.path):
            raw = value.path.encode("utf-8", "surrogateescape")
            fields |= {"path": raw.decode("utf-8", "replace"), "bytes": raw.hex()}
        return fields
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _decode_op(document: Mapping[str, Any]) -> Any:
    fields = dict(document)
    if "bytes" in fields:
        fields["path"] = bytes.fromhex(fields.pop("bytes")).decode("utf-8", "surrogateescape")
    kind = _OPS[fields.pop("op")]
    if "from" in fields:
        fields["source"] = fields.pop("from")
    if fields.get("expect") is not None:
        fields["expect"] = Stamp(**fields["expect"])
    return kind(**fields)


def _decode_cgroup(document: Mapping[str, Any] | None) -> Cgroup | None:
    if document is None:
        return None
    groups = tuple(
        CgroupGroup(g["controller"], g["dir"], tuple(CgroupSetting(**s) for s in g["set"])) for g in document["groups"]
    )
    return Cgroup(document["version"], groups)

"""The launch plan: everything that the launcher does, as frozen data with a version.

Rules of this room: pure values. `as_document` gives what `contracts/launch-plan.v1.schema.json` describes and the
launcher parses; `from_document` is its inverse, so that golden fixtures hold both languages to one shape.
Paths of the host are `source`; all others are as seen inside: absolute, normalised, parents first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from remit.errors import UsageError

VERSION = 1


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a file was when it was hashed; `ctime_ns` in nanoseconds since the epoch."""

    dev: int
    ino: int
    size: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Dir:
    op: ClassVar[str] = "dir"
    path: str
    mode: int = 0o755


@dataclass(frozen=True, slots=True)
class Symlink:
    op: ClassVar[str] = "symlink"
    path: str
    target: str


@dataclass(frozen=True, slots=True)
class File:
    op: ClassVar[str] = "file"
    path: str
    content: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Bind:
    """A file or directory of the host, seen at `to`. `own`: as root, its owner is shown as the guest's own id.
    `expect`: the launcher refuses to go on if what it finds is something else."""

    op: ClassVar[str] = "bind"
    source: str
    to: str
    kind: str
    write: bool = False
    exec: bool = False
    dev: bool = False
    own: bool = False
    expect: Stamp | None = None


@dataclass(frozen=True, slots=True)
class Scratch:
    """A directory of the capped tmpfs, writable at `to`. `name`: work, tmp, shm or home."""

    op: ClassVar[str] = "scratch"
    name: str
    to: str
    exec: bool


@dataclass(frozen=True, slots=True)
class Overlay:
    """`lower`, a directory of the host, below; the capped tmpfs above; copy on write at `to`."""

    op: ClassVar[str] = "overlay"
    lower: str
    to: str
    exec: bool
    own: bool


@dataclass(frozen=True, slots=True)
class Proc:
    op: ClassVar[str] = "proc"
    to: str = "/proc"


@dataclass(frozen=True, slots=True)
class Devpts:
    op: ClassVar[str] = "devpts"
    to: str = "/dev/pts"


@dataclass(frozen=True, slots=True)
class Mask:
    op: ClassVar[str] = "mask"
    path: str


@dataclass(frozen=True, slots=True)
class Readonly:
    op: ClassVar[str] = "readonly"
    path: str


@dataclass(frozen=True, slots=True)
class CgroupView:
    op: ClassVar[str] = "cgroup_view"
    controller: str
    to: str


RootOp = Dir | Symlink | File | Bind | Scratch | Overlay | Proc | Devpts | Mask | Readonly | CgroupView
_OPS: Mapping[str, type[Any]] = {
    kind.op: kind
    for kind in (Dir, Symlink, File, Bind, Scratch, Overlay, Proc, Devpts, Mask, Readonly, CgroupView)
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Ids inside, and on the host: None means the caller's own, the only ones an ordinary user may map."""

    uid: int
    gid: int
    host_uid: int | None
    host_gid: int | None


@dataclass(frozen=True, slots=True)
class ScratchSize:
    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class LandlockRule:
    """`access`: read, execute, write or device."""

    access: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Landlock:
    min_abi: int
    rules: tuple[LandlockRule, ...]


@dataclass(frozen=True, slots=True)
class Seccomp:
    """`filter`: default or default+memfd. `notify`: observe-exec-connect, observe-open or None."""

    filter: str
    notify: str | None


@dataclass(frozen=True, slots=True)
class CgroupSetting:
    file: str
    value: str
    optional: bool = False


@dataclass(frozen=True, slots=True)
class CgroupGroup:
    controller: str
    dir: str
    set: tuple[CgroupSetting, ...] = ()


@dataclass(frozen=True, slots=True)
class Cgroup:
    version: int
    groups: tuple[CgroupGroup, ...]


@dataclass(frozen=True, slots=True)
class Rlimits:
    """`cpu` in seconds for one process (None: the caller's own); `memlock` in bytes."""

    nofile: int
    nproc: int
    core: int
    cpu: int | None
    memlock: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Milliseconds and bytes. `watchdog`: sample the memory of the tree where no cgroup holds it."""

    wall_ms: int | None
    cpu_time_ms: int | None
    output_bytes: int | None
    memory_bytes: int
    watchdog: bool
    grace_ms: int


@dataclass(frozen=True, slots=True)
class Command:
    path: str
    argv: tuple[str, ...]
    env: tuple[str, ...]
    cwd: str


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """`keep`: the launcher hands over the work directory at the end and waits. `stdio`: pipe or tty."""

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
    keep: bool
    command: Command
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
            rules = tuple(
                LandlockRule(rule["access"], tuple(rule["paths"])) for rule in document["landlock"]["rules"]
            )
            body["landlock"] = Landlock(document["landlock"]["min_abi"], rules)
            body["seccomp"] = Seccomp(**document["seccomp"])
            body["cgroup"] = _decode_cgroup(document["cgroup"])
            body["rlimits"] = Rlimits(**document["rlimits"])
            body["limits"] = Limits(**document["limits"])
            command = document["command"]
            body["command"] = Command(
                command["path"], tuple(command["argv"]), tuple(command["env"]), command["cwd"]
            )
            return cls(**body)
        except (KeyError, TypeError) as error:
            raise UsageError(f"launch plan: {error}") from error


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields: dict[str, Any] = {}
        op = getattr(value, "op", None)
        if isinstance(op, str):
            fields["op"] = op
        for field in value.__dataclass_fields__:
            if field != "op":
                # `from` is a keyword of Python's and the plan's own word.
                fields["from" if field == "source" else field] = _encode(getattr(value, field))
        return fields
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    return value


def _decode_op(document: Mapping[str, Any]) -> Any:
    fields = dict(document)
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
        CgroupGroup(g["controller"], g["dir"], tuple(CgroupSetting(**s) for s in g["set"]))
        for g in document["groups"]
    )
    return Cgroup(document["version"], groups)

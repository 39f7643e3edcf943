"""What a host can enforce, as facts, and the tier that follows from them.

Rules of this room: pure. The facts are read at the edge (`remit.sandbox.host`); which tier they give, what is missing
and the remedy are decided here, so that `remit doctor`, `compile` and the tests agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from remit.errors import HostError

TIERS = ("partial", "delegated", "full")
"""From the least to the most."""

FULL_LANDLOCK_ABI = 6
"""Scoped signals and abstract sockets: Linux 6.12."""
LEAST_LANDLOCK_ABI = 1
"""Linux 5.13."""
LEAST_KERNEL = {"partial": "5.14", "delegated": "5.14", "full": "6.12"}
"""mount_setattr is 5.12, cgroup.kill and per-namespace RLIMIT_NPROC are 5.14, Landlock ABI 6 is 6.12."""

_CONTROLLERS = ("memory", "pids", "cpu")


class CgroupFacts(NamedTuple):
    """Where cgroups can be made. `parents`: controller -> an existing directory the caller may make children in;
    version 2 has the one key 'unified'. `controllers`: those that can be limited there."""

    version: int
    parents: Mapping[str, str]
    controllers: tuple[str, ...]


class HostFacts(NamedTuple):
    """`uid`/`gid`: the caller's. `guest_id`: as root, the unprivileged host id of this sandbox. `landlock_abi`: 0 for
    none. `cgroup_note`: why there is no cgroup, in words, with the remedy after ' -- '."""

    uid: int
    gid: int
    guest_id: int | None
    landlock_abi: int
    cgroup: CgroupFacts | None
    cgroup_note: str = ""
    cpus: int = 1
    paths: Mapping[str, str] = MappingProxyType({})
    """Which of the host's optional paths exist (/sys/devices/system/cpu, ...): path -> 'file' or 'dir'."""

    @property
    def is_root(self) -> bool:
        return self.guest_id is not None


class Lack(NamedTuple):
    """One thing that keeps a host from the next tier."""

    mechanism: str
    message: str
    remedy: str


def tier(host: HostFacts) -> tuple[str, tuple[Lack, ...]]:
    """The tier of `host`, and what it lacks for the next one."""
    lacks: list[Lack] = []
    held = host.cgroup.controllers if host.cgroup else ()
    missing = [c for c in _CONTROLLERS if c not in held]
    if missing:
        note, _, remedy = host.cgroup_note.partition(" -- ")
        lacks.append(
            Lack(
                "cgroup",
                note or f"no cgroup holds {', '.join(missing)}",
                remedy or "run `sudo remit setup` once, or start from a login session with a delegated cgroup",
            )
        )
    if host.landlock_abi < LEAST_LANDLOCK_ABI:
        lacks.append(
            Lack("landlock", "the kernel has no Landlock", "boot with landlock in the lsm= list (Linux 5.13 or later)")
        )
    if lacks:
        return "partial", tuple(lacks)
    if host.landlock_abi < FULL_LANDLOCK_ABI:
        return "delegated", (
            Lack(
                "landlock",
                f"Landlock ABI {host.landlock_abi}: signals and abstract sockets are not scoped",
                f"Linux {LEAST_KERNEL['full']} or later",
            ),
        )
    return "full", ()


def require(host: HostFacts, least: str) -> str:
    """The tier of `host`. Raises `HostError`, naming the mechanism and the remedy, if it is below `least`."""
    found, lacks = tier(host)
    if TIERS.index(found) >= TIERS.index(least):
        return found
    lack = lacks[0]
    others = "".join(f"; {other.message}" for other in lacks[1:])
    raise HostError(
        lack.mechanism,
        f"this host gives tier '{found}' and the remit accepts no less than '{least}': {lack.message}{others}",
        hint=f"{lack.remedy}; or accept the lesser tier by name: --accept-tier {found} (the receipt will say so)",
    )

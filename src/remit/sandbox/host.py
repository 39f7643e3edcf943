"""Reads the facts about this host that `compile` and `doctor` decide by. Reads only; `setup` is what changes things."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

from remit.plan.host import CgroupFacts, HostFacts

GUEST_ID_BASE = 1_879_048_192
"""The first of the ids that systemd's table of uid ranges leaves unused, up to 2147352575. A sandbox of root's gets the
base plus its supervisor's pid: no two at once share an id, and so none shares limits or keys by id."""

CGROUP = "/sys/fs/cgroup"
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_OPTIONAL_PATHS = ("/sys/devices/system/cpu",)
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1


def read() -> HostFacts:
    """The facts as they are now; about a millisecond."""
    uid = os.geteuid()
    cgroup, note = cgroups(uid)
    paths = {path: "dir" for path in _OPTIONAL_PATHS if os.path.isdir(path)}
    guest = GUEST_ID_BASE + os.getpid() if uid == 0 else None
    return HostFacts(uid, os.getegid(), guest, landlock_abi(), cgroup, note, os.cpu_count() or 1, paths)


def landlock_abi() -> int:
    """The newest Landlock ABI of the running kernel; 0 for none."""
    if platform.machine() not in ("x86_64", "aarch64"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return max(found, 0)


def cgroups(uid: int) -> tuple[CgroupFacts | None, str]:
    """Where this user can make cgroups, or why it can't, with the remedy after ' -- '."""
    root = Path(CGROUP)
    controllers = root / "cgroup.controllers"
    if controllers.exists():
        return _unified(uid, root)
    return _legacy(uid, root)


def _own_v2() -> str | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, _, path = line.split(":", 2)
        if number == "0":
            return path
    return None


def _unified(uid: int, root: Path) -> tuple[CgroupFacts | None, str]:
    own = _own_v2()
    if own is None:
        return None, "no cgroup v2 is mounted -- mount cgroup2 on /sys/fs/cgroup"
    here = root / own.lstrip("/")
    # What `remit setup` or the caller's unit delegated, then what the caller may make for itself.
    for parent in (root / "remit" / str(uid), *([root / "remit"] if uid == 0 else []), here, here.parent):
        if _delegated(parent):
            return CgroupFacts(2, {"unified": str(parent)}, ("memory", "pids", "cpu")), ""
    if uid == 0 and _enable(root / "remit"):
        return CgroupFacts(2, {"unified": str(root / "remit")}, ("memory", "pids", "cpu")), ""
    note = f"cgroup {own} is not delegated to uid {uid} with memory, pids and cpu"
    remedy = "start with `systemd-run --user --scope -p Delegate=yes`, or run `sudo remit setup` once"
    return None, f"{note} -- {remedy}"


def _delegated(parent: Path) -> bool:
    """May children with the three controllers be made in `parent`, and processes be born there?"""
    try:
        enabled = (parent / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return {"memory", "pids", "cpu"} <= set(enabled) and os.access(parent, os.W_OK)


def _enable(directory: Path) -> bool:
    """As root: makes `directory` and switches the three controllers on down to it."""
    try:
        directory.mkdir(exist_ok=True)
        for parent in (directory.parent, directory):
            (parent / "cgroup.subtree_control").write_text("+memory +pids +cpu")
    except OSError:
        return False
    return _delegated(directory)


def _legacy(uid: int, root: Path) -> tuple[CgroupFacts | None, str]:
    parents: dict[str, str] = {}
    for controller in V1_CONTROLLERS:
        base = root / controller
        if not base.is_dir():
            continue
        mine = base / "remit" if uid == 0 else base / "remit" / str(uid)
        if uid == 0:
            try:
                mine.mkdir(exist_ok=True)
            except OSError:
                continue
        if os.access(mine, os.W_OK):
            parents[controller] = str(mine)
    held = tuple(c for c in ("memory", "pids", "cpu") if c in parents)
    if len(held) == 3:
        return CgroupFacts(1, parents, held), ""
    note = f"no cgroup (version 1) is delegated to uid {uid}"
    return None, f"{note} -- run `sudo remit setup` once (as root, for this user)"

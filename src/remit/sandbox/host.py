"""Reads the facts about this host that `compile` and `doctor` decide by. With `make`, and only then, it also makes the
cgroups that the caller may make, as a run needs them."""

from __future__ import annotations

import os

from remit.plan.host import CgroupFacts, HostFacts

GUEST_ID_BASE = 1_879_048_192
"""The first of the ids that systemd's table of uid ranges leaves unused, up to 2147352575. A sandbox of root's gets the
base plus its supervisor's pid: no two at once share an id, and so none shares limits or keys by id."""

CGROUP = "/sys/fs/cgroup"
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_OPTIONAL_PATHS = ("/sys/devices/system/cpu",)
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1


def read(*, make: bool = False) -> HostFacts:
    """The facts as they are now; about a millisecond."""
    uid = os.geteuid()
    cgroup, note = cgroups(uid, make=make)
    paths = {path: "dir" for path in _OPTIONAL_PATHS if os.path.isdir(path)}
    guest = GUEST_ID_BASE + os.getpid() if uid == 0 else None
    return HostFacts(uid, os.getegid(), guest, landlock_abi(), cgroup, note, os.cpu_count() or 1, paths)


def landlock_abi() -> int:
    """The newest Landlock ABI of the running kernel; 0 for none."""
    import ctypes

    if os.uname().machine not in ("x86_64", "aarch64"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, _LANDLOCK_VERSION)
    return max(found, 0)


def cgroups(uid: int, *, make: bool) -> tuple[CgroupFacts | None, str]:
    """Where this user can make cgroups, or why it can't, with the remedy after ' -- '."""
    if os.path.exists(f"{CGROUP}/cgroup.controllers"):
        return _unified(uid, make)
    return _legacy(uid, make)


def _own_v2() -> str | None:
    with open("/proc/self/cgroup") as file:
        for line in file:
            number, _, path = line.rstrip("\n").split(":", 2)
            if number == "0":
                return path
    return None


def _unified(uid: int, make: bool) -> tuple[CgroupFacts | None, str]:
    own = _own_v2()
    if own is None:
        return None, "no cgroup v2 is mounted -- mount cgroup2 on /sys/fs/cgroup"
    here = os.path.normpath(f"{CGROUP}/{own}")
    # What `remit setup` delegated, what root can make, then what the caller's unit was given.
    ours = f"{CGROUP}/remit"
    for parent in (*([ours] if uid == 0 else []), f"{ours}/{uid}", here, os.path.dirname(here)):
        if _delegated(parent) and (uid == 0 or _may_be_born(parent, here)):
            return CgroupFacts(2, {"unified": parent}, ("memory", "pids", "cpu")), ""
    if uid == 0 and (_enable(ours) if make else _can_enable()):
        return CgroupFacts(2, {"unified": ours}, ("memory", "pids", "cpu")), ""
    if uid != 0 and _is_delegated_scope(here) and (not make or _divide(here)):
        return CgroupFacts(2, {"unified": here}, ("memory", "pids", "cpu")), ""
    note = f"cgroup {own} is not delegated to uid {uid} with memory, pids and cpu"
    return None, f"{note} -- start with `systemd-run --user --scope -p Delegate=yes remit run ...`"


def _delegated(parent: str) -> bool:
    """May children with the three controllers be made in `parent`?"""
    try:
        with open(f"{parent}/cgroup.subtree_control") as file:
            enabled = file.read().split()
    except OSError:
        return False
    return {"memory", "pids", "cpu"} <= set(enabled) and os.access(parent, os.W_OK)


def _may_be_born(parent: str, here: str) -> bool:
    """An ordinary user moves processes only where the nearest common ancestor's cgroup.procs is its own too."""
    return os.access(f"{os.path.commonpath((parent, here))}/cgroup.procs", os.W_OK)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _enable(directory: str) -> bool:
    """As root: makes `directory` and switches the three controllers on down to it."""
    try:
        os.makedirs(directory, exist_ok=True)
        for parent in (os.path.dirname(directory), directory):
            _write(f"{parent}/cgroup.subtree_control", "+memory +pids +cpu")
    except OSError:
        return False
    return _delegated(directory)


def _can_enable() -> bool:
    try:
        with open(f"{CGROUP}/cgroup.controllers") as file:
            return {"memory", "pids", "cpu"} <= set(file.read().split())
    except OSError:
        return False


def _is_delegated_scope(here: str) -> bool:
    """Did systemd hand this cgroup over, to be divided (`Delegate=yes`)? Files that can be written are not enough: so
    can those of every scope of the user's own manager, which is then still the one to change them."""
    try:
        delegated = os.getxattr(here, "user.delegate") == b"1"
        with open(f"{here}/cgroup.controllers") as file:
            return delegated and {"memory", "pids", "cpu"} <= set(file.read().split())
    except OSError:
        return False


def _divide(here: str) -> bool:
    """In a delegated scope, whose processes sit in its root: a cgroup with processes can't have limited children, so
    they move into a leaf `supervisor` first."""
    try:
        os.makedirs(f"{here}/supervisor", exist_ok=True)
        with open(f"{here}/cgroup.procs") as file:
            for pid in file.read().split():
                _write(f"{here}/supervisor/cgroup.procs", pid)
        _write(f"{here}/cgroup.subtree_control", "+memory +pids +cpu")
    except OSError:
        return False
    return _delegated(here)


def _legacy(uid: int, make: bool) -> tuple[CgroupFacts | None, str]:
    parents: dict[str, str] = {}
    for controller in V1_CONTROLLERS:
        base = f"{CGROUP}/{controller}"
        if not os.path.isdir(base):
            continue
        mine = f"{base}/remit" if uid == 0 else f"{base}/remit/{uid}"
        if uid == 0 and make:
            try:
                os.makedirs(mine, exist_ok=True)
            except OSError:
                continue
        if os.access(mine, os.W_OK) or (uid == 0 and not make and os.access(base, os.W_OK)):
            parents[controller] = mine
    held = tuple(c for c in ("memory", "pids", "cpu") if c in parents)
    if len(held) == 3:
        return CgroupFacts(1, parents, held), ""
    note = f"no cgroup (version 1) is delegated to uid {uid}"
    return None, f"{note} -- run `sudo remit setup` once (as root, for this user)"

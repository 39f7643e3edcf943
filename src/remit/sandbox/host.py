"""Reads the facts about this host that `compile` and `doctor` decide by. With `make`, and only then, it also makes the
cgroups that the caller may make, as a run needs them."""

from __future__ import annotations

import contextlib
import os

from remit.errors import HostError
from remit.plan.host import CgroupFacts, HostFacts

GUEST_ID_BASE = 1_879_048_192
"""The first of the ids that systemd's table of uid ranges leaves unused, up to 2147352575. A sandbox of root's gets the
base plus its supervisor's pid: no two at once share an id, and so none shares limits or keys by id."""

CGROUP = "/sys/fs/cgroup"
OURS = f"{CGROUP}/remit"
LEAF = "supervisor"
"""Where the processes of a divided cgroup sit."""
_TRIES = 10
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
_OPTIONAL_PATHS = ("/sys/devices/system/cpu",)
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION = 1


_ROOT_REMEDY = (
    "mount /sys/fs/cgroup writable (in a container: --privileged; with version 2 also an init that moves all processes "
    "out of its top), or run Remit on the host"
)


def read(*, make: bool = False) -> HostFacts:
    """The facts as they are now; about a millisecond."""
    uid = os.geteuid()
    cgroup, note = cgroups(uid, make=make)
    paths = {path: "dir" for path in _OPTIONAL_PATHS if os.path.isdir(path)}
    return HostFacts(uid, os.getegid(), guest_id(uid), landlock_abi(), cgroup, note, os.cpu_count() or 1, paths)


def guest_id(uid: int) -> int | None:
    """As root, the unprivileged host id of this run's sandbox. None for others, and for the root of a user namespace
    that has a few ids (a rootless container): it can neither give ids away nor show files by other ids, and is an
    ordinary user here. Raises `HostError` for one that is the host's root all the same: its sandbox would be, too."""
    if uid != 0:
        return None
    with open("/proc/self/uid_map") as file:
        for inside, outside, count in map(str.split, file):
            if int(inside) == 0 and int(count) <= GUEST_ID_BASE:
                if int(outside) == 0:
                    raise HostError(
                        "identity",
                        "this root is that of a user namespace that root made for itself: it has no other ids to give",
                        hint="run Remit outside of that namespace, or map an ordinary user's id to root there",
                    )
                return None
    return GUEST_ID_BASE + os.getpid()


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
    parent = _parent(uid, here, make)
    if parent is not None:
        return CgroupFacts(2, {"unified": parent}, ("memory", "pids", "cpu")), ""
    return None, f"cgroup {own} is not delegated to uid {uid} with memory, pids and cpu -- {_remedy(uid)}"


def _parent(uid: int, here: str, make: bool) -> str | None:
    """Where to make sandboxes' cgroups: what root makes, what `remit setup` gave, or what systemd gave to the caller's
    unit. Never another of systemd's cgroups, writable or not: it switches controllers off again as it needs, and the
    limits of all that is below with them."""
    if uid == 0 and (_delegated(OURS) or (_enable(OURS) if make else _can_enable())):
        return OURS
    above = os.path.dirname(here)
    if _delegated(f"{OURS}/{uid}") and _may_be_born(f"{OURS}/{uid}", here):
        return f"{OURS}/{uid}"
    if _delegated(above) and (os.path.basename(here) == LEAF or _is_handed_over(uid, above)):
        return above if _may_be_born(above, here) else None
    if _holds_all(f"{here}/cgroup.controllers") and os.access(here, os.W_OK) and _is_handed_over(uid, here):
        return here if not make or _divide(here) else None
    return None


def _holds_all(file: str) -> bool:
    """Does this list of controllers name the three?"""
    try:
        with open(file) as text:
            return {"memory", "pids", "cpu"} <= set(text.read().split())
    except OSError:
        return False


def _delegated(parent: str) -> bool:
    """May children with the three controllers be made in `parent`?"""
    return _holds_all(f"{parent}/cgroup.subtree_control") and os.access(parent, os.W_OK)


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
    """Will `_enable` work? Not on a read-only tree; nor in a container's own, whose top holds processes: only the
    host's top may hold both processes and limited children."""
    if not _holds_all(f"{CGROUP}/cgroup.controllers") or not os.access(f"{CGROUP}/cgroup.subtree_control", os.W_OK):
        return False
    if not os.path.exists(f"{CGROUP}/cgroup.type") or _holds_all(f"{CGROUP}/cgroup.subtree_control"):
        return True
    with open(f"{CGROUP}/cgroup.procs") as file:
        return not file.read(1)


def _is_handed_over(uid: int, unit: str) -> bool:
    """Did systemd hand this unit's cgroup over, to be divided (`Delegate=yes`)? That its files can be written is not
    enough: so can those of every unit of the user's own manager, which is then still the one to change them."""
    try:
        return os.getxattr(unit, "user.delegate") == b"1"
    except OSError:
        pass
    # The system's manager marks what it hands over; a user's (of systemd 252 at least) does not.
    name = os.path.basename(unit)
    if f"/user@{uid}.service/" not in unit or not name.endswith((".scope", ".service")):
        return False
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    try:
        # Where the manager writes what it was asked for at run time, as every scope is.
        with open(f"{runtime}/systemd/transient/{name}") as file:
            said = [line.strip().partition("=")[2] for line in file if line.startswith("Delegate=")]
    except OSError:
        said = [_ask(runtime, name)] if name.endswith(".service") else []
    return bool(said) and said[-1] not in ("", "no", "false", "off", "0")


def _ask(runtime: str, name: str) -> str:
    import subprocess

    command = ["systemctl", "--user", "show", "--property=Delegate", "--value", "--", name]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "XDG_RUNTIME_DIR": runtime},
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _divide(here: str) -> bool:
    """In a delegated unit, whose processes sit in its root: a cgroup with processes can't have limited children, so
    they move into a leaf first."""
    try:
        os.makedirs(f"{here}/{LEAF}", exist_ok=True)
        for _ in range(_TRIES):
            with open(f"{here}/cgroup.procs") as file:
                pids = file.read().split()
            for pid in pids:
                # It may just have ended.
                with contextlib.suppress(ProcessLookupError):
                    _write(f"{here}/{LEAF}/cgroup.procs", pid)
            if not pids:
                break
        _write(f"{here}/cgroup.subtree_control", "+memory +pids +cpu")
    except OSError:
        return False
    return _delegated(here)


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "NAME"


def _remedy(uid: int) -> str:
    """What gives this caller a cgroup, as it can be typed."""
    if uid == 0:
        return _ROOT_REMEDY
    user = _name(uid)
    if not os.path.isdir("/run/systemd/system"):
        return f"run `remit setup --user {user}` as root, which says how a shell gets there"
    where = "" if os.environ.get("XDG_RUNTIME_DIR") else f"XDG_RUNTIME_DIR=/run/user/{uid} "
    start = f"start with `{where}systemd-run --user --scope -p Delegate=yes remit run ...`"
    manager = f"{CGROUP}/user.slice/user-{uid}.slice/user@{uid}.service"
    if not os.path.isdir(manager):
        return f"have a manager of your own: log in, or once as root `loginctl enable-linger {user}`; then {start}"
    if not _holds_all(f"{manager}/cgroup.controllers"):
        return f"run `sudo remit setup --user {user}` once, log out everywhere and in again, then {start}"
    return start


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
    remedy = _ROOT_REMEDY if uid == 0 else f"run `sudo remit setup --user {_name(uid)}` once"
    return None, f"no cgroup (version 1) is delegated to uid {uid} -- {remedy}"

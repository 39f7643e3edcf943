"""`sudo remit setup`: delegates cgroups to one user, so that an ordinary user's limits are hard. What it does is
printed as it is done, and `--undo` takes it back."""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import subprocess
from pathlib import Path

from remit.errors import HostError, UsageError
from remit.sandbox.host import CGROUP, LEAF, OURS, V1_CONTROLLERS

_FILES = {1: ("tasks", "cgroup.procs"), 2: ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")}
_DROP_IN_TEXT = "# Written by `remit setup`.\n[Service]\nDelegate=cpu memory pids\n"
_START = "systemd-run --user --scope -p Delegate=yes remit run ..."


def setup(options: argparse.Namespace) -> int:
    if os.geteuid() != 0:
        raise UsageError("setup changes the host and so needs root", hint="sudo remit setup")
    name = options.user or os.environ.get("SUDO_USER")
    if not name:
        raise UsageError("for which user?", hint="remit setup --user NAME (root itself needs no setup)")
    try:
        user = pwd.getpwnam(name)
    except KeyError as error:
        raise UsageError(f"there is no user {name}") from error
    root = Path(CGROUP)
    if not (root / "cgroup.controllers").exists():
        mine = [root / c / "remit" / str(user.pw_uid) for c in V1_CONTROLLERS if (root / c).is_dir()]
        _take_back(mine) if options.undo else _hand_over(mine, user, version=1)
    elif os.path.isdir("/run/systemd/system"):
        _undo_drop_in(user) if options.undo else _drop_in(user)
    else:
        mine = [Path(OURS) / str(user.pw_uid)]
        _take_back([mine[0] / LEAF, *mine]) if options.undo else _hand_over(mine, user, version=2)
    return 0


def _hand_over(directories: list[Path], user: pwd.struct_passwd, *, version: int) -> None:
    if not directories:
        raise HostError("cgroup", f"nothing is mounted below {CGROUP}", hint="mount cgroup2 on /sys/fs/cgroup")
    for mine in directories:
        mine.mkdir(parents=True, exist_ok=True)
        given = [mine]
        if version == 2:
            for directory in (mine.parent.parent, mine.parent, mine):
                (directory / "cgroup.subtree_control").write_text("+memory +pids +cpu")
            given.append(mine / LEAF)
            given[-1].mkdir(exist_ok=True)
        for directory in given:
            for path in (directory, *(directory / file for file in _FILES[version])):
                if path.exists():
                    os.chown(path, user.pw_uid, user.pw_gid)
        print(f"delegated {mine} to {user.pw_name} until the next boot")
    if version == 2:
        # The kernel moves a process only for one who may write to the cgroup above both its old and its new place.
        print(f"root puts a shell of {user.pw_name} there, and what it starts stays there:")
        print(f"  echo PID > {directories[0]}/{LEAF}/cgroup.procs")


def _take_back(directories: list[Path]) -> None:
    for mine in directories:
        if mine.is_dir():
            try:
                mine.rmdir()
            except OSError as error:
                raise HostError(
                    "cgroup", f"{mine}: {error.strerror}", hint="processes or sandboxes of this user still run there"
                ) from error
            print(f"removed {mine}")


def _drop_in_of(user: pwd.struct_passwd) -> Path:
    return Path(f"/etc/systemd/system/user@{user.pw_uid}.service.d/remit.conf")


def _drop_in(user: pwd.struct_passwd) -> None:
    """The user's manager can then hand cpu, memory and pids on to the scopes that the user starts. Newer versions of
    systemd allow it anyway; older ones keep the cpu back."""
    path = _drop_in_of(user)
    path.parent.mkdir(exist_ok=True)
    path.write_text(_DROP_IN_TEXT)
    _reload()
    print(f"wrote {path}; it holds once {user.pw_name} has logged out everywhere and in again:")
    print(f"  {_START}")


def _undo_drop_in(user: pwd.struct_passwd) -> None:
    path = _drop_in_of(user)
    if not path.exists():
        print(f"{path} does not exist: nothing to undo")
        return
    path.unlink()
    with contextlib.suppress(OSError):
        path.parent.rmdir()
    _reload()
    print(f"removed {path}; running sessions of {user.pw_name} keep what they have")


def _reload() -> None:
    try:
        subprocess.run(["systemctl", "daemon-reload"], check=True, timeout=60, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(
            "cgroup", f"systemd did not read its units again: {error}", hint="systemctl daemon-reload"
        ) from error

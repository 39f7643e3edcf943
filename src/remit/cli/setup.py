"""`sudo remit setup`: delegates cgroups to one user, so that an ordinary user's limits are hard. What it does is
printed as it is done, and `--undo` takes it back."""

from __future__ import annotations

import argparse
import os
import pwd
from pathlib import Path

from remit.errors import HostError, UsageError
from remit.sandbox.host import CGROUP, V1_CONTROLLERS

_V2_FILES = ("cgroup.procs", "cgroup.subtree_control", "cgroup.threads")
_DROP_IN = "/etc/systemd/system/user@.service.d/remit-delegate.conf"
_DROP_IN_TEXT = "# Written by `remit setup`.\n[Service]\nDelegate=cpu memory pids\n"


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
    act = _undo if options.undo else _do
    if (root / "cgroup.controllers").exists():
        act([root / "remit"], user, unified=True)
        if not options.undo and os.path.isdir("/run/systemd/system"):
            _systemd()
    else:
        act([root / c / "remit" for c in V1_CONTROLLERS if (root / c).is_dir()], user, unified=False)
    return 0


def _do(parents: list[Path], user: pwd.struct_passwd, *, unified: bool) -> None:
    if not parents:
        raise HostError("cgroup", f"nothing is mounted below {CGROUP}", hint="mount cgroup2 on /sys/fs/cgroup")
    for parent in parents:
        mine = parent / str(user.pw_uid)
        mine.mkdir(parents=True, exist_ok=True)
        if unified:
            for directory in (parent.parent, parent, mine):
                (directory / "cgroup.subtree_control").write_text("+memory +pids +cpu")
        os.chown(mine, user.pw_uid, user.pw_gid)
        for file in _V2_FILES if unified else ("tasks", "cgroup.procs"):
            if (mine / file).exists():
                os.chown(mine / file, user.pw_uid, user.pw_gid)
        print(f"delegated {mine} to {user.pw_name}")
    print("until the next boot" if not unified else "until the next boot (login sessions: see below)")


def _undo(parents: list[Path], user: pwd.struct_passwd, *, unified: bool) -> None:
    for parent in parents:
        mine = parent / str(user.pw_uid)
        if mine.is_dir():
            try:
                mine.rmdir()
            except OSError as error:
                raise HostError(
                    "cgroup", f"{mine}: {error.strerror}", hint="sandboxes of this user still run"
                ) from error
            print(f"removed {mine}")
    others = any(entry.is_dir() for parent in parents if parent.is_dir() for entry in parent.iterdir())
    if unified and not others and os.path.exists(_DROP_IN):
        os.unlink(_DROP_IN)
        print(f"removed {_DROP_IN}")


def _systemd() -> None:
    """systemd's user managers then hand cpu, memory and pids on to the scopes that users start."""
    os.makedirs(os.path.dirname(_DROP_IN), exist_ok=True)
    Path(_DROP_IN).write_text(_DROP_IN_TEXT)
    print(f"wrote {_DROP_IN}; it holds from the user's next login:")
    print("  systemd-run --user --scope -p Delegate=yes remit run ...")

"""Who may change a file of the closure.

A program that anybody can write is not the program that was granted. Those who may: root, and the caller, who could
grant something else anyway. A group's right to write is left to whoever gave it (Debian's `staff` owns /usr/local).
"""

from __future__ import annotations

import os
import stat
from functools import cache

from remit.errors import HostError


def refuse_writable(path: str, found: os.stat_result) -> None:
    """Raises `HostError` if others than root and the caller may write the file or directory at `path`."""
    if found.st_mode & stat.S_IWOTH and not (stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX):
        raise HostError(
            "closure",
            f"{path} is writable by everybody on this host",
            hint=f"`chmod o-w {path}`, if it is what you think",
        )
    if found.st_uid not in _owners(os.geteuid()):
        raise HostError(
            "closure",
            f"{path} belongs to uid {found.st_uid}, who can change it at any time",
            hint=f"run as that user, or `chown root {path}` if it is what you think",
        )


@cache
def _owners(caller: int) -> frozenset[int]:
    return frozenset((0, caller, _unmapped()))


def _unmapped() -> int:
    # In a user namespace the host's root has no id and is shown as this one, which nobody inside can use to write.
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def may_be_asked(path: str, search_path: str, project: str) -> bool:
    """May the program at `path` be run outside, to ask where its library is? What the operator's PATH names is what a
    shell would run, too. By another path only a program proper that does not lie in the project: a script or binary
    called `python3` in a checkout must not run outside of its sandbox because somebody wants it inside of one."""
    if os.path.dirname(path) in search_path.split(":"):
        return True
    real = os.path.realpath(path)
    with open(real, "rb") as file:
        program = file.read(4) == b"\x7fELF"
    project = os.path.realpath(project)
    # Who stands at the root of the host, or at home, is in no project.
    nowhere = project in ("/", os.path.realpath(os.path.expanduser("~")))
    return program and (nowhere or not real.startswith(project + "/"))

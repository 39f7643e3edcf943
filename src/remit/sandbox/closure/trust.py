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


def refuse_asking(path: str) -> None:
    """Raises `HostError` if others than root and the caller could have put the program there: it is about to be run
    outside. Before that, and not when it is hashed: by then it has run."""
    for place in (path, os.path.realpath(path)):
        while place != "/":
            if not os.path.islink(place):
                refuse_writable(place, os.stat(place))
            place = os.path.dirname(place)


_CHECKOUTS = (".git", ".hg", ".jj", ".svn")


@cache
def project_of(directory: str) -> str | None:
    """The checkout around `directory`, whose authors nobody may know, or the directory itself; None for the root of the
    host and the home, which are no project (even if their dot files are kept in one)."""
    home = os.path.realpath(os.path.expanduser("~"))
    start = at = os.path.realpath(directory)
    while at not in ("/", home):
        if any(os.path.exists(f"{at}/{name}") for name in _CHECKOUTS):
            return at
        at = os.path.dirname(at)
    return None if start in ("/", home) else start


def project_around(path: str, cwd: str) -> str | None:
    """The project that `path` lies in, as written or as it leads: the one around `cwd`, or a checkout of its own."""
    own = _checkout_around(os.path.dirname(os.path.abspath(path)))
    for project in (project_of(cwd), own):
        if project is not None and _lies_in(path, project):
            return project
    return None


@cache
def _checkout_around(directory: str) -> str | None:
    found = project_of(directory) if os.path.isdir(directory) else None
    if found is None or os.path.basename(found).startswith("."):
        # ~/.pyenv, ~/.asdf, ~/.nvm: what installs programs is kept as a checkout, too.
        return None
    return found if any(os.path.exists(f"{found}/{name}") for name in _CHECKOUTS) else None


def _lies_in(path: str, project: str) -> bool:
    return any(place.startswith(project.rstrip("/") + "/") for place in _places(path))


@cache
def _places(path: str) -> tuple[str, ...]:
    """Where `path` is: as written, as its directory leads, as it leads itself. Each run asks for every program."""
    written = os.path.abspath(path)
    above = os.path.realpath(os.path.dirname(written))
    return f"{written}/", f"{above}/{os.path.basename(written)}/", f"{os.path.realpath(path)}/"


def forget() -> None:
    """The host may have changed since the last build of a long-lived process."""
    project_of.cache_clear()
    _checkout_around.cache_clear()
    _places.cache_clear()


def may_be_asked(path: str, search_path: str, cwd: str) -> bool:
    """May the program at `path` be run outside, to ask where its library is? What the operator's PATH names is what a
    shell would run, too. By another path only a program proper that does not lie in the project: a script or binary
    called `python3` in a checkout must not run outside of its sandbox because somebody wants it inside of one."""
    if os.path.dirname(path) in search_path.split(":"):
        return True
    real = os.path.realpath(path)
    with open(real, "rb") as file:
        program = file.read(4) == b"\x7fELF"
    return program and project_around(real, cwd) is None


def refuse_chosen(at: str, by: str, cwd: str) -> None:
    """What a version manager answers is chosen by files of the project, and so may not be a program of the project: it
    would be run outside, to be asked. Raises `HostError`."""
    if project_around(at, cwd) is not None:
        raise HostError(
            "closure",
            f"{by} belongs to a version manager, which would start {at}, a program of the project itself",
            hint="choose an installed version, or name the program by its path",
        )

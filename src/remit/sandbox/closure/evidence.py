"""What has to stay as it was for a cached template to be true, and how that is looked at: by stat alone.

A single file: device, inode, size, ctime (which no caller can set). A link: its target. A tree: the same of its
directories, without `__pycache__` and at most 400 of them, those nearest the root first. So it shows at the next run
when a package comes, goes or is replaced, when a file in one of these directories is added, removed or renamed
(editors and installers write so). Not shown: a file of a tree that is rewritten *in place*, and in trees of more
than 400 directories what changes deep down; byte code, which is written by every first import. `build(verify=True)`
reads everything again. Whoever can make such changes is the caller or root: others are refused when a tree is read.
Nor is shown what comes new to the host: data that was missing, a library earlier in the loader's order (the program
inside goes on with the one it had).
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

_MOST_DIRECTORIES = 400
"""A stat costs 2 to 5 us from here, and a start may cost a few ms in all. A virtual environment or Debian's Python has
fewer; only large collections of packages have more."""


class TreeStamp(NamedTuple):
    """`directories`: relative to the tree's root, '' for itself. `digest`: over the stamp of each."""

    directories: tuple[str, ...]
    digest: str

    @classmethod
    def of(cls, root: str) -> TreeStamp:
        directories = _directories(root)
        return cls(directories, _digest(root, directories))

    def holds(self, root: str) -> bool:
        """Raises `OSError` if one of them is gone."""
        return _digest(root, self.directories) == self.digest


class Evidence(NamedTuple):
    """`links`: place -> target. `consulted`: a file that decided what a version manager started, with its stamp or
    None if there was none. `cwd`: where that was decided, if anything was."""

    links: tuple[tuple[str, str], ...] = ()
    trees: tuple[tuple[str, TreeStamp], ...] = ()
    consulted: tuple[tuple[str, tuple[int, ...] | None], ...] = ()
    cwd: str | None = None

    def holds(self, cwd: str) -> bool:
        """Raises `OSError` if something is gone."""
        return (
            self.cwd in (None, cwd)
            and all(os.readlink(place) == target for place, target in self.links)
            and all(stamp(path) == before for path, before in self.consulted)
            and all(before.holds(root) for root, before in self.trees)
        )


def stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def _directories(root: str) -> tuple[str, ...]:
    """Breadth first, in an order that depends on names alone."""
    found, level = [""], [""]
    while level and len(found) < _MOST_DIRECTORIES:
        below: list[str] = []
        for directory in level:
            try:
                with os.scandir(f"{root}/{directory}") as entries:
                    names = sorted(
                        e.name for e in entries if e.name != "__pycache__" and e.is_dir(follow_symlinks=False)
                    )
            except PermissionError:
                continue
            below.extend(f"{directory}/{name}" if directory else name for name in names)
        found += below
        level = below
    return tuple(found[:_MOST_DIRECTORIES])


def _digest(root: str, directories: tuple[str, ...]) -> str:
    whole = []
    for directory in directories:
        found = os.stat(f"{root}/{directory}")
        whole.append((found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns))
    return hashlib.sha256(repr(whole).encode()).hexdigest()

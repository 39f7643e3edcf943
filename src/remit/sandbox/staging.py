"""Where files are gathered before they appear in their place, all at once. The directory is locked while it is in use,
so that what a killed run left is told from what another run is filling, and a later run removes it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator

PREFIX = ".remit-staging-"
"""Nothing that is kept may be called so at the top: `sweep` would take it for what a killed run left."""
_OLD_S = 60
"""A younger directory may have been made just now, and not be locked yet."""


@contextlib.contextmanager
def directory(parent: str) -> Iterator[str]:
    """A new directory in `parent` (made if need be); gone at the end with everything that is still in it."""
    import shutil

    os.makedirs(parent, exist_ok=True)
    path = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            # Without locks (some network file systems) nothing is ever taken for left behind: see `sweep`.
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def sweep(parent: str, now: float | None = None) -> int:
    """Removes what killed runs of this user left in `parent`. Returns how many directories that were."""
    import shutil

    removed = 0
    limit = (time.time() if now is None else now) - _OLD_S
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX) or not entry.is_dir(follow_symlinks=False):
                continue
            found = entry.stat(follow_symlinks=False)
            if found.st_uid == os.geteuid() and found.st_mtime < limit and not _in_use(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)
                removed += 1
    return removed


def _in_use(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # Locked, or no locks here: then it can't be told.
        return True
    finally:
        os.close(lock)
    return False

"""Reads a file of the closure once: what it is, who may change it, and what it holds, all through one descriptor.

The launcher mounts by path and compares the stamp through the descriptor that it mounts, so "hashed" means "mounted"
only if no later write can leave the stamp as it was. Two things see to that: the stamp is taken before and after the
reading, and a file that was changed in the present tick of the kernel's clock is read after that tick is over (a
second write within the tick would have the same ctime).
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from typing import NamedTuple

from remit.errors import HostError
from remit.plan.template import Stamp
from remit.sandbox.closure.trust import refuse_writable

_TICK_NS = 10_000_000
"""The coarsest clock by which Linux stamps files: one jiffy at HZ=100."""
_CHUNK = 1 << 20
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
"""The path is resolved already, so a link there now was put there since. Opening a FIFO must not wait for a writer."""


MOST = 64 << 30
"""Bytes read for the closure, in one process; the largest of runtimes, with all of CUDA beside it, has less than a
third. Sizes are taken at their word before anything is read: a sparse file of an exabyte costs its writer nothing."""


class _Reading:
    """How much this process, which finds one closure or two, may still read."""

    left = MOST


def _take(path: str, size: int) -> None:
    if size > _Reading.left:
        raise HostError(
            "closure",
            f"{path} has {size} bytes: with it, what these programs bring in is more than {MOST >> 30} GiB",
            hint="files of such a size are no part of a runtime: move it away, or grant it with filesystem.read, which "
            "hashes nothing",
        )
    _Reading.left -= size


class Content(NamedTuple):
    """`head`: the first bytes, enough to tell ELF from a script. `mode`: as `st_mode`."""

    stamp: Stamp
    sha256: str
    head: bytes
    mode: int


def stamp_of(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def read(path: str, *, trusted: bool) -> Content:
    """Hashes the regular file at `path`, which is a real path. `trusted`: refuse what others may write.

    Raises `HostError` if it is something else, changes meanwhile, or may be changed by others; `OSError` if it can't be
    opened.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        # ELOOP: it became a link. ENXIO: a socket, or a device without its driver.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise not_regular(path) from error
        raise
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise not_regular(path)
        if trusted:
            refuse_writable(path, before)
        _take(path, before.st_size)
        if 0 <= time.time_ns() - before.st_ctime_ns < _TICK_NS:
            time.sleep(_TICK_NS / 1e9)
        digest = hashlib.sha256()
        head = data = os.read(fd, min(before.st_size + 1, _CHUNK))
        done = 0
        while data:
            digest.update(data)
            done += len(data)
            # Most files are small: the second stamp says as well as another read that nothing is left.
            data = b"" if done == before.st_size else os.read(fd, _CHUNK)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if stamp_of(before) != stamp_of(after) or done != after.st_size:
        raise HostError("closure", f"{path} changed while it was read", hint="run again when the upgrade is over")
    return Content(stamp_of(after), digest.hexdigest(), head[:256], after.st_mode)


def not_regular(path: str) -> HostError:
    return HostError(
        "closure",
        f"{path} is neither a file, a directory nor a link",
        hint="sockets, FIFOs and devices have no place among a program's files: remove it, or leave the program out",
    )

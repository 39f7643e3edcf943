"""Copies what `state.keep` names out of a dead sandbox, following nothing that the guest planted.

The tree is another's: every step goes by descriptor, one name at a time, with O_NOFOLLOW, so that a link in it leads
nowhere. Everything is staged beside its destination first and then renamed, so that no half of a file is ever seen.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from remit.policy.actions import KeepFile
from remit.policy.decide import decide
from remit.policy.model import Remit
from remit.policy.view import View
from remit.sandbox import staging
from remit.sandbox.shorten import Budget, shorten

_CHUNK = 1024 * 1024
MAX_DEPTH = 128
PATH_MAX = 4096
"""In bytes; the kernel takes no longer path, so nobody could open what would be placed."""
MAX_KEPT, MAX_KEPT_BYTES = 65_536, 4 * 1024 * 1024
"""Files of one run that are kept, and their names as the receipt writes them."""
_MAX_REFUSED, _MAX_REFUSED_BYTES = 10_000, 1024 * 1024
"""What was not kept and is said one by one; how many more there were is said once."""
MORE = "..."
"""In the place of a path, where so many more are told of at once."""
PATIENCE_S = 60.0
"""For looking through what the guest left. Copying is not counted: `limits.disk` and `MAX_KEPT` bound it."""
_UNREADABLE = (errno.EACCES, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
"""What a name answers that may not be read, or is something else than it was when it was looked at."""


class Kept(NamedTuple):
    """`path`: relative to the work directory and to the destination alike. `size` in bytes."""

    path: str
    size: int
    sha256: str


class NotKept(NamedTuple):
    """Something that matched and was refused, with the reason."""

    path: str
    rule: str
    reason: str


class Taken(NamedTuple):
    """What was placed, what was refused, and what went wrong with the destination, if anything did."""

    kept: tuple[Kept, ...]
    refused: tuple[NotKept, ...]
    error: str | None


class _Refused:
    """What is said to be not kept: as much of it as a receipt may hold."""

    def __init__(self) -> None:
        self._said: list[NotKept] = []
        self._budget = Budget(_MAX_REFUSED, _MAX_REFUSED_BYTES)
        self._more = 0

    def say(self, path: str, rule: str, reason: str) -> None:
        shown, why = shorten(path), shorten(reason)
        if self._budget.take(shown, why):
            self._said.append(NotKept(shown, rule, why))
        else:
            self._more += 1

    def all(self) -> tuple[NotKept, ...]:
        if not self._more:
            return tuple(self._said)
        return (*self._said, NotKept(MORE, "state.keep", f"{self._more} more were not kept: too many to be named"))


def keep(root: int, remit: Remit, view: View, destination: str, placeholders: frozenset[int] = frozenset()) -> Taken:
    """`root`: a descriptor of the work directory (or of the layer that holds its changes). `placeholders`: the inodes
    of the empty files that the launcher made to mount inputs on; by name they can't be told, for the guest may move
    their parents. A destination that can't be written is an `error` in the result, beside what had been placed by
    then."""
    with contextlib.ExitStack() as stack:
        # Only where there is something to keep is the destination made.
        make = lambda: stack.enter_context(staging.directory(destination))  # noqa: E731
        return _keep(root, remit, view, destination, placeholders, make)


def _keep(
    root: int, remit: Remit, view: View, destination: str, placeholders: frozenset[int], stage: Callable[[], str]
) -> Taken:
    kept: list[Kept] = []
    refused = _Refused()
    staged: list[tuple[str, str]] = []
    budget = remit.limits.disk
    names = Budget(MAX_KEPT, MAX_KEPT_BYTES)
    place: str | None = None
    end = time.monotonic() + PATIENCE_S
    late: str | None = None

    def closed(path: str, reason: str) -> None:
        # Below it something may have been asked for, so it is said of each.
        refused.say(path, "state.keep", reason)

    for path, directory, name, found in walk(root, closed):
        if time.monotonic() > end:
            late = f"looking for what to keep took longer than {PATIENCE_S:.0f} s: what was found by then is kept"
            break
        if found.st_ino in placeholders or (stat.S_ISCHR(found.st_mode) and found.st_rdev == 0):
            # The latter is how an overlay says that something below was deleted.
            continue
        kind = _kind(found.st_mode)
        if kind == "directory":
            continue
        decision = decide(remit, KeepFile(path, kind, found.st_size), view)
        if not decision.allowed:
            # Only what a pattern names is worth a word: the rest was never asked for.
            if decide(remit, KeepFile(path, "file", 0), view).allowed:
                refused.say(path, decision.rule, decision.reason)
            continue
        if path.startswith(staging.PREFIX):
            refused.say(path, "state.keep", f"{path}: such names are of Remit's own, which removes them later")
            continue
        if found.st_size > budget:
            refused.say(path, "limits.disk", f"{path} would exceed the disk limit in all")
            continue
        if not names.take(path):
            most = f"one run keeps {MAX_KEPT} files, and {MAX_KEPT_BYTES} bytes of names"
            refused.say(path, "state.keep", f"{path}: {most}")
            continue
        if place is None:
            place = stage()
        temporary = os.path.join(place, str(len(staged)))
        began = time.monotonic()
        try:
            size, digest = copy_file(directory, name, temporary, budget, bool(found.st_mode & 0o100))
        except OSError as error:
            if error.errno not in (*_UNREADABLE, errno.EFBIG):
                raise
            refused.say(path, "state.keep", f"{path} can't be read: {error.strerror}")
            continue
        end += time.monotonic() - began
        budget -= size
        staged.append((temporary, path))
        kept.append(Kept(path, size, digest))
    placed: list[Kept] = []
    for (temporary, path), done in zip(staged, kept, strict=True):
        try:
            _place(temporary, destination, path)
        except OSError as error:
            return Taken(tuple(placed), refused.all(), f"{shorten(path)}: {error.strerror}")
        placed.append(done)
    return Taken(tuple(placed), refused.all(), late)


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "special file"


def walk(root: int, closed: Callable[[str, str], None]) -> Iterator[tuple[str, int, str, os.stat_result]]:
    """Every entry with its relative path, its directory's descriptor and its own name. Depth first, sorted. `closed`
    hears of the paths below which nothing is told, and why: those that an ordinary user's own guest has shut to its
    user, and those that are longer or deeper than anybody needs."""
    shut = f"can't be read: {os.strerror(errno.EACCES)}"

    def descend(directory: int, prefix: str, depth: int) -> Iterator[tuple[str, int, str, os.stat_result]]:
        room = PATH_MAX - 1 - len(os.fsencode(prefix))
        for name in sorted(os.listdir(directory)):
            path = f"{prefix}{name}"
            if len(os.fsencode(name)) > room:
                closed(path, f"{shorten(path)} is longer than a path may be")
                continue
            try:
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                # Gone since it was listed: another process still has this tree.
                continue
            except PermissionError:
                # Its directory can be listed and not searched.
                closed(path, f"{shorten(path)} {shut}")
                continue
            yield path, directory, name, found
            if not stat.S_ISDIR(found.st_mode):
                continue
            if depth >= MAX_DEPTH:
                closed(path, f"{shorten(path)} lies deeper than {MAX_DEPTH} directories")
                continue
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                below = os.open(name, flags, dir_fd=directory)
            except OSError as error:
                if error.errno not in _UNREADABLE:
                    raise
                if error.errno == errno.EACCES:
                    closed(path, f"{shorten(path)} {shut}")
                continue
            try:
                yield from descend(below, f"{path}/", depth + 1)
            finally:
                os.close(below)

    yield from descend(root, "", 0)


def copy_file(directory: int, name: str, to: str, most: int, executable: bool) -> tuple[int, str]:
    """Copies one regular file by descriptor. Size and sha256 are of the bytes that were written."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    source = os.open(name, flags, dir_fd=directory)
    try:
        if not stat.S_ISREG(os.fstat(source).st_mode):
            raise OSError(errno.ELOOP, "it is no regular file any more")
        target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755 if executable else 0o644)
        try:
            digest, size = hashlib.sha256(), 0
            while block := os.read(source, _CHUNK):
                size += len(block)
                if size > most:
                    raise OSError(errno.EFBIG, "it is larger than the disk limit")
                digest.update(block)
                view = memoryview(block)
                while view:
                    view = view[os.write(target, view) :]
            os.fsync(target)
        except BaseException:
            # The name is free again for the next one.
            os.unlink(to)
            raise
        finally:
            os.close(target)
    finally:
        os.close(source)
    return size, digest.hexdigest()


def _place(temporary: str, destination: str, path: str) -> None:
    """Renames into place below `destination`, making directories, through no link that an earlier run left there."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    at = os.open(destination, flags)
    try:
        *above, name = path.split("/")
        for part in above:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=at)
            below = os.open(part, flags | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        os.rename(temporary, name, dst_dir_fd=at)
    finally:
        os.close(at)

"""Reads a whole directory of a runtime: its digest, and what else it needs."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from remit.errors import HostError
from remit.sandbox.closure import elf, hashing
from remit.sandbox.closure.elf import Elf
from remit.sandbox.closure.trust import refuse_writable

MOST = 32 << 30
"""Bytes of one tree, by its files' sizes: see `hashing.MOST`."""


class Scan(NamedTuple):
    """`digest`: sha256 over (relative path, type, size, sha256 or target) of every entry, sorted. `members`: the ELF
    files, if the tree is executable. `outward`: paths of the links that lead out of the tree."""

    digest: str
    members: tuple[tuple[str, Elf], ...]
    outward: tuple[str, ...]


def scan(root: str, *, executable: bool) -> Scan:
    """Raises `HostError` for a FIFO, socket or device, a file that changes meanwhile, and (if `executable`) for what
    others may write."""
    whole = hashlib.sha256()
    members: list[tuple[str, Elf]] = []
    outward: list[str] = []
    if executable:
        refuse_writable(root, os.stat(root))
    start = len(root.rstrip("/")) + 1
    size = 0
    for entry in _entries(root):
        path = entry.path
        if entry.is_symlink():
            target = os.readlink(path)
            word = f"link {len(target)} {target}"
            if not _within(root, posixpath.join(posixpath.dirname(path), target)):
                outward.append(path)
        elif entry.is_dir(follow_symlinks=False):
            word = "dir 0 -"
            if executable:
                refuse_writable(path, entry.stat(follow_symlinks=False))
        elif not entry.is_file(follow_symlinks=False):
            # Not even opened: opening a device can do something.
            raise hashing.not_regular(path)
        else:
            # Before it is read.
            size += entry.stat(follow_symlinks=False).st_size
            if size > MOST:
                raise HostError(
                    "closure",
                    f"{root} holds more than {MOST >> 30} GiB, {path} with the rest of it",
                    hint="files of such a size are no part of a runtime: move them out of it, or grant them with "
                    "filesystem.read, which hashes nothing",
                )
            try:
                content = hashing.read(path, trusted=executable)
            except PermissionError:
                # What the caller can't read can't be read inside either.
                word = "unreadable 0 -"
            else:
                word = f"file {content.stamp.size} {content.sha256}"
                if executable and content.head.startswith(elf.MAGIC) and (found := elf.read(path)):
                    members.append((path, found))
        whole.update(f"{path[start:]}\0{word}\n".encode("utf-8", "surrogateescape"))
    return Scan(whole.hexdigest(), tuple(members), tuple(outward))


def _entries(root: str) -> Iterator[os.DirEntry[str]]:
    """Everything below `root`, in an order that depends on names alone."""
    stack = [root]
    while stack:
        try:
            with os.scandir(stack.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except PermissionError:
            continue
        yield from entries
        stack.extend(e.path for e in reversed(entries) if e.is_dir(follow_symlinks=False))


def _within(root: str, path: str) -> bool:
    return posixpath.normpath(path).startswith(root + "/")

"""Remembers what was read of a tree, so that a second template with the same runtime, or one rebuilt after a small
change elsewhere, does not read a hundred megabytes again. As true as its `TreeStamp`."""

from __future__ import annotations

from remit.sandbox.closure import cache, trees
from remit.sandbox.closure.elf import Elf, Machine
from remit.sandbox.closure.evidence import TreeStamp
from remit.sandbox.closure.trees import Scan


class KnownTrees:
    """`directory`: the cache's, None to remember nothing. `verify`: read even what is known."""

    def __init__(self, directory: str | None, *, verify: bool) -> None:
        self._directory = directory
        self._verify = verify

    def scan(self, root: str, executable: bool, stamp: TreeStamp) -> Scan:
        if self._directory is None:
            return trees.scan(root, executable=executable)
        file = f"{self._directory}/tree-{cache.key(root, executable)}.json"
        body = None if self._verify else cache.read(file)
        try:
            if body is not None and body["stamp"] == stamp.digest:
                members = tuple((path, _elf(fields)) for path, fields in body["members"])
                return Scan(body["digest"], members, tuple(body["outward"]))
        except (KeyError, TypeError, ValueError):
            pass
        found = trees.scan(root, executable=executable)
        cache.write(file, {"stamp": stamp.digest, **found._asdict()})
        return found


def _elf(fields: list[object]) -> Elf:
    loader, needed, rpath, runpath, machine, origin = fields
    return Elf(loader, tuple(needed), tuple(rpath), tuple(runpath), Machine(*machine), origin)  # type: ignore[arg-type, misc]

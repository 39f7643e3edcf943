"""What an ELF file needs to run: its loader and the names of its libraries.

Nothing is executed: `ldd` runs the program's own loader. pyelftools is imported on first use, since it costs 50 ms.
"""

from __future__ import annotations

import io
import os
import posixpath
from typing import IO, Any, NamedTuple

MAGIC = b"\x7fELF"
_IN_MEMORY = 4 << 20
_LIB = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
"""What `$LIB` stands for is the distribution's choice, built into its loader: one of these."""


class Machine(NamedTuple):
    """A library is only for programs of the same: `bits` 32 or 64, `name` as in e_machine ('EM_X86_64')."""

    bits: int
    name: str


class Elf(NamedTuple):
    """`loader`: PT_INTERP, None for a static program or a library. `needed`, `rpath`, `runpath`: as written, with
    lists of directories split. `origin`: the directory that `$ORIGIN` stands for."""

    loader: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    machine: Machine
    origin: str

    def directories(self, entries: tuple[str, ...]) -> tuple[str, ...]:
        """`entries` of rpath or runpath as absolute directories. Relative ones are left out: what they hold depends on
        where one stands."""
        found: list[str] = []
        for entry in entries:
            text = entry.replace("${", "$").replace("}", "")
            for lib in _LIB if "$LIB" in text else ("",):
                directory = text.replace("$ORIGIN", self.origin).replace("$LIB", lib)
                directory = directory.replace("$PLATFORM", self.machine.name.removeprefix("EM_").lower())
                if directory.startswith("/"):
                    found.append(directory)
        return tuple(found)


def read(path: str) -> Elf | None:
    """None if `path` is no ELF file that can be understood. `$ORIGIN` is its directory."""
    try:
        with open(path, "rb") as file:
            return _parse(file, posixpath.dirname(path)) if file.read(4) == MAGIC else None
    except OSError:
        return None


def _parse(file: IO[bytes], origin: str) -> Elf | None:
    from elftools.common.exceptions import ELFError
    from elftools.construct.core import ConstructError
    from elftools.elf.elffile import ELFFile

    # pyelftools reads a few bytes at a time: from memory, unless the file is too large for that.
    file.seek(0)
    source = io.BytesIO(file.read()) if os.fstat(file.fileno()).st_size < _IN_MEMORY else file
    loader: str | None = None
    tags: dict[str, list[str]] = {"DT_NEEDED": [], "DT_RPATH": [], "DT_RUNPATH": []}
    try:
        elf = ELFFile(source)
        segment: Any  # a class of its own for each type, which mypy can't tell
        for segment in elf.iter_segments():
            kind = segment["p_type"]
            if kind == "PT_INTERP":
                loader = segment.get_interp_name()
            elif kind == "PT_DYNAMIC":
                _dynamic(segment, tags)
        machine = Machine(elf.elfclass, str(elf["e_machine"]))
    except (
        ELFError,
        ConstructError,
        ValueError,
        AssertionError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
    ):
        # The files of a runtime's tree are anybody's: a broken one is no library, and not our failure.
        return None
    return Elf(loader, tuple(tags["DT_NEEDED"]), _split(tags["DT_RPATH"]), _split(tags["DT_RUNPATH"]), machine, origin)


def _dynamic(segment: Any, tags: dict[str, list[str]]) -> None:
    for tag in segment.iter_tags():
        name = tag.entry.d_tag
        if name == "DT_NEEDED":
            tags[name].append(tag.needed)
        elif name == "DT_RUNPATH":
            tags[name].append(tag.runpath)
        elif name == "DT_RPATH":
            tags[name].append(tag.rpath)


def _split(lists: list[str]) -> tuple[str, ...]:
    return tuple(part for entry in lists for part in entry.split(":") if part)

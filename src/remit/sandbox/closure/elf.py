"""What an ELF file needs to run: its loader and the names of its libraries. Parsed with pyelftools, imported on first
use (50 ms)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple


class Elf(NamedTuple):
    """`loader`: the path of the interpreter, None for a static program or a library. `needed`: library names.
    `search`: RUNPATH or RPATH directories, `$ORIGIN` resolved. `machine`: class and machine, to match libraries."""

    loader: str | None
    needed: tuple[str, ...]
    search: tuple[str, ...]
    machine: tuple[int, str]


def is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path: str) -> Elf | None:
    """None if `path` is no ELF file that can be understood."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with open(path, "rb") as file:
        try:
            elf = ELFFile(file)
            loader: str | None = None
            needed: list[str] = []
            search: list[str] = []
            for segment in elf.iter_segments():
                kind = segment["p_type"]
                if kind == "PT_INTERP":
                    loader = segment.get_interp_name()
                elif kind == "PT_DYNAMIC":
                    _dynamic(segment, needed, search)
        except (ELFError, UnicodeDecodeError, AssertionError, KeyError):
            return None
        origin = str(Path(path).resolve().parent)
        resolved = tuple(
            d.replace("$ORIGIN", origin).replace("${ORIGIN}", origin) for entry in search for d in entry.split(":") if d
        )
        return Elf(loader, tuple(needed), resolved, (elf.elfclass, str(elf["e_machine"])))


def _dynamic(segment: Any, needed: list[str], search: list[str]) -> None:
    for tag in segment.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED":
            needed.append(tag.needed)
        elif tag.entry.d_tag == "DT_RUNPATH":
            search.append(tag.runpath)
        elif tag.entry.d_tag == "DT_RPATH":
            search.append(tag.rpath)

"""Where a loader looks for a library, in its order. glibc and musl differ: see ld.so(8) and musl's ldso/dynlink.c.

glibc: RPATH of the asking object and of those that loaded it (if the asking one has no RUNPATH), its own RUNPATH, the
loader's cache, the usual directories. musl: RPATH and RUNPATH alike, inherited; then the directories of
/etc/ld-musl-ARCH.path or three usual ones. LD_LIBRARY_PATH does not enter a sandbox and so counts for nothing.
"""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from remit.sandbox.closure.elf import Elf, Machine
from remit.sandbox.closure.which import is_program

_MULTIARCH = {
    Machine(64, "EM_X86_64"): "x86_64-linux-gnu",
    Machine(32, "EM_X86_64"): "x86_64-linux-gnux32",
    Machine(32, "EM_386"): "i386-linux-gnu",
    Machine(64, "EM_AARCH64"): "aarch64-linux-gnu",
    Machine(32, "EM_ARM"): "arm-linux-gnueabihf",
    Machine(64, "EM_RISCV"): "riscv64-linux-gnu",
    Machine(64, "EM_S390"): "s390x-linux-gnu",
    Machine(64, "EM_PPC64"): "powerpc64le-linux-gnu",
}
_GLIBC_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MUSL_USUAL = ("/lib", "/usr/local/lib", "/usr/lib")


class Asker(NamedTuple):
    """An object that needs libraries. `inherited`: the directories of its RPATH and of those that loaded it, nearest
    first. `musl_path`: the file that lists musl's directories; None for glibc."""

    elf: Elf
    inherited: tuple[str, ...]
    musl_path: str | None

    @classmethod
    def of(cls, elf: Elf, loaded_by: Asker | None = None) -> Asker:
        before, musl = ((), _musl_path(elf.loader)) if loaded_by is None else loaded_by[1:]
        if musl:
            return cls(elf, elf.directories(elf.rpath + elf.runpath) + before, musl)
        # An object's RPATH counts for nothing if it has a RUNPATH.
        own = () if elf.runpath else elf.directories(elf.rpath)
        return cls(elf, own + before, None)

    def candidates(self, name: str) -> Iterator[str]:
        """Paths at which the library `name` may be."""
        if "/" in name:
            # A relative one is relative to the current directory.
            yield from (name,) if name.startswith("/") else ()
            return
        directories = self._before_cache()
        yield from (f"{directory}/{name}" for directory in directories)
        if self.musl_path:
            yield from (f"{directory}/{name}" for directory in _musl_directories(self.musl_path))
            return
        yield from _loader_cache().get(name, ())
        triplet = _MULTIARCH.get(self.elf.machine)
        for directory in (f"/lib/{triplet}", f"/usr/lib/{triplet}", *_GLIBC_USUAL) if triplet else _GLIBC_USUAL:
            yield f"{directory}/{name}"

    def _before_cache(self) -> tuple[str, ...]:
        if self.musl_path:
            return self.inherited
        return (() if self.elf.runpath else self.inherited) + self.elf.directories(self.elf.runpath)

    def variants(self, found: str) -> Iterator[str]:
        """Builds of the library at `found` that the loader prefers to it on processors that can run them."""
        if self.musl_path:
            return
        name = posixpath.basename(found)
        yield from (path for path in _loader_cache().get(name, ()) if "/glibc-hwcaps/" in path)
        yield from (f"{level}/{name}" for level in _hwcaps(posixpath.dirname(found)))


def _musl_path(loader: str | None) -> str | None:
    name = posixpath.basename(loader or "")
    return f"/etc/{name.split('.')[0]}.path" if name.startswith("ld-musl-") else None


@cache
def _hwcaps(directory: str) -> tuple[str, ...]:
    try:
        levels = sorted(os.listdir(f"{directory}/glibc-hwcaps"))
    except OSError:
        return ()
    return tuple(f"{directory}/glibc-hwcaps/{level}" for level in levels)


@cache
def _musl_directories(file: str) -> tuple[str, ...]:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            listed = opened.read().replace("\n", ":").split(":")
    except OSError:
        return _MUSL_USUAL
    return tuple(directory for directory in listed if directory.startswith("/"))


@cache
def _loader_cache() -> dict[str, tuple[str, ...]]:
    """Library name -> paths in the loader's order, as `ldconfig -p` prints /etc/ld.so.cache."""
    ldconfig = next((path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if is_program(path)), None)
    if ldconfig is None:
        return {}
    try:
        done = subprocess.run(
            [ldconfig, "-p"], capture_output=True, text=True, check=False, timeout=10, env={"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return {}
    return parse_cache(done.stdout)


def parse_cache(text: str) -> dict[str, tuple[str, ...]]:
    """Of each line `libz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1`, the name and the path."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        left, arrow, path = line.strip().partition(" => ")
        if arrow and path.startswith("/"):
            found.setdefault(left.split(" ", 1)[0], []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def forget() -> None:
    """The host may have changed since the last build of a long-lived process."""
    for remembered in (_loader_cache, _musl_directories, _hwcaps):
        remembered.cache_clear()

"""The libraries that an ELF file loads, and those that these load, as its loader would find them."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from functools import cache

from remit.errors import HostError
from remit.sandbox.closure import elf
from remit.sandbox.closure.elf import Elf
from remit.sandbox.closure.loader import Asker

BY_NAME = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""Loaded by the C library by name and so in nobody's list: the first by pthread_cancel and pthread_exit, the others
when it looks up users and hosts (in one piece with it since glibc 2.34, and then absent)."""

_BY_LIBRARY = {
    # NSS: its cryptography and store of certificates, without which it does not start, and the authorities that
    # Mozilla trusts.
    "libnss3.so": ("libsoftokn3.so", "libfreebl3.so", "libfreeblpriv3.so", "libnssckbi.so"),
}
"""Library -> others that it loads by name."""

_PART_OF_MUSL = re.compile(r"lib(c|pthread|rt|m|dl|util|xnet)\.(so|musl-).*")
"""musl answers for these itself, whether or not there are files of the name."""


def libraries(
    asker: Asker, path: str, loaded: dict[str, str], *, strict: bool, extra: tuple[str, ...] = ()
) -> Iterator[str]:
    """Paths (as found, not resolved) of the libraries that the object at `path` needs and that are not in `loaded`
    (name -> path), which grows: a name that is loaded is not looked for again, as in the loader.

    `strict`: a library that is nowhere raises `HostError`, as the program would not start. `extra`: further names,
    wanted if they are there.
    """
    queue = deque([(asker, path, extra)])
    while queue:
        asker, path, extra = queue.popleft()
        for name in (*asker.elf.needed, *extra):
            if name in loaded:
                continue
            found = _find(asker, name)
            if found is not None:
                at, library = found
                loaded[name] = at
                yield at
                yield from (p for p in asker.variants(at) if p != at and _fits(p, asker.elf))
                queue.append((Asker.of(library, asker), at, _BY_LIBRARY.get(name, ())))
            elif strict and name not in extra and not (asker.musl_path and _PART_OF_MUSL.fullmatch(name)):
                raise HostError(
                    "closure",
                    f"{path} needs {name}, which is nowhere that its loader looks",
                    hint="install the package that holds it, or leave the program out",
                )


def _find(asker: Asker, name: str) -> tuple[str, Elf] | None:
    for candidate in asker.candidates(name):
        library = _fits(candidate, asker.elf)
        if library is not None:
            return candidate, library
    return None


def _fits(path: str, program: Elf) -> Elf | None:
    # The loader, too, passes over a file that is not for its machine and looks on.
    found = _read(path) if os.path.isfile(path) else None
    return found if found is not None and found.machine == program.machine else None


_read = cache(elf.read)


def forget() -> None:
    """As `loader.forget`."""
    _read.cache_clear()

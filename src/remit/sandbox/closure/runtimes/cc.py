"""C and C++ compilers (GCC, and Clang, which answers the same questions): the driver is asked for the programs behind
it, for where it looks for headers, and for the few files of the C library that every link takes in. Other libraries to
link with are the caller's to grant, by `filesystem.read`."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from remit.errors import HostError
from remit.sandbox.closure import elf, shims
from remit.sandbox.closure.ask import ask

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_NAMES = re.compile(r"(.+-)?(gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(-[0-9.]+)?")
_PROGRAMS = ("cc1", "cc1plus", "collect2", "lto-wrapper", "lto1", "as", "ld")
_LINKED = (
    *(f"{name}.o" for name in ("crt1", "Scrt1", "rcrt1", "gcrt1", "crti", "crtn")),
    *(f"lib{name}.{kind}" for name in ("c", "m", "pthread", "dl", "rt", "util", "resolv") for kind in ("a", "so")),
    *("libgcc_s.so.1", "libstdc++.so.6"),
)
"""What a link of any program may take in; the C library's are found by these names on any distribution."""


def knows(path: str, real: str) -> bool:
    return any(_NAMES.fullmatch(posixpath.basename(name)) for name in (path, real)) and not shims.is_script(path)


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return True


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    for name in _PROGRAMS:
        said = _ask(grants, path, f"-print-prog-name={name}").stdout.strip()
        at = said if posixpath.isabs(said) else grants.found(said)
        if at and os.access(at, os.X_OK):
            grants.grant(at)
    for place in _headers(_ask(grants, path, "-E", "-v", "-x", "c++", os.devnull, check=False).stderr):
        grants.collect.data(posixpath.normpath(place))
    for place in _headers(_ask(grants, path, "-E", "-v", "-x", "c", os.devnull).stderr):
        grants.collect.data(posixpath.normpath(place))
    around = set()
    for name in _LINKED:
        said = _ask(grants, path, f"-print-file-name={name}").stdout.strip()
        if posixpath.isabs(said) and os.path.isfile(said):
            around.add(posixpath.dirname(_linked(grants, posixpath.normpath(said))) + "/")
    own = posixpath.dirname(_ask(grants, path, "-print-libgcc-file-name").stdout.strip())
    if posixpath.isabs(own):
        # The sanitizers' and OpenMP's libraries there are links to the C library's neighbours.
        grants.collect.tree(posixpath.normpath(own), executable=True, of=real, follow=tuple(sorted(around)))
    return path


def _linked(grants: Grants, path: str) -> str:
    """Grants a file that is linked with, and what it names, if it is one of the linker's scripts: glibc's libc.so and
    libm.a are. Returns its real path."""
    real = grants.collect.add(path, "library" if elf.read(os.path.realpath(path)) else "data")
    with open(real, "rb") as file:
        text = file.read(4096)
    if text.startswith(b"/* GNU ld script"):
        for name in re.findall(rb"(?<=[\s(])/[^\s()*]+", text):
            if os.path.isfile(name):
                _linked(grants, os.fsdecode(name))
    return real


def _headers(said: str) -> Iterator[str]:
    """The directories between the two lines that GCC and Clang print around them."""
    listed = re.search(r"^#include <\.\.\.> search starts here:\n(.*?)^End of search list", said, re.M | re.S)
    return (line.strip() for line in listed[1].splitlines()) if listed else iter(())


def _ask(grants: Grants, path: str, *question: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    leave = ("GCC_", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
    env = {**grants.search.env, "PATH": grants.search.path, "LC_ALL": "C"}
    try:
        return ask([path, *question], env=env, leave=leave, check=check)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise HostError(
            "closure", f"{path} does not say what it compiles with: {error}", hint=f"does `{path} -v` work here?"
        ) from error

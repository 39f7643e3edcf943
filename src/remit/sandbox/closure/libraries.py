"""Where the loader would find a library: RUNPATH, the loader's cache, the usual directories. Nothing is executed:
`ldd` runs the program's own loader, so it is not used."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_USUAL = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_MUSL_PATHS = "/etc/ld-musl-x86_64.path"


@cache
def _loader_cache() -> dict[str, tuple[str, ...]]:
    """Library name to paths, as `ldconfig -p` prints the loader's cache."""
    try:
        done = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False, timeout=10, env={"LC_ALL": "C"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        left, arrow, path = line.strip().partition(" => ")
        if arrow:
            found.setdefault(left.split(" ", 1)[0], []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def candidates(name: str, search: Iterable[str], musl: bool) -> Iterable[str]:
    """Paths at which `name` may be, in the loader's order."""
    if "/" in name:
        yield name
        return
    for directory in search:
        yield f"{directory}/{name}"
    if musl:
        own = Path(_MUSL_PATHS)
        text = own.read_text() if own.exists() else "/lib:/usr/local/lib:/usr/lib"
        for directory in text.replace("\n", ":").split(":"):
            if directory:
                yield f"{directory}/{name}"
        return
    yield from _loader_cache().get(name, ())
    for directory in _USUAL:
        yield f"{directory}/{name}"

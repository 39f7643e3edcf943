"""Follows a path as the kernel does, part by part, and says which links were on the way.

Each link is reported at its canonical place (no link above it), so that all of them can be made anew inside, in any
order, and lead to the one real file.
"""

from __future__ import annotations

import os
import posixpath
from typing import NamedTuple

from remit.errors import HostError

_MOST_LINKS = 40
"""As the kernel: MAXSYMLINKS."""


class Walk(NamedTuple):
    """`real`: where the path ends; it need not exist. `links`: place -> target of every link passed."""

    real: str
    links: dict[str, str]


def follow(path: str) -> Walk:
    """Raises `HostError` for a loop of links."""
    links: dict[str, str] = {}
    done, steps = "", 0
    rest = path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        here = f"{done}/{part}"
        try:
            target = os.readlink(here)
        except OSError:
            # Not a link, or not there at all.
            done = here
            continue
        steps += 1
        if steps > _MOST_LINKS:
            raise HostError("closure", f"{path}: its symbolic links lead in a circle", hint=f"see `namei {path}`")
        links[here] = target
        rest += target.split("/")[::-1]
        if target.startswith("/"):
            done = ""
    return Walk(done or "/", links)

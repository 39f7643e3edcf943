"""Chromium and what is built from it (Chrome, Playwright's, the headless shell): the directory that the program lies
in, and fonts. Distributions put a shell script before it, which would want a shell and a dozen tools: the program
itself stands in the script's place, as with ldconfig."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from remit.sandbox.closure import elf

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_NAME = re.compile(
    r"(ungoogled-)?chromium(-browser)?|(google-)?chrome(-(stable|beta|unstable))?|chrome-headless-shell|headless_shell"
)
_BESIDE = "icudtl.dat"
"""Lies beside every such program: one of the name in ~/bin must not bring in that directory."""
_FONTS = ("/etc/fonts", "/usr/share/fonts", "/usr/share/fontconfig", "/usr/local/share/fonts")


def knows(path: str, real: str) -> bool:
    named = any(_NAME.fullmatch(posixpath.basename(each)) for each in (path, real))
    return named and _program(real) is not None


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    real = os.path.realpath(path)
    program = _program(real) or real
    grants.plain(program if program != real else path)
    grants.collect.tree(posixpath.dirname(program), executable=True, of=program)
    for place in _FONTS:
        grants.collect.data(place)
    if program != real:
        grants.collect.link(path, program)
    return path


def _program(real: str) -> str | None:
    """What the file `real` is, or, if it is a script, what lies where its script looks; None if that is no browser."""
    above, name = posixpath.split(real)
    places = (f"/usr/lib/{name}/{name}", f"/usr/lib64/{name}/{name}", f"{above}/chrome")
    for place in (real, *places):
        if os.path.isfile(f"{posixpath.dirname(place)}/{_BESIDE}") and elf.read(place) is not None:
            return place
    return None

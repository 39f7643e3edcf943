"""npm, npx and every other program of a package: a script inside of a `node_modules` that needs its package's files."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_PACKAGE = re.compile(r"(?P<package>/.*?/node_modules/(@[^/]+/)?[^/]+)/.+")
"""The outermost: what it depends on lies in it."""
_DEBIAN = re.compile(r"(?P<package>/usr/share/nodejs)/.+")


def _package(real: str) -> str | None:
    found = _DEBIAN.fullmatch(real) or _PACKAGE.fullmatch(real)
    return found["package"] if found else None


def knows(path: str, real: str) -> bool:
    return _package(real) is not None


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    package = _package(real)
    if package and posixpath.basename(package) != ".bin":
        # Packages hold compiled modules, which are mapped executable.
        node = os.path.realpath(grants.found("node") or real)
        grants.collect.tree(package, executable=True, of=node, follow=("/usr/share/",) if _DEBIAN.match(real) else ())
    return path

"""Go: GOROOT, with compilers and the standard library's sources."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants


def knows(path: str, real: str) -> bool:
    return posixpath.basename(real) in ("go", "gofmt") and os.path.isfile(_root(real) + "/VERSION")


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    # Debian splits it: /usr/lib/go-1.N links to /usr/share/go-1.N.
    grants.collect.tree(_root(real), executable=True, of=real, follow=("/usr/share/go", "/usr/lib/go"))
    return path


def _root(real: str) -> str:
    return posixpath.dirname(posixpath.dirname(real))

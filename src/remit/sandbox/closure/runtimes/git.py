"""Git: one program and a directory of its own commands, some of them shell scripts, which brings `sh` with it (Git also
starts it for aliases, hooks and editors). Commands in Perl (send-email, svn) are there and do not start: a second
interpreter is not granted along the way."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_SHELL = "/bin/sh"


def knows(path: str, real: str) -> bool:
    return posixpath.basename(path) == "git" or posixpath.basename(real) == "git"


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    prefix = posixpath.dirname(posixpath.dirname(real))
    for name in ("lib/git-core", "libexec/git-core", "lib/git", "lib64/git-core"):
        # Some distributions link git-core/git to /usr/bin/git.
        grants.collect.tree(posixpath.join(prefix, name), executable=True, of=real, follow=(real,))
    grants.collect.data(posixpath.join(prefix, "share/git-core"))
    if os.path.exists(_SHELL):
        grants.grant(_SHELL)
    return path

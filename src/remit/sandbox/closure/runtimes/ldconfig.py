"""ldconfig, where the distribution has put a shell script before it (Ubuntu): granting the script would grant a shell
to everyone who asks the loader for a library's name, so the program behind it stands at its place."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

from remit.sandbox.closure import elf

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants


def knows(path: str, real: str) -> bool:
    return posixpath.basename(real) == "ldconfig" and elf.read(real) is None and os.path.isfile(f"{real}.real")


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    behind = f"{os.path.realpath(path)}.real"
    grants.plain(behind)
    grants.collect.link(path, behind)
    return path

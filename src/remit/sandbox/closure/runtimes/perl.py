"""Perl: the directories that it looks for modules in, as it says itself (`-f`: no sitecustomize)."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from typing import TYPE_CHECKING

from remit.errors import HostError
from remit.sandbox.closure.ask import ask

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_NAMES = re.compile(r"perl[0-9.]*")


def knows(path: str, real: str) -> bool:
    return any(_NAMES.fullmatch(posixpath.basename(name)) for name in (path, real))


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return True


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    command = [path, "-f", "-e", 'print join "\\0", @INC']
    try:
        done = ask(command, env=grants.search.env, leave=("PERL",))
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise HostError(
            "closure", f"{path} does not say where its modules are: {error}", hint=f"does `{path} -v` work here?"
        ) from error
    for place in done.stdout.split("\0"):
        if os.path.isabs(place):
            grants.collect.tree(place, executable=True, of=real)
    return path

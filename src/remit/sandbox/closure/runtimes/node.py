"""Node: one large program. Debian's is built without some of its own modules and finds them in /usr/share/nodejs."""

from __future__ import annotations

import posixpath
import re
import subprocess
from typing import TYPE_CHECKING

from remit.errors import HostError
from remit.sandbox.closure import shims
from remit.sandbox.closure.ask import ask

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_NAMES = re.compile(r"node(js)?")
_DEBIAN = ("/usr/share/nodejs", "/usr/share/node_modules", "/usr/lib/nodejs")


def knows(path: str, real: str) -> bool:
    return any(_NAMES.fullmatch(posixpath.basename(name)) for name in (path, real))


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return shims.is_script(path)


def add(grants: Grants, path: str) -> str:
    started = _ask(grants, path) if shims.is_script(path) else path
    if started != path:
        grants.chosen_by(path)
    real = grants.plain(started)
    if real.startswith("/usr/bin/"):
        for place in _DEBIAN:
            # Its parts are packages of their own, linked to one another.
            grants.collect.tree(place, executable=True, of=real, follow=("/usr/share/",))
    return started


def _ask(grants: Grants, path: str) -> str:
    command = [path, "-p", "process.execPath"]
    try:
        done = ask(command, env=grants.search.env, leave=("NODE_",), cwd=grants.search.cwd)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise HostError(
            "closure", f"{path} does not say which node it starts: {said}", hint=f"does `{path} -v` work here?"
        ) from error
    return done.stdout.strip()

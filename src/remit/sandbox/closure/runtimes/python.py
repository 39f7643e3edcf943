"""Python: the standard library, and the packages of its environment.

The interpreter is asked where they are, with `-I -S`: no variable, no user's directory, no `.pth` file and no
sitecustomize is read, so that asking runs nothing but the interpreter and its own library. What such files would have
added to sys.path (editable installs) is the caller's own code, which a remit grants by `filesystem.read`.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from typing import TYPE_CHECKING, Any

from remit.errors import HostError
from remit.sandbox.closure import shims
from remit.sandbox.closure.ask import ask

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_NAMES = re.compile(r"(python|pypy)[0-9.]*t?")

_QUESTION = """
import json, os, site, sys, sysconfig as s
near = os.path.dirname(sys.argv[1] or sys.executable)
homes = [d for d in (near, os.path.dirname(near)) if os.path.isfile(os.path.join(d, "pyvenv.cfg"))]
base = getattr(sys, "base_prefix", sys.prefix)
packages = [s.get_path("purelib"), s.get_path("platlib")] + site.getsitepackages([base])
own = []
if homes:
    scheme = "venv" if "venv" in s.get_scheme_names() else "posix_prefix"
    at = dict.fromkeys(("base", "platbase"), os.path.dirname(near))
    own = [s.get_path(k, scheme, at) for k in ("purelib", "platlib")]
print(json.dumps({"executable": sys.argv[1] or sys.executable, "base": base, "path": sys.path, "packages": packages,
    "own": own, "library": [s.get_path("stdlib"), s.get_path("platstdlib")],
    "config": [d + "/pyvenv.cfg" for d in homes[:1]]}))
"""
"""The virtual environment is found here, as site.py would: with -S it is not. The argument: the path by which it is
started, if that is not what runs."""

_SYSTEM = re.compile(r"^include-system-site-packages\s*=\s*true\s*$", re.I | re.M)


def knows(path: str, real: str) -> bool:
    return any(_NAMES.fullmatch(posixpath.basename(name)) for name in (path, real))


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return True


def add(grants: Grants, path: str) -> str:
    said = _ask(grants, path)
    executable: str = said["executable"]
    # A script in the interpreter's place (a wrapper, a version manager's) is not started: what it started is.
    started = path if os.path.realpath(path) == os.path.realpath(executable) else executable
    if started != path:
        grants.chosen_by(path)
    real = grants.plain(started)
    for place in (*said["library"], *said["path"]):
        if os.path.isdir(place):
            # Debian keeps sitecustomize.py in /etc/python3.X.
            grants.collect.tree(place, executable=True, of=real, follow=("/etc/python3",))
        elif place.endswith(".zip"):
            grants.collect.data(place)
    for place in _packages(said):
        grants.collect.tree(place, executable=True, of=real)
    for place in said["config"]:
        grants.collect.data(place)
    if os.path.isdir(posixpath.join(said["base"], "conda-meta")):
        # conda's OpenSSL, curses and zoneinfo are built to look in the environment.
        for name in ("ssl", "share/terminfo", "share/zoneinfo"):
            grants.collect.data(posixpath.join(said["base"], name))
    return started


def _packages(said: dict[str, Any]) -> list[str]:
    if not said["config"]:
        return list(said["packages"])
    with open(said["config"][0], encoding="utf-8", errors="replace") as file:
        system = _SYSTEM.search(file.read())
    return [*said["own"], *(said["packages"] if system else ())]


def _ask(grants: Grants, path: str) -> dict[str, Any]:
    search = grants.search
    script = shims.is_script(path)
    # A program is asked under its own name. By the path of a virtual environment it would take its standard library
    # from where that environment's pyvenv.cfg says, and that is a file of the project.
    asked, started = (path, "") if script else (os.path.realpath(path), path)
    why = ""
    for options, cwd in ((["-I", "-S"], search.cwd if script else "/"), (["-E", "-s", "-S"], "/")):
        command = [asked, *options, "-c", _QUESTION, started]
        try:
            # The second is for Python 2, which knows no -I: there the current directory comes first.
            done = ask(command, env={**search.env, "PATH": search.path}, leave=("PYTHON", "__PYVENV"), cwd=cwd)
            said: dict[str, Any] = json.loads(done.stdout)
            if os.path.isabs(said["executable"] or ""):
                return said
            why = "it does not know its own path"
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            why = why or str(getattr(error, "stderr", None) or error).strip()
    kind = "a script" if script else "an interpreter"
    raise HostError(
        "closure",
        f"{path}, {kind}, does not say where its library is: {why}",
        hint=f"does `{path} -V` work here? If not, choose another Python, or write its path",
    )

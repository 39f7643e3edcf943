"""What a runtime needs beside its program: its standard library and packages. A table of recognisers; adding a runtime
is adding a function."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from remit.errors import HostError
from remit.sandbox.closure.collect import Collector

_ASK_PYTHON = (
    "import json,sys,sysconfig as s,site;p=s.get_paths();"
    "print(json.dumps({'executable':sys.executable,'prefix':sys.prefix,'base':sys.base_prefix,'trees':"
    "sorted({p['stdlib'],p['platstdlib'],p['purelib'],p['platlib'],*site.getsitepackages()})}))"
)


@dataclass(frozen=True, slots=True)
class Found:
    """A granted program: `entry` as written, `path` by which it is started inside."""

    entry: str
    path: str


def _python(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    """Asks the interpreter where its files are. A name on PATH may be a version manager's shell script: the program
    that is started inside is the one that answers, not the script."""
    command = [path, "-c", _ASK_PYTHON]
    asked = {k: v for k, v in env.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30, env=asked, cwd=cwd)
        said = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise HostError("closure", f"{path} does not say where its library is: {error}", hint="does it start?") from error
    for tree in said["trees"]:
        if os.path.isdir(tree):
            collect.tree(tree, executable=True)
    config = f"{said['prefix']}/pyvenv.cfg"
    if said["prefix"] != said["base"] and os.path.isfile(config):
        collect.add(config, "data")
    executable: str = said["executable"]
    collect.program(executable)
    return executable


def _node(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    real = collect.program(path)
    prefix = os.path.dirname(os.path.dirname(real))
    for tree in ("/usr/share/nodejs", "/usr/share/node_modules", f"{prefix}/lib/node_modules/corepack"):
        collect.data(tree)
    return path


def _npm(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    """npm and npx are scripts inside of npm's own package directory."""
    real = os.path.realpath(path)
    package = real[: real.index("/npm/") + 4] if "/npm/" in real else os.path.dirname(real)
    collect.tree(package, executable=True)
    collect.program(path)
    return path


def _git(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    collect.program(path)
    for tree in ("/usr/lib/git-core", "/usr/libexec/git-core"):
        collect.tree(tree, executable=True)
    collect.data("/usr/share/git-core")
    return path


def _java(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    real = os.path.realpath(path)
    collect.tree(os.path.dirname(os.path.dirname(real)), executable=True)
    for data in ("/etc/java-17-openjdk", "/etc/java-21-openjdk", "/etc/ssl/certs/java"):
        collect.data(data)
    collect.program(path)
    return path


def _go(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    collect.tree(os.path.dirname(os.path.dirname(os.path.realpath(path))), executable=True)
    collect.program(path)
    return path


def _perl(collect: Collector, path: str, env: Mapping[str, str], cwd: str) -> str:
    collect.program(path)
    for parent in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/share"):
        if os.path.isdir(parent):
            for name in os.listdir(parent):
                if re.fullmatch(r"perl(-base|5)?|perl/?[0-9.]*", name):
                    collect.tree(f"{parent}/{name}", executable=True)
    return path


Recogniser = Callable[[Collector, str, Mapping[str, str], str], str]

RUNTIMES: tuple[tuple[re.Pattern[str], Recogniser], ...] = (
    (re.compile(r"python([0-9.]*)"), _python),
    (re.compile(r"node(js)?"), _node),
    (re.compile(r"np[mx]"), _npm),
    (re.compile(r"git"), _git),
    (re.compile(r"javac?"), _java),
    (re.compile(r"go"), _go),
    (re.compile(r"perl([0-9.]*)"), _perl),
)


def recognise(path: str) -> Recogniser | None:
    """The recogniser of the program at `path`, by its name."""
    name = path.rsplit("/", 1)[-1]
    return next((found for pattern, found in RUNTIMES if pattern.fullmatch(name)), None)

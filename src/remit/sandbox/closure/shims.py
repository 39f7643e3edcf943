"""Version managers put scripts on PATH ("shims") that choose, by files near the current directory, which version of a
program to start. Inside there is no version manager: the program that it would have chosen is found now and granted.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Iterator, Mapping

from remit.errors import HostError
from remit.sandbox.closure.ask import ask

_EXEC = re.compile(
    r"""^\s*exec\s+["']?(?P<manager>[^"'\s]*?(?:pyenv|rbenv|nodenv|goenv|jenv|asdf))["']?\s+exec\b""", re.M
)
_ROOT = re.compile(r"""^\s*export\s+(?P<name>[A-Z]+_ROOT)=["']?(?P<value>[^"'\n]+)["']?""", re.M)
_LARGEST = 8192
_CHOICES = (".python-version", ".tool-versions", ".node-version", ".ruby-version", ".go-version", ".java-version")
"""Files by which a directory, or one above it, chooses versions."""


def resolve(path: str, cwd: str, env: Mapping[str, str]) -> str | None:
    """The program that the shim at `path` would start in `cwd`; None if `path` is no shim.

    Raises `HostError` if the manager has no such program in the version that is chosen.
    """
    text = _script(path)
    found = _EXEC.search(text)
    if found is None:
        return None
    # A shim says where its manager lives; the manager's own default may be elsewhere.
    roots = {m["name"]: m["value"] for m in _ROOT.finditer(text)}
    command = [found["manager"], "which", posixpath.basename(path)]
    try:
        done = ask(command, env={**env, **roots}, cwd=cwd)
        answer = done.stdout.strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()
        raise _refusal(path, said) from error
    if not os.path.isabs(answer) or not os.path.isfile(answer):
        raise _refusal(path, f"it answered {answer!r}")
    return answer


def _refusal(path: str, said: str) -> HostError:
    return HostError(
        "closure",
        f"{path} belongs to a version manager, which does not say what it would start: {said}",
        hint="choose a version that has the program, or write the program's own path",
    )


def _script(path: str) -> str:
    try:
        with open(path, "rb") as file:
            head = file.read(_LARGEST)
    except OSError:
        return ""
    return head.decode("utf-8", "replace") if head.startswith(b"#!") else ""


def is_script(path: str) -> bool:
    return bool(_script(path))


def consulted(path: str, cwd: str, env: Mapping[str, str]) -> Iterator[str]:
    """The files that decide what the shim at `path` starts in `cwd`; they need not exist."""
    yield path
    directory = env.get("PYENV_DIR", cwd)
    while directory.startswith("/"):
        yield from (posixpath.join(directory, name) for name in _CHOICES)
        if directory == "/":
            break
        directory = posixpath.dirname(directory)
    # pyenv's, rbenv's and their kin's choice for everywhere; asdf's.
    for root in {posixpath.dirname(posixpath.dirname(path)), *(env[n] for n in ("PYENV_ROOT",) if n in env)}:
        yield posixpath.join(root, "version")
    if "HOME" in env:
        yield from (posixpath.join(env["HOME"], name) for name in _CHOICES)

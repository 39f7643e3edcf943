"""Rust: cargo, rustc and their kin of one toolchain. What rustup puts on PATH under their names is one program that
chooses a toolchain; it is asked which, and the toolchain's own program is granted. To link, name cc beside them."""

from __future__ import annotations

import os
import posixpath
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from remit.errors import HostError
from remit.sandbox.closure.ask import ask

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants, Search

_NAMES = ("cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver")


def knows(path: str, real: str) -> bool:
    if posixpath.basename(path) not in _NAMES:
        return False
    return _is_rustup(real) or os.path.isdir(posixpath.join(_root(real), "lib/rustlib"))


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return _is_rustup(os.path.realpath(path))


def add(grants: Grants, path: str) -> str:
    started = path
    if asks(path):
        started = _ask(grants, path)
        grants.consulted.update(_choices(grants.search))
    real = grants.plain(started)
    # The compiler's library and the standard one; not share, which is documentation.
    grants.collect.tree(posixpath.join(_root(real), "lib"), executable=True, of=real)
    return started


def _is_rustup(real: str) -> bool:
    return posixpath.basename(real) == "rustup" or os.path.isfile(posixpath.join(posixpath.dirname(real), "rustup"))


def _root(real: str) -> str:
    return posixpath.dirname(posixpath.dirname(real))


def _ask(grants: Grants, path: str) -> str:
    rustup = posixpath.join(posixpath.dirname(os.path.realpath(path)), "rustup")
    name = posixpath.basename(path)
    # Only say what is there: a missing toolchain is not fetched along the way.
    env = {**grants.search.env, "PATH": grants.search.path, "RUSTUP_AUTO_INSTALL": "0"}
    try:
        done = ask([rustup, "which", name], env=env, cwd=grants.search.cwd)
        answer = done.stdout.strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        answer = str(getattr(error, "stderr", None) or error).strip()
    if not os.path.isfile(answer) or not posixpath.isabs(answer):
        raise HostError(
            "closure",
            f"{path} is rustup's, which does not say what it would start: {answer}",
            hint=f"does `rustup which {name}` work here? If not, choose a toolchain, or write the program's own path",
        )
    return answer


def _choices(search: Search) -> Iterator[str]:
    """The files that decide which toolchain rustup starts; they need not exist."""
    home = search.env.get("RUSTUP_HOME") or posixpath.join(search.env.get("HOME", "/"), ".rustup")
    yield posixpath.join(home, "settings.toml")
    directory = search.cwd
    while posixpath.isabs(directory):
        yield from (posixpath.join(directory, name) for name in ("rust-toolchain", "rust-toolchain.toml"))
        if directory == "/":
            break
        directory = posixpath.dirname(directory)

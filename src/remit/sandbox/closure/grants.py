"""Grants programs one by one: what a program is decides what comes with it."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from remit.errors import HostError
from remit.sandbox.closure import elf, shims, trust
from remit.sandbox.closure.collect import Collector
from remit.sandbox.closure.runtimes import recognise
from remit.sandbox.closure.scripts import shebang
from remit.sandbox.closure.which import is_program, which


class Search(NamedTuple):
    """Where the caller's programs are found: PATH, and what version managers look at."""

    path: str
    cwd: str
    env: Mapping[str, str]


class Grants:
    """`collect` grows with each program. `implied`: (name, path as found) of what a script's `env` looks up.
    `consulted`: files that decided what a version manager would start."""

    def __init__(self, search: Search, collect: Collector) -> None:
        self.search = search
        self.collect = collect
        self.implied: dict[str, str] = {}
        self.consulted: set[str] = set()
        self._started: dict[str, str] = {}
        self._plain: dict[str, str] = {}

    def grant(self, path: str) -> str:
        """Grants the program found at `path` with all that it needs. Returns the path by which it is started inside:
        the same, or what a version manager's script would have started."""
        known = self._started.get(path)
        if known is not None:
            return known
        self._started[path] = path
        if not trust.may_be_asked(path, self.search.path, self.search.cwd):
            stranger = recognise(path)
            if stranger is not None and stranger.asks(path):
                raise HostError(
                    "closure",
                    f"{path} would have to be run outside of its sandbox, to be asked where its library is",
                    hint="if you trust it, put its directory on PATH and name it; otherwise use the host's own",
                )
            if stranger is not None:
                started = stranger.add(self, path)
            else:
                self.plain(path)
                started = path
            self._started[path] = started
            return started
        at = shims.resolve(path, self.search.cwd, self.search.env)
        if at is not None:
            self.chosen_by(path)
            trust.refuse_chosen(at, path, self.search.cwd)
        started = at or path
        runtime = recognise(started)
        if runtime is not None:
            started = runtime.add(self, started)
        else:
            self.plain(started)
        self._started[path] = started
        return started

    def chosen_by(self, path: str) -> None:
        """The script at `path` chose which program is meant."""
        self.consulted.update(shims.consulted(path, self.search.cwd, self.search.env))

    def found(self, name: str) -> str | None:
        """The path by which the program `name`, if it is on PATH, is started."""
        at = which(name, self.search.path)
        return self._started.get(at, at) if at else None

    def plain(self, path: str) -> str:
        """Grants one program: ELF with its libraries, or a script with its interpreter. Returns its real path."""
        real = self.collect.add(path, "program")
        if real in self._plain:
            return real
        self._plain[real] = path
        head = _head(real)
        if head.startswith(elf.MAGIC):
            self.collect.needs(real)
        elif (asked := shebang(head)) is not None:
            if not is_program(asked.interpreter):
                raise HostError(
                    "closure",
                    f"{path} is a script for {asked.interpreter}, which this host lacks",
                    hint="install it, or leave the script out",
                )
            started = self.grant(asked.interpreter)
            if started != asked.interpreter:
                # The kernel starts what the script says, to the letter.
                self.collect.link(asked.interpreter, started)
            if asked.by_env:
                self._by_env(path, asked.by_env)
        return real

    def _by_env(self, script: str, name: str) -> None:
        at = name if posixpath.isabs(name) else which(name, self.search.path)
        if at is None or not is_program(at):
            raise HostError(
                "closure",
                f"{script} is a script for {name}, which is not on PATH (looked in {self.search.path})",
                hint="install it, or leave the script out",
            )
        self.grant(at)
        self.implied[name] = at


def _head(real: str) -> bytes:
    try:
        with open(real, "rb") as file:
            return file.read(256)
    except OSError as error:
        raise HostError(
            "closure", f"{real} can't be read: {error.strerror}", hint="a program that can't be hashed is not granted"
        ) from error

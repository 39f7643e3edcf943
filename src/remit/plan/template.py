"""What will be present inside a sandbox so that its programs can run: the closure, as frozen data.

Rules of this room: pure values, found and hashed elsewhere (`remit.sandbox.closure`) and consumed by `compile`.
Control of execution is by *presence*: a program that is not in the template does not exist inside.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class Stamp(NamedTuple):
    """Identity of a host file's contents at the moment they were hashed. The launcher compares it, through the
    descriptor that it mounts, with what it finds; any difference is a setup failure, so hashed means mounted."""

    dev: int
    ino: int
    size: int
    ctime_ns: int


class TemplateFile(NamedTuple):
    """One host file, bound read-only at `inside`. `role`: 'program' (may be executed), 'loader' (the ELF
    interpreter), 'library' (mapped executable) or 'data' (read only, never mapped executable)."""

    inside: str
    host: str
    role: str
    stamp: Stamp
    sha256: str


class TemplateTree(NamedTuple):
    """A whole directory of a runtime, bound read-only at `inside`: a Python's standard library, git-core.
    `executable`: its files may be mapped executable and executed. `digest` is over (relative path, type, size,
    sha256 of content) of every entry when the template was built."""

    inside: str
    host: str
    executable: bool
    digest: str


class TemplateLink(NamedTuple):
    """A symbolic link made inside: /usr/bin/python3 -> python3.11."""

    inside: str
    target: str


class Template(NamedTuple):
    """The closure of the granted programs.

    `programs` maps each entry of `process.exec` as written (with a trailing '?' removed) to the absolute path by
    which the program is started inside. `missing` lists optional entries that this host lacks. `path` is the
    directories for PATH inside, in order. `env` is what the runtimes need set (e.g. nothing, usually). `digest` is
    over everything above: equal templates hold equal bytes.
    """

    programs: Mapping[str, str] = MappingProxyType({})
    missing: tuple[str, ...] = ()
    files: tuple[TemplateFile, ...] = ()
    trees: tuple[TemplateTree, ...] = ()
    links: tuple[TemplateLink, ...] = ()
    path: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    digest: str = ""

    def follow(self, path: str) -> str:
        """Where `path` leads inside, by the template's own links; as it is if they form a loop."""
        links = {link.inside: link.target for link in self.links}
        for _ in range(40):
            parts = path.strip("/").split("/")
            above = next((p for n in range(len(parts)) if (p := "/" + "/".join(parts[: n + 1])) in links), None)
            if above is None:
                return path
            target = links[above]
            start = target if target.startswith("/") else f"{posixpath.dirname(above)}/{target}"
            path = posixpath.normpath(start + path[len(above) :])
        return path

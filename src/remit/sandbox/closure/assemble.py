"""Builds a template from programs that were found: the slow way, when the cache has none that is true."""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
from collections.abc import Callable, Mapping
from types import MappingProxyType

from remit.plan.template import Template, TemplateFile, TemplateLink, TemplateTree
from remit.sandbox.closure import data, loader, needs, trees
from remit.sandbox.closure.collect import Collector
from remit.sandbox.closure.evidence import Evidence, TreeStamp, stamp
from remit.sandbox.closure.grants import Grants, Search
from remit.sandbox.closure.known_trees import KnownTrees

LOCAL = "/usr/local/bin"
"""Where programs are named inside that a version manager names outside."""


def assemble(
    found: Mapping[str, str],
    missing: tuple[str, ...],
    search: Search,
    known: KnownTrees,
    progress: Callable[[str], None],
) -> tuple[Template, Evidence]:
    """`found`: entry -> path on this host. The evidence says what has to stay as it is for the template to be true."""
    loader.forget()
    needs.forget()
    stamps: dict[str, TreeStamp] = {}

    def scan(root: str, executable: bool) -> trees.Scan:
        # The stamp is older than the reading: a change meanwhile shows as one at the next look.
        stamps[root] = TreeStamp.of(root)
        return known.scan(root, executable, stamps[root])

    collect = Collector(scan, progress, search.cwd)
    grants = Grants(search, collect)
    programs: dict[str, str] = {}
    for entry, at in found.items():
        progress(f"finding what {entry} needs")
        programs[entry] = grants.grant(at)
    for path in (*(data.EVERY if programs else ()), *(data.DYNAMIC if collect.dynamic else ())):
        collect.data(path)
    granted = [(posixpath.basename(entry), at, programs[entry]) for entry, at in found.items()]
    granted += [(posixpath.basename(name), at, grants.grant(at)) for name, at in grants.implied.items()]
    for name, at, started in granted:
        if started != at and not _in_environment(started):
            collect.link(f"{LOCAL}/{name}", started)
    files, read, links = collect.finish()
    path = _path(granted, links, search.path)
    evidence = Evidence(
        links=tuple(sorted(collect.links.items())),
        trees=tuple((tree.host, stamps[tree.host]) for tree in read),
        consulted=tuple((name, stamp(name)) for name in sorted(grants.consulted)),
        cwd=search.cwd if grants.consulted else None,
    )
    digest = _digest(programs, missing, files, read, links, path)
    template = Template(
        MappingProxyType(programs), missing, files, read, links, path, MappingProxyType({}), f"sha256:{digest}"
    )
    return template, evidence


def _in_environment(program: str) -> bool:
    """A virtual environment's python knows where it belongs by the path that it is started by, so no link may stand for
    it; its directory is on PATH instead."""
    directory = posixpath.dirname(program)
    return any(os.path.isfile(f"{place}/pyvenv.cfg") for place in (directory, posixpath.dirname(directory)))


def _path(granted: list[tuple[str, str, str]], links: tuple[TemplateLink, ...], outside: str) -> tuple[str, ...]:
    """The directories of the granted programs, so that a name means inside what it means outside: first what a version
    manager chose, then in the order of the caller's PATH, then what was granted by its path alone."""
    chosen = [LOCAL] if any(link.inside.startswith(LOCAL + "/") for link in links) else []
    chosen += [posixpath.dirname(started) for _, at, started in granted if started != at and _in_environment(started)]
    order = {directory.rstrip("/"): i for i, directory in reversed(list(enumerate(outside.split(":"))))}
    rest = [posixpath.dirname(started) for _, _, started in granted]
    rest.sort(key=lambda directory: order.get(directory, len(order)))
    return tuple(dict.fromkeys([*chosen, *rest]))


def _digest(
    programs: Mapping[str, str],
    missing: tuple[str, ...],
    files: tuple[TemplateFile, ...],
    read: tuple[TemplateTree, ...],
    links: tuple[TemplateLink, ...],
    path: tuple[str, ...],
) -> str:
    """Over what is there inside, not over where it comes from: two hosts with equal bytes have equal digests."""
    body = [
        dict(sorted(programs.items())),
        missing,
        [(file.inside, file.role, file.sha256) for file in files],
        [(tree.inside, tree.executable, tree.digest) for tree in read],
        links,
        path,
    ]
    return hashlib.sha256(json.dumps(body).encode()).hexdigest()

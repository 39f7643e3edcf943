"""Which links are made inside."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence

from remit.plan.template import TemplateLink
from remit.sandbox.closure.walk import follow


def kept(links: Mapping[str, str], files: Sequence[str], trees: Sequence[str]) -> tuple[TemplateLink, ...]:
    """Of `links` (canonical place -> target), those that lead to something present: a file, what is in a tree, or a
    directory that is made for either or for another link (/lib64 -> usr/lib64, for the link to the loader in there).
    So no link that is made leads nowhere."""
    present = {*files, *trees}
    above = {parent for path in present for parent in parents(path)}
    left = {
        place: (target, follow(posixpath.join(posixpath.dirname(place), target)).real)
        for place, target in links.items()
        if place not in present and not covered(place, trees)
    }
    made: dict[str, str] = {}
    # Until there are no more: each makes directories that others may lead to.
    while more := {
        place: target
        for place, (target, end) in left.items()
        if end in present or end in above or (covered(end, trees) and os.path.lexists(end))
    }:
        made |= {place: target for place, target in more.items() if place not in above}
        above |= {parent for place in more for parent in parents(place)}
        left = {place: rest for place, rest in left.items() if place not in more}
    return tuple(TemplateLink(*link) for link in sorted(made.items()))


def covered(path: str, trees: Sequence[str]) -> bool:
    """Whether `path` lies in one of `trees`."""
    return any(path.startswith(tree + "/") for tree in trees)


def parents(path: str) -> list[str]:
    """Every directory above `path`, / excepted."""
    found = []
    while (path := posixpath.dirname(path)) not in ("/", ""):
        found.append(path)
    return found

"""What of the things that are shown matches a deny pattern, as it is now. Patterns speak of the caller's own: of
inputs, and of what programs bring along from the home directory or the project. The system's files are no secrets."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence

from remit.errors import UsageError
from remit.plan.template import Template
from remit.policy.model import WORK, Remit
from remit.sandbox.closure.trust import project_of


def of_inputs(remit: Remit, kinds: Mapping[str, str]) -> Iterator[str]:
    """Paths inside that match; a directory stands for what is below it. A pattern is held against the path inside and
    the path on the host, since either may be the one that it was written for. Raises `UsageError` if a grant itself, or
    something above it, is denied: there would be nothing left to show."""
    denied = _matcher(remit)
    if denied is None:
        return
    roots = [(f"filesystem.read[{i}]", g.source, g.to) for i, g in enumerate(remit.filesystem.read)]
    if remit.filesystem.work_from:
        roots.append(("filesystem.work.from", remit.filesystem.work_from, WORK))
    for rule, source, to in roots:
        if source not in kinds:
            continue
        if denied(*_with_parents(to), *_with_parents(source), *_with_parents(os.path.realpath(source))):
            raise UsageError(
                f"{rule}: {source} is denied by filesystem.deny", hint="narrow filesystem.deny, or take the grant out"
            )
        if kinds[source] == "dir":
            yield from _below(os.path.realpath(source), to, denied)


def of_programs(remit: Remit, template: Template, directory: str) -> Iterator[str]:
    """The same for what comes with the programs from the home directory or from the project around `directory`."""
    denied = _matcher(remit)
    if denied is None:
        return
    own = tuple(
        f"{place.rstrip('/')}/" for place in (os.path.realpath(os.path.expanduser("~")), project_of(directory)) if place
    )
    for tree in template.trees:
        if not f"{tree.host}/".startswith(own):
            continue
        if denied(*_with_parents(tree.inside)):
            yield tree.inside
        else:
            yield from _below(tree.host, tree.inside, denied)
    for file in template.files:
        if file.host.startswith(own) and file.role == "data" and denied(*_with_parents(file.inside)):
            yield file.inside


Matcher = Callable[..., bool]


def _matcher(remit: Remit) -> Matcher | None:
    patterns = [p.lstrip("/").removesuffix("/**") for p in remit.filesystem.deny]
    if not patterns:
        return None
    from wcmatch import glob

    flags = glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX

    def denied(*paths: str) -> bool:
        return any("" in patterns or glob.globmatch(path.lstrip("/"), patterns, flags=flags) for path in paths)

    return denied


def _with_parents(path: str) -> Sequence[str]:
    parts = path.strip("/").split("/")
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _below(real: str, to: str, denied: Matcher) -> Iterator[str]:
    for above, folders, names in os.walk(real):
        rest = os.path.relpath(above, real)
        inside = to if rest == "." else posixpath.join(to, rest)
        for name in [*folders, *names]:
            path, here = f"{inside}/{name}", f"{above}/{name}"
            if not denied(path, here):
                continue
            if name in folders:
                folders.remove(name)
            if not os.path.islink(here):
                yield path
                continue
            target = os.path.realpath(here)
            if target.startswith(real + "/") and os.path.exists(target):
                # A link can't be covered; what it leads to can.
                yield posixpath.join(to, os.path.relpath(target, real))

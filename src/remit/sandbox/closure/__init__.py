"""The closure of the granted programs: what must be present inside so that they run, and no whole library directories.

`build` finds it. Found once, it is only looked at again (`cache`, `evidence`); this module imports no more than that
takes, and what finds a closure when the cache has none that is true.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from remit.errors import HostError, UsageError
from remit.plan.template import Template
from remit.sandbox.closure import cache, trust
from remit.sandbox.closure.which import is_program, which

_MANAGERS = ("PYENV_", "RBENV_", "NODENV_", "GOENV_", "JENV_", "ASDF_")
"""Variables by which version managers choose."""


def build(
    exec_entries: Sequence[str],
    *,
    path: str,
    cwd: str,
    env: Mapping[str, str],
    cache_dir: str | None,
    progress: Callable[[str], None] | None = None,
    verify: bool = False,
) -> Template:
    """The template of `exec_entries`: names on `path`, or absolute paths; a trailing `?` allows a miss.

    `cwd` and `env` are what version managers choose by. With `cache_dir` (made for the caller alone), a template that
    is still true is reused; `verify` reads everything again, and says through `progress` what had changed without a
    sign. To find a runtime's files, an interpreter that is granted may be started, outside, to say where they are.

    Raises `UsageError` for an entry that is none, and `HostError` for a program that is not there (with the
    directories searched), that needs what is not there, or that others than root and the caller can change.
    """
    say = progress or (lambda _: None)
    trust.forget()
    found: dict[str, str] = {}
    missing: list[str] = []
    for entry in exec_entries:
        name, optional = entry.removesuffix("?"), entry.endswith("?")
        at = _find(name, path)
        if at is not None:
            found[name] = at
        elif optional:
            missing.append(name)
        else:
            raise _absent(name, path)
    keeps = cache_dir is not None and cache.usable(cache_dir)
    if cache_dir is not None and not keeps:
        say(f"{cache_dir} is not a directory that you alone can write: nothing is cached")
    name = cache.key(
        list(exec_entries),
        found,
        path,
        os.geteuid(),
        {variable: value for variable, value in env.items() if variable.startswith(_MANAGERS)},
        # So that two projects with two choices don't take turns at one file.
        cwd if any("/shims/" in at for at in found.values()) else None,
        # What lies in a project is held to it.
        sorted(filter(None, (trust.project_around(at, cwd) for at in found.values()))),
    )
    hit = cache.load(str(cache_dir), name, cwd) if keeps else None
    if hit is not None and not verify:
        return hit
    # Only on a miss: what finds a closure costs more to import than a run may cost.
    from remit.sandbox.closure.assemble import assemble
    from remit.sandbox.closure.grants import Search
    from remit.sandbox.closure.known_trees import KnownTrees

    known = KnownTrees(cache_dir if keeps else None, verify=verify)
    try:
        template, evidence = assemble(found, tuple(missing), Search(path, cwd, env), known, say)
    except OSError as error:
        raise HostError(
            "closure",
            f"{error.filename}: {error.strerror}, while reading what the programs need",
            hint="if something is being installed right now, run again when that is over",
        ) from error
    if keeps:
        cache.store(str(cache_dir), name, template, evidence)
    if hit is not None and hit.digest != template.digest:
        before = {tree.host: tree.digest for tree in hit.trees}
        changed = [tree.host for tree in template.trees if before.get(tree.host) != tree.digest]
        say(f"changed in place since it was last read: {', '.join(changed) or 'the template'}")
    return template


def _find(name: str, path: str) -> str | None:
    if not name or "\0" in name or ("/" in name and not name.startswith("/")):
        raise UsageError(
            f"process.exec: {name!r} is neither a program's name nor an absolute path",
            hint="write the name, as on PATH, or the whole path",
        )
    if not name.startswith("/"):
        return which(name, path)
    return name if is_program(name) else None


def _absent(name: str, path: str) -> HostError:
    if not name.startswith("/"):
        places = "".join(f"\n    {directory}" for directory in path.split(":"))
        message = f"process.exec: this host has no program '{name}'. Looked in:{places}"
    elif os.path.isdir(name):
        message = f"process.exec: {name} is a directory"
    elif os.path.exists(name):
        message = f"process.exec: {name} is not executable"
    else:
        message = f"process.exec: {name} does not exist"
    return HostError("closure", message, hint=f"install it, or write '{name}?' if the agent can do without")

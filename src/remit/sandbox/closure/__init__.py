"""The closure of the granted programs: what must be present inside so that they run, and nothing beside it."""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Callable, Mapping, Sequence

from remit.errors import HostError
from remit.plan.template import Template, TemplateLink
from remit.sandbox.closure import cache
from remit.sandbox.closure.which import which

_DATA = (
    "/etc/ld.so.cache",  # where the loader looks first; names libraries that may not be inside, which it then skips
    "/etc/localtime",
    "/usr/share/zoneinfo",  # TZ and zoneinfo
    "/usr/lib/locale",  # LANG
    "/usr/share/locale/locale.alias",
    "/usr/share/terminfo",  # curses
    "/lib/terminfo",
    "/etc/ssl/openssl.cnf",  # read by every TLS library at import
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/mime.types",
    "/etc/services",  # getservbyname
    "/etc/protocols",
)
"""Read by ordinary programs everywhere; none of it tells of this host or its people."""

_CONVERTERS = ("/usr/lib/x86_64-linux-gnu/gconv", "/usr/lib/aarch64-linux-gnu/gconv", "/usr/lib64/gconv")
"""The C library's character sets: libraries that iconv loads by name, so in nobody's list."""


def build(
    entries: Sequence[str],
    *,
    path: str,
    cwd: str,
    env: Mapping[str, str],
    cache_dir: str | None,
    progress: Callable[[str], None] | None = None,
) -> Template:
    """The template of `entries` (names on `path`, or absolute paths; a trailing `?` allows a miss).

    Raises `HostError` naming the entry and the directories searched. With `cache_dir`, a template that is still true
    is reused; what makes one true is in `cache`.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for entry in entries:
        name = entry.removesuffix("?")
        at = name if name.startswith("/") and os.access(name, os.X_OK) else which(name, path)
        if at is not None:
            found[name] = at
        elif entry.endswith("?"):
            missing.append(name)
        else:
            raise HostError(
                "closure",
                f"process.exec: this host has no program '{name}' (looked in {path})",
                hint=f"install it, give its path, or write '{name}?' if the agent can do without",
            )
    facts = {
        "found": {n: [p, os.stat(p).st_ctime_ns, os.stat(p).st_ino] for n, p in found.items()},
        # What a version manager's script looks at to choose.
        "choice": [env.get("PYENV_VERSION"), env.get("VIRTUAL_ENV"), _python_versions(cwd, env)],
        "uid": os.geteuid(),
    }
    name = cache.key(entries, facts)
    keeps = cache_dir is not None and cache.usable(cache_dir)
    if keeps and (hit := cache.load(str(cache_dir), name)):
        return hit
    template = _collect(found, tuple(missing), env, cwd, progress or (lambda _: None))
    if keeps:
        cache.store(str(cache_dir), name, template)
    return template


def _python_versions(cwd: str, env: Mapping[str, str]) -> list[int]:
    places = [posixpath.join(cwd, ".python-version"), posixpath.join(env.get("PYENV_ROOT", "/"), "version")]
    return [os.stat(p).st_mtime_ns if os.path.exists(p) else 0 for p in places]


def _collect(
    found: Mapping[str, str],
    missing: tuple[str, ...],
    env: Mapping[str, str],
    cwd: str,
    progress: Callable[[str], None],
) -> Template:
    # Only on a miss: what finds a closure costs more to import than a run may cost.
    from remit.sandbox.closure.collect import Collector
    from remit.sandbox.closure.runtimes import recognise

    collect = Collector()
    programs: dict[str, str] = {}
    extra: list[TemplateLink] = []
    for entry, at in found.items():
        progress(f"finding what {entry} needs")
        runtime = recognise(at)
        started = runtime(collect, at, env, cwd) if runtime else at
        if not runtime:
            collect.program(at)
        programs[entry] = started
        if posixpath.basename(started) != posixpath.basename(entry) or started != at:
            link = f"/usr/local/bin/{posixpath.basename(entry)}"
            if link != started:
                extra.append(TemplateLink(link, started))
    for path in _DATA:
        collect.data(path)
    if any(role == "loader" for role in collect.roles.values()):
        for path in _CONVERTERS:
            collect.tree(path, executable=True)
    progress("hashing")
    files, trees, links = collect.finish()
    taken = {link.inside for link in links} | {file.inside for file in files}
    links = (*links, *(link for link in extra if link.inside not in taken))
    directories = ["/usr/local/bin"] if extra else []
    for started in programs.values():
        directory = posixpath.dirname(started)
        if directory not in directories:
            directories.append(directory)
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.inside}\0{file.role}\0{file.sha256}\n".encode())
    for tree in trees:
        whole.update(f"{tree.inside}\0{tree.executable}\0{tree.digest}\n".encode())
    for link in links:
        whole.update(f"{link.inside}\0{link.target}\n".encode())
    digest = f"sha256:{whole.hexdigest()}"
    return Template(programs, missing, files, trees, links, tuple(directories), {}, digest)

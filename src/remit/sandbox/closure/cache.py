"""The closure's cache: a template is found once and then only looked at again (see `evidence`).

A file of the cache is one JSON document below a line with its sha256, and belongs to the caller alone. A file that is
damaged, of another version or not the caller's own is a miss, never a failure; so is a cache that can't be written.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from types import MappingProxyType
from typing import Any

from remit.plan.template import Stamp, Template, TemplateFile, TemplateLink, TemplateTree
from remit.sandbox.closure.evidence import Evidence, TreeStamp, stamp

_VERSION = 8


def key(*facts: object) -> str:
    return hashlib.sha256(json.dumps([_VERSION, *facts], sort_keys=True).encode()).hexdigest()[:32]


def usable(directory: str) -> bool:
    """Makes the directory if need be; it must be the caller's and is then nobody else's to read or write."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        # One descriptor for the look and the change: a link there, or put there meanwhile, leads to another's.
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            # Where others could write, they may have; taking that right from them now would not undo it.
            return False
        if found.st_mode & 0o077:
            os.fchmod(fd, 0o700)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def load(directory: str, name: str, cwd: str) -> Template | None:
    """None for a miss of any kind: absent, damaged, of another version, or no longer true in `cwd`."""
    body = read(f"{directory}/{name}.json")
    if body is None:
        return None
    try:
        template, evidence = _decode(body)
        if all(stamp(file.host) == file.stamp for file in template.files) and evidence.holds(cwd):
            return template
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return None


def store(directory: str, name: str, template: Template, evidence: Evidence) -> None:
    write(f"{directory}/{name}.json", _encode(template, evidence))


def read(path: str) -> dict[str, Any] | None:
    """The document in a file of the cache, if it is whole and the caller's own."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022:
                return None
            digest, _, text = file.read().partition(b"\n")
        if hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        body = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and body.get("version") == _VERSION else None


def write(path: str, body: dict[str, Any]) -> None:
    text = json.dumps({"version": _VERSION, **body}, separators=(",", ":"))
    # A full or read-only disk costs the next run its speed, and this one nothing.
    with contextlib.suppress(OSError):
        replace(path, f"{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def replace(path: str, text: str) -> None:
    """Writes a file of the cache, whole or not at all."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _encode(template: Template, evidence: Evidence) -> dict[str, Any]:
    return {
        # Named tuples become lists; mappings have to be dictionaries.
        "template": {**template._asdict(), "programs": dict(template.programs), "env": dict(template.env)},
        "evidence": evidence._asdict(),
    }


def _decode(body: dict[str, Any]) -> tuple[Template, Evidence]:
    t, e = body["template"], body["evidence"]
    template = Template(
        MappingProxyType(dict(t["programs"])),
        tuple(t["missing"]),
        tuple(TemplateFile(i, h, r, Stamp(*s), d) for i, h, r, s, d in t["files"]),
        tuple(TemplateTree(*tree) for tree in t["trees"]),
        tuple(TemplateLink(*link) for link in t["links"]),
        tuple(t["path"]),
        MappingProxyType(dict(t["env"])),
        t["digest"],
    )
    evidence = Evidence(
        tuple((place, target) for place, target in e["links"]),
        tuple((root, TreeStamp(tuple(d), digest)) for root, (d, digest) in e["trees"]),
        tuple((path, None if before is None else tuple(before)) for path, before in e["consulted"]),
        e["cwd"],
    )
    return template, evidence

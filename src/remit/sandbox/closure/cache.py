"""The closure's cache: a template is found once and then only checked.

A hit is valid if every single file has the stamp that it was hashed with, every link its target, and the upper
directories of every tree the stamps that they had. Not seen: a file deep *inside of a runtime's tree* that is changed. The
launcher compares single files again, through the descriptors that it mounts. `remit check --verify` hashes the trees.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Any

from remit.plan.template import Stamp, Template, TemplateFile, TemplateLink, TemplateTree

_VERSION = 3


def key(entries: Iterable[str], facts: Mapping[str, Any]) -> str:
    text = json.dumps([_VERSION, list(entries), facts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def usable(directory: str) -> bool:
    """Makes the directory if need be; it must be the caller's and nobody else's to write."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        found = os.stat(directory)
    except OSError:
        return False
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o022


_DEPTH = 2
"""How far down directories are looked at: a package that comes, goes or is replaced shows in `site-packages` itself."""


def tree_stamp(root: str) -> str:
    """Over the upper directories of the tree: entries that come, go or are renamed there change it."""
    whole = hashlib.sha256()
    stack = [(root, 0)]
    while stack:
        directory, depth = stack.pop()
        found = os.stat(directory)
        whole.update(f"{directory}\0{found.st_dev} {found.st_ino} {found.st_mtime_ns} {found.st_ctime_ns}\n".encode())
        if depth == _DEPTH:
            continue
        try:
            with os.scandir(directory) as entries:
                stack.extend((e.path, depth + 1) for e in sorted(entries, key=lambda e: e.name) if _is_directory(e))
        except PermissionError:
            continue
    return whole.hexdigest()


def _is_directory(entry: os.DirEntry[str]) -> bool:
    # Byte code is written there by every first import; what it is made from is what counts.
    return entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False)


def load(directory: str, name: str) -> Template | None:
    """None for a miss of any kind: absent, damaged, of another version, or no longer true."""
    try:
        with open(f"{directory}/{name}.json", "rb") as file:
            body = json.load(file)
        if body["version"] != _VERSION:
            return None
        template = _decode(body["template"])
        for entry in template.files:
            found = os.stat(entry.host)
            stamp = entry.stamp
            if (found.st_ctime_ns, found.st_ino, found.st_size, found.st_dev) != (
                stamp.ctime_ns,
                stamp.ino,
                stamp.size,
                stamp.dev,
            ):
                return None
        for path, target in body["links"]:
            if os.readlink(path) != target:
                return None
        for path, stamp in body["trees"]:
            if tree_stamp(path) != stamp:
                return None
        return template
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(directory: str, name: str, template: Template) -> None:
    body = {
        "version": _VERSION,
        "template": _encode(template),
        "links": [(x.inside, x.target) for x in template.links if os.path.islink(x.inside)],
        "trees": [(tree.host, tree_stamp(tree.host)) for tree in template.trees],
    }
    replace(f"{directory}/{name}.json", json.dumps(body))


def replace(path: str, text: str) -> None:
    """Writes a file of the cache, whole or not at all."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
    os.replace(temporary, path)


def _encode(template: Template) -> dict[str, Any]:
    return {
        "programs": dict(template.programs),
        "missing": template.missing,
        "files": [
            [f.inside, f.host, f.role, [f.stamp.dev, f.stamp.ino, f.stamp.size, f.stamp.ctime_ns], f.sha256]
            for f in template.files
        ],
        "trees": [[t.inside, t.host, t.executable, t.digest] for t in template.trees],
        "links": [[x.inside, x.target] for x in template.links],
        "path": template.path,
        "env": dict(template.env),
        "digest": template.digest,
    }


def _decode(body: Mapping[str, Any]) -> Template:
    return Template(
        dict(body["programs"]),
        tuple(body["missing"]),
        tuple(TemplateFile(i, h, r, Stamp(*s), d) for i, h, r, s, d in body["files"]),
        tuple(TemplateTree(*t) for t in body["trees"]),
        tuple(TemplateLink(*x) for x in body["links"]),
        tuple(body["path"]),
        dict(body["env"]),
        body["digest"],
    )

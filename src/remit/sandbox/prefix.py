"""Takes a filled prefix out of its sandbox, seals it, and finds it again.

What comes out is the guest's: links are recreated only if they stay inside of the prefix, everything else is copied by
descriptor as `keep` does. It is executable inside later sandboxes of the same remit, and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import stat

from remit.errors import HostError
from remit.plan.prefix import PREFIX, Prefix
from remit.sandbox import staging
from remit.sandbox.closure.cache import replace
from remit.sandbox.keep import copy_file, walk

_MANIFEST = "manifest.json"


def take(root: int, store: str, most: int) -> None:
    """Copies the prefix whose descriptor is `root` into `store`, which appears whole or not at all. `most`: bytes."""
    with staging.directory(os.path.dirname(store)) as place:
        staged = f"{place}/prefix"
        os.makedirs(f"{staged}/tree", mode=0o755)
        files: dict[str, list[object]] = {}
        for path, directory, name, found in walk(root, _closed):
            target = f"{staged}/tree/{path}"
            if stat.S_ISDIR(found.st_mode):
                os.mkdir(target, 0o755)
            elif stat.S_ISLNK(found.st_mode):
                link = os.readlink(name, dir_fd=directory)
                files[path] = ["link", _inside(path, link)]
                os.symlink(link, target)
            elif stat.S_ISREG(found.st_mode):
                size, digest = copy_file(directory, name, target, most, bool(found.st_mode & 0o100))
                most -= size
                # Read and execute for everybody: as root the guest is another id.
                os.chmod(target, 0o555 if found.st_mode & 0o100 else 0o444)
                stamp = os.stat(target)
                files[path] = ["file", digest, stamp.st_size, stamp.st_ctime_ns, stamp.st_ino]
            else:
                raise HostError("prefix", f"{path!r} is no file, directory or link", hint="the install command made it")
        for path, entry in files.items():
            if entry[0] == "link":
                _refuse_detour(f"{staged}/tree", path, str(entry[1]))
        text = json.dumps({"files": files, "digest": _digest(files)})
        replace(f"{staged}/{_MANIFEST}", text)
        os.rename(staged, store)


def _closed(path: str, reason: str) -> None:
    raise HostError("prefix", f"the prefix would lack a part of it: {reason}", hint="the install command made it so")


def _inside(path: str, link: str) -> str:
    """The link's target, if it stays inside of the prefix."""
    whole = link if link.startswith("/") else posixpath.join(PREFIX, posixpath.dirname(path), link)
    if not posixpath.normpath(whole).startswith(f"{PREFIX}/"):
        raise HostError("prefix", f"{path!r} is a link to {link!r}, out of the prefix", hint="install without it")
    return link


def _refuse_detour(tree: str, path: str, link: str) -> None:
    """`_inside` looks at words. They say where a link leads only if no other link lies on its way: `a/l/..` is not `a`
    if `l` is one."""
    out = HostError("prefix", f"{path!r} is a link to {link!r}, out of the prefix", hint="install without it")
    whole = f"{posixpath.dirname(path)}/{link}"
    if link.startswith("/"):
        if not link.startswith(f"{PREFIX}/"):
            raise out
        whole = link.removeprefix(f"{PREFIX}/")
    at: list[str] = []
    *above, _ = (part for part in whole.split("/") if part not in ("", "."))
    for part in above:
        if part != "..":
            at.append(part)
        elif at:
            at.pop()
        else:
            # Up out of the prefix, if only to come back.
            raise out
        if at and os.path.islink(f"{tree}/{'/'.join(at)}"):
            raise HostError(
                "prefix",
                f"{path!r} is a link to {link!r}, which leads through another link",
                hint="install without it, or have it name where it leads",
            )


def _is_directory(path: str) -> bool:
    """A real one: a link would be followed on the host, where it may lead elsewhere than inside."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _digest(files: dict[str, list[object]]) -> str:
    lines = "".join(f"{path}\0{entry[0]}\0{entry[1]}\n" for path, entry in sorted(files.items()))
    return "sha256:" + hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def find(store: str) -> Prefix | None:
    """The sealed prefix in `store`, if every file is still the one that was hashed; None if it must be filled anew."""
    try:
        with open(f"{store}/{_MANIFEST}", "rb") as file:
            body = json.load(file)
        files: dict[str, list[object]] = body["files"]
        tree = f"{store}/tree"
        for path, entry in files.items():
            found = os.lstat(f"{tree}/{path}")
            if entry[0] == "link":
                if os.readlink(f"{tree}/{path}") != entry[1]:
                    return None
            elif [found.st_size, found.st_ctime_ns, found.st_ino] != entry[2:]:
                return None
        seen = sum(len(names) for _, _, names in os.walk(tree)) + sum(
            os.path.islink(f"{above}/{name}") for above, folders, _ in os.walk(tree) for name in folders
        )
        if seen != len(files):
            return None
        return _prefix(tree, body["digest"])
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _prefix(tree: str, digest: str) -> Prefix:
    bins = f"{tree}/bin"
    programs = tuple(sorted(os.listdir(bins))) if _is_directory(bins) else ()
    lib = f"{tree}/lib"
    versions = (
        [name for name in sorted(os.listdir(lib)) if _is_directory(f"{lib}/{name}")] if _is_directory(lib) else []
    )
    python = tuple(
        f"{PREFIX}/lib/{name}/site-packages" for name in versions if _is_directory(f"{lib}/{name}/site-packages")
    )
    return Prefix(tree, programs, python, "node_modules" in versions, digest)

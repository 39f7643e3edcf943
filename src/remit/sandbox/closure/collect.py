"""Collects the files of a closure: each real file once, the links that lead to it, nothing that is not asked for."""

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
from dataclasses import dataclass, field

from remit.errors import HostError
from remit.plan.template import Stamp, TemplateFile, TemplateLink, TemplateTree
from remit.sandbox.closure import elf, libraries
from remit.sandbox.closure.which import which

_MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_RANK = {"data": 0, "library": 1, "loader": 2, "program": 3}
_ALWAYS = ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2")
"""Loaded by name at run time and so in no list: the first by pthread_cancel, the others by the C library's lookups."""


def stamp_of(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)


def hash_file(path: str) -> tuple[Stamp, str]:
    """The stamp and sha256 of one file, read through one descriptor; a change while reading is an error."""
    with open(path, "rb") as file:
        before = os.fstat(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        after = os.fstat(file.fileno())
    if stamp_of(before) != stamp_of(after):
        raise HostError("closure", f"{path} changed while it was read", hint="run again when the upgrade is over")
    return stamp_of(after), digest


@dataclass(slots=True)
class Collector:
    """Grows by `program`, `library`, `data` and `tree`; `files` is keyed by the real path."""

    roles: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    trees: dict[str, bool] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def covered(self, path: str) -> bool:
        return any(path == tree or path.startswith(tree + "/") for tree in self.trees)

    def add(self, path: str, role: str) -> str:
        """Adds the file at `path` with the chain of links that leads to it. Returns its real path."""
        real = self._walk(path)
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode):
            raise HostError("closure", f"{path} is no regular file", hint="grant a program, not a device or directory")
        if role != "data" and found.st_mode & stat.S_IWOTH:
            raise HostError("closure", f"{real} is writable by everybody", hint=f"chmod o-w {real}")
        if _RANK[role] > _RANK.get(self.roles.get(real, ""), -1) and not (role == "data" and self.covered(real)):
            self.roles[real] = role
        return real

    def _walk(self, path: str) -> str:
        """Follows `path` part by part and records each link on the way."""
        done, rest, steps = "", path.strip("/").split("/"), 0
        while rest:
            part = rest.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                done = posixpath.dirname(done)
                continue
            here = f"{done}/{part}"
            if os.path.islink(here):
                steps += 1
                if steps > 40:
                    raise HostError("closure", f"{path}: too many links", hint="a loop of symbolic links")
                target = os.readlink(here)
                if not self.covered(here):
                    self.links[here] = target
                rest = target.strip("/").split("/") + rest
                if target.startswith("/"):
                    done = ""
                continue
            done = here
        return done

    def program(self, path: str) -> str:
        """A program by its path: ELF with its libraries, or a script with its interpreter. Returns its real path."""
        real = self.add(path, "program")
        if real in self._seen:
            return real
        self._seen.add(real)
        with open(real, "rb") as file:
            head = file.read(256)
        if head.startswith(b"\x7fELF"):
            self.needs(real)
        elif head.startswith(b"#!"):
            words = head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
            if words:
                self.program(words[0])
                if words[0].rsplit("/", 1)[-1] == "env" and len(words) > 1:
                    name = next((w for w in words[1:] if not w.startswith("-") and "=" not in w), None)
                    found = name and which(name, os.defpath + ":/usr/local/bin")
                    if found:
                        self.program(found)
        return real

    def needs(self, path: str) -> None:
        """The loader and libraries of the ELF file at `path`, and theirs."""
        found = elf.read(path)
        if found is None:
            return
        musl = bool(found.loader and "ld-musl" in found.loader)
        if found.loader:
            self.add(found.loader, "loader")
            if not musl:
                for name in _ALWAYS:
                    self.library(name, (), found.machine, musl, optional=True)
        for name in found.needed:
            self.library(name, found.search, found.machine, musl, optional=False, wanted_by=path)

    def library(
        self,
        name: str,
        search: tuple[str, ...],
        machine: tuple[int, str],
        musl: bool,
        *,
        optional: bool,
        wanted_by: str = "",
    ) -> None:
        for candidate in libraries.candidates(name, search, musl):
            if not os.path.isfile(candidate):
                continue
            if candidate in self._seen:
                return
            found = elf.read(candidate)
            if found is None or found.machine != machine:
                continue
            self._seen.add(candidate)
            self.add(candidate, "library")
            for other in found.needed:
                self.library(other, found.search + search, machine, musl, optional=True, wanted_by=candidate)
            return
        if not optional:
            message = f"{wanted_by} needs {name}, which is nowhere that its loader looks"
            raise HostError("closure", message, hint="install the library, or leave the program out")

    def tree(self, path: str, *, executable: bool) -> None:
        """A whole directory of a runtime, with what its ELF files need from outside."""
        real = self._walk(path)
        if not os.path.isdir(real) or self.covered(real):
            return
        self.trees[real] = executable
        if not executable:
            return
        for directory, _, names in os.walk(real):
            for name in names:
                file = f"{directory}/{name}"
                if ".so" not in name and not os.access(file, os.X_OK):
                    continue
                if os.path.isfile(file) and not os.path.islink(file) and elf.is_elf(file):
                    found = elf.read(file)
                    if found:
                        for wanted in found.needed:
                            self.library(wanted, found.search, found.machine, False, optional=True)

    def data(self, path: str) -> None:
        """A file or directory of data, if the host has it."""
        if os.path.isfile(path):
            self.add(path, "data")
        elif os.path.isdir(path):
            self.tree(path, executable=False)

    def finish(self) -> tuple[tuple[TemplateFile, ...], tuple[TemplateTree, ...], tuple[TemplateLink, ...]]:
        """Hashes everything. The links of the host's merged /usr are always there."""
        for path in _MERGED:
            if os.path.islink(path):
                self.links.setdefault(path, os.readlink(path))
        files = []
        for real, role in sorted(self.roles.items()):
            # A program inside of a runtime's tree is named on its own, so that it is an executable file there too.
            if self.covered(real) and role != "program":
                continue
            stamp, digest = hash_file(real)
            files.append(TemplateFile(real, real, role, stamp, digest))
        trees = [TemplateTree(p, p, x, hash_tree(p)) for p, x in sorted(self.trees.items())]
        links = [TemplateLink(p, t) for p, t in sorted(self.links.items()) if not self.covered(p)]
        return tuple(files), tuple(trees), tuple(links)


def hash_tree(root: str) -> str:
    """Over each entry's relative path, type, and content (or link target)."""
    whole = hashlib.sha256()
    for directory, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = f"{directory}/{name}"
            try:
                found = os.lstat(path)
                if stat.S_ISLNK(found.st_mode):
                    word = "link " + os.readlink(path)
                elif stat.S_ISREG(found.st_mode):
                    word = "file " + hash_file(path)[1]
                else:
                    word = "other"
            except PermissionError:
                # Not readable here means not readable inside.
                word = "unreadable"
            whole.update(f"{posixpath.relpath(path, root)}\0{word}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()

"""Collects the files of a closure: each real file once, the links that lead to it, nothing that is not asked for."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable
from typing import NamedTuple

from remit.errors import HostError
from remit.plan.template import TemplateFile, TemplateLink, TemplateTree
from remit.sandbox.closure import data, elf, hashing, links, needs
from remit.sandbox.closure.links import parents
from remit.sandbox.closure.loader import Asker
from remit.sandbox.closure.trees import Scan
from remit.sandbox.closure.trust import project_around
from remit.sandbox.closure.walk import follow

_MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_RANK = ("data", "library", "loader", "program")


class Tree(NamedTuple):
    """`of`: the real path of the program that loads its libraries. `follow`: what links that lead out of the tree may
    lead to. Others are left dangling: a package must not be able to bring in ~/.ssh by a link."""

    executable: bool
    of: str | None
    follow: tuple[str, ...]


class Collector:
    """Grows by `add`, `needs`, `tree`, `data` and `link`; `finish` hashes everything. `scan` reads a tree. `cwd`: what
    is around it is the project."""

    def __init__(self, scan: Callable[[str, bool], Scan], progress: Callable[[str], None], cwd: str) -> None:
        self._cwd = cwd
        self.roles: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.made: dict[str, str] = {}
        self.trees: dict[str, Tree] = {}
        self._scan = scan
        self._progress = progress
        self._loaded: dict[str, tuple[Asker, dict[str, str]]] = {}

    @property
    def dynamic(self) -> bool:
        return "loader" in self.roles.values()

    def add(self, path: str, role: str) -> str:
        """Adds the file at `path` with the chain of links that leads to it. Returns its real path."""
        real = self._follow(path)
        try:
            found = os.stat(real)
        except OSError as error:
            raise HostError("closure", f"{path}: {error.strerror}", hint="a link that leads nowhere?") from error
        if not stat.S_ISREG(found.st_mode):
            raise hashing.not_regular(path)
        self.roles[real] = max(role, self.roles.get(real, role), key=_RANK.index)
        return real

    def link(self, place: str, target: str) -> None:
        """A link that the host does not have, unless something else is collected at that place."""
        above, name = posixpath.split(place)
        place = f"{self._follow(above)}/{name}"
        if place != target:
            self.made.setdefault(place, target)

    def _follow(self, path: str) -> str:
        walked = follow(path)
        self.links.update(walked.links)
        return walked.real

    def needs(self, real: str) -> None:
        """The loader and the libraries of the program at `real`."""
        found = elf.read(real)
        if found is None:
            raise HostError("closure", f"{real} is a damaged program", hint="install it again, or leave it out")
        asker, loaded = Asker.of(found), dict[str, str]()
        self._loaded[real] = (asker, loaded)
        if not found.loader:
            # Static, position independent or not: what it needs is in it.
            return
        if not os.path.isfile(found.loader):
            raise HostError(
                "closure",
                f"{real} is loaded by {found.loader}, which this host lacks",
                hint="it was built for another system: install that one's C library, or leave the program out",
            )
        if not self._is_loader(found.loader, found):
            raise HostError(
                "closure",
                f"{real} is loaded by {found.loader}, which is no loader of this host's",
                hint="a damaged program, or a hostile one: leave it out",
            )
        self.add(found.loader, "loader")
        by_name = () if asker.musl_path else needs.BY_NAME
        if asker.musl_path:
            self.data(asker.musl_path)
        for library in needs.libraries(asker, real, loaded, strict=True, extra=by_name):
            self._library(library)

    def _is_loader(self, path: str, of: elf.Elf) -> bool:
        found = elf.read(path)
        fits = found is not None and found.loader is None and found.machine == of.machine
        return fits and project_around(path, self._cwd) is None

    def _library(self, path: str) -> None:
        self.add(path, "library")
        beside = data.PLUGINS.get(posixpath.basename(path))
        if beside:
            self.tree(posixpath.join(posixpath.dirname(path), beside), executable=True, of=None)
        for place in data.LIBRARY_DATA.get(posixpath.basename(path), ()):
            self.data(place)

    def tree(self, path: str, *, executable: bool, of: str | None = None, follow: tuple[str, ...] = ()) -> None:
        """A whole directory, if the host has it."""
        if os.path.isdir(path) and os.listdir(path):
            self._contain(path)
            real = self._follow(path)
            home = os.path.realpath(os.path.expanduser("~"))
            if f"{home}/".startswith(f"{real.rstrip('/')}/"):
                message = f"{real} would be shown as a directory of a program's, and the home directory lies in it"
                raise HostError("closure", message, hint="move the program into a directory of its own")
            self.trees.setdefault(real, Tree(executable, of, follow))

    def data(self, path: str) -> None:
        """A file or directory of data, if the host has it and the caller may read it."""
        if not os.access(path, os.R_OK):
            return
        if os.path.isdir(path):
            self.tree(path, executable=False)
        elif os.path.isfile(path):
            self._contain(path)
            self.add(path, "data")

    def _contain(self, path: str) -> None:
        """What a project holds stays in the project: its links are its authors', and an earlier run's."""
        project = project_around(path, self._cwd)
        if project is not None and not f"{os.path.realpath(path)}/".startswith(f"{project}/"):
            raise HostError(
                "closure",
                f"{path} is a link of the project's to {os.path.realpath(path)}, out of the project",
                hint="if it is meant, make it part of the project, or name it in filesystem.read",
            )

    def finish(self) -> tuple[tuple[TemplateFile, ...], tuple[TemplateTree, ...], tuple[TemplateLink, ...]]:
        """Reads and hashes everything. Links are kept where they lead to something that is present."""
        trees = self._read_trees()
        files = tuple(self._file(real, role) for real, role in sorted(self.roles.items()) if not self._redundant(real))
        for path in _MERGED:
            self._follow(path)
        return files, trees, links.kept({**self.made, **self.links}, [file.inside for file in files], list(self.trees))

    def _read_trees(self) -> tuple[TemplateTree, ...]:
        """A tree may lead to files and further trees, so until there is nothing new."""
        read: dict[str, str] = {}
        while new := [path for path in self.trees if path not in read and not self._inside_another(path)]:
            for path in new:
                tree = self.trees[path]
                self._progress(f"reading {path}")
                found = self._scan(path, tree.executable)
                read[path] = found.digest
                for link in found.outward:
                    self._outward(link, tree)
                for member, needed in found.members:
                    self._member(member, needed, tree)
        self.trees = {path: tree for path, tree in self.trees.items() if not self._inside_another(path)}
        return tuple(TemplateTree(p, p, tree.executable, read[p]) for p, tree in sorted(self.trees.items()))

    def _outward(self, link: str, tree: Tree) -> None:
        end = os.path.realpath(link)
        if end.startswith(tree.follow or ("\0",)):
            if os.path.isdir(end):
                self.tree(link, executable=tree.executable, of=tree.of, follow=tree.follow)
            elif os.path.isfile(end):
                self.add(link, "library" if tree.executable and elf.read(end) else "data")

    def _member(self, path: str, found: elf.Elf, tree: Tree) -> None:
        """Libraries from outside of the tree, for a module that its program loads, or a program of its own."""
        by, loaded = self._loaded.get(tree.of or "", (None, {}))
        if by is not None and by.elf.loader is None:
            # A static program loads nothing; what is ELF in Go's tree is static too, or a test's data.
            return
        if found.loader:
            by, loaded = None, {}
            # Any file of a package may name any file of the host as its loader.
            if os.path.isfile(found.loader) and self._is_loader(found.loader, found):
                self.add(found.loader, "loader")
        for library in needs.libraries(Asker.of(found, by), path, dict(loaded), strict=False):
            self._library(library)

    def _inside_another(self, path: str) -> bool:
        own = self.trees[path].executable
        return any(p in self.trees and (self.trees[p].executable or not own) for p in parents(path))

    def _redundant(self, real: str) -> bool:
        """A file of a tree that is bound anyway. A program is named all the same: the launcher checks its stamp."""
        role = self.roles[real]
        around = [self.trees[parent] for parent in parents(real) if parent in self.trees]
        return role != "program" and any(tree.executable or role == "data" for tree in around)

    def _file(self, real: str, role: str) -> TemplateFile:
        try:
            content = hashing.read(real, trusted=role != "data")
        except OSError as error:
            raise HostError(
                "closure", f"{real} can't be read: {error.strerror}", hint="what can't be hashed is not granted"
            ) from error
        if content.mode & (stat.S_ISUID | stat.S_ISGID):
            self._progress(f"note: {real} changes its user or group by its mode, which has no effect inside")
        return TemplateFile(real, real, role, content.stamp, content.sha256)

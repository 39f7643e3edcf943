"""The root of a sandbox: the launcher's steps, the Landlock rules and the view, from one pass over the grants.

Rules of this room: pure; and every path that appears inside is said once, through `Root`, so that the three can't
differ.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from remit.errors import UsageError
from remit.plan import egress
from remit.plan import launch_plan as lp
from remit.plan.host import HostFacts
from remit.plan.template import Template, TemplateFile
from remit.plan.trust import AUTHORITY, BUNDLE, DATABASE, STORE, Trust
from remit.policy.model import WORK, Remit
from remit.policy.view import Place, View

_DEVICES = ("null", "zero", "full", "random", "urandom")
_MASKED = (
    # Of /proc, what tells of the host or reaches into it. An unmapped id can't open most of them; this does not
    # depend on that.
    "/proc/acpi",
    "/proc/bus",
    "/proc/driver",
    "/proc/fs",
    "/proc/irq",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/modules",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
)
_CPU_TOPOLOGY = "/sys/devices/system/cpu"
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/nonexistent:/nonexistent\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/nonexistent\n",
    "/etc/group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost remit\n::1 localhost ip6-localhost ip6-loopback\n",
    "/etc/hostname": "remit\n",
}


class Root:
    """Grows by the methods below; `ops` in the order in which the launcher does them."""

    def __init__(self) -> None:
        self.ops: list[lp.RootOp] = []
        self.places: list[Place] = []
        self._made: set[str] = {"/"}
        self._trees: list[str] = []
        self._execute: list[str] = []
        self._write: list[str] = []
        self._devices: list[str] = []

    @classmethod
    def build(
        cls,
        remit: Remit,
        host: HostFacts,
        template: Template,
        inputs: Mapping[str, str],
        masked: tuple[str, ...],
        tty: bool,
        home: str,
        trust: Trust | None = None,
    ) -> Root:
        root = cls()
        root.places.append(Place("/", False, False, "builtin.skeleton", tree=False))
        root._system(remit, host, tty)
        # Before what may lie below them: an environment in /tmp or in the home directory stays visible.
        root._writable(remit, host, home)
        root._closure(remit, template, trust)
        if trust is not None:
            root._trust(trust, home)
        for i, grant in enumerate(remit.filesystem.read):
            kind = inputs.get(grant.source)
            if kind is None:
                raise UsageError(
                    f"filesystem.read[{i}]: {grant.source} does not exist", hint="make it, or take the grant out"
                )
            root._input(grant.source, grant.to, kind, host, f"filesystem.read[{i}]")
        for path in masked:
            root.ops.append(lp.Mask(path))
            root.places.append(Place(path, False, False, "filesystem.deny", hidden=True))
        return root

    def _dirs(self, path: str) -> None:
        """Makes the directories above `path`."""
        above = posixpath.dirname(path)
        missing = []
        while above not in self._made:
            missing.append(above)
            above = posixpath.dirname(above)
        for directory in reversed(missing):
            self._made.add(directory)
            self.ops.append(lp.Dir(directory))
            if not any(directory.startswith(writable + "/") for writable in self._write):
                # It can be listed, like everything of the skeleton; nothing can be written.
                self.places.append(Place(directory, False, False, "builtin.skeleton", tree=False))

    def _closure(self, remit: Remit, template: Template, trust: Trust | None) -> None:
        real = dict(_rules_of(remit, template))
        replaced = set(trust.places) if trust is not None else set()
        for link in template.links:
            if link.inside in replaced:
                continue
            # A link into a directory that is itself a link (/lib/x with /lib -> usr/lib) is made where it lands.
            if not any(link.inside.startswith(other.inside + "/") for other in template.links):
                self._dirs(link.inside)
                self.ops.append(lp.Symlink(link.inside, link.target))
                self._made.add(link.inside)
                self.places.append(Place(link.inside, False, False, "builtin.link", tree=False))
        for tree in template.trees:
            self._dirs(tree.inside)
            if trust is not None and tree.inside in trust.opened:
                self._opened(tree.inside, trust, replaced)
                continue
            self.ops.append(lp.Bind(tree.host, tree.inside, "dir", exec=tree.executable))
            rule = "process.exec" if tree.executable else "builtin.data"
            self.places.append(Place(tree.inside, False, tree.executable, rule))
            self._made.add(tree.inside)
            self._trees.append(tree.inside)
            if tree.executable:
                self._execute.append(tree.inside)
        for file in template.files:
            if file.inside in replaced:
                continue
            self._file(file, real.get(file.inside, "process.exec"))

    def _opened(self, folder: str, trust: Trust, replaced: set[str]) -> None:
        """A directory of the host made anew, entry by entry, so that some of them can be others."""
        self.ops.append(lp.Dir(folder))
        self._made.add(folder)
        self.places.append(Place(folder, False, False, "builtin.data"))
        for name, kind, target in trust.opened[folder]:
            path = f"{folder}/{name}"
            if path in replaced:
                continue
            if path in trust.opened:
                self._opened(path, trust, replaced)
            elif kind == "link":
                self.ops.append(lp.Symlink(path, target))
            else:
                self.ops.append(lp.Bind(path, path, kind))
        hashed = trust.hashed(folder)
        if hashed is not None:
            self.ops.append(lp.Symlink(f"{folder}/{hashed}", AUTHORITY))

    def _trust(self, trust: Trust, home: str) -> None:
        for path, content in ((AUTHORITY, trust.authority), (BUNDLE, trust.bundle)):
            self._dirs(path)
            self.ops.append(lp.File(path, content))
            self.places.append(Place(path, False, False, "builtin.trust", tree=False))
        if trust.store:
            self.ops.append(lp.Bytes(STORE, trust.store))
            self.places.append(Place(STORE, False, False, "builtin.trust", tree=False))
        for name, content in trust.database.items():
            path = f"{home}/{DATABASE}/{name}"
            self._dirs(path)
            self.ops.append(lp.Bytes(path, content, 0o600))
        for path in trust.places:
            self._dirs(path)
            self.ops.append(lp.Symlink(path, BUNDLE))
            self.places.append(Place(path, False, False, "builtin.trust", tree=False))

    def _file(self, file: TemplateFile, rule: str) -> None:
        inside_tree = any(file.inside.startswith(tree + "/") for tree in self._trees)
        executable = file.role in ("program", "loader")
        if not inside_tree:
            self._dirs(file.inside)
        self.ops.append(lp.Bind(file.host, file.inside, "file", exec=file.role != "data", expect=file.stamp))
        self._made.add(file.inside)
        if executable:
            self._execute.append(file.inside)
        self.places.append(
            Place(file.inside, False, executable, rule if file.role != "data" else "builtin.data", tree=False)
        )

    def _system(self, remit: Remit, host: HostFacts, tty: bool) -> None:
        for path, content in (_FILES | egress.files(remit)).items():
            self._dirs(path)
            self.ops.append(lp.File(path, content))
            self.places.append(Place(path, False, False, "builtin.etc", tree=False))
        self._dirs("/dev/x")
        for name in (*_DEVICES, *(("tty",) if tty else ())):
            path = f"/dev/{name}"
            self.ops.append(lp.Bind(path, path, "file", dev=True))
            self.places.append(Place(path, True, False, "builtin.dev", tree=False))
            self._devices.append(path)
        self.ops.append(lp.Devpts())
        self.places.append(Place("/dev/pts", True, False, "builtin.dev"))
        self._devices.append("/dev/pts")
        for name, target in (
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ):
            self.ops.append(lp.Symlink(f"/dev/{name}", target))
        self.ops += [lp.Proc(), lp.Readonly("/proc/sys"), *(lp.Mask(path) for path in _MASKED)]
        self.places.append(Place("/proc", False, False, "builtin.proc"))
        self.places += [Place(path, False, False, "builtin.proc", hidden=True) for path in _MASKED]
        # What runtimes size themselves by: without it Java and Go see the host's processors and memory.
        if host.paths.get(_CPU_TOPOLOGY) == "dir":
            self._dirs(_CPU_TOPOLOGY)
            self.ops.append(lp.Bind(_CPU_TOPOLOGY, _CPU_TOPOLOGY, "dir"))
            self.places.append(Place(_CPU_TOPOLOGY, False, False, "builtin.sys"))
        if host.cgroup is not None:
            views = [("unified", "/sys/fs/cgroup")]
            if host.cgroup.version == 1:
                views = [(c, f"/sys/fs/cgroup/{c}") for c in ("memory", "cpu") if c in host.cgroup.parents]
            for controller, to in views:
                self._dirs(to)
                self.ops.append(lp.CgroupView(controller, to))
                self.places.append(Place(to, False, False, "builtin.sys"))

    def _writable(self, remit: Remit, host: HostFacts, home: str) -> None:
        run = remit.process.work_code == "run"
        if remit.filesystem.work_from is not None:
            self.ops.append(lp.Overlay(remit.filesystem.work_from, WORK, True, run, host.is_root))
        else:
            self.ops.append(lp.Scratch("work", WORK, run))
        rule = "filesystem.work" if remit.filesystem.work_from else "builtin.work"
        self._dirs(home)
        for name, to, executable in (("home", home, run), ("tmp", "/tmp", run), ("shm", "/dev/shm", False)):  # noqa: S108
            self.ops.append(lp.Scratch(name, to, executable))
        for to, executable, why in (
            (WORK, run, rule),
            (home, run, "builtin.home"),
            ("/tmp", run, "builtin.tmp"),  # noqa: S108
            ("/dev/shm", False, "builtin.shm"),  # noqa: S108
        ):
            self._made.add(to)
            self._write.append(to)
            self.places.append(Place(to, True, executable, "process.work_code" if executable else why))
            if executable:
                self._execute.append(to)

    def _input(self, source: str, to: str, kind: str, host: HostFacts, rule: str) -> None:
        self._dirs(to)
        if kind == "dir":
            self.ops.append(lp.Overlay(source, to, False, False, host.is_root))
        else:
            self.ops.append(lp.Bind(source, to, kind, own=host.is_root))
        self._made.add(to)
        self.places.append(Place(to, False, False, rule, tree=kind == "dir"))

    def fill_prefix(self, to: str) -> None:
        """While dependencies are installed: one more writable place, executable as build steps need it."""
        self._dirs(to)
        self.ops.append(lp.Scratch("prefix", to, True))
        self._write.append(to)
        self._execute.append(to)
        self.places.append(Place(to, True, True, "process.install"))

    def sealed_prefix(self, source: str, to: str) -> None:
        """The installed dependencies, read-only and executable."""
        self._dirs(to)
        self.ops.append(lp.Bind(source, to, "dir", exec=True))
        self._execute.append(to)
        self.places.append(Place(to, False, True, "process.install"))

    def landlock(self) -> Iterator[lp.LandlockRule]:
        """The second lock: reading anything that is present, executing and writing only where it is meant."""
        yield lp.LandlockRule("read", ("/",))
        yield lp.LandlockRule("execute", tuple(self._execute))
        yield lp.LandlockRule("write", tuple(self._write))
        yield lp.LandlockRule("device", tuple(self._devices))

    def view(self) -> View:
        return View(tuple(self.places), WORK)


def _rules_of(remit: Remit, template: Template) -> Iterator[tuple[str, str]]:
    for i, entry in enumerate(remit.process.exec):
        started = template.programs.get(entry.removesuffix("?"))
        if started is not None:
            yield started, f"process.exec[{i}]"

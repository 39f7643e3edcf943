"""`compile`: a remit, on a host, with the closure of its programs, as a launch plan and the view that `decide` uses.

Rules of this room: pure. Everything that had to be looked up (does this input exist, is it a file, what matches a deny
pattern) comes in as a `Request`. The plan and the view are made from the same values, side by side, so that what the
kernel refuses is what `decide` denies.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from remit.errors import EXIT_NOT_FOUND, Denied
from remit.plan import launch_plan as lp
from remit.plan.egress import network
from remit.plan.host import HostFacts, require
from remit.plan.limits import cgroup, limits, rlimits, scratch
from remit.plan.prefix import INSTALLING, PREFIX, Prefix
from remit.plan.root import Root
from remit.plan.template import Template
from remit.plan.trust import Trust
from remit.policy.model import WORK, Remit
from remit.policy.view import View

GUEST_ID = 1000
HOME = "/home/agent"
HOSTNAME = "remit"

_NOTIFY = {"none": None, "exec+connect": "observe-exec-connect", "open": "observe-open"}


class Request(NamedTuple):
    """One launch. `argv`: the command as typed. `cwd`: inside. `env`: the caller's environment, of which only what the
    remit names is used. `inputs`: host path of each granted input -> 'file' or 'dir'. `masked`: paths inside that match
    a deny pattern. `on_path`: whether the host knows argv[0] at all, for the difference between 126 and 127.
    `real`: the file that argv[0] leads to on the host; `at`: its absolute path as typed.
    `accept_tier`: a lesser tier that the caller accepts by name. `prefix`: the sealed dependencies, if there are any;
    `installing`: this launch fills them, and nothing else of it is kept. `trust`: what makes programs inside trust the
    sandbox's own authority, where TLS is read."""

    sandbox: str
    argv: tuple[str, ...]
    cwd: str = WORK
    env: Mapping[str, str] = MappingProxyType({})
    tty: bool = False
    inputs: Mapping[str, str] = MappingProxyType({})
    masked: tuple[str, ...] = ()
    on_path: bool = True
    real: str = ""
    at: str = ""
    accept_tier: str | None = None
    prefix: Prefix | None = None
    installing: bool = False
    trust: Trust | None = None


class Compiled(NamedTuple):
    """`tier`: what the host gives; `accepted`: the lesser tier that somebody accepted by name, if one was needed."""

    plan: lp.LaunchPlan
    view: View
    tier: str
    accepted: str | None


def compile(remit: Remit, host: HostFacts, template: Template, request: Request) -> Compiled:  # noqa: A001
    """Raises `HostError` if the host is below the tier that is accepted, `Denied` if the remit does not grant the
    command."""
    least = request.accept_tier or remit.least_tier
    tier = require(host, least)
    program = _program(remit, template, request)
    root = Root.build(remit, host, template, request.inputs, request.masked, request.tty, HOME, request.trust)
    if request.installing:
        root.fill_prefix(PREFIX)
    elif request.prefix is not None:
        root.sealed_prefix(request.prefix.host, PREFIX)
    has_cgroup = host.cgroup is not None
    plan = lp.LaunchPlan(
        sandbox=request.sandbox,
        identity=lp.Identity(GUEST_ID, GUEST_ID, host.guest_id, host.guest_id),
        hostname=HOSTNAME,
        scratch=scratch(remit, len(root.ops)),
        root=tuple(root.ops),
        landlock=lp.Landlock(0 if tier == "partial" else 1, tuple(root.landlock())),
        seccomp=lp.Seccomp(
            "default+memfd" if remit.process.memfd else "default",
            _NOTIFY[remit.observe],
        ),
        cgroup=cgroup(remit, host, request.sandbox),
        rlimits=rlimits(remit, has_cgroup=has_cgroup),
        limits=limits(remit, watchdog=not has_cgroup),
        stdio="tty" if request.tty else "pipe",
        keep="prefix" if request.installing else "work" if remit.state.keep else None,
        command=lp.Command(program, request.argv, _env(remit, template, request), request.cwd),
        # Dependencies are installed without a network, from what the remit brings in.
        network=None if request.installing else network(remit),
    )
    accepted = request.accept_tier if request.accept_tier and request.accept_tier != remit.least_tier else None
    return Compiled(plan, root.view(), tier, accepted)


def _program(remit: Remit, template: Template, request: Request) -> str:
    name = request.argv[0]
    started = template.programs.get(name)
    if started is None and "/" in name:
        started = _by_path(request.at or name, template, request)
    if started is None and "/" not in name:
        named = [p for p in template.programs if posixpath.basename(p) == name]
        started = template.programs[named[0]] if named else None
    if started is None and request.prefix is not None:
        base = name.removeprefix(f"{PREFIX}/bin/")
        started = f"{PREFIX}/bin/{base}" if base in request.prefix.programs else None
    if started is None and "/" in name and remit.process.work_code == "run":
        path = posixpath.normpath(posixpath.join(request.cwd, name))
        if path.startswith((WORK + "/", HOME + "/", "/tmp/")):  # noqa: S108
            return path
    if started is not None:
        return started
    granted = ", ".join(template.programs) or "nothing"
    if name in template.missing or not request.on_path:
        raise Denied("process.exec", f"{name}: there is no such program on this host", exit_code=EXIT_NOT_FOUND)
    raise Denied(
        "process.exec",
        f"{name} is not granted: process.exec allows {granted}",
        hint=f"add {name} to process.exec if this agent is meant to run it",
    )


def _by_path(name: str, template: Template, request: Request) -> str | None:
    """A granted program typed by its path, or by another path of the same file (/bin/sh for /usr/bin/sh)."""
    if name in template.programs.values():
        return name
    if not any(file.role == "program" and file.inside == request.real for file in template.files):
        return None
    base = posixpath.basename(name)
    return next((path for path in template.programs.values() if posixpath.basename(path) == base), request.real)


def _env(remit: Remit, template: Template, request: Request) -> tuple[str, ...]:
    env = {
        "PATH": ":".join(template.path) or "/usr/bin",
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108
        **template.env,
        **(request.trust.environment() if request.trust is not None else {}),
    }
    if request.installing:
        env.update(INSTALLING)
    elif request.prefix is not None:
        env.update(request.prefix.environment())
        env["PATH"] += f":{PREFIX}/bin"
    if request.tty:
        env["TERM"] = request.env.get("TERM", "dumb")
    for name in remit.process.env_pass:
        if name in request.env:
            env[name] = request.env[name]
    env.update(remit.process.env_set)
    return tuple(f"{name}={value}" for name, value in env.items())

"""What the launcher saw a program try, with `decide`'s verdict on it.

A report fires before the call, so a verdict is *predicted*: the kernel decides on its own, from the same grants.
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from remit.plan.launch_plan import Network
from remit.policy.actions import (
    Action,
    Connect,
    ConnectUnix,
    Exec,
    HttpRequest,
    OpenFile,
    ReachHost,
    ResolveName,
)
from remit.policy.decide import Decision, decide
from remit.policy.model import Remit
from remit.policy.view import View
from remit.sandbox.closure.which import which
from remit.sandbox.shorten import shorten

_SECRETS = (".ssh", ".aws", ".gnupg", ".kube", ".docker", ".netrc", ".npmrc", ".pypirc", ".env", ".git-credentials")
_QUIET = ("/etc/ld.so.preload", "/etc/gnutls", "/etc/gai.conf", "/etc/host.conf", "/usr/lib/ssl", "/etc/ssl")
"""Looked for by C libraries at start and absent on many hosts: recorded, but no refusal that a person wants to hear."""


_AFAR = ("autofs", "nfs", "cifs", "smb", "9p", "afs", "ceph", "fuse")
"""Filesystems that ask another for each name: sent there, a name that the guest made up would leave the sandbox."""
_MAX_KNOWN, _LONGEST_KNOWN = 10_000, 256
"""Verdicts remembered, and the longest name among them: longer ones are made up, and would fill memory."""
_MAX_LINKS = 40
"""As the kernel follows."""


class Attempt(NamedTuple):
    """`notable`: a refusal that a person should see: something that the host has or that names a secret, or a write;
    not the many places that programs look in and find nothing. `times`: so many more of one that was told before; none
    for the first."""

    action: Action
    raw: str
    found: bool
    pid: int
    decision: Decision
    notable: bool
    times: int | None = None

    def as_event(self) -> dict[str, Any]:
        kind = {Exec: "exec", OpenFile: "open"}.get(type(self.action), "connect")
        fields = {name: getattr(self.action, name) for name in self.action._fields}
        return {
            "event": "attempt",
            "action": kind,
            "pid": self.pid,
            "raw": shorten(self.raw),
            **{
                ("resolved" if name == "path" else name): shorten(value) if isinstance(value, str) else value
                for name, value in fields.items()
            },
            "verdict": self.decision.verdict,
            "predicted": True,
            "rule": self.decision.rule,
            "reason": shorten(self.decision.reason),
            **({} if self.times is None else {"times": self.times}),
        }

    def subject(self) -> str:
        """What makes two refusals the same to a person: a program tried in every directory of PATH is one."""
        if isinstance(self.action, Exec):
            return f"run {os.path.basename(self.action.path)}"
        return f"{type(self.action).__name__} {tuple(self.action)!r} {self.decision!r}"

    def line(self) -> str:
        """One line for a person."""
        match self.action:
            case Exec(path):
                what = f"run {os.path.basename(path)}"
            case OpenFile(path, write):
                what = f"{'write' if write else 'read'} {path}"
            case Connect(address, port):
                what = f"connect to {address} port {port}"
            case ConnectUnix(path):
                what = f"connect to the socket {path}"
            case ResolveName(name):
                what = f"look up {name}"
            case ReachHost(name, port):
                what = f"connect to {name} port {port}"
            case HttpRequest(method=method, host=host, port=port, path=path):
                what = f"{method} {host}:{port}{path}"
            case _:
                what = str(self.action)
        return f"refused: {shorten(what)}  ({self.decision.rule}: {shorten(self.decision.reason)})"


_NO_SECRETS = Decision("deny", "builtin.absent", "nothing of the caller's home exists inside")


def _secret(action: Action) -> bool:
    """Reading a place where people keep secrets."""
    return isinstance(action, OpenFile) and not action.write and any(p in _SECRETS for p in action.path.split("/"))


class Judge:
    """Turns the launcher's reports into attempts; remembers verdicts, since programs repeat themselves."""

    def __init__(self, remit: Remit, view: View, network: Network | None, name: Callable[[str], str | None]) -> None:
        """`name`: what an address inside stands for, where there is a broker."""
        self.remit = remit
        self.view = view
        self._network = network
        self._name = name
        self._known: dict[tuple[type, Action], Decision] = {}
        self._granted = {os.path.basename(entry.removesuffix("?")) for entry in remit.process.exec}

    def attempt(self, report: Mapping[str, Any]) -> Attempt | None:
        action = _action(report)
        if action is None:
            return None
        if isinstance(action, Connect) and self._network is not None:
            if (action.address, action.port) == (self._network.address, 53):
                # Asking for a name: the broker says which, and its verdict.
                return None
            if (name := self._name(action.address)) is not None:
                action = ReachHost(name, action.port)
        decision = self._known.get((type(action), action))
        if decision is None:
            decision = decide(self.remit, action, self.view)
            if len(self._known) < _MAX_KNOWN and len(str(action[0])) <= _LONGEST_KNOWN:
                self._known[type(action), action] = decision
        found = bool(report.get("found", True))
        if decision.allowed and not found and _secret(action):
            # The guest's home is its own and writable; what was looked for there is the person's.
            decision = _NO_SECRETS
        granted_elsewhere = False
        if isinstance(action, Exec) and decision.verdict == "deny" and not found:
            # Looked for along PATH: where it was not found says less than that it was not granted.
            name = os.path.basename(action.path)
            granted_elsewhere = name in self._granted
            reason = f"nothing is at {action.path}; {name} is granted in another directory of PATH"
            if not granted_elsewhere:
                reason = f"{name} is not among what process.exec grants"
            decision = Decision("deny", "process.exec", reason)
        raw = report.get("raw") or f"{report.get('address')}:{report.get('port')}"
        notable = decision.verdict == "deny" and _notable(action, found) and not self._served(action)
        # The search goes on to the next directory of PATH, where the kernel finds what was granted.
        notable = notable and not granted_elsewhere
        return Attempt(action, raw, found, report["pid"], decision, notable, report.get("times"))

    def _served(self, action: Action) -> bool:
        """Will the broker, which decides for itself, say it?"""
        served = self._network.ports if self._network is not None else ()
        return isinstance(action, Connect | ReachHost) and action.port in served


def of_broker(event: Mapping[str, Any]) -> Attempt | None:
    """A refusal of the broker's, which is a fact and no prediction; None if it was none."""
    if event.get("verdict") != "deny":
        return None
    what: Action
    match event["action"]:
        case "resolve":
            what = ResolveName(event["name"])
        case "http":
            what = HttpRequest(event["method"], event["host"], event["port"], event["path"])
        case "connect":
            what = ReachHost(event["host"], event["port"])
        case _:
            what = ReachHost(event.get("host", "anywhere"), event.get("port", 0))
    return Attempt(what, "", True, 0, Decision("deny", event["rule"], event.get("reason", "")), True)


def _action(report: Mapping[str, Any]) -> Action | None:
    kind = report["action"]
    if kind == "connect":
        if report["family"] == "unix":
            return ConnectUnix(report["address"])
        return Connect(report["address"], report["port"])
    path = report["resolved"] or report["raw"]
    if kind == "exec":
        return Exec(path)
    return OpenFile(path, report["write"])


def _notable(action: Action, found: bool) -> bool:
    if isinstance(action, OpenFile):
        path = action.path
        if _secret(action):
            return True
        if action.write:
            # Byte code beside read-only sources is tried by every import, and its refusal is harmless.
            return "__pycache__" not in path
        return not path.startswith(_QUIET) and (found or (_near(path) and os.path.isfile(path)))
    if isinstance(action, Exec):
        # A walk along PATH: what is nowhere on the host is a miss, not a refusal.
        return found or which(os.path.basename(action.path), os.environ.get("PATH", os.defpath)) is not None
    if isinstance(action, ConnectUnix):
        # The C library asks for daemons that most hosts don't have.
        return _near(action.path) and os.path.exists(action.path)
    return True


def _near(path: str) -> bool:
    """Whether looking for `path` on the host asks nobody else: walked as the kernel would, and given up before the
    first name that would be sent afar. /proc leads anywhere by its links; a relative path starts where the guest is."""
    if not path.startswith("/"):
        return False
    afar = _afar()
    at, links = "", 0
    rest = path.split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        at = posixpath.dirname(at).rstrip("/") if part == ".." else f"{at}/{part}"
        if at == "/proc" or any(at == mount or at.startswith(f"{mount}/") for mount in afar):
            return False
        try:
            link = os.readlink(at or "/")
        except OSError:
            continue
        links += 1
        if links > _MAX_LINKS:
            return False
        at = "" if link.startswith("/") else posixpath.dirname(at).rstrip("/")
        rest += link.split("/")[::-1]
    return True


@functools.cache
def _afar() -> tuple[str, ...]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        lines = [line.split(" - ") for line in file]
    found = [mount.split(" ")[4] for mount, kind in (line[:2] for line in lines) if kind.startswith(_AFAR)]
    return tuple(mount.replace("\\040", " ").replace("\\134", "\\") for mount in found)

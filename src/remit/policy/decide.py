"""`decide`: is this action inside the remit? The one question, answered the same at enforcement, in `remit why`, in
events and in learning.

Rules of this room:
- Pure: no clock, disk, network or environment; what exists inside comes as a `View`.
- Deny wins, and is the answer to everything that no rule allows: an unknown action, an empty list, a fault in here.
- Every decision names the rule that decided and a reason that a person can read.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any, NamedTuple

from remit.policy.actions import (
    Action,
    CallTool,
    Connect,
    ConnectUnix,
    Exec,
    HttpRequest,
    KeepFile,
    OpenFile,
    ResolveName,
    Task,
    UseCredential,
)
from remit.policy.model import NetworkRule, Remit, ToolRule
from remit.policy.view import View

_ABSENT = "builtin.absent"
_FAULT = "builtin.fault"
_LOOPBACK = "builtin.loopback"


class Decision(NamedTuple):
    """`verdict`: allow, deny or ask. `rule`: the id of what decided, e.g. `filesystem.read[1]`."""

    verdict: str
    rule: str
    reason: str

    @property
    def allowed(self) -> bool:
        return self.verdict == "allow"


def _allow(rule: str, reason: str) -> Decision:
    return Decision("allow", rule, reason)


def _deny(rule: str, reason: str) -> Decision:
    return Decision("deny", rule, reason)


def decide(remit: Remit, action: Action, view: View, task: Task | None = None) -> Decision:
    """Never raises: a fault in here is a denial."""
    try:
        rule = _RULES.get(type(action))
        if rule is None:
            return _deny(_FAULT, f"{type(action).__name__} is no known action")
        return rule(remit, action, view)
    except Exception as error:
        return _deny(_FAULT, f"the decision failed, which denies: {type(error).__name__}: {error}")


def _clean(path: str) -> bool:
    return path.startswith("/") and "\0" not in path and not {"..", "."} & set(path.split("/"))


def _exec(remit: Remit, action: Exec, view: View) -> Decision:
    if not _clean(action.path):
        return _deny(_FAULT, f"{action.path!r} is not an absolute, normalised path")
    place = view.place(action.path)
    if place is None:
        return _deny("process.exec", f"{action.path} does not exist inside: process.exec does not bring it in")
    if place.hidden:
        return _deny(place.rule, f"{action.path} is masked")
    if not place.execute:
        reason = "code there may not run" if place.write else "it is data here, not a program"
        rule = "process.work_code" if place.write else place.rule
        return _deny(rule, f"{action.path} is not executable inside: {reason}")
    return _allow(place.rule, f"{place.path} is executable by {place.rule}")


def _open(remit: Remit, action: OpenFile, view: View) -> Decision:
    if not _clean(action.path):
        return _deny(_FAULT, f"{action.path!r} is not an absolute, normalised path")
    place = view.place(action.path)
    if place is None:
        return _deny(_ABSENT, f"{action.path} does not exist inside: no rule brings it in")
    if place.hidden:
        return _deny(place.rule, f"{action.path} is masked by {place.rule}")
    if action.write and not place.write:
        return _deny(place.rule, f"{place.path} is read-only inside")
    return _allow(place.rule, f"{place.path} is {'writable' if action.write else 'readable'} by {place.rule}")


def _embeds(address: ipaddress.IPv6Address) -> bool:
    """An IPv6 address that means an IPv4 one to some translator on the way."""
    nat64 = ipaddress.IPv6Network("64:ff9b::/96")
    return bool(address.ipv4_mapped or address.sixtofour or address.teredo) or address in nat64


def _connect(remit: Remit, action: Connect, view: View) -> Decision:
    shown = f"{action.address} port {action.port}"
    address = ipaddress.ip_address(action.address.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or address
    # Connecting to the unspecified address is connecting to oneself, on Linux.
    if mapped.is_loopback or mapped.is_unspecified:
        return _allow(_LOOPBACK, f"{shown} is the sandbox's own loopback")
    if isinstance(address, ipaddress.IPv6Address) and _embeds(address):
        return _deny("network.allow", f"{shown} hides an IPv4 address in an IPv6 one")
    if not 0 < action.port < 65536:
        return _deny(_FAULT, f"{action.port} is no port")
    for i, rule in enumerate(remit.network):
        if rule.cidr and address in ipaddress.ip_network(rule.cidr) and action.port in rule.ports:
            return _allow(f"network.allow[{i}]", f"{shown} is within {rule.cidr}")
    return _deny("network.allow", f"{shown} is not granted: the sandbox has loopback alone")


def _connect_unix(remit: Remit, action: ConnectUnix, view: View) -> Decision:
    if action.path.startswith("@"):
        return _allow(_LOOPBACK, "abstract sockets are those of the sandbox's own network namespace")
    decision = _open(remit, OpenFile(action.path, write=True), view)
    return decision if decision.allowed else _deny(decision.rule, f"{action.path} is no socket of this sandbox")


def _host_matches(rule: NetworkRule, host: str) -> bool:
    name = host.rstrip(".").lower()
    pattern = rule.host.lower()
    if pattern.startswith("*."):
        return name.endswith(pattern[1:]) and name != pattern[2:]
    return bool(pattern) and name == pattern


def _resolve(remit: Remit, action: ResolveName, view: View) -> Decision:
    if action.name in ("localhost", "remit"):
        return _allow(_LOOPBACK, f"{action.name} is the sandbox itself")
    for i, rule in enumerate(remit.network):
        if _host_matches(rule, action.name):
            return _allow(f"network.allow[{i}]", f"{action.name} matches {rule.host}")
    return _deny("network.allow", f"{action.name} is not granted: no name is resolved")


def _http(remit: Remit, action: HttpRequest, view: View) -> Decision:
    if not _clean(action.path.partition("?")[0]):
        return _deny(_FAULT, f"{action.path!r} is not a normalised path")
    near = ""
    for i, rule in enumerate(remit.network):
        if not _host_matches(rule, action.host) or action.port not in rule.ports:
            continue
        if rule.methods and action.method not in rule.methods:
            near = f"{action.method} is not among {', '.join(rule.methods)}"
        elif rule.paths and not _globs(rule.paths, action.path.partition("?")[0]):
            near = f"{action.path} matches none of {', '.join(rule.paths)}"
        else:
            return _allow(f"network.allow[{i}]", f"{action.method} {action.host}{action.path}")
    return _deny("network.allow", near or f"{action.host} port {action.port} is not granted")


def _tool_matches(rules: tuple[ToolRule, ...], action: CallTool) -> int | None:
    from fnmatch import fnmatchcase

    for i, rule in enumerate(rules):
        if rule.server == action.server and fnmatchcase(action.tool, rule.tool):
            return i
    return None


def _tool(remit: Remit, action: CallTool, view: View) -> Decision:
    shown = f"{action.server}/{action.tool}"
    for verdict, rules in (("deny", remit.tools.deny), ("ask", remit.tools.ask), ("allow", remit.tools.allow)):
        at = _tool_matches(rules, action)
        if at is not None:
            return Decision(verdict, f"tools.{verdict}[{at}]", f"{shown} matches {rules[at].tool}")
    return _deny("tools.allow", f"{shown} is not granted")


def _credential(remit: Remit, action: UseCredential, view: View) -> Decision:
    for i, grant in enumerate(remit.credentials):
        if grant.name == action.name and (not grant.hosts or action.host in grant.hosts):
            return _allow(f"credentials.use[{i}]", f"{action.name} is granted")
    return _deny("credentials.use", f"{action.name} is not granted")


def _globs(patterns: tuple[str, ...], path: str) -> bool:
    from wcmatch import glob

    return bool(glob.globmatch(path, list(patterns), flags=glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX))


def _keep(remit: Remit, action: KeepFile, view: View) -> Decision:
    if action.path.startswith("/") or "\0" in action.path or {"..", "."} & set(action.path.split("/")):
        return _deny(_FAULT, f"{action.path!r} does not stay below the work directory")
    if action.kind not in ("file", "directory"):
        return _deny("state.keep", f"{action.path} is a {action.kind}: only files and directories are kept")
    if action.size > remit.limits.disk:
        return _deny("limits.disk", f"{action.path} claims {action.size} bytes, more than the disk it was written on")
    for i, pattern in enumerate(remit.state.keep):
        if _globs((pattern,), action.path):
            return _allow(f"state.keep[{i}]", f"{action.path} matches {pattern}")
    return _deny("state.keep", f"{action.path} matches no pattern of state.keep")


_RULES: dict[type[Any], Callable[[Remit, Any, View], Decision]] = {
    Exec: _exec,
    OpenFile: _open,
    Connect: _connect,
    ConnectUnix: _connect_unix,
    ResolveName: _resolve,
    HttpRequest: _http,
    CallTool: _tool,
    UseCredential: _credential,
    KeepFile: _keep,
}

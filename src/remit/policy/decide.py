"""`decide`: is this action inside the remit? The one question, answered the same at enforcement, in `remit why`, in
events and in learning.

Rules of this room:
- Pure: no clock, disk, network or environment; what exists inside comes as a `View`.
- Deny wins, and is the answer to everything that no rule allows: an unknown action, an empty list, a fault in here.
- Every decision names the rule that decided and a reason that a person can read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from remit.policy import destinations
from remit.policy.actions import (
    Action,
    CallTool,
    Connect,
    ConnectUnix,
    Exec,
    HttpRequest,
    KeepFile,
    OpenFile,
    ReachHost,
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
    """Never raises: a fault in here is a denial. `task` is not looked at yet."""
    try:
        rule = _RULES.get(type(action))
        if rule is None:
            return _deny(_FAULT, f"{type(action).__name__} is no known action")
        return rule(remit, action, view)
    except Exception as error:
        # Of the error its kind alone: its words may be another's, and could fail again in being said.
        return _deny(_FAULT, f"the decision failed, which denies: {type(error).__name__}")


def _clean(path: str) -> str | None:
    """`path` with doubled and trailing slashes and '.' taken out, which mean nothing to the kernel; None if it is not
    absolute or has '..', which does mean something where links are."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not path.startswith("/") or "\0" in path or ".." in parts:
        return None
    return "/" + "/".join(parts)


def _exec(remit: Remit, action: Exec, view: View) -> Decision:
    path = _clean(action.path)
    if path is None:
        return _deny(_FAULT, f"{action.path!r} is not an absolute, normalised path")
    place = view.place(path)
    if place is None:
        return _deny("process.exec", f"{path} does not exist inside: process.exec does not bring it in")
    if place.hidden:
        return _deny(place.rule, f"{path} is masked by {place.rule}")
    if not place.execute:
        reason = "code there may not run" if place.write else "it is data here, not a program"
        rule = "process.work_code" if place.write else place.rule
        return _deny(rule, f"{path} is not executable inside: {reason}")
    if place.tree and path == place.path:
        return _deny(place.rule, f"{path} is a directory")
    return _allow(place.rule, f"{place.path} is executable by {place.rule}")


def _open(remit: Remit, action: OpenFile, view: View) -> Decision:
    path = _clean(action.path)
    if path is None:
        return _deny(_FAULT, f"{action.path!r} is not an absolute, normalised path")
    place = view.place(path)
    if place is None:
        return _deny(_ABSENT, f"{path} does not exist inside: no rule brings it in")
    if place.hidden:
        return _deny(place.rule, f"{path} is masked by {place.rule}")
    if action.write and not place.write:
        return _deny(place.rule, f"{place.path} is read-only inside")
    return _allow(place.rule, f"{place.path} is {'writable' if action.write else 'readable'} by {place.rule}")


def _connect(remit: Remit, action: Connect, view: View) -> Decision:
    shown = f"{action.address} port {action.port}"
    address = destinations.address(action.address)
    if address is None:
        return _deny(_FAULT, f"{action.address!r} is no IP address")
    if not 0 <= action.port < 65536:
        return _deny(_FAULT, f"{action.port} is no port")
    if destinations.is_own(address):
        return _allow(_LOOPBACK, f"{shown} is the sandbox's own loopback")
    if destinations.embeds_ipv4(address):
        return _deny("network.allow", f"{shown} hides an IPv4 address in an IPv6 one")
    for i, rule in enumerate(remit.network):
        if action.port in rule.ports and destinations.in_network(rule.cidr, address):
            return _allow(f"network.allow[{i}]", f"{shown} is within {rule.cidr}")
    return _deny("network.allow", f"{shown} is not granted: {_beyond(remit)}")


def _connect_unix(remit: Remit, action: ConnectUnix, view: View) -> Decision:
    if action.path.startswith("@"):
        return _allow(_LOOPBACK, "abstract sockets are those of the sandbox's own network namespace")
    decision = _open(remit, OpenFile(action.path, write=True), view)
    if decision.allowed:
        return decision
    return _deny(decision.rule, f"{action.path} is no socket of this sandbox")


def _beyond(remit: Remit) -> str:
    """What there is beyond loopback, for the reason of a denial."""
    if not remit.network:
        return "the sandbox has loopback alone"
    return "network.allow has " + ", ".join(rule.host or rule.cidr for rule in remit.network)


def _resolve(remit: Remit, action: ResolveName, view: View) -> Decision:
    name = destinations.name(action.name)
    if name is None or destinations.is_number(name):
        return _deny(_FAULT, f"{action.name!r} is no name of a host")
    if name in ("localhost", "remit"):
        return _allow(_LOOPBACK, f"{name} is the sandbox itself")
    for i, rule in enumerate(remit.network):
        if destinations.host_matches(rule.host, name):
            return _allow(f"network.allow[{i}]", f"{name} matches {rule.host}")
    return _deny("network.allow", f"{name} is not granted: {_beyond(remit)}")


def _reach(remit: Remit, action: ReachHost, view: View) -> Decision:
    """Rules with methods or paths allow the connection, too; what is asked for on it is then decided one by one."""
    name = destinations.name(action.name)
    if name is None:
        return _deny(_FAULT, f"{action.name!r} is no name of a host")
    ports: set[int] = set()
    for i, rule in enumerate(remit.network):
        if not destinations.host_matches(rule.host, name):
            continue
        if action.port in rule.ports:
            return _allow(f"network.allow[{i}]", f"{name} port {action.port} matches {rule.host}")
        ports.update(rule.ports)
    if ports:
        listed = ", ".join(map(str, sorted(ports)))
        return _deny("network.allow", f"{name} is granted on port {listed} and not on {action.port}")
    return _deny("network.allow", f"{name} port {action.port} is not granted: {_beyond(remit)}")


def inspected(remit: Remit, name: str, port: int) -> bool:
    """Must what is said on such a connection be read? If no rule allows all of it."""
    return not any(
        destinations.host_matches(rule.host, name) and port in rule.ports and rule.whole for rule in remit.network
    )


def intercepted(remit: Remit) -> tuple[str, ...]:
    """Hosts, as rules name them, whose TLS must be read. Port 80 is plain HTTP's."""
    return tuple(
        rule.host
        for rule in remit.network
        if rule.host and any(port != 80 and inspected(remit, rule.host.lower(), port) for port in rule.ports)
    )


def _http(remit: Remit, action: HttpRequest, view: View) -> Decision:
    host, path = destinations.name(action.host), destinations.http_path(action.path)
    if host is None:
        return _deny(_FAULT, f"{action.host!r} is no name of a host")
    if path is None:
        return _deny(_FAULT, f"{action.path!r} is a path that two servers could read in two ways")
    near = ""
    for i, rule in enumerate(remit.network):
        if not destinations.host_matches(rule.host, host) or action.port not in rule.ports:
            continue
        if rule.methods and action.method not in rule.methods:
            near = f"{action.method} is not among {', '.join(rule.methods)}"
        elif rule.paths and not _globs(rule.paths, path):
            near = f"{path} matches none of {', '.join(rule.paths)}"
        elif rule.headers and (missing := _missing(rule, action)) is not None:
            near = missing
        elif rule.max_body is not None and action.body is not None and action.body > rule.max_body:
            near = f"a body of {action.body} bytes is more than {rule.max_body}"
        else:
            return _allow(f"network.allow[{i}]", f"{action.method} {host}{path} matches {rule.host}")
    return _deny("network.allow", near or f"{host} port {action.port} is not granted: {_beyond(remit)}")


def _missing(rule: NetworkRule, action: HttpRequest) -> str | None:
    """Which condition on headers the request does not meet."""
    for name, values in rule.headers:
        said = [value for header, value in action.headers if header == name]
        if len(said) != 1:
            return f"a request has {name} once, not {len(said)} times"
        if said[0] not in values:
            return f"{name} is none of {', '.join(values)}"
    return None


def most_body(remit: Remit, decision: Decision) -> int | None:
    """The bytes that a request may carry under the rule that allowed it; None for any length."""
    inside = decision.rule.removeprefix("network.allow[").removesuffix("]")
    return remit.network[int(inside)].max_body if decision.allowed else 0


def _tool_matches(rules: tuple[ToolRule, ...], action: CallTool) -> int | None:
    import re

    for i, rule in enumerate(rules):
        pattern = ".*".join(map(re.escape, rule.tool.split("*")))
        if rule.server == action.server and re.fullmatch(pattern, action.tool, re.DOTALL):
            return i
    return None


def _tool(remit: Remit, action: CallTool, view: View) -> Decision:
    shown = f"{action.server}/{action.tool}"
    allowed = _tool_matches(remit.tools.allow, action)
    # `deny` and `ask` take away from `allow`; were `ask` a grant of its own, a child could grant by asking.
    for verdict, rules in (("deny", remit.tools.deny), ("ask", remit.tools.ask)):
        at = _tool_matches(rules, action)
        if at is not None and (verdict == "deny" or allowed is not None):
            return Decision(verdict, f"tools.{verdict}[{at}]", f"{shown} matches {rules[at].tool}")
    if allowed is None:
        return _deny("tools.allow", f"{shown} is not granted")
    return _allow(f"tools.allow[{allowed}]", f"{shown} matches {remit.tools.allow[allowed].tool}")


def _credential(remit: Remit, action: UseCredential, view: View) -> Decision:
    for i, grant in enumerate(remit.credentials):
        if grant.name == action.name and (not grant.hosts or action.host in grant.hosts):
            return _allow(f"credentials.use[{i}]", f"{action.name} is granted")
    return _deny("credentials.use", f"{action.name} is not granted")


def _globs(patterns: tuple[str, ...], path: str) -> bool:
    from wcmatch import glob

    return bool(glob.globmatch(path, list(patterns), flags=glob.GLOBSTAR | glob.DOTGLOB | glob.FORCEUNIX))


_GUARDED = {
    ".git": "git runs its hooks, and what its config names",
    ".github": "CI runs it",
    ".gitlab-ci.yml": "CI runs it",
    ".husky": "git runs its hooks",
    ".envrc": "direnv runs it",
    ".vscode": "the editor runs its tasks",
    ".idea": "the editor runs its configurations",
    ".bashrc": "the shell runs it",
    ".profile": "the shell runs it",
    ".zshrc": "the shell runs it",
    ".ssh": "it says who may log in, and what ssh runs",
    ".python-version": "pyenv and uv start the Python that it names",
    ".node-version": "version managers start the Node that it names",
    ".tool-versions": "asdf and mise start the programs that it names, from a path if it says so",
    "rust-toolchain": "rustup starts the toolchain that it names, from a path if it says so",
    "rust-toolchain.toml": "rustup starts the toolchain that it names, from a path if it says so",
    ".cargo": "cargo runs the compiler, linker and runner that its config names",
    ".npmrc": "npm runs the shell and git, and asks the registry, that it names",
    "pyvenv.cfg": "the Python beside it takes its library from where it says",
    "sitecustomize.py": "Python runs it at every start",
    "usercustomize.py": "Python runs it at every start",
    "remit.yaml": "Remit grants what it says",
}
"""What tools of the host run or obey by its name alone, and how. A pattern takes it only by naming it: `**` is not
meant so."""


def _keep(remit: Remit, action: KeepFile, view: View) -> Decision:
    if "\0" in action.path or {"", ".", ".."} & set(action.path.split("/")):
        return _deny(_FAULT, f"{action.path!r} does not stay below the work directory")
    if action.kind not in ("file", "directory"):
        return _deny("state.keep", f"{action.path} is a {action.kind}: only files and directories are kept")
    if not 0 <= action.size <= remit.limits.disk:
        return _deny("limits.disk", f"{action.path} claims {action.size} bytes, more than limits.disk lets be written")
    guarded = [part for part in action.path.split("/") if part in _GUARDED]
    for i, pattern in enumerate(remit.state.keep):
        if _globs((pattern,), action.path):
            if not set(guarded) <= set(pattern.split("/")):
                return _deny(
                    "state.keep",
                    f"{action.path} would run or govern something on the host: name {guarded[0]} to mean it "
                    f"({_GUARDED[guarded[0]]})",
                )
            return _allow(f"state.keep[{i}]", f"{action.path} matches {pattern}")
    return _deny("state.keep", f"{action.path} matches no pattern of state.keep")


_RULES: dict[type[Any], Callable[[Remit, Any, View], Decision]] = {
    Exec: _exec,
    OpenFile: _open,
    Connect: _connect,
    ConnectUnix: _connect_unix,
    ReachHost: _reach,
    ResolveName: _resolve,
    HttpRequest: _http,
    CallTool: _tool,
    UseCredential: _credential,
    KeepFile: _keep,
}

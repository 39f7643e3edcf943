"""A policy of OpenShell (https://docs.nvidia.com/openshell, "Policy Schema Reference", version 1, 2026). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.importing.notes import Notes, host_rule, network
from remit.policy.document import Path

_TOP = {"version", "network_policies", "filesystem_policy"}
_RULE = {"name", "endpoints", "binaries"}
_ENDPOINT = {
    "host", "port", "ports", "path", "allowed_ips", "protocol", "tls", "enforcement", "access", "rules", "deny_rules",
    "allow_encoded_slash",
}  # fmt: skip
_ACCESS = {"read-only": ["GET", "HEAD", "OPTIONS"], "read-write": ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH"]}
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/dev", "/tmp", "/var", "/")  # noqa: S108


def looks_like(data: Mapping[str, Any]) -> bool:
    return bool({"network_policies", "filesystem_policy"} & set(data))


def translate(data: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    rules: list[dict[str, Any]] = []
    programs: list[str] = []
    policies = notes.mapping(data.get("network_policies"), ("network_policies",))
    for key, said in policies.items():
        at: Path = ("network_policies", key)
        policy = notes.mapping(said, at)
        notes.left(policy, at, _RULE, "has no counterpart and is left out")
        found = _binaries(policy.get("binaries"), (*at, "binaries"), notes)
        programs += [path for path in found if path not in programs]
        if not policy.get("binaries"):
            notes.note(at, f"{key}: without binaries it matches nothing there: left out")
            continue
        endpoints = policy.get("endpoints") or []
        if not isinstance(endpoints, list):
            notes.fault((*at, "endpoints"), "endpoints is a list in this format")
            continue
        for i, endpoint in enumerate(endpoints):
            where = (*at, "endpoints", i)
            rules += _endpoint(notes.mapping(endpoint, where), where, notes)
    if programs:
        text = "of these programs alone there; of every program inside here: the network is the sandbox's"
        notes.note(("network_policies",), f"connections are {text}", "a sandbox for each program holds them apart")
    body: dict[str, Any] = {"network": {"allow": [rule for i, rule in enumerate(rules) if rule not in rules[:i]]}}
    if programs:
        # A program that this host lacks is no error there.
        body["process"] = {"exec": [f"{path}?" for path in programs]}
    reads = _reads(notes.mapping(data.get("filesystem_policy"), ("filesystem_policy",)), notes)
    if reads:
        body["filesystem"] = {"read": reads}
    notes.left(data, (), _TOP, "has no counterpart and is left out")
    return body


def _binaries(said: Any, at: Path, notes: Notes) -> list[str]:
    found: list[str] = []
    for i, item in enumerate(said if isinstance(said, list) else []):
        path = notes.mapping(item, (*at, i)).get("path")
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
            notes.fault((*at, i), "a binary has an absolute path in this format")
        elif set(path) & set("*?["):
            notes.note((*at, i), f"{path}: programs are named one by one here: left out", "add them to process.exec")
        else:
            found.append(path)
    return found


def _endpoint(said: Mapping[str, Any], at: Path, notes: Notes) -> list[dict[str, Any]]:
    ports = said["ports"] if "ports" in said else [said.get("port")]
    if not isinstance(ports, list) or not all(type(port) is int and 0 < port < 65536 for port in ports) or not ports:
        notes.fault(at, "an endpoint has a port, or ports, of 1 to 65535")
        return []
    notes.left(said, at, _ENDPOINT, "has no counterpart and is left out")
    asked = _asked(said, at, notes)
    if asked is None:
        return []
    ips = [network(word) for word in notes.words(said.get("allowed_ips"), (*at, "allowed_ips"))]
    host = said.get("host")
    if host is None:
        if any(asked):
            notes.note(at, "requests to addresses without a name are not read here: left out")
            return []
        return [{"cidr": number, "ports": sorted(set(ports))} for number in ips if number is not None]
    if not isinstance(host, str):
        notes.fault((*at, "host"), "host is a name in this format")
        return []
    return _hosts(host, ports, [number for number in ips if number], asked, at, notes)


def _hosts(
    host: str, ports: list[int], ips: list[str], asked: list[dict[str, Any]], at: Path, notes: Notes
) -> list[dict[str, Any]]:
    number = network(host)
    if number is not None:
        if any(asked):
            notes.note(at, f"{host}: requests to addresses without a name are not read here: left out")
            return []
        return [{"cidr": number, "ports": sorted(set(ports))}]
    if host.startswith("**."):
        host = host[1:]
    elif host.startswith("*."):
        notes.note(at, f"{host}: one label there, any number of labels here", "name the hosts if that is too many")
    rules: list[dict[str, Any]] = []
    for more in asked:
        rule = host_rule(host, ports, notes, at, **more)
        if rule is None:
            return []
        if ips:
            rule["allow_private"] = ips
        rules.append(rule)
    if ips:
        notes.note((*at, "allowed_ips"), f"{host}: led there and nowhere else; here to public addresses too")
    elif not host.startswith("*."):
        hint = "add allow_private: [NETWORK] to the rule if it is inside yours"
        notes.note(at, f"{host}: may lead to private addresses there, and not here", hint)
    return rules


def _asked(said: Mapping[str, Any], at: Path, notes: Notes) -> list[dict[str, Any]] | None:
    """The methods and paths of each rule; `[{}]` where all may be said, None where a remit can't say it."""
    protocol, path = said.get("protocol"), said.get("path")
    if protocol in (None, "tcp"):
        return [{}]
    if protocol not in ("rest", "websocket"):
        notes.note(at, f"{protocol}: what is asked inside of requests is not of the network here: left out")
        return None
    if said.get("deny_rules"):
        notes.note((*at, "deny_rules"), "a remit grants nothing that it would have to take away: left out")
        return None
    if said.get("enforcement", "audit") != "enforce":
        notes.note(at, "enforcement: audit only records there; here what breaks a rule is refused")
    if said.get("allow_encoded_slash"):
        notes.note(at, "a path with %2F is refused here: servers read it in two ways")
    if path not in (None, "", "**", "/**") and said.get("rules"):
        notes.note((*at, "path"), "a path beside rules has no counterpart: left out")
        return None
    where = {"paths": [path]} if isinstance(path, str) and path not in ("", "**", "/**") else {}
    if said.get("rules") is not None:
        return _rules(said["rules"], protocol, at, notes)
    access = said.get("access")
    if protocol == "websocket":
        if access == "read-only":
            notes.note(at, "messages of a WebSocket are not read here: an upgrade without them is left out")
            return None
        return [{"methods": ["GET"], **where}]
    if access == "full":
        return [where]
    if access not in _ACCESS:
        notes.fault((*at, "access"), "access is read-only, read-write or full in this format")
        return None
    return [{"methods": _ACCESS[access], **where}]


def _rules(said: Any, protocol: str, at: Path, notes: Notes) -> list[dict[str, Any]] | None:
    found: list[dict[str, Any]] = []
    for i, item in enumerate(said if isinstance(said, list) else []):
        where = (*at, "rules", i)
        allow = notes.mapping(notes.mapping(item, where).get("allow"), (*where, "allow"))
        method, path = allow.get("method"), allow.get("path")
        if not isinstance(method, str) or not isinstance(path, str) or not path.startswith("/"):
            notes.note(where, "a rule without a method and a path: left out")
        elif allow.get("query"):
            notes.note(where, f"{method} {path}: queries are not looked at here: left out")
        elif protocol == "websocket" and method != "*":
            notes.note(where, f"{method} {path}: messages of a WebSocket are not read here: left out")
        elif method != "*" and not (method.isascii() and method.isalpha()):
            notes.fault(where, f"{method} is no method")
        else:
            methods = ["GET"] if protocol == "websocket" else [method.upper()] if method != "*" else []
            found.append({**({"methods": methods} if methods else {}), "paths": [path]})
    return found or None


def _reads(said: Mapping[str, Any], notes: Notes) -> list[str]:
    at: Path = ("filesystem_policy",)
    found: list[str] = []
    for path in notes.words(said.get("read_only"), (*at, "read_only")):
        if path.rstrip("/") in _SYSTEM or path == "/":
            notes.note(at, f"{path}: not shown as a whole; what the programs need of it comes with them")
        elif path.startswith("/") and ".." not in path.split("/"):
            found.append(path)
        else:
            notes.fault((*at, "read_only"), f"{path} is no absolute path")
    written = notes.words(said.get("read_write"), (*at, "read_write"))
    if written or said.get("include_workdir", not said):
        text = "written in place there; here writes go to /workspace and /tmp, and state.keep takes them out"
        notes.note(
            at,
            f"{', '.join([*written, 'the working directory'])}: {text}",
            "filesystem.work.from copies a directory in",
        )
    notes.left(said, at, ("read_only", "read_write", "include_workdir"), "has no counterpart and is left out")
    return found

"""The settings of sandbox-runtime (`srt`, https://github.com/anthropic-experimental/sandbox-runtime, the schema of
src/sandbox/sandbox-config.ts as of 2026). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.importing.notes import WEB, Notes, host_rule, network

_NETWORK = {
    "allowedDomains",
    "deniedDomains",
    "deniedDomainReasons",
    "strictAllowlist",
    "parentProxy",
    "allowLocalBinding",
}
_FILES = {"denyRead", "allowRead", "allowWrite", "denyWrite"}


def looks_like(data: Mapping[str, Any]) -> bool:
    said = data.get("network"), data.get("filesystem")
    of_network, of_files = (set(part) if isinstance(part, Mapping) else set() for part in said)
    return bool(of_network & {"allowedDomains", "deniedDomains"} or of_files & _FILES)


def translate(data: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    said = notes.mapping(data.get("network"), ("network",))
    files = notes.mapping(data.get("filesystem"), ("filesystem",))
    body: dict[str, Any] = {"network": {"allow": _allow(said, notes)}}
    upstream = _upstream(notes.mapping(said.get("parentProxy"), ("network", "parentProxy")), notes)
    if upstream:
        body["network"]["upstream"] = upstream
    if "allowLocalBinding" in said and not said["allowLocalBinding"]:
        notes.note(
            ("network", "allowLocalBinding"), "programs may always listen inside: on the sandbox's own loopback alone"
        )
    denied = _files(files, notes)
    if denied:
        body["filesystem"] = {"deny": denied}
    notes.left(said, ("network",), _NETWORK, "has no counterpart and is left out")
    notes.left(files, ("filesystem",), _FILES, "has no counterpart and is left out")
    notes.left(data, (), ("network", "filesystem"), "has no counterpart and is left out")
    return body


def _allow(said: Mapping[str, Any], notes: Notes) -> list[dict[str, Any]]:
    denied = [_parted(word) for word in notes.words(said.get("deniedDomains"), ("network", "deniedDomains"))]
    rules: list[dict[str, Any]] = []
    for i, word in enumerate(notes.words(said.get("allowedDomains"), ("network", "allowedDomains"))):
        path = ("network", "allowedDomains", i)
        host, port = _parted(word)
        ports = [port] if port is not None else [one for one in WEB if (one,) != _only(denied, host)]
        ports = [one for one in ports if not any(_covers(d, host) and p in (None, one) for d, p in denied)]
        if not ports:
            notes.note(path, f"{word} is denied by deniedDomains: left out")
            continue
        if any(_within(d, host) and p in (None, *ports) for d, p in denied):
            notes.note(
                path, f"{word}: deniedDomains takes a part of it away, which a remit can't: left out", "name the hosts"
            )
            continue
        if port is None:
            notes.note(
                path, f"{word}: any port there, {' and '.join(map(str, ports))} here", "add the ports that are needed"
            )
        rule = _rule(host, ports, notes, path)
        if rule is not None:
            rules.append(rule)
    return rules


def _rule(host: str, ports: list[int], notes: Notes, path: tuple[Any, ...]) -> dict[str, Any] | None:
    number = network(host)
    if number is not None:
        return {"cidr": number, "ports": ports}
    if host == "localhost":
        notes.note(path, "localhost: the sandbox has a loopback of its own, and never the host's: left out")
        return None
    rule = host_rule(host, ports, notes, path)
    if rule is not None:
        hint = "add allow_private: [NETWORK] to the rule if it is inside yours"
        notes.note(path, f"{host}: where it leads to an address that is not public it is refused here", hint)
    return rule


def _only(denied: list[tuple[str, int | None]], host: str) -> tuple[int, ...]:
    return tuple(port for name, port in denied if port is not None and _covers(name, host))


def _parted(word: str) -> tuple[str, int | None]:
    """`host` or `host:port`; addresses of version 6 are in brackets."""
    host, colon, port = word.rpartition(":")
    if colon and port.isdecimal() and not host.endswith(":") and (":" not in host or host.startswith("[")):
        return host.lower(), int(port)
    return word.lower(), None


def _covers(pattern: str, host: str) -> bool:
    """All that `host` (a name or a pattern) names?"""
    return pattern in ("*", host) or (pattern.startswith("*.") and host.removeprefix("*.").endswith(pattern[1:]))


def _within(pattern: str, host: str) -> bool:
    """A part of what `host` names, and not all?"""
    return host.startswith("*.") and not _covers(pattern, host) and pattern.removeprefix("*.").endswith(host[1:])


def _upstream(said: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    at = ("network", "parentProxy")
    url = said.get("https") or said.get("http")
    if not isinstance(url, str):
        return {}
    rest = url.removeprefix("http://").rstrip("/")
    secret, _, place = rest.rpartition("@")
    if rest == url.rstrip("/") or ":" not in place or "/" in place:
        notes.note(at, "the proxy is no http://host:port, which is all that a remit goes by: left out")
        return {}
    found: dict[str, Any] = {"proxy": f"http://{place}"}
    if secret:
        notes.note(at, "its name and password don't belong into a remit", "export PROXY_AUTH=user:password")
        found["auth_env"] = "PROXY_AUTH"
    direct, names = [], []
    for word in filter(None, map(str.strip, str(said.get("noProxy", "")).split(","))):
        number = network(word)
        direct += [number] if number else []
        names += [] if number else [word]
    if direct:
        found["direct"] = direct
    if names:
        notes.note((*at, "noProxy"), f"{', '.join(names)}: only networks by number go past the proxy here")
    return found


def _files(files: Mapping[str, Any], notes: Notes) -> list[str]:
    at = ("filesystem",)
    words = {key: notes.words(files.get(key), (*at, key)) for key in sorted(_FILES)}
    notes.note(
        at, "all may be read there but denyRead; nothing is shown here but what filesystem.read names", "name it"
    )
    if words["allowWrite"]:
        text = "written in place there; here writes go to /workspace, and state.keep takes them out"
        notes.note((*at, "allowWrite"), f"{', '.join(words['allowWrite'])}: {text}")
    for key in ("allowRead", "denyWrite"):
        if words[key]:
            notes.note(
                (*at, key),
                f"{key} has no counterpart: nothing is readable that is not named, nothing of the host writable",
            )
    denied: list[str] = []
    for word in words["denyRead"]:
        tail = word.removeprefix("~/").removeprefix("./").rstrip("/")
        pattern = tail if tail.startswith("/") else f"**/{tail}"
        if ".." in tail.split("/") or not tail.strip("*/."):
            notes.note((*at, "denyRead"), f"{word}: left out; it is only shown if filesystem.read names it")
            continue
        denied += [pattern, f"{pattern}/**"]
    return denied

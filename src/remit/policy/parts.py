"""One document's own words as values: units resolved, paths absolute; absent fields stay absent.

Rules of this room: pure. Paths are computed on text; whether they exist is found when a sandbox starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy import places, units
from remit.policy.document import MAX_PROBLEMS, Document, Path
from remit.policy.model import CredentialGrant, NetworkRule, ReadGrant, ToolRule, Upstream

_KIB, _MIB, _TIB = 1024, 1024**2, 1024**4
_DAY = 86_400_000

_SIZES = {"memory": (8 * _MIB, 64 * _TIB), "disk": (64 * _KIB, 64 * _TIB), "output": (1, 64 * _TIB)}
"""Least and most, in bytes. Below the least no program starts; above the most the kernel's own counters give up."""
_TIMES = {"wall": (10, 30 * _DAY), "cpu_time": (10, 30 * _DAY)}
"""Least and most, in milliseconds. Starting alone takes a few; nothing that is one task lasts a month."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A field's value and where it was said. `path`: its place in `document`."""

    value: Any
    document: Document
    path: Path

    def problem(self, code: str, message: str, hint: str | None = None) -> Problem:
        return self.document.problem(self.path, code, message, hint)


Parts = dict[str, Entry]
"""By dotted name: the fields that were said."""


def parts(document: Document, directory: str | None, home: str) -> Parts:
    """`directory`: what relative paths are relative to; None for a built-in base, which names no relative paths.
    Raises `PolicyError` for what the schema can't see: paths and amounts that can't be meant."""
    reading = _Reading(document, directory, home)
    reading.top()
    reading.process()
    reading.filesystem()
    reading.network()
    reading.later()
    reading.state()
    reading.limits()
    if reading.problems:
        ordered = sorted(reading.problems, key=lambda p: (p.line, p.column))
        raise PolicyError(tuple(ordered[:MAX_PROBLEMS]))
    return reading.found


class _Reading:
    def __init__(self, document: Document, directory: str | None, home: str) -> None:
        self.document = document
        self.directory = directory
        self.home = home
        self.found: Parts = {}
        self.problems: list[Problem] = []

    def section(self, name: str) -> Mapping[str, Any]:
        section: Mapping[str, Any] = self.document.data.get(name, {})
        return section

    def put(self, path: Path, value: Any) -> None:
        self.found[".".join(str(step) for step in path)] = Entry(value, self.document, path)

    def fault(self, path: Path, code: str, message: str, hint: str | None = None) -> None:
        self.problems.append(self.document.problem(path, code, message, hint))

    def place(self, path: Path, text: str) -> str | None:
        """The absolute host path that `text` means; None once it was faulted."""
        try:
            return places.absolute(text, self.directory, self.home)
        except ValueError as error:
            self.fault(path, "E_PATH", str(error), "write ./name, /name or ~/name")
            return None

    def top(self) -> None:
        data = self.document.data
        for name in ("least_tier", "observe"):
            if name in data:
                self.put((name,), data[name])
        if "labels" in data:
            self.put(("labels",), tuple(data["labels"]))

    def process(self) -> None:
        process = self.section("process")
        for key in ("work_code", "memfd"):
            if key in process:
                self.put(("process", key), process[key])
        if "exec" in process:
            seen: set[str] = set()
            for i, entry in enumerate(process["exec"]):
                program = entry.removesuffix("?")
                reason = places.bad_program(program)
                if reason is None and program in seen:
                    reason = f"{program} stands twice, once with a ? and once without"
                if reason is not None:
                    self.fault(("process", "exec", i), "E_PATH", reason, "write the program's own path")
                seen.add(program)
            self.put(("process", "exec"), tuple(process["exec"]))
        if "install" in process:
            self.put(("process", "install"), tuple(process["install"]))
        env: Mapping[str, Any] = process.get("env", {})
        if "set" in env:
            self.put(("process", "env", "set"), dict(env["set"]))
        if "pass" in env:
            self.put(("process", "env", "pass"), tuple(env["pass"]))

    def filesystem(self) -> None:
        files = self.section("filesystem")
        if "read" in files:
            grants: dict[str, ReadGrant] = {}
            for i, item in enumerate(files["read"]):
                at: Path = ("filesystem", "read", i)
                source = self.place(at, item if isinstance(item, str) else item["from"])
                if source is None:
                    continue
                if isinstance(item, str):
                    grant = ReadGrant(source, places.appears_at(item, source, self.directory))
                else:
                    grant = ReadGrant(source, places.inside(item["to"]))
                reason = places.bad_input(grant)
                if reason is None and grant.to in grants:
                    reason = f"two inputs can't both appear at {grant.to}"
                if reason is not None:
                    self.fault(at, "E_PATH", reason, "grant the part that is needed, at a place of its own")
                grants[grant.to] = grant
            self.put(("filesystem", "read"), tuple(grants.values()))
        if "from" in files.get("work", {}):
            at = ("filesystem", "work", "from")
            source = self.place(at, files["work"]["from"])
            if source is not None and places.of_the_system(source):
                self.fault(at, "E_PATH", f"{source} can't lie below the work directory", "name a directory of yours")
            self.put(at, source)
        if "deny" in files:
            for i, pattern in enumerate(files["deny"]):
                if ".." in pattern.split("/"):
                    message = f"{pattern!r} would match nothing: paths inside have no '..'"
                    self.fault(("filesystem", "deny", i), "E_PATH", message, "start it with **/ or /")
            self.put(("filesystem", "deny"), tuple(files["deny"]))

    def later(self) -> None:
        """What is in the schema and not enforced yet; `load` refuses it unless it is empty."""
        tools = self.section("tools")
        for key in ("allow", "deny", "ask"):
            if key in tools:
                self.put(("tools", key), tuple(ToolRule(r["server"], r["tool"]) for r in tools[key]))
        if "use" in self.section("credentials"):
            self.put(("credentials", "use"), tuple(map(_credential, self.section("credentials")["use"])))

    def network(self) -> None:
        network = self.section("network")
        for i, rule in enumerate(network.get("allow", ())):
            at: Path = ("network", "allow", i)
            for name, said in (("cidr", [rule.get("cidr", "")]), ("allow_private", rule.get("allow_private", []))):
                self.networks((*at, name), said)
            bad = places.bad_host(rule.get("host", ""))
            if bad is not None:
                self.fault((*at, "host"), "E_VALUE", *bad)
            names = [name.lower() for name in rule.get("headers", {})]
            for name in {name for name in names if names.count(name) > 1 or name in _NOT_CONDITIONS}:
                reason = _NOT_CONDITIONS.get(name, "stands twice, in large and small letters")
                self.fault((*at, "headers"), "E_VALUE", f"{name}: {reason}", "leave it out")
        if "allow" in network:
            self.put(("network", "allow"), tuple(map(_network_rule, network["allow"])))
        for key, value in network.get("limits", {}).items():
            amount = int(value) if key in ("connections", "new_connections") else units.size(value)
            self.put(("network", "limits", key), amount)
        if "upstream" in network:
            self.upstream(network["upstream"])

    def networks(self, path: Path, said: Iterable[str]) -> None:
        for network in said:
            reason = places.bad_network(network)
            if reason is not None:
                self.fault(path, "E_VALUE", reason, "for example 10.0.0.0/8")

    def upstream(self, said: Mapping[str, Any]) -> None:
        at: Path = ("network", "upstream")
        host, _, port = said["proxy"].removeprefix("http://").rstrip("/").rpartition(":")
        if not 0 < int(port) < 65536:
            self.fault((*at, "proxy"), "E_VALUE", f"{port} is no port", "1 to 65535")
        self.networks((*at, "direct"), said.get("direct", ()))
        file = self.place((*at, "auth_file"), said["auth_file"]) if "auth_file" in said else ""
        resolve, direct = said.get("resolve", "here"), tuple(said.get("direct", ()))
        self.put(
            at, Upstream(host.strip("[]").lower(), int(port), said.get("auth_env", ""), file or "", resolve, direct)
        )

    def state(self) -> None:
        state = self.section("state")
        if "keep" in state:
            for i, pattern in enumerate(state["keep"]):
                reason = places.bad_keep(pattern)
                if reason is not None:
                    self.fault(("state", "keep", i), "E_PATH", reason, "patterns are relative to /workspace")
            self.put(("state", "keep"), tuple(state["keep"]))
        if "to" in state:
            at: Path = ("state", "to")
            to = self.place(at, state["to"])
            if to is not None and places.of_the_system(to):
                self.fault(at, "E_PATH", f"nothing can be kept in {to}", "name a directory of yours")
            self.put(at, to)

    def limits(self) -> None:
        for key, value in self.section("limits").items():
            path: Path = ("limits", key)
            amount: float
            if key in _SIZES:
                amount = units.size(value)
                self.bounded(path, amount, _SIZES[key], units.show_size)
            elif key in _TIMES:
                amount = units.duration(value)
                self.bounded(path, amount, _TIMES[key], units.show_duration)
            else:
                # 64.0 is a whole number to JSON Schema; it must not be another remit than 64.
                amount = float(value) if key == "cpu" else int(value)
            self.put(path, amount)

    def bounded(self, path: Path, amount: float, bounds: tuple[int, int], show: Any) -> None:
        least, most = bounds
        name = ".".join(map(str, path))
        if amount < least:
            self.fault(path, "E_VALUE", f"{name}: {show(amount)} is less than {show(least)}, the least")
        elif amount > most:
            self.fault(path, "E_VALUE", f"{name}: {show(amount)} is more than {show(most)}, the most")


_NOT_CONDITIONS = {
    "host": "it is always the host itself",
    "content-length": "max_body bounds it",
    "transfer-encoding": "it says how the body is sent, and is written anew",
    "connection": "it is of one connection, and is written anew",
}


def _network_rule(rule: Mapping[str, Any]) -> NetworkRule:
    headers = {
        name.lower(): (values,) if isinstance(values, str) else tuple(values)
        for name, values in rule.get("headers", {}).items()
    }
    return NetworkRule(
        host=rule.get("host", "").lower(),
        cidr=rule.get("cidr", ""),
        ports=tuple(int(port) for port in rule["ports"]),
        methods=tuple(rule.get("methods", ())),
        paths=tuple(rule.get("paths", ())),
        headers=tuple(sorted(headers.items())),
        max_body=units.size(rule["max_body"]) if "max_body" in rule else None,
        allow_private=tuple(rule.get("allow_private", ())),
    )


def _credential(grant: Mapping[str, Any]) -> CredentialGrant:
    ttl = units.duration(grant.get("ttl", "10m"))
    return CredentialGrant(grant["name"], grant.get("provider", "env"), ttl, tuple(grant.get("hosts", ())))

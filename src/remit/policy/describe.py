"""An effective remit in plain words, section by section, for `remit explain`. Pure.

Each line carries the id of the rule that `decide` would name, so that what is read here and what is said at a denial
are found in one another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from remit.policy import bases
from remit.policy.model import Effective, Remit
from remit.policy.units import show_duration, show_size

Section = tuple[str, tuple[str, ...]]
"""A boundary and its lines."""


class Line(NamedTuple):
    """One sentence and the rule that it speaks of."""

    boundary: str
    rule: str
    text: str


_INTERPRETERS = {
    "python": "Python code",
    "node": "JavaScript",
    "npm": "the scripts of packages",
    "npx": "the scripts of packages",
    "sh": "shell scripts",
    "bash": "shell scripts",
    "dash": "shell scripts",
    "perl": "Perl code",
    "ruby": "Ruby code",
    "awk": "awk programs",
    "make": "the commands of makefiles",
    "git": "git's hooks and aliases",
    "java": "Java code",
}
_STARTERS = ("env", "find", "xargs", "tar", "sed", "timeout", "nice")
_WORK_CODE = {
    "none": "Code in the work directory can't be executed by its name; an interpreter can still read it.",
    "install": "The work directory is not executable; dependencies come from the environment's own packages.",
    "run": "Code in the work directory, in /tmp and in the home directory may run: that equals an interpreter.",
}
_OBSERVE = {
    "none": "No attempts are recorded.",
    "exec+connect": "Programs started and connections tried are recorded.",
    "open": "Programs started, connections tried and every path opened are recorded.",
}
_TIERS = {
    "full": "Only hosts that enforce everything run it (tier full).",
    "delegated": "Hosts with hard limits run it (tier delegated or better).",
    "partial": "Any host runs it, also one whose limits are only watched (tier partial).",
}


def describe(effective: Effective) -> tuple[Section, ...]:
    """Each boundary with its sentences, the rule before each that has one of its own."""
    sections: dict[str, list[str]] = {}
    for line in lines(effective):
        own = line.rule not in (line.boundary, "")
        sections.setdefault(line.boundary, []).append(f"{line.rule}: {line.text}" if own else line.text)
    return tuple((boundary, tuple(said)) for boundary, said in sections.items())


def as_data(effective: Effective) -> list[dict[str, Any]]:
    """The same, JSON-ready: `[{"boundary", "rule", "text"}]`."""
    return [line._asdict() for line in lines(effective)]


def lines(effective: Effective) -> Iterator[Line]:
    """Every sentence, boundary after boundary."""
    remit = effective.remit
    yield from _process(remit)
    yield from _filesystem(remit)
    yield from _network(remit)
    yield from _tools(remit)
    yield from _credentials(remit)
    yield from _state(remit)
    yield from _limits(remit)
    yield from _host(effective)
    yield from _bases(effective)


def _program(entry: str) -> str:
    name = entry.removesuffix("?").rsplit("/", 1)[-1]
    return name.rstrip("0123456789.") or name


def _process(remit: Remit) -> Iterator[Line]:
    process = remit.process
    if not process.exec:
        yield Line("process", "process.exec", "Nothing may run: no program is named.")
        return
    always = ", ".join(entry for entry in process.exec if not entry.endswith("?"))
    perhaps = ", ".join(entry[:-1] for entry in process.exec if entry.endswith("?"))
    named = "; where the host has them: ".join(filter(None, (always or "nothing for certain", perhaps)))
    yield Line("process", "process.exec", f"May run {named}. No other program exists inside.")
    runs = {_program(e): _INTERPRETERS[_program(e)] for e in process.exec if _program(e) in _INTERPRETERS}
    if runs:
        what = ", ".join(dict.fromkeys(runs.values()))
        text = (
            f"Interpreters are among them ({', '.join(runs)}): they run any code that they can read or are handed "
            f"({what}). This list bounds which programs start; what their code does is bounded by the other boundaries."
        )
        yield Line("process", "process.exec", text)
    starters = [name for name in map(_program, process.exec) if name in _STARTERS]
    if starters:
        text = f"Programs that start others are among them ({', '.join(starters)}): only what is in this list."
        yield Line("process", "process.exec", text)
    yield Line("process", "process.work_code", _WORK_CODE[process.work_code])
    if process.install:
        command = " ".join(process.install)
        text = f"Before the first run, in a sandbox of its own: `{command}`; what it installs is sealed and executable."
        yield Line("process", "process.install", text)
    if process.memfd:
        yield Line("process", "process.memfd", "Files in memory are allowed, and they can be executed.")
    for name, value in process.env_set.items():
        yield Line("process", "process.env.set", f"{name} is {value!r} in its environment.")
    if process.env_pass:
        yield Line("process", "process.env.pass", f"Of the caller's environment: {', '.join(process.env_pass)}.")
    else:
        yield Line("process", "process.env.pass", "Nothing of the caller's environment passes.")


def _filesystem(remit: Remit) -> Iterator[Line]:
    files = remit.filesystem
    if files.work_from:
        text = f"/workspace is {files.work_from} with changes kept apart; the original is never written."
        yield Line("filesystem", "filesystem.work", text)
    else:
        yield Line(
            "filesystem", "builtin.work", "/workspace starts empty; it, /tmp and the home directory are writable."
        )
    for i, grant in enumerate(files.read):
        origin = f" ({grant.source} of the host)" if grant.source != grant.to else ""
        yield Line("filesystem", f"filesystem.read[{i}]", f"{grant.to}{origin} can be read.")
    if files.deny:
        text = f"Never readable, even where granted: {', '.join(files.deny)}."
        yield Line("filesystem", "filesystem.deny", text)
    yield Line("filesystem", "builtin.absent", "Nothing else of the host exists inside.")


def _network(remit: Remit) -> Iterator[Line]:
    yield Line("network", "builtin.loopback", "A loopback of its own, with nothing of the host's on it.")
    for i, rule in enumerate(remit.network):
        limits = f", only {' '.join(rule.methods)}" if rule.methods else ""
        limits += f", only {' '.join(rule.paths)}" if rule.paths else ""
        limits += "".join(f", only with {name}: {' or '.join(values)}" for name, values in rule.headers)
        limits += f", with at most {show_size(rule.max_body)} a request" if rule.max_body is not None else ""
        limits += f", also at {' '.join(rule.allow_private)}" if rule.allow_private else ""
        ports = ", ".join(map(str, rule.ports))
        yield Line("network", f"network.allow[{i}]", f"{rule.host or rule.cidr} on port {ports}{limits}.")
    if remit.network:
        yield from _network_limits(remit)
    yield Line("network", "network.allow", "Nothing else can be reached, and no other name is resolved.")


def _network_limits(remit: Remit) -> Iterator[Line]:
    limits = remit.network_limits
    said = {
        "connections": f"At most {limits.connections} connections at once",
        "new_connections": f"At most {limits.new_connections} new connections a second",
        "up": f"At most {show_size(limits.up or 0)} leave, in all",
        "down": f"At most {show_size(limits.down or 0)} come in, in all",
        "speed": f"At most {show_size(limits.speed or 0)} a second on one connection",
    }
    for name, text in said.items():
        if getattr(limits, name) is not None:
            yield Line("network", f"network.limits.{name}", f"{text}.")
    if remit.upstream is not None:
        judged = "judged here" if remit.upstream.resolve == "here" else "found by the proxy, and judged by nobody here"
        proxy = f"{remit.upstream.host} port {remit.upstream.port}"
        text = f"The world is reached by the proxy {proxy}; addresses are {judged}."
        yield Line("network", "network.upstream", text)


def _tools(remit: Remit) -> Iterator[Line]:
    said = {"allow": "may be called", "ask": "waits for a person each time", "deny": "may not be called"}
    for kind, text in said.items():
        for i, rule in enumerate(getattr(remit.tools, kind)):
            yield Line("tools", f"tools.{kind}[{i}]", f"{rule.tool} of {rule.server} {text}.")
    if not remit.tools.allow:
        yield Line("tools", "tools.allow", "No tool can be called.")


def _credentials(remit: Remit) -> Iterator[Line]:
    for i, grant in enumerate(remit.credentials):
        where = f" for {', '.join(grant.hosts)}" if grant.hosts else ""
        text = f"{grant.name}{where}, for {show_duration(grant.ttl_ms)} at a time."
        yield Line("credentials", f"credentials.use[{i}]", text)
    if not remit.credentials:
        yield Line("credentials", "credentials.use", "None are held.")


def _state(remit: Remit) -> Iterator[Line]:
    if not remit.state.keep:
        yield Line("state", "state.keep", "Nothing is kept: all that is written is destroyed at the end.")
        return
    for i, pattern in enumerate(remit.state.keep):
        yield Line("state", f"state.keep[{i}]", f"{pattern} is copied to {remit.state.to} at the end.")
    yield Line("state", "state.keep", "The rest is destroyed. Links and devices are never kept.")


def _limits(remit: Remit) -> Iterator[Line]:
    limits = remit.limits
    cpu = f"{limits.cpu:g} processor{'s' if limits.cpu != 1 else ''}"
    total = f", {show_duration(limits.cpu_time_ms)} of processor time in all" if limits.cpu_time_ms else ""
    for text in (
        f"{cpu}{total}; {show_size(limits.memory)} of memory; {limits.processes} processes.",
        f"{show_duration(limits.wall_ms)} on the clock; {show_size(limits.output)} of output.",
        f"{show_size(limits.disk)} in {limits.files} files written; {limits.open_files} open at once.",
    ):
        yield Line("limits", "limits", text)


def _host(effective: Effective) -> Iterator[Line]:
    remit = effective.remit
    yield Line("host", "least_tier", _TIERS[remit.least_tier])
    yield Line("host", "observe", _OBSERVE[remit.observe])
    if remit.labels:
        yield Line("host", "labels", f"The data in its reach: {', '.join(remit.labels)}.")
    if effective.widened:
        text = f"Grants more than its base, by its own word: {', '.join(effective.widened)}."
        yield Line("host", "unsafe_widen", text)


def _bases(effective: Effective) -> Iterator[Line]:
    for source in effective.sources:
        name = source.removeprefix("built-in ")
        if name != source and bases.reasons(name):
            yield Line("bases", name, bases.reasons(name))

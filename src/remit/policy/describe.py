"""An effective remit in plain words, section by section, for `remit explain`. Pure."""

from __future__ import annotations

from remit.policy.model import Effective, Remit
from remit.policy.units import show_duration, show_size

Section = tuple[str, tuple[str, ...]]
"""A boundary and its lines."""

_INTERPRETERS = ("python", "node", "sh", "bash", "dash", "perl", "ruby", "awk", "make", "git", "env", "find", "xargs")
_WORK_CODE = {
    "none": "Code in the work directory can't be executed (an interpreter can still read it).",
    "install": "The work directory is not executable; dependencies come from the environment's own packages.",
    "run": "Code in the work directory may run: that equals granting an interpreter.",
}


def describe(effective: Effective) -> tuple[Section, ...]:
    """Each boundary with what it grants, in sentences."""
    remit = effective.remit
    return (
        ("process", tuple(_process(remit))),
        ("filesystem", tuple(_filesystem(remit))),
        ("network", ("Loopback of its own; nothing else can be reached.",)),
        ("tools", ("No tool can be called.",)),
        ("credentials", ("None are held.",)),
        ("state", tuple(_state(remit))),
        ("limits", tuple(_limits(remit))),
        ("host", tuple(_host(effective))),
    )


def _process(remit: Remit) -> list[str]:
    process = remit.process
    if not process.exec:
        return ["Nothing may run: process.exec is empty."]
    lines = [f"May run: {', '.join(process.exec)}. No other program exists inside."]
    if any(entry.removesuffix("?").rsplit("/", 1)[-1].startswith(_INTERPRETERS) for entry in process.exec):
        lines.append(
            "An interpreter is among them: it runs any code it can read, "
            "so what bounds it is the other boundaries, not this list."
        )
    lines.append(_WORK_CODE[process.work_code])
    if process.memfd:
        lines.append("Files in memory (memfd) are allowed, and they can be executed.")
    if process.env_set or process.env_pass:
        names = [*process.env_set, *(f"{name} (the caller's)" for name in process.env_pass)]
        lines.append(f"Environment: {', '.join(names)}, and what its programs need. Nothing else passes.")
    else:
        lines.append("Nothing of the caller's environment passes.")
    return lines


def _filesystem(remit: Remit) -> list[str]:
    files = remit.filesystem
    lines = []
    if files.work_from:
        lines.append(f"/workspace is {files.work_from} with changes kept apart; the original is never written.")
    else:
        lines.append("/workspace is empty and writable; /tmp and the home directory too.")
    lines += [f"Reads {grant.to} (from {grant.source})." for grant in files.read]
    if files.deny:
        lines.append(f"Never readable, even where granted: {', '.join(files.deny)}.")
    lines.append("Nothing else of the host exists inside.")
    return lines


def _state(remit: Remit) -> list[str]:
    if not remit.state.keep:
        return ["Nothing is kept: all that is written is destroyed at the end."]
    return [f"Kept at the end, into {remit.state.to}: {', '.join(remit.state.keep)}. The rest is destroyed."]


def _limits(remit: Remit) -> list[str]:
    limits = remit.limits
    cpu = f"{limits.cpu:g} processor{'s' if limits.cpu != 1 else ''}"
    total = f", {show_duration(limits.cpu_time_ms)} of it in all" if limits.cpu_time_ms else ""
    return [
        f"{cpu}{total}; {show_size(limits.memory)} of memory; {limits.processes} processes.",
        f"{show_duration(limits.wall_ms)} on the clock; {show_size(limits.output)} of output.",
        f"{show_size(limits.disk)} in {limits.files} files written; {limits.open_files} open at once.",
    ]


def _host(effective: Effective) -> list[str]:
    remit = effective.remit
    lines = [f"Runs on hosts of tier {remit.least_tier} or better. Recorded: {remit.observe}."]
    if remit.labels:
        lines.append(f"Data: {', '.join(remit.labels)}.")
    if effective.widened:
        lines.append(f"Widened over its base, by its own word: {', '.join(effective.widened)}.")
    return lines

"""What is said to a person when a run is over: how it ended, what it used and kept, what they would want to be told."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from typing import Any

from remit import compose
from remit.cli import say
from remit.policy.model import Effective
from remit.policy.units import show_size

LINES = 20
"""Refusals, and files not kept, said one by one; the rest is counted: how many there are is the guest's choice."""


def hints(
    argv: list[str], effective: Effective, prepared: compose.Prepared, final: Mapping[str, Any], *, own: bool
) -> None:
    """What a person would want to be told: files that the command names and the remit does not bring in, patterns that
    took nothing. `own`: the remit is ours, made for a command without one, and options can add to it."""
    plan, view = prepared.compiled.plan, prepared.compiled.view
    result = final["result"]
    if result["exit"] != 0 and result["reason"] == "exited" and result["signal"] is None:
        filesystem = effective.remit.filesystem
        if own and not filesystem.work_from:
            shown = ", ".join(os.path.relpath(grant.source) for grant in filesystem.read[:3])
            what = f"of this directory only {shown} is" if shown else "nothing of this directory is"
            say.note(f"{what} shown inside: --work . shows a copy of all", "yellow")
        for word in argv[1:]:
            inside = posixpath.normpath(posixpath.join(plan.command.cwd, word))
            place = view.place(inside)
            made_here = place is None or place.rule == "builtin.work"
            if not word.startswith("-") and os.path.exists(word) and made_here:
                say.note(f"{word} exists here and is not brought in: filesystem.read", "yellow")
    if effective.remit.state.keep and not final["kept"] and not final["not_kept"] and not final["keep_error"]:
        say.note(f"nothing that was written matches state.keep: {', '.join(effective.remit.state.keep)}", "yellow")


_REASONS = {
    "wall": "killed: the wall clock ran out (limits.wall)",
    "memory": "killed: out of memory (limits.memory)",
    "cpu_time": "killed: out of processor time (limits.cpu_time)",
    "output": "killed: more output than limits.output",
    "killed": "killed, as asked",
    "lost": "killed: its supervisor or first process was lost",
    "not_executed": "the program could not be executed",
}


def summary(final: Mapping[str, Any], destination: str, told: int) -> None:
    result, usage, teardown, host = final["result"], final["usage"], final["teardown"], final["host"]
    if told > LINES:
        say.note(f"... and {told - LINES} more refusals (--events FILE has all)", "yellow")
    for entry in final["not_kept"][:LINES]:
        say.note(f"not kept: {entry['reason']}  ({entry['rule']})", "yellow")
    if len(final["not_kept"]) > LINES:
        last = final["not_kept"][-1]
        # A receipt holds only so many; its last entry then counts the others.
        rest = f"; {last['reason']}" if last["path"] == "..." else ""
        others = len(final["not_kept"]) - LINES - bool(rest)
        say.note(f"... and {others} more not kept (--receipt FILE names them){rest}", "yellow")
    if final["keep_error"]:
        say.note(f"{'not all' if final['kept'] else 'nothing'} could be kept: {final['keep_error']}", "red")
    if final["output_error"]:
        say.note(f"output was lost: {final['output_error']}", "red")
    if usage["refused_forks"]:
        say.note("limits.processes was reached: a process could not be started", "yellow")
    status = _REASONS.get(result["reason"]) or (
        f"ended by signal {result['signal']}" if result["signal"] else f"exit {result['exit']}"
    )
    peak = usage["peak_memory_bytes"]
    parts = [
        status,
        f"{usage['wall_ms'] / 1000:.2f} s",
        f"cpu {usage['cpu_ms'] / 1000:.2f} s",
        *([f"{show_size(peak)} peak"] if peak else []),
        f"refused {final['refusals_in_all']}",
    ]
    good = result["exit"] == 0
    say.note(" · ".join(parts), "green" if good else "red")
    if final["kept"]:
        total = sum(entry["size"] for entry in final["kept"])
        names = ", ".join(entry["path"] for entry in final["kept"][:4])
        more = f" and {len(final['kept']) - 4} more" if len(final["kept"]) > 4 else ""
        say.note(f"kept {names}{more} ({show_size(total)}) in {os.path.relpath(destination)}")
    weak = [name for name, m in host["mechanisms"].items() if m["strength"] != "full" and name != "observe"]
    tier = f"host tier {host['tier']}" + (" (accepted by name)" if host["accepted_by_name"] else "")
    rest = "nothing remains" if teardown["nothing_remains"] else "SOMETHING REMAINS: see the receipt"
    say.note(
        f"{tier}{'; not full: ' + ', '.join(weak) if weak else ''}; torn down in {teardown['ms']:.1f} ms, {rest}",
        "dim" if teardown["nothing_remains"] else "red",
    )

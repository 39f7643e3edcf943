"""`remit run`."""

from __future__ import annotations

import argparse
import json
import os
import posixpath
import sys
import time
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from remit import compose
from remit.cli import say
from remit.errors import EXIT_SETUP, UsageError
from remit.policy.model import Effective
from remit.policy.units import show_size
from remit.sandbox.run import Listener, keeping
from remit.sandbox.run import run as run_sandbox

if TYPE_CHECKING:
    from remit.plan.prefix import Prefix
    from remit.sandbox.attempts import Attempt

_LINES = 20
"""Refusals, and files not kept, said one by one; the rest is counted: how many there are is the guest's choice."""
_MAX_EVENTS = 64 * 1024 * 1024
"""Bytes of attempts in one record: what a program tries must not fill the operator's disk."""


def _is_terminal(fd: int) -> bool:
    try:
        return os.isatty(fd)
    except OSError:
        return False


def _open_standard_streams() -> None:
    """Streams that the caller closed become /dev/null, so that no descriptor of ours takes their numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open("/dev/null", os.O_RDWR)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115


def run(options: argparse.Namespace) -> int:
    _open_standard_streams()
    argv = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not argv:
        raise UsageError("no command", hint="remit run --remit remit.yaml -- CMD [ARG...]")
    for word in argv:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"the argument {word!r} is not UTF-8", hint="pass such names in a file or on stdin"
            ) from error
    quiet = options.quiet or options.json
    effective, directory = _policy(options, argv, quiet)
    terminal = _is_terminal(0)
    tty = not options.no_tty and (options.tty or (terminal and _is_terminal(1)))
    if options.tty and not terminal:
        raise UsageError("--tty wants a terminal on standard input", hint="leave --tty out, or run it at a terminal")
    progress = _Progress(quiet)
    prefix = None
    if effective.remit.process.install and not options.dry_run:
        prefix = _installed(effective, directory, options.accept_tier, quiet, progress)
    prepared = compose.prepare(
        effective,
        argv,
        directory=directory,
        tty=tty,
        accept_tier=options.accept_tier,
        progress=progress.step,
        prefix=prefix,
    )
    progress.end()
    if options.dry_run:
        say.data(prepared.compiled.plan.as_document())
        return 0
    if options.keep_to and not effective.remit.state.keep:
        raise UsageError("--keep-to, and nothing is kept: state.keep is empty", hint='add state: {keep: ["out/**"]}')
    destination = os.path.abspath(options.keep_to) if options.keep_to else effective.remit.state.to
    events = _open(options.events) if options.events else None
    told = 0

    written = 0

    def on_event(event: Mapping[str, Any]) -> None:
        nonlocal written
        if events is None:
            return
        line = json.dumps(event) + "\n"
        if event["event"] == "attempt" and written + len(line) > _MAX_EVENTS:
            if written <= _MAX_EVENTS:
                # Said once, so that a record that was cut does not look complete.
                events.write(json.dumps({"event": "truncated", "limit_bytes": _MAX_EVENTS}) + "\n")
                written = _MAX_EVENTS + 1
            return
        written += len(line)
        events.write(line)

    def on_refusal(attempt: Attempt) -> None:
        nonlocal told
        told += 1
        if not quiet and told <= _LINES:
            say.note(attempt.line(), "yellow")

    outcome = run_sandbox(
        effective,
        prepared.compiled,
        keeping(effective, prepared.compiled, destination),
        Listener(on_event, on_refusal),
        options.timings,
    )
    from remit.sandbox.receipt import receipt

    final = receipt(effective, prepared.compiled, prepared.template, outcome)
    if events:
        events.write(json.dumps({"event": "receipt", **final}) + "\n")
        events.close()
    if options.receipt:
        with _open(options.receipt) as file:
            file.write(json.dumps(final, indent=2) + "\n")
    if options.json:
        print(json.dumps(final), file=sys.stderr)
    elif not options.quiet:
        _hints(argv, effective, prepared, final, own=not options.remit)
        _summary(final, destination, told)
    if outcome.keep_error and outcome.exit == 0:
        # What the run was for did not arrive: no script may take that for success.
        return EXIT_SETUP
    return outcome.exit


def _installed(
    effective: Effective, directory: str, accept_tier: str | None, quiet: bool, progress: _Progress
) -> Prefix:
    """The sealed dependencies; filled first if they are not there. The command's output is not the program's: it
    goes to standard error."""

    def say_so(command: str) -> None:
        progress.end()
        if not quiet:
            say.note(f"installing dependencies, kept for the next time: {command}")
        sys.stdout.flush()

    out = os.dup(1)
    os.dup2(2, 1)
    try:
        return compose.installed(
            effective, directory=directory, accept_tier=accept_tier, progress=progress.step, begin=say_so
        )
    finally:
        os.dup2(out, 1)
        os.close(out)


def _policy(options: argparse.Namespace, argv: list[str], quiet: bool) -> tuple[Effective, str]:
    """The remit, and the directory that /workspace stands for."""
    if options.remit and (options.work is not None or options.keep):
        raise UsageError(
            f"--{'keep' if options.work is None else 'work'} and --remit together",
            hint="what a run may see and keep stands in the remit: filesystem.work.from and state.keep",
        )
    if options.work is not None and not os.path.isdir(options.work):
        raise UsageError(f"--work {options.work!r} is no directory", hint="name the directory to show a copy of")
    if options.remit:
        return compose.load_file(options.remit), os.path.dirname(os.path.abspath(options.remit))
    cwd = os.getcwd()
    work = os.path.abspath(options.work) if options.work else None
    effective, base, inputs = compose.without_remit(argv, cwd, options.base, work, options.keep)
    if not quiet:
        how = "" if options.base else ", the strictest that can run this"
        named = f"; readable, as the command names it: {', '.join(inputs)}" if inputs else ""
        start = (
            f"held to the built-in base '{base}'"
            if options.base
            else f"no remit given: held to the built-in base '{base}'"
        )
        shown = f"; {options.work} is the work directory, copied on write" if work else ""
        kept = f"; kept: {', '.join(options.keep)}" if options.keep else "; what it writes is not kept"
        say.note(f"{start}{how}{named}{shown}{kept}")
    return effective, work or cwd


def _open(target: str) -> IO[str]:
    """A file by path, or a descriptor by number."""
    try:
        if target.isdecimal():
            return os.fdopen(int(target), "w", buffering=1, encoding="utf-8", errors="replace")
        return open(target, "w", buffering=1, encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(
            f"{target}: {error.strerror}", hint="give a path that can be written, or a descriptor"
        ) from error


def _hints(
    argv: list[str], effective: Effective, prepared: compose.Prepared, final: Mapping[str, Any], *, own: bool
) -> None:
    """What a person would want to be told: files that the command names and the remit does not bring in, patterns that
    took nothing. `own`: the remit is ours, made for a command without one, and options can add to it."""
    plan, view = prepared.compiled.plan, prepared.compiled.view
    if final["result"]["exit"] != 0:
        filesystem = effective.remit.filesystem
        if own and not filesystem.read and not filesystem.work_from:
            say.note("nothing of this directory is shown inside: --work . shows a copy of it", "yellow")
        for word in argv[1:]:
            inside = posixpath.normpath(posixpath.join(plan.command.cwd, word))
            place = view.place(inside)
            made_here = place is None or place.rule == "builtin.work"
            if not word.startswith("-") and os.path.exists(word) and made_here:
                say.note(f"{word} exists here and is not brought in: filesystem.read", "yellow")
    if effective.remit.state.keep and not final["kept"] and not final["not_kept"] and not final["keep_error"]:
        say.note(f"nothing that was written matches state.keep: {', '.join(effective.remit.state.keep)}", "yellow")


class _Progress:
    """Says what takes long, once it does."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._shown = False

    def step(self, what: str) -> None:
        if not self._quiet and sys.stderr.isatty():
            self._shown = True
            print(f"\r\x1b[2K{say.paint('remit:', 'dim')} {what} ...", end="", file=sys.stderr, flush=True)
        elif not self._quiet and not self._shown:
            self._shown = True
            say.note("first run of these programs: finding and hashing what they need (kept for the next time)")

    def end(self) -> None:
        if self._shown and sys.stderr.isatty():
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


_REASONS = {
    "wall": "killed: the wall clock ran out (limits.wall)",
    "memory": "killed: out of memory (limits.memory)",
    "cpu_time": "killed: out of processor time (limits.cpu_time)",
    "output": "killed: more output than limits.output",
    "killed": "killed, as asked",
    "lost": "killed: its supervisor or first process was lost",
    "not_executed": "the program could not be executed",
}


def _summary(final: Mapping[str, Any], destination: str, told: int) -> None:
    result, usage, teardown, host = final["result"], final["usage"], final["teardown"], final["host"]
    if told > _LINES:
        say.note(f"... and {told - _LINES} more refusals (--events FILE has all)", "yellow")
    for entry in final["not_kept"][:_LINES]:
        say.note(f"not kept: {entry['reason']}  ({entry['rule']})", "yellow")
    if len(final["not_kept"]) > _LINES:
        say.note(f"... and {len(final['not_kept']) - _LINES} more not kept (--receipt FILE has all)", "yellow")
    if final["keep_error"]:
        say.note(f"nothing could be kept: {final['keep_error']}", "red")
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

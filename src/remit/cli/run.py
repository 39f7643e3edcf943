"""`remit run`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from remit import compose
from remit.cli import say
from remit.cli.ending import LINES, hints, summary
from remit.cli.records import Records
from remit.errors import EXIT_SETUP, PolicyError, RemitError, UsageError
from remit.policy.model import Effective
from remit.sandbox.inputs import no_link
from remit.sandbox.run import keeping
from remit.sandbox.run import run as run_sandbox
from remit.sandbox.serving import Listener

if TYPE_CHECKING:
    from remit.plan.prefix import Prefix
    from remit.sandbox.attempts import Attempt


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
    if options.dry_run:
        return _run(options, argv, Records(None, None))
    records = Records(options.events, options.receipt)
    try:
        return _run(options, argv, records)
    except RemitError as error:
        records.refused(error)
        raise


def _run(options: argparse.Namespace, argv: list[str], records: Records) -> int:
    quiet = options.quiet or options.json
    effective, directory = _policy(options, argv, quiet)
    terminal = _is_terminal(0)
    tty = not options.no_tty and (options.tty or (terminal and _is_terminal(1)))
    if options.tty and not terminal:
        raise UsageError("--tty wants a terminal on standard input", hint="leave --tty out, or run it at a terminal")
    if options.keep_to and not effective.remit.state.keep:
        hint = 'add state: {keep: ["out/**"]}' if options.remit else "name what to keep: --keep 'out/**'"
        raise UsageError("--keep-to, and nothing is kept", hint=hint)
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
        observe=options.observe,
        progress=progress.step,
        prefix=prefix,
    )
    progress.end()
    if options.dry_run:
        say.data(prepared.compiled.plan.as_document())
        return 0
    destination = os.path.abspath(options.keep_to) if options.keep_to else effective.remit.state.to
    if not options.keep_to and effective.remit.state.keep:
        no_link("state.to", destination, directory)
    told = 0

    def on_refusal(attempt: Attempt) -> None:
        nonlocal told
        told += 1
        if not quiet and told <= LINES:
            say.note(attempt.line(), "yellow")

    outcome = run_sandbox(
        effective,
        prepared.compiled,
        keeping(effective, prepared.compiled, destination),
        Listener(records.event, on_refusal),
        options.timings,
        compose.broker(prepared),
    )
    from remit.sandbox.receipt import receipt

    final = receipt(effective, prepared.compiled, prepared.template, outcome)
    try:
        records.finish(final)
    except OSError as problem:
        say.note(f"the record of this run is not whole: {problem.strerror}", "red")
        return outcome.exit or EXIT_SETUP
    if options.json:
        print(json.dumps(final), file=sys.stderr)
    elif not options.quiet:
        hints(argv, effective, prepared, final, own=not options.remit)
        summary(final, destination, told)
    if (outcome.keep_error or outcome.output_error) and outcome.exit == 0:
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
    if not quiet and not options.base and os.path.exists("remit.yaml"):
        # Not taken by itself: a checkout that nobody has read could bring one that grants what its author likes.
        say.note("remit.yaml is here and not used: --remit remit.yaml holds the command to it", "yellow")
    try:
        effective, base, inputs = compose.without_remit(argv, cwd, options.base, work, options.keep)
    except PolicyError as error:
        # There is no file: what is wrong was said by an option.
        said = "; ".join(f"{p.message} ({p.hint})" if p.hint else p.message for p in error.problems)
        options_said = [f"--{name}" for name in ("base", "work", "keep") if getattr(options, name)]
        raise UsageError(f"{', '.join(options_said) or 'the command'}: {said}") from error
    if not quiet:
        how = "" if options.base else ", the strictest that can run this"
        named = f"; readable, as the command names it: {', '.join(inputs)}" if inputs else ""
        start = (
            f"held to the built-in base '{base}'"
            if options.base
            else f"no remit given: held to the built-in base '{base}'"
        )
        shown = f"; {options.work} is the work directory, copied on write" if work else ""
        widened = f"; widened by the command: process.exec ({argv[0]})" if effective.widened else ""
        kept = f"; kept: {', '.join(options.keep)}" if options.keep else "; what it writes is not kept"
        say.note(f"{start}{how}{widened}{named}{shown}{kept}")
    return effective, work or cwd


class _Progress:
    """Says what takes long, once it does."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._began = time.monotonic()
        self._shown = False

    def step(self, what: str) -> None:
        if not self._quiet and sys.stderr.isatty():
            self._shown = True
            shown = say.printable(what, lines=False)
            print(f"\r\x1b[2K{say.paint('remit:', 'dim')} {shown} ...", end="", file=sys.stderr, flush=True)
        elif not self._quiet and not self._shown:
            self._shown = True
            say.note("first run of these programs: finding and hashing what they need (kept for the next time)")

    def end(self) -> None:
        if self._shown and sys.stderr.isatty():
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)

"""Runs one sandbox from plan to receipt: starts the launcher, judges and records what it reports, keeps, receipts."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from remit.errors import EXIT_SETUP, Lost, SetupError
from remit.plan.compile import Compiled
from remit.policy.model import Effective
from remit.sandbox import launcher
from remit.sandbox.shorten import Budget
from remit.sandbox.sweep import sweep

if TYPE_CHECKING:
    from remit.sandbox.attempts import Attempt, Judge
    from remit.sandbox.keep import Kept, NotKept

_MAX_SUBJECTS = 10_000
_MAX_REFUSALS, _MAX_REFUSAL_BYTES = 1000, 1024 * 1024
"""Refusals in one receipt, and the bytes of their text; how many more there were is said."""


class Outcome:
    """What is known of a sandbox when it is over."""

    def __init__(self) -> None:
        self.exit = EXIT_SETUP
        self.reason = "lost"
        self.signal: int | None = None
        self.usage: Mapping[str, Any] = {}
        self.mechanisms: list[tuple[str, str, str]] = []
        self.refusals: list[dict[str, Any]] = []
        self.refusals_in_all = 0
        self.refusals_room = Budget(_MAX_REFUSALS, _MAX_REFUSAL_BYTES)
        self.attempts = 0
        self.kept: tuple[Kept, ...] = ()
        self.not_kept: tuple[NotKept, ...] = ()
        self.keep_error: str | None = None
        self.output_error: str | None = None
        self.removed: Mapping[str, Any] = {}
        self.placeholders: frozenset[int] = frozenset()
        self.started_at = time.time()
        self.ended_at = 0.0


Take = Callable[[int, Outcome], None]
"""Gets a descriptor of what the dead sandbox wrote, and the outcome to note in what was taken."""


class Listener(NamedTuple):
    """Who hears of it while it runs. `event`: every event as data. `refusal`: each notable one, once."""

    event: Callable[[Mapping[str, Any]], None]
    refusal: Callable[[Attempt], None]


def run(effective: Effective, compiled: Compiled, take: Take, listener: Listener, timings: bool) -> Outcome:
    """Raises `SetupError` if the envelope could not be built: nothing ran then."""
    outcome = Outcome()
    # From before the launcher exists, so that none is lost. Ctrl-C reaches the launcher by itself (a handler, not
    # SIG_IGN: that would be inherited); the others are passed on. This side stays to write the receipt.
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if running is None:
            early.append(number)
        else:
            running.command("signal", signal=number)

    running: launcher.Running | None = None
    terminal = _terminal(compiled)
    handlers = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        running = launcher.start(compiled.plan, timings=timings)
        for number in early:
            running.command("signal", signal=number)
        failure, code = _serve(effective, compiled, running, take, listener, outcome)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if running is not None:
            # Closing ends the sandbox, if something went wrong on this side before it was over.
            running.close()
            if not outcome.removed:
                running.wait()
                terminal()
    outcome.ended_at = time.time()
    # After the run, when nobody waits for it.
    sweep(compiled.plan.cgroup)
    if failure is not None:
        raise SetupError(
            failure["step"],
            f"the sandbox could not be made: step '{failure['step']}' failed: {failure['message']}"
            + (f" ({failure['path']})" if failure["path"] else ""),
            errno=failure["errno"],
            path=failure["path"],
            hint=failure["hint"],
        )
    if not outcome.removed:
        raise _lost(code)
    return outcome


def _terminal(compiled: Compiled) -> Callable[[], None]:
    """Puts the caller's terminal back as it was: for a launcher that was killed while it had it in raw mode."""
    if compiled.plan.stdio != "tty":
        return lambda: None
    import termios

    before = termios.tcgetattr(0)
    return lambda: termios.tcsetattr(0, termios.TCSADRAIN, before)


def _lost(code: int) -> Lost:
    """The launcher is gone and has not said that all is over. What ran inside died with it."""
    if code > 128:
        killer = signal.strsignal(code - 128) or f"signal {code - 128}"
        message = f"the launcher was ended from outside ({killer}), and everything in the sandbox with it"
        hint = "was the host out of memory? see its kernel log; a later run removes what cgroups were left"
    else:
        message = f"the launcher ended with status {code} before the sandbox was over; everything in it died too"
        hint = "what it said is above"
    return Lost("launcher", message, hint=hint)


def _serve(
    effective: Effective,
    compiled: Compiled,
    running: launcher.Running,
    take: Take,
    listener: Listener,
    outcome: Outcome,
) -> tuple[Mapping[str, Any] | None, int]:
    """Until the launcher has said its last word. The failure of set-up if there was one, and the launcher's status."""
    # While the sandbox is being made: these cost as much to import as that takes.
    from remit.sandbox.attempts import Judge

    judge = Judge(effective.remit, compiled.view)
    seen: set[bytes] = set()
    failure: Mapping[str, Any] | None = None
    for event in running.events():
        kind = event["event"]
        if kind == "attempt":
            _judge(judge, event, outcome, listener, seen)
            continue
        if kind == "failed":
            failure = failure or event
        elif kind == "started":
            outcome.mechanisms = [tuple(m) for m in event["mechanisms"]]
            outcome.placeholders = frozenset(event["placeholders"])
        elif kind == "ended":
            outcome.exit, outcome.reason = event["exit"], event["reason"]
            outcome.signal = event["signal"]
            outcome.usage = event["usage"]
            if running.received:
                _hand_over(running, take, outcome)
        elif kind == "output_lost":
            outcome.output_error = os.strerror(event["errno"])
        elif kind == "removed":
            outcome.removed = {k: v for k, v in event.items() if k != "event"}
        listener.event(event)
    return failure, running.wait()


def _judge(judge: Judge, event: Mapping[str, Any], outcome: Outcome, listener: Listener, seen: set[bytes]) -> None:
    attempt = judge.attempt(event)
    if attempt is None:
        return
    outcome.attempts += attempt.times or 1
    said = attempt.as_event()
    listener.event(said)
    if not attempt.notable:
        return
    if attempt.times is not None:
        return
    # Not the words themselves: there may be many, and they are as long as the guest makes them.
    subject = hashlib.blake2b(attempt.subject().encode("utf-8", "surrogatepass"), digest_size=16).digest()
    if subject in seen:
        return
    outcome.refusals_in_all += 1
    if len(seen) >= _MAX_SUBJECTS:
        # A program that refuses to repeat itself fills memory and terminals; it is counted and no more.
        return
    seen.add(subject)
    entry = {k: v for k, v in said.items() if k not in ("event", "predicted", "times")}
    if outcome.refusals_room.take(*(value for value in entry.values() if isinstance(value, str))):
        outcome.refusals.append(entry)
    listener.refusal(attempt)


def keeping(effective: Effective, compiled: Compiled, destination: str) -> Take:
    """Takes what `state.keep` names to `destination`."""

    def take(root: int, outcome: Outcome) -> None:
        from remit.sandbox import staging
        from remit.sandbox.keep import keep

        taken = keep(root, effective.remit, compiled.view, destination, outcome.placeholders)
        outcome.kept, outcome.not_kept, outcome.keep_error = taken
        staging.sweep(destination)

    return take


def _hand_over(running: launcher.Running, take: Take, outcome: Outcome) -> None:
    """Whatever comes of the taking, the launcher is released: it holds the sandbox's last memory until then."""
    try:
        take(running.received[0], outcome)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        outcome.keep_error = f"{where}{error.strerror}"
    finally:
        for fd in running.received:
            os.close(fd)
        running.received.clear()
        running.command("release")

"""Runs one sandbox from plan to receipt: starts the launcher, listens until it is over, sweeps up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from remit.errors import Lost, SetupError
from remit.plan.compile import Compiled
from remit.policy.model import Effective
from remit.sandbox import launcher
from remit.sandbox.serving import Listener, OpenNetwork, Outcome, Serving, Take
from remit.sandbox.sweep import sweep


def run(
    effective: Effective,
    compiled: Compiled,
    take: Take,
    listener: Listener,
    timings: bool,
    open_network: OpenNetwork | None = None,
) -> Outcome:
    """`open_network`: the broker of a plan that has a network; without one such a plan is not started. Raises
    `SetupError` if the envelope could not be built: nothing ran then."""
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
    serving = Serving(effective, compiled, take, listener, outcome, open_network)
    terminal = _terminal(compiled)
    handlers = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    handlers[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        running = launcher.start(compiled.plan, timings=timings)
        for number in early:
            running.command("signal", signal=number)
        failure, code = serving.serve(running)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        serving.stop()
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


def keeping(effective: Effective, compiled: Compiled, destination: str) -> Take:
    """Takes what `state.keep` names to `destination`."""

    def take(root: int, outcome: Outcome) -> None:
        from remit.sandbox import staging
        from remit.sandbox.keep import keep

        taken = keep(root, effective.remit, compiled.view, destination, outcome.placeholders)
        outcome.kept, outcome.not_kept, outcome.keep_error = taken
        staging.sweep(destination)

    return take

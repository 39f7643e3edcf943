"""Runs one sandbox from plan to receipt: starts the launcher, judges and records what it reports, keeps, receipts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remit.errors import EXIT_SETUP, SetupError
from remit.plan.compile import Compiled
from remit.policy.model import Effective
from remit.sandbox import launcher
from remit.sandbox.sweep import sweep

if TYPE_CHECKING:
    from remit.sandbox.attempts import Attempt
    from remit.sandbox.keep import Kept, NotKept

_MAX_SUBJECTS = 10_000
_MAX_REFUSALS = 1000
"""Refusals in one receipt; how many more there were is said."""


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
        self.attempts = 0
        self.kept: tuple[Kept, ...] = ()
        self.not_kept: tuple[NotKept, ...] = ()
        self.keep_error: str | None = None
        self.removed: Mapping[str, Any] = {}
        self.started_at = time.time()
        self.ended_at = 0.0


Take = Callable[[int, Outcome], None]
"""Gets a descriptor of what the dead sandbox wrote, and the outcome to note in what was taken."""


class Listener(NamedTuple):
    """Who hears of it while it runs. `event`: every event as data. `refusal`: each notable one, once."""

    event: Callable[[Mapping[str, Any]], None]
    refusal: Callable[[Attempt], None]


class Broker(Protocol):
    """Serves the network of one sandbox from outside until it is stopped."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def name(self, address: str) -> str | None:
        """The name that an address inside stands for."""
        ...


OpenNetwork = Callable[[Sequence[int], Callable[[Mapping[str, Any]], None]], Broker]
"""Gets the descriptors that were opened inside, which are its own from then on, and whom to tell of what is asked."""


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
    serving = _Serving(effective, compiled, take, listener, outcome, open_network)
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


def _lost(code: int) -> SetupError:
    """The launcher is gone and has not said that all is over. What ran inside died with it."""
    if code > 128:
        killer = signal.strsignal(code - 128) or f"signal {code - 128}"
        message = f"the launcher was ended from outside ({killer}), and everything in the sandbox with it"
        hint = "was the host out of memory? see its kernel log; a later run removes what cgroups were left"
    else:
        message = f"the launcher ended with status {code} before the sandbox was over; everything in it died too"
        hint = "what it said is above"
    return SetupError("launcher", message, hint=hint)


class _Serving:
    """What happens between the launcher's first word and its last."""

    def __init__(
        self,
        effective: Effective,
        compiled: Compiled,
        take: Take,
        listener: Listener,
        outcome: Outcome,
        open_network: OpenNetwork | None,
    ) -> None:
        self._effective, self._compiled = effective, compiled
        self._take, self._listener, self._outcome = take, listener, outcome
        self._open_network = open_network
        self._broker: Broker | None = None
        self._seen: set[str] = set()
        # The broker speaks from a thread of its own.
        self._lock: AbstractContextManager[Any] = nullcontext()

    def serve(self, running: launcher.Running) -> tuple[Mapping[str, Any] | None, int]:
        """Until the launcher has said its last word. The failure of set-up if there was one, and its status."""
        # While the sandbox is being made: these cost as much to import as that takes.
        from remit.sandbox.attempts import Judge

        judge = Judge(self._effective.remit, self._compiled.view, self._compiled.plan.network, self._name)
        failure: Mapping[str, Any] | None = None
        for event in running.events():
            kind = event["event"]
            if kind == "attempt":
                attempt = judge.attempt(event)
                if attempt is not None:
                    self._note(attempt)
                continue
            if kind == "network":
                self._open(running)
                continue
            with self._lock:
                failure = self._heard(running, kind, event, failure)
        return failure, running.wait()

    def _heard(
        self, running: launcher.Running, kind: str, event: Mapping[str, Any], failure: Mapping[str, Any] | None
    ) -> Mapping[str, Any] | None:
        outcome = self._outcome
        if kind == "failed":
            failure = failure or event
        elif kind == "started":
            outcome.mechanisms = [tuple(m) for m in event["mechanisms"]]
        elif kind == "ended":
            outcome.exit, outcome.reason = event["exit"], event["reason"]
            outcome.signal = event["signal"]
            outcome.usage = event["usage"]
            if running.received:
                _hand_over(running, self._take, outcome)
        elif kind == "removed":
            outcome.removed = {k: v for k, v in event.items() if k != "event"}
        self._listener.event(event)
        return failure

    def _open(self, running: launcher.Running) -> None:
        if self._open_network is None:
            raise SetupError("network", "the plan has a network and nobody to serve it")
        import threading

        self._lock = threading.Lock()
        sockets = list(running.received)
        running.received.clear()
        self._broker = self._open_network(sockets, self._asked)
        self._broker.start()

    def stop(self) -> None:
        if self._broker is not None:
            self._broker.stop()

    def _name(self, address: str) -> str | None:
        return self._broker.name(address) if self._broker is not None else None

    def _asked(self, event: Mapping[str, Any]) -> None:
        """From the broker's thread: what was asked for, and its verdict."""
        from remit.sandbox.attempts import of_broker

        with self._lock:
            self._outcome.attempts += 1
            self._listener.event(event)
            refused = of_broker(event)
            if refused is not None:
                self._refused(refused, event)

    def _note(self, attempt: Attempt) -> None:
        with self._lock:
            self._outcome.attempts += attempt.times or 1
            said = attempt.as_event()
            self._listener.event(said)
            if attempt.notable and attempt.times is None:
                self._refused(attempt, said)

    def _refused(self, attempt: Attempt, said: Mapping[str, Any]) -> None:
        if attempt.subject() in self._seen:
            return
        outcome = self._outcome
        outcome.refusals_in_all += 1
        if len(self._seen) >= _MAX_SUBJECTS:
            # A program that refuses to repeat itself fills memory and terminals; it is counted and no more.
            return
        self._seen.add(attempt.subject())
        if len(outcome.refusals) < _MAX_REFUSALS:
            outcome.refusals.append({k: v for k, v in said.items() if k not in ("event", "predicted", "times")})
        self._listener.refusal(attempt)


def keeping(effective: Effective, compiled: Compiled, destination: str) -> Take:
    """Takes what `state.keep` names to `destination`."""

    def take(root: int, outcome: Outcome) -> None:
        from remit.sandbox import staging
        from remit.sandbox.keep import keep

        taken = keep(root, effective.remit, compiled.view, destination)
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

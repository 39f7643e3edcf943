"""What happens between the launcher's first word and its last: attempts are judged and recorded, the network is served,
results are handed over. Words come from two threads where there is a broker; one lock orders them."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from remit.errors import EXIT_SETUP, SetupError
from remit.plan.compile import Compiled
from remit.policy.model import Effective
from remit.sandbox import launcher
from remit.sandbox.shorten import Budget, shorten

if TYPE_CHECKING:
    from remit.sandbox.attempts import Attempt
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
        self.network = {"connections": 0, "up_bytes": 0, "down_bytes": 0}
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


class Broker(Protocol):
    """Serves the network of one sandbox from outside until it is stopped."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def name(self, address: str) -> str | None:
        """The name that an address inside stands for."""
        ...


OpenNetwork = Callable[[Sequence[int], Callable[[Mapping[str, Any]], None]], Broker]
"""Gets the descriptors that were opened inside, which are its own from then on, and whom to tell of what is asked."""


class Serving:
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
        self._seen: set[bytes] = set()
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
            outcome.placeholders = frozenset(event["placeholders"])
        elif kind == "ended":
            outcome.exit, outcome.reason = event["exit"], event["reason"]
            outcome.signal = event["signal"]
            outcome.usage = event["usage"]
            if running.received:
                _hand_over(running, self._take, outcome)
        elif kind == "output_lost":
            outcome.output_error = os.strerror(event["errno"])
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
            closed = event["action"] == "closed"
            self._outcome.attempts += not closed
            if closed:
                network = self._outcome.network
                network["connections"] += 1
                network["up_bytes"] += event["up"]
                network["down_bytes"] += event["down"]
            # Names and paths are the guest's own words here, too.
            said = {k: shorten(v) if isinstance(v, str) else v for k, v in event.items()}
            self._listener.event(said)
            refused = of_broker(event)
            if refused is not None:
                self._refused(refused, said)

    def _note(self, attempt: Attempt) -> None:
        with self._lock:
            self._outcome.attempts += attempt.times or 1
            said = attempt.as_event()
            self._listener.event(said)
            if attempt.notable and attempt.times is None:
                self._refused(attempt, said)

    def _refused(self, attempt: Attempt, said: Mapping[str, Any]) -> None:
        # Not the words themselves: there may be many, and they are as long as the guest makes them.
        subject = hashlib.blake2b(attempt.subject().encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if subject in self._seen:
            return
        outcome = self._outcome
        outcome.refusals_in_all += 1
        if len(self._seen) >= _MAX_SUBJECTS:
            # A program that refuses to repeat itself fills memory and terminals; it is counted and no more.
            return
        self._seen.add(subject)
        entry = {k: v for k, v in said.items() if k not in ("event", "predicted", "times")}
        if outcome.refusals_room.take(*(value for value in entry.values() if isinstance(value, str))):
            outcome.refusals.append(entry)
        self._listener.refusal(attempt)


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

"""Hands two connected sockets to the native relay, which carries the bytes between them, and hears when that is over.

One `remit-launcher relay` for each broker, started with the first connection from the broker's own thread: it dies with
that thread, and everything that it carries with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
from typing import Any

from remit.egress.budget import DOWN, UP, Budget, Spent
from remit.errors import HostError
from remit.policy.decide import Decision

_LONGEST = 64 * 1024


class _Load:
    """One connection that the relay carries, and what it was lent of the sandbox's budget."""

    def __init__(self, budget: Budget, done: asyncio.Future[tuple[int, int]]) -> None:
        self._budget, self.done = budget, done
        self._lent = {UP: 0, DOWN: 0}
        self._spent: Decision | None = None

    def lend(self, way: str) -> int | None:
        share = self._budget.borrow(way)
        self._lent[way] += share or 0
        return share

    def answer(self, event: dict[str, Any]) -> dict[str, Any]:
        """More, or the end of it."""
        more = {way: self.lend(way) or 0 if event[way] else 0 for way in (UP, DOWN)}
        spent = [way for way in (UP, DOWN) if event[way] and not more[way]]
        if spent:
            self._spent = self._budget.spent(spent[0])
            return {"command": "close", "id": event["id"]}
        return {"command": "more", "id": event["id"], "up_bytes": more[UP], "down_bytes": more[DOWN]}

    def ended(self, up: int, down: int) -> None:
        for way, moved in ((UP, up), (DOWN, down)):
            self._budget.give_back(way, max(0, self._lent[way] - moved))
        if self.done.done():
            return
        if self._spent is not None:
            self.done.set_exception(Spent(self._spent))
        else:
            self.done.set_result((up, down))


class Relay:
    """`launcher`: the path of the program. Used from one event loop alone."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher
        self._control: socket.socket | None = None
        self._pid = 0
        self._next = 0
        self._loads: dict[int, _Load] = {}
        self._listening: asyncio.Task[None] | None = None

    async def carry(
        self, client: socket.socket, upstream: socket.socket, budget: Budget, speed: int | None
    ) -> tuple[int, int]:
        """How many bytes went up and down, when both directions have ended; it ends where `budget` does. `speed`: bytes
        a second. Both sockets are the relay's from then."""
        control = self._control or self._start()
        self._next += 1
        number = self._next
        load = _Load(budget, asyncio.get_running_loop().create_future())
        self._loads[number] = load
        terms = {"up_bytes": load.lend(UP), "down_bytes": load.lend(DOWN), "asks": budget.bounded()}
        command = {"command": "relay", "id": number, **terms, "idle_ms": None, "bytes_per_second": speed}
        fds = [client.fileno(), upstream.fileno()]
        try:
            await self._send(control, json.dumps(command).encode(), fds)
            # Held here as well, they would outlive a relay that is killed.
            client.close()
            upstream.close()
            return await load.done
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):  # It is gone, and with it what it carried.
                await self._send(control, json.dumps({"command": "close", "id": number}).encode(), [])
            raise
        finally:
            self._loads.pop(number, None)

    async def _send(self, control: socket.socket, packet: bytes, fds: list[int]) -> None:
        while True:
            try:
                socket.send_fds(control, [packet], fds) if fds else control.send(packet)
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            os.set_inheritable(theirs.fileno(), True)
            command = [self._launcher, "relay", "--control", str(theirs.fileno())]
            # A process group of its own: Ctrl-C is for the program inside, whose connections outlive it.
            self._pid = os.posix_spawn(self._launcher, command, os.environ, setpgroup=0)
        except OSError as error:
            ours.close()
            raise HostError("relay", f"{self._launcher}: {error.strerror}", hint="see `remit doctor`") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._control = ours
        self._listening = asyncio.get_running_loop().create_task(self._listen(ours))
        return ours

    async def _listen(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            while packet := await loop.sock_recv(control, _LONGEST):
                event: dict[str, Any] = json.loads(packet)
                load = self._loads.get(event["id"])
                if load is None:
                    continue
                if event["event"] == "wants":
                    await self._send(control, json.dumps(load.answer(event)).encode(), [])
                else:
                    load.ended(event["up"], event["down"])
        except (OSError, ValueError, KeyError):
            pass
        finally:
            # Lost: what it carried has been reset.
            for load in self._loads.values():
                if not load.done.done():
                    load.done.set_exception(OSError("the relay is gone"))
            self.stop()

    def stop(self) -> None:
        """Ends it, and every connection that it carries, at once."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

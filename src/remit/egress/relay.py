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

from remit.errors import HostError

_LONGEST = 64 * 1024


class Relay:
    """`launcher`: the path of the program. Used from one event loop alone."""

    def __init__(self, launcher: str) -> None:
        self._launcher = launcher
        self._control: socket.socket | None = None
        self._pid = 0
        self._next = 0
        self._waiting: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._listening: asyncio.Task[None] | None = None

    async def carry(self, client: socket.socket, upstream: socket.socket) -> tuple[int, int]:
        """How many bytes went up and down, when both directions have ended. Both sockets are the relay's from then."""
        control = self._control or self._start()
        self._next += 1
        number = self._next
        done = asyncio.get_running_loop().create_future()
        self._waiting[number] = done
        command = {"command": "relay", "id": number, "up_bytes": None, "down_bytes": None}
        command |= {"idle_ms": None, "bytes_per_second": None}
        fds = [client.fileno(), upstream.fileno()]
        try:
            await self._send(control, json.dumps(command).encode(), fds)
            # Held here as well, they would outlive a relay that is killed.
            client.close()
            upstream.close()
            up, down = await done
            return up, down
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):  # It is gone, and with it what it carried.
                await self._send(control, json.dumps({"command": "close", "id": number}).encode(), [])
            raise
        finally:
            self._waiting.pop(number, None)

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
                waiting = self._waiting.get(event["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result((event["up"], event["down"]))
        except (OSError, ValueError, KeyError):
            pass
        finally:
            # Lost: what it carried has been reset.
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(OSError("the relay is gone"))
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

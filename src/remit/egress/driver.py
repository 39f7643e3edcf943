"""The broker at work: a thread with one event loop, which serves the sockets that were opened inside the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from typing import Any

from remit.egress import dns
from remit.egress.budget import Pace
from remit.egress.connections import Carry, Connections, Interception, Tell
from remit.egress.names import Names
from remit.egress.proxy import Proxy
from remit.egress.sockets import close, exactly, lost, reset
from remit.policy.decide import Decision
from remit.policy.model import Remit
from remit.policy.view import View

_MOST = 1024
"""Connections at once."""
_OTHER_DESCRIPTORS = 128
"""What the rest of this process may need beside two for each connection."""
_IDLE_S = 60.0
"""A stream for names on which nothing is asked."""
_FAULT = Decision("deny", "builtin.fault", "the broker failed on this connection, which ends it")


class Broker:
    """`sockets`: descriptors in the order of the plan: DNS by datagram and by stream, then one for each of `ports`.
    `interception`: without it, TLS to a host with rules for methods or paths is refused. `carry`: for bytes
    that nobody reads; `release` ends what that needed, in the broker's own thread."""

    def __init__(
        self,
        remit: Remit,
        view: View,
        ports: Sequence[int],
        sockets: Sequence[int],
        tell: Tell,
        carry: Carry,
        interception: Interception | None = None,
        release: Callable[[], None] = lambda: None,
        proxy: Proxy | None = None,
    ) -> None:
        self.remit, self.view, self._release = remit, view, release
        self.names = Names()
        self._connections = Connections(remit, view, self.names, tell, carry, interception, proxy)
        self._say = self._connections.say
        opened = [socket.socket(fileno=fd) for fd in sockets]
        self._datagrams, self._streams, *self._listeners = opened
        self._ports = tuple(ports)
        self._free = self._most = _MOST
        self._loop = asyncio.new_event_loop()
        self._pace = Pace(remit.network_limits.new_connections, self._loop.time())
        self._main = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="remit-broker", daemon=True)

    def name(self, address: str) -> str | None:
        """The name that an address inside stands for."""
        return self.names.name(address)

    def start(self) -> None:
        self._most = min(self.remit.network_limits.connections, max(1, (_descriptors() - _OTHER_DESCRIPTORS) // 2))
        self._free = self._most
        self._thread.start()

    def stop(self) -> None:
        """Ends every connection at once and waits until that is done."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)
        rest = asyncio.all_tasks(self._loop)
        for task in rest:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        self._release()
        for opened in (self._datagrams, self._streams, *self._listeners):
            opened.close()
        self._loop.close()

    async def _serve(self) -> None:
        self._connections.prepare()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer_datagrams())
            group.create_task(self._accept(self._streams, self._answer_stream))
            for port, listener in zip(self._ports, self._listeners, strict=True):
                group.create_task(self._accept(listener, self._connections.serve, port))

    async def _accept(self, listener: socket.socket, serve: Callable[..., Any], *arguments: Any) -> None:
        loop = asyncio.get_running_loop()
        tasks: set[asyncio.Task[None]] = set()
        while True:
            # A program that asks without end must not keep the others, or the end, waiting.
            await asyncio.sleep(0)
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:
                # Gone before it was taken, or the host has no descriptors left just now.
                await asyncio.sleep(0.05)
                continue
            refused = self._too_many(listener)
            if refused is not None:
                reset(connection)
                self._say("connect", {"host": "anywhere", "port": 0}, "deny", refused)
                continue
            self._free -= 1
            task = asyncio.create_task(self._guarded(serve, connection, *arguments))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def _too_many(self, listener: socket.socket) -> Decision | None:
        if self._free <= 0:
            return Decision("deny", "network.limits.connections", f"more than {self._most} connections at once")
        if listener is not self._streams and not self._pace.admits(self._loop.time()):
            rate = self.remit.network_limits.new_connections
            return Decision("deny", "network.limits.new_connections", f"more than {rate} new connections a second")
        return None

    async def _guarded(self, serve: Callable[..., Any], connection: socket.socket, *arguments: Any) -> None:
        """Whatever goes wrong with one connection is the end of that one alone, and never lets it pass."""
        served = False
        try:
            await serve(connection, *arguments)
            served = True
        except Exception as error:
            if not lost(error):
                self._say("fault", {"error": type(error).__name__}, "deny", _FAULT)
        finally:
            if not served:
                reset(connection)
            self._free += 1
            close(connection)

    async def _answer_datagrams(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(0)
            try:
                question, sender = await loop.sock_recvfrom(self._datagrams, 4096)
                answer = self._answer(question)
                if answer is not None:
                    await loop.sock_sendto(self._datagrams, answer, sender)
            except OSError:
                continue

    async def _answer_stream(self, connection: socket.socket) -> None:
        """DNS by stream: each message behind its length (RFC 1035, 4.2.2)."""
        loop = asyncio.get_running_loop()
        while True:
            async with asyncio.timeout(_IDLE_S):
                (length,) = struct.unpack("!H", await exactly(connection, 2))
                answer = self._answer(await exactly(connection, length))
            if answer is None:
                return
            await loop.sock_sendall(connection, struct.pack("!H", len(answer)) + answer)

    def _answer(self, question: bytes) -> bytes | None:
        try:
            message, asked = dns.answer(question, self.remit, self.view, self.names)
        except Exception:
            # One message that can't be dealt with is not the end of all names.
            self._say("fault", {"error": "a question for a name"}, "deny", _FAULT)
            return None
        if asked is not None:
            said = {"name": asked.name, "kind": asked.kind}
            self._say("resolve", said, asked.decision.verdict, asked.decision)
        return message


def _descriptors() -> int:
    """How many this process may have, after it asked for as many as it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return 2 * _MOST + _OTHER_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft

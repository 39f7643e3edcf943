"""Carries one HTTP connection: bytes from two sockets through an `Exchange`, and what it says to send."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator

from remit.egress.http import Closed, Exchange, Refused, Step, ToClient, ToUpstream
from remit.policy.actions import HttpRequest
from remit.policy.decide import Decision

_PIECE = 64 * 1024
_LINGER_S = 2.0


async def exchange(
    client: socket.socket,
    upstream: socket.socket,
    host: str,
    port: int,
    decide: Callable[[HttpRequest], Decision],
    refused: Callable[[str], None],
) -> None:
    """Until one side ends it. `refused` hears why something was no request at all. Raises OSError where a side is
    lost."""
    machine = Exchange(host, port, "http", decide)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    to_client, to_upstream = _Out(client), _Out(upstream)

    async def act(steps: Iterator[Step]) -> None:
        ended = False
        # All at once: what the machine says while the other side is heard comes behind it, never between.
        for step in steps:
            match step:
                case ToUpstream(data):
                    to_upstream.waiting += data
                case ToClient(data):
                    to_client.waiting += data
                case Refused(reason):
                    refused(reason)
                case Closed():
                    ended = True
        try:
            await to_upstream.flush()
        except OSError:
            # It takes no more of the question; its answer may be there all the same.
            if ended:
                raise
        await to_client.flush()
        if ended:
            over.set()

    async def read(sock: socket.socket, feed: Callable[[bytes], Iterator[Step]]) -> None:
        while not over.is_set():
            data = await loop.sock_recv(sock, _PIECE)
            await act(feed(data))
            if not data:
                return

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(read(client, machine.from_client)),
            group.create_task(read(upstream, machine.from_upstream)),
        ]
        await over.wait()
        for task in tasks:
            task.cancel()
    await last_words(client)


class _Out:
    """What is to be sent to one side, in the order in which it was said."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = asyncio.Lock()
        self.waiting = bytearray()

    async def flush(self) -> None:
        async with self._lock:
            while self.waiting:
                data = bytes(self.waiting)
                self.waiting.clear()
                await asyncio.get_running_loop().sock_sendall(self._sock, data)


async def last_words(client: socket.socket) -> None:
    """An end and not a reset, which would overtake what was just said: what the program still sends is heard out, for a
    moment."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        client.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(_LINGER_S):
            while await loop.sock_recv(client, _PIECE):
                pass

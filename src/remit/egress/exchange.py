"""Carries one HTTP connection: bytes from two sockets through an `Exchange`, and what it says to send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

from remit.egress.http import Closed, Exchange, Step, ToClient, ToUpstream
from remit.policy.actions import HttpRequest
from remit.policy.decide import Decision

_PIECE = 64 * 1024


async def exchange(
    client: socket.socket,
    upstream: socket.socket,
    host: str,
    port: int,
    decide: Callable[[HttpRequest], Decision],
) -> None:
    """Until one side ends it. Raises OSError where a side is lost."""
    machine = Exchange(host, port, "http", decide)
    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    async def act(steps: Iterator[Step]) -> None:
        for step in steps:
            match step:
                case ToUpstream(data):
                    await loop.sock_sendall(upstream, data)
                case ToClient(data):
                    await loop.sock_sendall(client, data)
                case Closed():
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
    # The last words are on their way: an end, not a reset.
    client.shutdown(socket.SHUT_WR)

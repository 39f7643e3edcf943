"""Carries one HTTP connection: bytes from two ends through an `Exchange`, and what it says to send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from remit.egress.budget import DOWN, UP
from remit.egress.end import End
from remit.egress.http import Closed, Exchange, Refused, Step, ToClient, ToUpstream

Meter = Callable[[str, int], Awaitable[None]]
"""Hears of bytes that have come and are not passed on yet, `up` or `down`; waits as the speed wants. Raises OSError
where they may not be."""


async def unmetered(way: str, amount: int) -> None:
    """For what nobody but the broker says."""


async def exchange(client: End, upstream: End, machine: Exchange, refused: Callable[[str], None], meter: Meter) -> None:
    """Until one side ends it. `refused` hears why something was no request at all. Raises OSError where a side is
    lost."""
    over = asyncio.Event()

    async def act(steps: Iterator[Step]) -> None:
        ended = False
        # Without a pause, so that what both tasks make of one machine is in its order.
        for step in steps:
            match step:
                case ToUpstream(data):
                    upstream.put(data)
                case ToClient(data):
                    client.put(data)
                case Refused(reason):
                    refused(reason)
                case Closed():
                    ended = True
        try:
            await upstream.drain()
        except OSError:
            # It takes no more of the question; its answer may be there all the same.
            if ended:
                raise
        await client.drain()
        if ended:
            over.set()

    async def read(end: End, way: str, feed: Callable[[bytes], Iterator[Step]]) -> None:
        while not over.is_set():
            data = await end.recv()
            await meter(way, len(data))
            await act(feed(data))
            if not data:
                return

    tasks = [
        asyncio.create_task(read(client, UP, machine.from_client)),
        asyncio.create_task(read(upstream, DOWN, machine.from_upstream)),
    ]
    ended = asyncio.create_task(over.wait())
    try:
        while tasks and not over.is_set():
            done, _ = await asyncio.wait([*tasks, ended], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            tasks = [task for task in tasks if not task.done()]
    finally:
        for task in (*tasks, ended):
            task.cancel()
        await asyncio.gather(*tasks, ended, return_exceptions=True)
        upstream.leave()
    # The last words are on their way: an end, not a reset.
    await client.end(cut=upstream.tls is not None and upstream.tls.cut)
    await client.linger()

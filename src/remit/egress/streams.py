"""Carries one HTTP/2 connection: bytes from two ends through `Exchanges`, and what it says to send. Each way has its
own reader and writer, since what one stream waits for must not keep another waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from remit.egress.budget import DOWN, UP
from remit.egress.end import End
from remit.egress.exchange import Meter
from remit.egress.http import Closed, Refused, Step, ToClient, ToUpstream
from remit.egress.http2 import Exchanges

_ENOUGH = 256 * 1024
"""Bytes for one end that wait to be sent; until they are fewer, nothing more is read from the other end."""
_TOO_MUCH = 8 * 1024 * 1024
"""More than all that both windows and `_ENOUGH` allow: an end that asks, and does not read what it is answered."""
_LAST_S = 10.0
"""For the last words to be taken."""


class _Sender:
    """Sends to `end` whatever is put, in its own task. `few`: not much waits; `nothing`: nothing does. Both are set too
    when it can send no more, so that whoever waits for them finds out."""

    def __init__(self, end: End) -> None:
        self.end = end
        self._some, self.few, self.nothing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.few.set()
        self.nothing.set()
        self.task = asyncio.create_task(self._run())

    def put(self, data: bytes) -> None:
        """Raises OSError where the other side lets too much wait. Once it can send no more this does nothing."""
        if self.task.done():
            return
        self.end.put(data)
        self._some.set()
        self.nothing.clear()
        if self.end.waiting > _TOO_MUCH:
            raise OSError("an end of HTTP/2 that does not read what it asks for")
        if self.end.waiting > _ENOUGH:
            self.few.clear()

    async def _run(self) -> None:
        try:
            while True:
                await self._some.wait()
                self._some.clear()
                await self.end.drain()
                self.few.set()
                if not self.end.waiting:
                    self.nothing.set()
        finally:
            self.few.set()
            self.nothing.set()


async def streams(
    client: End, upstream: End | None, machine: Exchanges, refused: Callable[[str], None], meter: Meter
) -> None:
    """Until one side ends it. `refused` hears why something was no request at all. Raises OSError where the program is
    lost."""
    down, up = _Sender(client), _Sender(upstream) if upstream is not None else None
    over = asyncio.Event()

    def act(steps: Iterator[Step]) -> None:
        # Without a pause, so that what all tasks make of one machine is in its order.
        for step in steps:
            match step:
                case ToUpstream(data) if up is not None:
                    up.put(data)
                case ToClient(data):
                    down.put(data)
                case Refused(reason):
                    refused(reason)
                case Closed():
                    over.set()

    async def read_client() -> None:
        while not over.is_set():
            data = await client.recv()
            await meter(UP, len(data))
            act(machine.from_client(data))
            if up is not None:
                await up.few.wait()

    async def read_upstream(end: End) -> None:
        data = b"-"
        while data and not over.is_set():
            try:
                data = await end.recv()
            except OSError:
                data = b""
            await meter(DOWN, len(data))
            act(machine.from_upstream(data))
            await down.few.wait()

    act(machine.begin())
    reading = [asyncio.create_task(read_client())]
    if upstream is not None:
        reading.append(asyncio.create_task(read_upstream(upstream)))
    ended = asyncio.create_task(over.wait())
    try:
        # A server that takes no more may still have something to say: its sender's end is not the end.
        running: set[asyncio.Task[Any]] = {*reading, ended, down.task}
        while not over.is_set():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        # What was begun is sent to its end: half a record of TLS is none.
        async with asyncio.timeout(_LAST_S):
            await down.nothing.wait()
            if down.task.done():
                down.task.result()
            await client.end()
        for task in reading:
            task.cancel()
        await client.linger()
    finally:
        others = [*reading, ended, down.task, *([up.task] if up is not None else [])]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

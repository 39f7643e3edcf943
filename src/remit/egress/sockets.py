"""What the broker does with sockets and asks of them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

from remit.egress import hello

UNFINISHED_S = 10.0
"""From the first byte until it can be told what it begins."""


def close(connection: socket.socket) -> None:
    """And nobody watches its number any more, which may be another's next."""
    if connection.fileno() >= 0:
        asyncio.get_running_loop().remove_reader(connection)
        connection.close()


def reset(connection: socket.socket) -> None:
    """Ends it so that the other side's next call fails at once."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        close(connection)


async def first_bytes(connection: socket.socket, seconds: float, unfinished: float = UNFINISHED_S) -> hello.Hello:
    """What the connection begins with, looked at and left where it is. `silent`: nothing came within `seconds`; `more`:
    it began and did not go on for `unfinished` seconds."""
    seen = 0
    try:
        async with asyncio.timeout(seconds) as patience:
            while True:
                await readable(connection)
                data = connection.recv(hello.LONGEST, socket.MSG_PEEK)
                if not data:
                    return hello.Hello("other")
                found = hello.read(data)
                if found.kind != "more" or len(data) <= seen:
                    return found
                if not seen:
                    patience.reschedule(asyncio.get_running_loop().time() + unfinished)
                seen = len(data)
                # Awake again when there is more than that.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
    except TimeoutError:
        return hello.Hello("more" if seen else "silent")
    finally:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def readable(*sockets: socket.socket) -> socket.socket:
    """The first of them that has something to read, or its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[socket.socket] = loop.create_future()

    def wake(which: socket.socket) -> None:
        if not ready.done():
            ready.set_result(which)

    for each in sockets:
        loop.add_reader(each.fileno(), wake, each)
    try:
        return await ready
    finally:
        for each in sockets:
            loop.remove_reader(each.fileno())


async def first_to_speak(program: socket.socket, server: socket.socket) -> socket.socket:
    """Which of the two speaks first. The program, where both have."""
    first = await readable(program, server)
    with contextlib.suppress(BlockingIOError):
        if program.recv(1, socket.MSG_PEEK):
            return program
    return first


def lost(error: BaseException) -> bool:
    """Is it the loss of one side, and nothing that should not happen?"""
    if isinstance(error, BaseExceptionGroup):
        return all(map(lost, error.exceptions))
    return isinstance(error, OSError | TimeoutError)


async def exactly(connection: socket.socket, length: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < length:
        piece = await loop.sock_recv(connection, length - len(data))
        if not piece:
            raise OSError("the other side closed")
        data += piece
    return data

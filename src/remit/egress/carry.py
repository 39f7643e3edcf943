"""Carries bytes between two connected sockets until both directions have ended."""

from __future__ import annotations

import asyncio
import contextlib
import socket

_PIECE = 256 * 1024


async def carry(client: socket.socket, upstream: socket.socket) -> tuple[int, int]:
    """How many bytes went up and down. Raises OSError where a side is lost."""
    async with asyncio.TaskGroup() as group:
        up = group.create_task(_one_way(client, upstream))
        down = group.create_task(_one_way(upstream, client))
    return up.result(), down.result()


async def _one_way(source: socket.socket, target: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    moved = 0
    while data := await loop.sock_recv(source, _PIECE):
        await loop.sock_sendall(target, data)
        moved += len(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
    return moved

"""The way out by a proxy (`network.upstream`): HTTP CONNECT, answered before anything else is sent."""

from __future__ import annotations

import asyncio
import base64
import socket
from ipaddress import ip_address, ip_network
from typing import NamedTuple

_LONGEST = 16 * 1024
"""Bytes of an answer's head."""
_PATIENCE_S = 20.0


class ProxyError(OSError):
    """The proxy does not connect; says which, and what it answered."""


class Proxy(NamedTuple):
    """`credentials`: `user:password`, which nothing but the proxy is ever told. `direct`: networks without it."""

    host: str
    port: int
    credentials: str | None
    by_name: bool
    direct: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"

    def passes(self, address: str) -> bool:
        """Is this address reached without it?"""
        found = ip_address(address)
        return any(found in ip_network(network) for network in self.direct)

    @property
    def shown(self) -> str:
        return f"the proxy {self.host} port {self.port}"


async def connect_through(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """`sock`: connected to the proxy; to `host` and `port` when this returns. Of what follows the answer nothing is
    read: the server may speak first. Raises `ProxyError`."""
    loop = asyncio.get_running_loop()
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n"
    if proxy.credentials is not None:
        head += f"Proxy-Authorization: Basic {base64.b64encode(proxy.credentials.encode()).decode()}\r\n"
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await loop.sock_sendall(sock, head.encode("ascii") + b"\r\n")
            status = await _answer(sock)
    except TimeoutError:
        raise ProxyError(f"{proxy.shown} does not answer") from None
    except ProxyError as error:
        raise ProxyError(f"{proxy.shown} {error}") from None
    except OSError as error:
        raise ProxyError(f"{proxy.shown}: {error.strerror or 'closed'}") from None
    if not 200 <= status < 300:
        hint = {407: " (it wants other credentials: network.upstream.auth_env or auth_file)"}.get(status, "")
        raise ProxyError(f"{proxy.shown} answers {status} to CONNECT {target}{hint}")


async def _answer(sock: socket.socket) -> int:
    """Reads one head, to its last byte and no further."""
    import h11

    head = b""
    while b"\r\n\r\n" not in head:
        seen = await _look(sock, len(head))
        if not seen[len(head) :]:
            raise ProxyError("closes without an answer")
        if len(seen) > _LONGEST:
            raise ProxyError("answers without end")
        head = seen
    await asyncio.get_running_loop().sock_recv(sock, head.index(b"\r\n\r\n") + 4)
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="CONNECT", target="x:1", headers=[("Host", "x:1")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(head[: head.index(b"\r\n\r\n") + 4])
    try:
        event = parser.next_event()
    except h11.RemoteProtocolError:
        raise ProxyError("answers something that is no HTTP") from None
    if not isinstance(event, h11.Response):
        raise ProxyError("answers something that is no answer to CONNECT")
    return int(event.status_code)


async def _look(sock: socket.socket, known: int) -> bytes:
    """What has come, once that is more than `known` bytes or all there will be; it is left where it is."""
    from remit.egress.sockets import readable

    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, known + 1)
    try:
        await readable(sock)
        return sock.recv(_LONGEST + 1, socket.MSG_PEEK)
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)

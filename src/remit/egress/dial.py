"""Outside: from a name to a connected socket. The name is resolved now, every address is judged, and the one that was
judged is the one that is dialled."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, NamedTuple

from remit.egress import addresses
from remit.policy.model import Remit

_PATIENCE_S = 10.0


class Dialled(NamedTuple):
    """A connected socket and its address, or why there is none. `denied`: the policy's reason, not the network's."""

    sock: socket.socket | None
    address: str
    problem: str = ""
    denied: bool = False


async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    """As this host resolves names: its own resolver, its own files."""
    loop = asyncio.get_running_loop()
    return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)


async def dial(host: str, port: int, remit: Remit) -> Dialled:
    """`host`: a name or an address in text."""
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(resolve(host, port), _PATIENCE_S)
    except (OSError, UnicodeError, TimeoutError) as error:
        return Dialled(None, "", f"{host} can't be resolved: {error or 'no answer'}")
    own = own_addresses()
    refused = ""
    failed = ""
    for family, kind, protocol, _, sockaddr in found:
        address = str(sockaddr[0])
        reason = addresses.refused(address, port, remit, own)
        if reason is not None:
            refused = refused or reason
            continue
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            await asyncio.wait_for(loop.sock_connect(sock, sockaddr), _PATIENCE_S)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, TimeoutError) as error:
            sock.close()
            failed = failed or f"{address} port {port}: {error or 'no answer'}"
            continue
        return Dialled(sock, address)
    if failed:
        return Dialled(None, "", failed)
    return Dialled(None, "", refused or f"{host} has no address", denied=bool(refused))


def own_addresses() -> frozenset[str]:
    """The addresses of this host's interfaces: what listens on them may trust them."""
    found: set[str] = set()
    for file, column in (("/proc/net/fib_trie", None), ("/proc/net/if_inet6", 0)):
        try:
            with open(file, encoding="ascii") as lines:
                found |= _inet6(lines.read()) if column == 0 else _fib(lines.read())
        except OSError:
            continue
    return frozenset(found)


def _fib(text: str) -> set[str]:
    """Addresses of which the kernel's routing table says `/32 host LOCAL`."""
    found: set[str] = set()
    last = ""
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[:3] == ["/32", "host", "LOCAL"]:
            found.add(last)
    return found


def _inet6(text: str) -> set[str]:
    from ipaddress import IPv6Address

    return {str(IPv6Address(int(line.split()[0], 16))) for line in text.splitlines() if line}

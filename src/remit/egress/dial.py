"""Outside: from a name to a connected socket. The name is resolved now, every address is judged, and the one that was
judged is the one that is dialled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from remit.egress import addresses
from remit.egress.proxy import Proxy, ProxyError, connect_through
from remit.policy import destinations
from remit.policy.model import Remit

_PATIENCE_S = 10.0
_IN_ALL_S = 30.0
"""For all addresses of one name."""
_ASKING = 32
"""Questions to the host's resolver at once."""
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class Dialled(NamedTuple):
    """A connected socket and its address, or why there is none. `denied`: the policy's reason, not the network's."""

    sock: socket.socket | None
    address: str
    problem: str = ""
    denied: bool = False


async def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
    """As this host resolves names: its own resolver, its own files. In a thread that nobody waits for: a resolver that
    hangs would else hold the end of the run."""
    loop = asyncio.get_running_loop()
    turn = _turns.setdefault(loop, asyncio.Semaphore(_ASKING))
    answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

    def heard(found: list[tuple[Any, ...]] | None, error: Exception | None) -> None:
        turn.release()
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def ask() -> None:
        found, failed = None, None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # The loop is over.
            loop.call_soon_threadsafe(heard, found, failed)

    await turn.acquire()
    threading.Thread(target=ask, name="remit-resolve", daemon=True).start()
    return await answer


async def dial(host: str, port: int, remit: Remit, proxy: Proxy | None = None) -> Dialled:
    """`host`: a name or an address in text. `proxy`: the way out, where this host has no other."""
    if proxy is not None and proxy.by_name and destinations.address(host) is None:
        # Where the name leads is the proxy's to find, and nobody's here to judge.
        return await _by_proxy(proxy, host, port)
    loop = asyncio.get_running_loop()
    try:
        found = await asyncio.wait_for(resolve(host, port), _PATIENCE_S)
    except (OSError, UnicodeError, TimeoutError) as error:
        return Dialled(None, "", f"{host} can't be resolved: {str(error) or 'no answer'}")
    own = own_addresses()
    end = loop.time() + _IN_ALL_S
    refused = ""
    failed = ""
    for family, _, _, _, sockaddr in found:
        address = str(sockaddr[0])
        reason = addresses.refused(address, port, remit, own, host)
        if reason is not None:
            refused = refused or reason
            continue
        if proxy is not None and not proxy.passes(address):
            dialled = await _by_proxy(proxy, address, port)
        else:
            dialled = await _connect(family, sockaddr, min(_PATIENCE_S, max(0.1, end - loop.time())))
        if dialled.sock is not None:
            return dialled
        failed = failed or dialled.problem
    if failed:
        return Dialled(None, "", failed)
    return Dialled(None, "", refused or f"{host} has no address", denied=bool(refused))


async def _connect(family: int, sockaddr: tuple[Any, ...], seconds: float) -> Dialled:
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    address = str(sockaddr[0])
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(sock, sockaddr), seconds)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, TimeoutError) as error:
        sock.close()
        return Dialled(None, "", f"{address} port {sockaddr[1]}: {str(error) or 'no answer'}")
    except BaseException:
        sock.close()
        raise
    return Dialled(sock, address)


async def _by_proxy(proxy: Proxy, host: str, port: int) -> Dialled:
    """The proxy is the remit's own word, so its address is not judged. There is no other way if it fails."""
    try:
        found = await asyncio.wait_for(resolve(proxy.host, proxy.port), _PATIENCE_S)
    except (OSError, UnicodeError, TimeoutError) as error:
        return Dialled(None, "", f"{proxy.shown} can't be resolved: {str(error) or 'no answer'}")
    dialled = Dialled(None, "", f"{proxy.shown} has no address")
    for family, _, _, _, sockaddr in found:
        dialled = await _connect(family, sockaddr, _PATIENCE_S)
        if dialled.sock is not None:
            break
    if dialled.sock is None:
        return Dialled(None, "", f"{proxy.shown}: {dialled.problem}")
    try:
        await connect_through(dialled.sock, proxy, host, port)
    except ProxyError as error:
        dialled.sock.close()
        return Dialled(None, "", str(error))
    except BaseException:
        dialled.sock.close()
        raise
    return Dialled(dialled.sock, host)


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

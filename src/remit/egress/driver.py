"""The broker at work: a thread with one event loop, which serves the sockets that were opened inside the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from remit.egress import dns, hello
from remit.egress.addresses import SYNTHETIC
from remit.egress.authority import Authority
from remit.egress.dial import dial
from remit.egress.exchange import End, exchange
from remit.egress.http import Exchange, denial, unreachable
from remit.egress.names import Names
from remit.egress.tls import Tls, problem, verifying
from remit.policy.actions import Connect, HttpRequest, ReachHost
from remit.policy.decide import Decision, decide, inspected
from remit.policy.model import Remit
from remit.policy.view import View

Tell = Callable[[Mapping[str, Any]], None]
"""Hears of everything that was asked for, as data, from the broker's own thread."""
Carry = Callable[[socket.socket, socket.socket], Coroutine[Any, Any, tuple[int, int]]]
"""How many bytes went up and down. Both sockets are its own; the end of its task is theirs."""

_MOST = 1024
"""Connections at once."""
_TOO_MANY = Decision("deny", "network.allow", f"more than {_MOST} connections at once")
_OTHER_DESCRIPTORS = 128
"""What the rest of this process may need beside two for each connection."""
_SILENT_S = 0.25
"""Protocols in which the server speaks first: after so long the program is probably not going to."""
_FIRST_BYTES_S = 30.0
"""For what must be read."""
_UNFINISHED_S = 10.0
"""From the first byte until it can be told what it begins."""
_IDLE_S = 60.0
"""A stream for names on which nothing is asked."""
_FAULT = Decision("deny", "builtin.fault", "the broker failed on this connection, which ends it")
_UNPROVEN = "builtin.certificate"


class Interception(NamedTuple):
    """What it takes to read TLS. `authority`: what programs inside trust; `roots`: a file with what this host does."""

    authority: Authority
    roots: str | None


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
    ) -> None:
        self.remit, self.view, self.tell, self.carry = remit, view, tell, carry
        self.interception, self._release = interception, release
        self.names = Names()
        opened = [socket.socket(fileno=fd) for fd in sockets]
        self._datagrams, self._streams, *self._listeners = opened
        self._ports = tuple(ports)
        self._free = _MOST
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name="remit-broker", daemon=True)

    def name(self, address: str) -> str | None:
        """The name that an address inside stands for."""
        return self.names.name(address)

    def start(self) -> None:
        self._free = min(_MOST, max(1, (_descriptors() - _OTHER_DESCRIPTORS) // 2))
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
        if self.interception is not None:
            # It takes 20 ms to read what this host trusts; done before the first connection asks.
            roots = self.interception.roots
            self._verifying = asyncio.get_running_loop().run_in_executor(None, verifying, roots)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._answer_datagrams())
            group.create_task(self._accept(self._streams, self._answer_stream))
            for port, listener in zip(self._ports, self._listeners, strict=True):
                group.create_task(self._accept(listener, self._connection, port))

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
            if self._free <= 0:
                reset(connection)
                self._say("connect", {"host": "anywhere", "port": 0}, "deny", _TOO_MANY)
                continue
            self._free -= 1
            task = asyncio.create_task(self._guarded(serve, connection, *arguments))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _guarded(self, serve: Callable[..., Any], connection: socket.socket, *arguments: Any) -> None:
        """Whatever goes wrong with one connection is the end of that one alone, and never lets it pass."""
        served = False
        try:
            await serve(connection, *arguments)
            served = True
        except Exception as error:
            if not _lost(error):
                self._say("fault", {"error": type(error).__name__}, "deny", _FAULT)
        finally:
            if not served:
                reset(connection)
            self._free += 1
            connection.close()

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
                (length,) = struct.unpack("!H", await _exactly(connection, 2))
                answer = self._answer(await _exactly(connection, length))
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

    async def _connection(self, connection: socket.socket, port: int) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = connection.getsockname()[0]
        name = self.names.name(address)
        decision = self._decide(name, address, port)
        if not decision.allowed:
            await self._turn_away(connection, name or address, port, decision)
            return
        found = await first_bytes(connection, _FIRST_BYTES_S if self._read(name, port) else _SILENT_S)
        target = name or address
        reason = self._wrong(name, port, found)
        if reason is not None:
            self._refuse(connection, target, port, Decision("deny", decision.rule, reason))
            return
        if name is not None and self._intercepted(name, port, found):
            await self._intercept(connection, name, port, decision)
            return
        dialled = await dial(target, port, self.remit)
        if dialled.sock is None:
            if dialled.denied:
                decision = Decision("deny", "network.allow", f"{target}: {dialled.problem}")
                await self._turn_away(connection, target, port, decision)
            else:
                self._say("connect", {"host": target, "port": port, "error": dialled.problem}, "allow", decision)
                reset(connection)
            return
        self._say("connect", {"host": target, "port": port, "address": dialled.address}, "allow", decision)
        with dialled.sock as upstream:
            if name is not None and found.kind == "silent" and await _first(connection, upstream) is connection:
                # Not the server: the program began after all, and is held to the name that it asked for.
                found = await first_bytes(connection, _UNFINISHED_S)
                reason = self._wrong(name, port, found)
                if reason is not None:
                    self._refuse(connection, target, port, Decision("deny", decision.rule, reason))
                    return
            if name is not None and found.kind == "http":
                machine = Exchange(name, port, "http", self._request)
                await exchange(End(connection), End(upstream), machine, self._no_request(target, port, decision))
            else:
                up, down = await self.carry(connection, upstream)
                self.tell({"event": "egress", "action": "closed", "host": target, "port": port, "up": up, "down": down})

    def _wrong(self, name: str | None, port: int, found: hello.Hello) -> str | None:
        """Why a connection to an allowed name may not begin like this; None if it may."""
        if name is None:
            return None
        if found.kind == "tls" and found.name is not None and found.name.lower() != name:
            return f"TLS asks for {found.name} on a connection to {name}"
        if found.kind in ("more", "unreadable"):
            return f"what is said to {name} begins like TLS or HTTP and can't be read"
        if self._read(name, port) and found.kind != "http" and not self._intercepted(name, port, found):
            return f"{name} has rules for methods or paths, and what is said to it can't be read"
        return None

    def _intercepted(self, name: str, port: int, found: hello.Hello) -> bool:
        return found.kind == "tls" and self.interception is not None and self._read(name, port)

    async def _intercept(self, connection: socket.socket, name: str, port: int, decision: Decision) -> None:
        """TLS to both sides, and every request read in between. Where the server does not prove to be `name`, the
        program is told in words and nothing is sent to that server."""
        assert self.interception is not None  # noqa: S101
        client = End(connection, Tls(self.interception.authority.context(name)))
        shaking = asyncio.create_task(client.shake())
        try:
            reached = await self._prove(name, port)
            if isinstance(reached, Decision):
                verdict = "deny" if not reached.allowed else "allow"
                error = {} if verdict == "deny" else {"error": reached.reason}
                self._say("connect", {"host": name, "port": port, **error}, verdict, reached if not error else decision)
                await shaking
                what = f"https://{name}" + (f":{port}" if port != 443 else "")
                refused = reached.rule == "network.allow" and not reached.allowed
                await self._last_words(client, denial(what, reached) if refused else unreachable(what, reached.reason))
                return
            with reached.sock:
                await shaking
                said = {"host": name, "port": port, "address": reached.sock.getpeername()[0], "intercepted": True}
                self._say("connect", said, "allow", decision)
                machine = Exchange(name, port, "https", self._request)
                await exchange(client, reached, machine, self._no_request(name, port, decision))
        except OSError:
            if client.problem is not None:
                reason = f"{name} has rules for methods or paths, and the program trusts no authority of the sandbox's"
                denied = Decision("deny", decision.rule, f"{reason}: {client.problem}")
                self._say("connect", {"host": name, "port": port}, "deny", denied)
            raise
        finally:
            shaking.cancel()
            await asyncio.gather(shaking, return_exceptions=True)

    async def _prove(self, name: str, port: int) -> End | Decision:
        """The server `name`, as this host's own programs would believe it; or why there is none: a denial of the
        policy's, one for want of proof, or (an allowed) word of the network's failure."""
        dialled = await dial(name, port, self.remit)
        if dialled.sock is None:
            verdict = "deny" if dialled.denied else "allow"
            return Decision(verdict, "network.allow", f"{name}: {dialled.problem}")
        try:
            server = End(dialled.sock, Tls(await self._verifying, name))
            await server.shake()
        except OSError as error:
            dialled.sock.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                return Decision("deny", _UNPROVEN, problem(error, name))
            said = problem(error, name) if isinstance(error, ssl.SSLError) else str(error) or "no answer"
            return Decision("allow", "network.allow", f"{dialled.address} port {port}: {said}")
        except BaseException:
            dialled.sock.close()
            raise
        return server

    async def _last_words(self, client: End, words: bytes) -> None:
        """In answer to whatever the program asks first."""
        async with asyncio.timeout(_FIRST_BYTES_S):
            await client.recv()
        client.put(words)
        await client.drain()
        await client.end()
        await client.linger()

    def _decide(self, name: str | None, address: str, port: int) -> Decision:
        if name is not None:
            return decide(self.remit, ReachHost(name, port), self.view)
        decision = decide(self.remit, Connect(address, port), self.view)
        if decision.allowed and decision.rule.startswith("builtin."):
            return Decision("deny", "network.allow", f"port {port} of the sandbox itself is the broker's")
        if not decision.allowed and IPv4Address(address) in SYNTHETIC:
            return Decision("deny", "network.allow", f"{address} stands for no name that was asked for here")
        return decision

    def _read(self, name: str | None, port: int) -> bool:
        return name is not None and inspected(self.remit, name, port)

    def _request(self, request: HttpRequest) -> Decision:
        decision = decide(self.remit, request, self.view)
        said = {"method": request.method, "host": request.host, "port": request.port, "path": request.path}
        self._say("http", said, decision.verdict, decision)
        return decision

    def _no_request(self, target: str, port: int, decision: Decision) -> Callable[[str], None]:
        """Records what an allowed connection carried that was no request at all."""

        def refused(reason: str) -> None:
            self._say("connect", {"host": target, "port": port}, "deny", Decision("deny", decision.rule, reason))

        return refused

    async def _turn_away(self, connection: socket.socket, target: str, port: int, decision: Decision) -> None:
        """Words for a program that speaks HTTP, a reset for any other; never a hang."""
        found = await first_bytes(connection, _SILENT_S)
        if found.kind == "http":
            self._say("connect", {"host": target, "port": port}, "deny", decision)
            await self._last_words(End(connection), denial(f"{target}:{port}", decision))
            return
        self._refuse(connection, target, port, decision)

    def _refuse(self, connection: socket.socket, target: str, port: int, decision: Decision) -> None:
        self._say("connect", {"host": target, "port": port}, "deny", decision)
        reset(connection)

    def _say(self, action: str, what: Mapping[str, Any], verdict: str, decision: Decision | None = None) -> None:
        rule = {"rule": decision.rule, "reason": decision.reason} if decision else {"rule": "network.allow"}
        self.tell({"event": "egress", "action": action, **what, "verdict": verdict, **rule})


def reset(connection: socket.socket) -> None:
    """Ends it so that the other side's next call fails at once."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


async def first_bytes(connection: socket.socket, seconds: float) -> hello.Hello:
    """What the connection begins with, looked at and left where it is. `silent`: nothing came within `seconds`; `more`:
    it began and did not go on."""
    seen = 0
    try:
        async with asyncio.timeout(seconds) as patience:
            while True:
                await _readable(connection)
                data = connection.recv(hello.LONGEST, socket.MSG_PEEK)
                if not data:
                    return hello.Hello("other")
                found = hello.read(data)
                if found.kind != "more" or len(data) <= seen:
                    return found
                if not seen:
                    patience.reschedule(asyncio.get_running_loop().time() + _UNFINISHED_S)
                seen = len(data)
                # Awake again when there is more than that.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, seen + 1)
    except TimeoutError:
        return hello.Hello("more" if seen else "silent")
    finally:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _readable(*sockets: socket.socket) -> socket.socket:
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


async def _first(program: socket.socket, server: socket.socket) -> socket.socket:
    """Which of the two speaks first. The program, where both have."""
    first = await _readable(program, server)
    with contextlib.suppress(BlockingIOError):
        if program.recv(1, socket.MSG_PEEK):
            return program
    return first


def _lost(error: BaseException) -> bool:
    """Is it the loss of one side, and nothing that should not happen?"""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_lost, error.exceptions))
    return isinstance(error, OSError | TimeoutError)


def _descriptors() -> int:
    """How many this process may have, after it asked for as many as it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * _MOST + _OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return 2 * _MOST + _OTHER_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


async def _exactly(connection: socket.socket, length: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < length:
        piece = await loop.sock_recv(connection, length - len(data))
        if not piece:
            raise OSError("the other side closed")
        data += piece
    return data

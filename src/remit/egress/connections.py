"""What becomes of each connection that a program makes: judged, dialled, read where a rule needs it, or refused."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from remit.egress import hello
from remit.egress.addresses import SYNTHETIC
from remit.egress.answers import Answer, denied, unreachable
from remit.egress.authority import Authority
from remit.egress.budget import DOWN, UP, Budget, Pace, Spent
from remit.egress.dial import dial
from remit.egress.end import End
from remit.egress.exchange import Meter, exchange, unmetered
from remit.egress.http import Exchange, Ruling, written
from remit.egress.names import Names
from remit.egress.proxy import Proxy
from remit.egress.sockets import UNFINISHED_S, close, first_bytes, first_to_speak, reset
from remit.egress.tls import HTTP1, HTTP2, Tls, problem, verifying
from remit.policy.actions import Connect, HttpRequest, ReachHost
from remit.policy.decide import Decision, decide, inspected, most_body
from remit.policy.model import Remit
from remit.policy.view import View

Tell = Callable[[Mapping[str, Any]], None]
"""Hears of everything that was asked for, as data, from the broker's own thread."""
Carry = Callable[[socket.socket, socket.socket, Budget, int | None], Coroutine[Any, Any, tuple[int, int]]]
"""Carries bytes between the two sockets, which are its own from then, for as long as the budget lasts and as quickly as
the speed allows (bytes a second). How many went up and down. The end of its task is theirs."""

_SILENT_S = 0.25
"""Protocols in which the server speaks first: after so long the program is probably not going to."""
_FIRST_BYTES_S = 30.0
"""For what must be read."""
_MOST_WIDE = 16
"""Connections in HTTP/2 that may keep as much as a far server's speed needs; the others keep little."""
_MOST_KNOWN, _LONGEST_KNOWN = 1000, 256
"""Verdicts on requests that are remembered, and the longest path among them."""
_UNPROVEN = "builtin.certificate"


class Interception(NamedTuple):
    """What it takes to read TLS. `authority`: what programs inside trust; `roots`: a file with what this host does."""

    authority: Authority
    roots: str | None


class Connections:
    """Serves them, each by itself. `names`: what the addresses inside stand for."""

    def __init__(
        self,
        remit: Remit,
        view: View,
        names: Names,
        tell: Tell,
        carry: Carry,
        interception: Interception | None,
        proxy: Proxy | None,
    ) -> None:
        self.remit, self.view, self.names, self.tell, self.carry = remit, view, names, tell, carry
        self.interception, self._proxy = interception, proxy
        self._budget = Budget(remit.network_limits)
        self._conditions = any(rule.headers or rule.max_body is not None for rule in remit.network)
        self._known: dict[tuple[Any, ...], Decision] = {}
        self._wide = 0

    def prepare(self) -> None:
        """In the broker's loop, before the first connection asks: it takes 20 ms to read what this host trusts."""
        if self.interception is not None:
            self._verifying = asyncio.get_running_loop().run_in_executor(None, verifying, self.interception.roots)

    async def serve(self, connection: socket.socket, port: int) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        address = connection.getsockname()[0]
        name = self.names.name(address)
        decision = self._decide(name, address, port)
        if decision.allowed and (spent := self._budget.exhausted()) is not None:
            decision = spent
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
        dialled = await dial(target, port, self.remit, self._proxy)
        if dialled.sock is None:
            if dialled.denied:
                decision = Decision("deny", "network.allow", f"{target}: {dialled.problem}")
                await self._turn_away(connection, target, port, decision)
            else:
                self.say("connect", {"host": target, "port": port, "error": dialled.problem}, "allow", decision)
                if found.kind == "http":
                    await self._last_words(End(connection), unreachable(f"{target}:{port}", dialled.problem))
                else:
                    reset(connection)
            return
        self.say("connect", {"host": target, "port": port, "address": dialled.address}, "allow", decision)
        with dialled.sock as upstream:
            if name is not None and found.kind == "silent" and await first_to_speak(connection, upstream) is connection:
                # Not the server: the program began after all, and is held to the name that it asked for.
                found = await first_bytes(connection, UNFINISHED_S)
                reason = self._wrong(name, port, found)
                if reason is not None:
                    self._refuse(connection, target, port, Decision("deny", decision.rule, reason))
                    return
            if name is not None and found.kind == "http":
                await self._talk(End(connection), End(upstream), name, port, "http", decision)
                return
            try:
                up, down = await self.carry(connection, upstream, self._budget, self.remit.network_limits.speed)
            except Spent as spent:
                self.say("connect", {"host": target, "port": port}, "deny", spent.decision)
                raise
            self._closed(target, port, up, down)

    async def _talk(self, client: End, upstream: End, name: str, port: int, scheme: str, decision: Decision) -> None:
        """Requests and answers, within the sandbox's limits, until one side ends it."""
        where = {"host": name, "port": port}
        loop = asyncio.get_running_loop()
        pace = Pace(self.remit.network_limits.speed, loop.time())
        moved = {UP: 0, DOWN: 0}

        def refused(reason: str) -> None:
            self.say("connect", where, "deny", Decision("deny", decision.rule, reason))

        async def meter(way: str, amount: int) -> None:
            if not self._budget.take(way, amount):
                raise Spent(self._budget.spent(way))
            moved[way] += amount
            if delay := pace.delay(amount, loop.time()):
                await asyncio.sleep(delay)

        try:
            if client.protocol == HTTP2:
                await self._streams(client, upstream, name, port, refused, meter)
            else:
                await exchange(client, upstream, Exchange(name, port, scheme, self._request), refused, meter)
        except Spent as spent:
            self.say("connect", where, "deny", spent.decision)
            raise
        finally:
            client.leave()
            upstream.leave()
            self._closed(name, port, moved[UP], moved[DOWN])

    def _closed(self, host: str, port: int, up: int, down: int) -> None:
        self.tell({"event": "egress", "action": "closed", "host": host, "port": port, "up": up, "down": down})

    def _wrong(self, name: str | None, port: int, found: hello.Hello) -> str | None:
        """Why a connection to an allowed name may not begin like this; None if it may."""
        if name is None:
            return None
        if found.kind == "tls" and found.name is not None and found.name.lower() != name:
            return f"TLS asks for {found.name} on a connection to {name}"
        if found.kind in ("more", "unreadable"):
            return f"what is said to {name} begins like TLS or HTTP and can't be read"
        if self._read(name, port) and found.kind != "http" and not self._intercepted(name, port, found):
            return f"{name} has rules for what is asked of it, and what is said to it can't be read"
        return None

    def _intercepted(self, name: str, port: int, found: hello.Hello) -> bool:
        return found.kind == "tls" and self.interception is not None and self._read(name, port)

    async def _intercept(self, connection: socket.socket, name: str, port: int, decision: Decision) -> None:
        """TLS to both sides, and every request read in between. The server is asked first: what it speaks, of what the
        program offered, the program is offered then, so that nothing is translated. Where the server does not prove to
        be `name`, the program is told in words and nothing is sent to that server."""
        assert self.interception is not None  # noqa: S101
        offers = hello.offers(connection.recv(hello.LONGEST, socket.MSG_PEEK))
        offered = tuple(one for one in offers if one in (HTTP1, HTTP2)) or (HTTP1,)
        reached = await self._prove(name, port, offered)
        speaks = (HTTP1, HTTP2) if isinstance(reached, Decision) else (reached.protocol,)
        client = End(connection, Tls(self.interception.authority.context(name, speaks)))
        try:
            if isinstance(reached, Decision):
                verdict = "deny" if not reached.allowed else "allow"
                error = {} if verdict == "deny" else {"error": reached.reason}
                self.say("connect", {"host": name, "port": port, **error}, verdict, reached if not error else decision)
                await client.shake()
                what = f"https://{name}" + (f":{port}" if port != 443 else "")
                refused = reached.rule == "network.allow" and not reached.allowed
                await self._last_words(client, denied(what, reached) if refused else unreachable(what, reached.reason))
                return
            await client.shake()
            said = {"host": name, "port": port, "address": reached.sock.getpeername()[0], "intercepted": True}
            self.say("connect", said, "allow", decision)
            if client.protocol != reached.protocol:
                reason = f"the program and {name} agree on no protocol inside TLS"
                self._refuse(connection, name, port, Decision("deny", decision.rule, reason))
            else:
                await self._talk(client, reached, name, port, "https", decision)
        finally:
            if isinstance(reached, End):
                close(reached.sock)
            # Also where the sandbox ends before the server has proved itself, which cancels this.
            if client.problem is not None:
                reason = f"{name} has rules for what is asked, and the program trusts no authority of the sandbox's"
                denial = Decision("deny", decision.rule, f"{reason}: {client.problem}")
                self.say("connect", {"host": name, "port": port}, "deny", denial)

    async def _streams(
        self, client: End, upstream: End, name: str, port: int, refused: Callable[[str], None], meter: Meter
    ) -> None:
        # Only here: it takes 12 ms, which a sandbox that speaks no HTTP/2 need not wait for.
        from remit.egress.flow import NARROW, Windows
        from remit.egress.http2 import Exchanges
        from remit.egress.streams import streams

        windows = Windows() if self._wide < _MOST_WIDE else NARROW
        self._wide += 1
        try:
            machine = Exchanges(name, port, self._request, windows=windows)
            await streams(client, upstream, machine, refused, meter)
        finally:
            self._wide -= 1

    async def _prove(self, name: str, port: int, offered: Sequence[str]) -> End | Decision:
        """The server `name`, as this host's own programs would believe it; or why there is none: a denial of the
        policy's, one for want of proof, or (an allowed) word of the network's failure. `offered`: protocols."""
        dialled = await dial(name, port, self.remit, self._proxy)
        if dialled.sock is None:
            verdict = "deny" if dialled.denied else "allow"
            return Decision(verdict, "network.allow", f"{name}: {dialled.problem}")
        try:
            server = End(dialled.sock, Tls(await self._verifying, name, offered))
            await server.shake()
        except OSError as error:
            close(dialled.sock)
            if isinstance(error, ssl.SSLCertVerificationError):
                return Decision("deny", _UNPROVEN, problem(error, name))
            said = problem(error, name) if isinstance(error, ssl.SSLError) else str(error) or "no answer"
            return Decision("allow", "network.allow", f"{dialled.address} port {port}: {said}")
        except BaseException:
            close(dialled.sock)
            raise
        return server

    async def _last_words(self, client: End, words: Answer) -> None:
        """In answer to whatever the program asks first."""
        async with asyncio.timeout(_FIRST_BYTES_S):
            if client.protocol == HTTP2:
                from remit.egress.http2 import Exchanges
                from remit.egress.streams import streams

                machine = Exchanges("", 0, self._request, instead=words)
                await streams(client, None, machine, lambda _: None, unmetered)
                return
            await client.recv()
        client.put(written(words))
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

    def _judged(self, request: HttpRequest) -> Decision:
        """`decide`, remembered where no rule looks at more than method, host and path: programs repeat themselves."""
        if self._conditions or len(request.path) > _LONGEST_KNOWN:
            return decide(self.remit, request, self.view)
        asked = request[:4]
        known = self._known.get(asked)
        if known is None:
            known = decide(self.remit, request, self.view)
            if len(self._known) < _MOST_KNOWN:
                self._known[asked] = known
        return known

    def _request(self, request: HttpRequest) -> Ruling:
        decision = self._judged(request)
        if decision.allowed:
            decision = self._budget.exhausted() or decision
        said = {"method": request.method, "host": request.host, "port": request.port, "path": request.path}
        self.say("http", said, decision.verdict, decision)
        return Ruling(decision, most_body(self.remit, decision))

    async def _turn_away(self, connection: socket.socket, target: str, port: int, decision: Decision) -> None:
        """Words for a program that speaks HTTP, a reset for any other; never a hang."""
        found = await first_bytes(connection, _SILENT_S, _SILENT_S)
        if found.kind == "http":
            self.say("connect", {"host": target, "port": port}, "deny", decision)
            await self._last_words(End(connection), denied(f"{target}:{port}", decision))
            return
        self._refuse(connection, target, port, decision)

    def _refuse(self, connection: socket.socket, target: str, port: int, decision: Decision) -> None:
        self.say("connect", {"host": target, "port": port}, "deny", decision)
        reset(connection)

    def say(self, action: str, what: Mapping[str, Any], verdict: str, decision: Decision | None = None) -> None:
        rule = {"rule": decision.rule, "reason": decision.reason} if decision else {"rule": "network.allow"}
        self.tell({"event": "egress", "action": action, **what, "verdict": verdict, **rule})

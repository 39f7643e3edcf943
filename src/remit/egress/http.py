"""HTTP/1.1 between a program and a server, read whole and written anew, so that both sides read one and the same thing.
Every request is decided by its method, host and path. Pure: bytes in, what to send to whom out. (By h11.)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import h11

from remit.egress.answers import Answer, denied, refused
from remit.policy.actions import HttpRequest
from remit.policy.decide import Decision

TOO_LONG = "the body is longer than its rule's max_body"
LONGEST_HEAD = 64 * 1024
"""Bytes of a request's line and headers."""
MOST_AHEAD = 4 * LONGEST_HEAD
"""Bytes of what a side says while it is the other's turn, which are kept until it is its own."""


class ToUpstream(NamedTuple):
    data: bytes


class ToClient(NamedTuple):
    data: bytes


class Ruling(NamedTuple):
    """The verdict on a request. `most_body`: bytes that it may carry; None for any length."""

    decision: Decision
    most_body: int | None = None


class Asked(NamedTuple):
    """A request and its verdict."""

    request: HttpRequest
    decision: Decision


class Refused(NamedTuple):
    """What was sent is no request that could be decided."""

    reason: str


class Closed(NamedTuple):
    """Nothing more will be said to either."""


Step = ToUpstream | ToClient | Asked | Refused | Closed


class Exchange:
    """One connection of a program's. `host`, `port`: where it goes, which is what it asked for and nothing else.
    `scheme`: http or https. `decide`: the ruling on a request."""

    def __init__(self, host: str, port: int, scheme: str, decide: Callable[[HttpRequest], Ruling]) -> None:
        self.host, self.port, self.scheme = host, port, scheme
        self._decide = decide
        self._client = h11.Connection(h11.SERVER, max_incomplete_event_size=LONGEST_HEAD)
        self._upstream = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD)
        self._head = b""
        self._over = False
        self._room: int | None = None
        """What the request that is being read may still carry."""
        self._ahead = {id(self._client): 0, id(self._upstream): 0}
        # Neither side speaks HTTP any more (WebSocket): bytes are carried as they are.
        self._switched = False

    def from_client(self, data: bytes) -> Iterator[Step]:
        """`data` empty: the program has closed its side."""
        if self._over:
            return
        if self._switched:
            if not self._fits(len(data)):
                yield Refused(TOO_LONG)
                data = b""
            yield ToUpstream(data) if data else Closed()
            return
        if self._too_far_ahead(self._client, data):
            yield from self._refuse(400, "too much is asked before the answer")
            return
        if self._client.their_state is h11.IDLE and folded(self._head + data):
            yield from self._refuse(400, "a header is folded over two lines, which servers read in two ways")
            return
        self._head = (self._head + data)[-LONGEST_HEAD:] if self._client.their_state is h11.IDLE else b""
        try:
            self._client.receive_data(data)
            yield from self._requests()
        except h11.RemoteProtocolError as error:
            yield from self._refuse(error.error_status_hint, f"no HTTP/1.1 that is read in one way: {error}")
        except h11.LocalProtocolError:
            self._over = True
            yield Closed()

    def from_upstream(self, data: bytes) -> Iterator[Step]:
        """`data` empty: the server has closed its side."""
        if self._over:
            return
        if self._switched:
            yield ToClient(data) if data else Closed()
            return
        if self._too_far_ahead(self._upstream, data):
            self._over = True
            yield Closed()
            return
        try:
            self._upstream.receive_data(data)
            while True:
                event = self._upstream.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                if isinstance(event, h11.ConnectionClosed):
                    self._over = True
                    yield Closed()
                    return
                if self._upstream.our_state is h11.IDLE:
                    # An answer to nothing: of an idle connection, that its time is over.
                    self._over = True
                    yield Closed()
                    return
                if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
                    yield ToClient(self._send_client(event))
                    self._switched = True
                    if rest := self._upstream.trailing_data[0]:
                        yield ToClient(rest)
                    if early := self._client.trailing_data[0]:
                        yield from self.from_client(early)
                    return
                yield ToClient(self._send_client(event))
                if isinstance(event, h11.EndOfMessage):
                    yield from self._next()
                    if self._over:
                        return
        except (h11.RemoteProtocolError, h11.LocalProtocolError):
            # The server answers something that is no HTTP: what was said stands, the rest is cut.
            self._over = True
            yield Closed()

    def _requests(self) -> Iterator[Step]:
        while True:
            event: Any = self._client.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.ConnectionClosed):
                if self._answering():
                    # It has said all that it will; what it asked for is still to come.
                    return
                self._over = True
                yield Closed()
                return
            if isinstance(event, h11.Request):
                self._head = b""
                wrong = self._wrong(event)
                if wrong is not None:
                    yield from self._refuse(400, wrong)
                    return
                request = self._request(event)
                decision, self._room = self._decide(request)
                yield Asked(request, decision)
                if not decision.allowed:
                    yield from self._deny(request, decision)
                    return
                event = h11.Request(method=event.method, target=self._target(event), headers=_end_to_end(event.headers))
            if isinstance(event, h11.Data) and not self._fits(len(event.data)):
                yield from self._refuse(413, TOO_LONG)
                return
            out = self._upstream.send(event)
            if out:
                yield ToUpstream(out)
            if isinstance(event, h11.EndOfMessage) and not self._answering():
                # The answer was there before all of the question was.
                yield from self._next()
                return

    def _request(self, event: h11.Request) -> HttpRequest:
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers)
        said = dict(headers)
        # Of both only one is there, and the first is a number: `_wrong` and h11 saw to that.
        body = None if "transfer-encoding" in said else int(said.get("content-length", "0"))
        return HttpRequest(event.method.decode(), self.host, self.port, self._path(event), headers, body)

    def _fits(self, length: int) -> bool:
        """Takes so much of what the request may carry."""
        if self._room is not None:
            self._room -= length
        return self._room is None or self._room >= 0

    def _answering(self) -> bool:
        return self._client.our_state in (h11.SEND_RESPONSE, h11.SEND_BODY)

    def _next(self) -> Iterator[Step]:
        """One exchange is over: another may follow, if both sides keep the connection."""
        states = {
            self._client.our_state,
            self._client.their_state,
            self._upstream.our_state,
            self._upstream.their_state,
        }
        if states == {h11.DONE}:
            self._client.start_next_cycle()
            self._upstream.start_next_cycle()
            self._ahead = dict.fromkeys(self._ahead, 0)
            yield from self._requests()
        elif h11.MUST_CLOSE in states or h11.CLOSED in states:
            self._over = True
            yield Closed()

    def _too_far_ahead(self, side: h11.Connection, data: bytes) -> bool:
        if side.their_state not in (h11.IDLE, h11.SEND_BODY, h11.SEND_RESPONSE):
            self._ahead[id(side)] += len(data)
        return self._ahead[id(side)] > MOST_AHEAD

    def _send_client(self, event: Any) -> bytes:
        if isinstance(event, h11.Response | h11.InformationalResponse):
            made = type(event)
            event = made(status_code=event.status_code, headers=list(event.headers), reason=event.reason)
        return self._client.send(event) or b""

    def _wrong(self, request: h11.Request) -> str | None:
        """What makes a request one that must not be passed on, whatever the rules say."""
        names = [name for name, _ in request.headers]
        hosts = [value for name, value in request.headers if name == b"host"]
        if request.method == b"CONNECT":
            return "CONNECT asks a proxy, and there is none here: connect to the host itself"
        if len(hosts) != 1:
            return f"a request has one Host, not {len(hosts)}"
        if not self._is_host(hosts[0]):
            return f"Host says {hosts[0].decode('latin-1')!r} on a connection to {self.host}"
        if (b"transfer-encoding" in names and b"content-length" in names) or names.count(b"content-length") > 1:
            return "the length is said twice"
        target = request.target
        if b"#" in target:
            return "a fragment is the client's own and never sent: servers read it in two ways"
        if target.startswith(b"/") or (target == b"*" and request.method == b"OPTIONS"):
            return None
        scheme, _, rest = target.partition(b"://")
        authority = rest.partition(b"/")[0]
        if scheme.lower() != self.scheme.encode() or not self._is_host(authority):
            return f"it asks for {target.decode('latin-1')!r} on a connection to {self.host}"
        return None

    def _is_host(self, said: bytes) -> bool:
        text = said.decode("latin-1").lower()
        usual = {"http": 80, "https": 443}[self.scheme]
        return text in {f"{self.host}:{self.port}"} | ({self.host} if self.port == usual else set())

    def _target(self, request: h11.Request) -> bytes:
        """In origin form, as servers want it."""
        target = bytes(request.target)
        if target.startswith(b"/") or target == b"*":
            return target
        return b"/" + target.partition(b"://")[2].partition(b"/")[2]

    def _path(self, request: h11.Request) -> str:
        return "/" if request.target == b"*" else self._target(request).decode("latin-1")

    def _deny(self, request: HttpRequest, decision: Decision) -> Iterator[Step]:
        what = f"{request.method} {self.scheme}://{request.host}{request.path}"
        yield from self._answer(denied(what, decision, decision.rule))

    def _refuse(self, status: int, reason: str) -> Iterator[Step]:
        yield Refused(reason)
        yield from self._answer(refused(status, reason))

    def _answer(self, answer: Answer) -> Iterator[Step]:
        """An answer of the broker's own, if one can still be given; then the end."""
        self._over = True
        if self._client.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            yield ToClient(written(answer))
        yield Closed()


_REASONS = {400: "Bad Request", 403: "Forbidden", 413: "Content Too Large", 502: "Bad Gateway"}


def written(answer: Answer) -> bytes:
    """A whole response, after which the connection ends."""
    reason = {400: "Bad Request", 403: "Forbidden", 413: "Content Too Large", 502: "Bad Gateway"}.get(
        answer.status, "Refused"
    )
    head = f"HTTP/1.1 {answer.status} {reason}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n".encode() + answer.body


def folded(head: bytes) -> bool:
    """Is a header continued on the next line (RFC 9112, 5.2: obsolete, to be refused)?"""
    lines = head.partition(b"\r\n\r\n")[0]
    return b"\n " in lines or b"\n\t" in lines


_HOP = {b"proxy-authorization", b"proxy-connection", b"keep-alive", b"te"}
_SWITCH = {b"upgrade", b"http2-settings"}


def _end_to_end(headers: Any) -> list[tuple[bytes, bytes]]:
    """What is the server's to read. Of other protocols WebSocket alone is passed on: its beginning is a request that
    was decided. HTTP/2 on the connection would be requests that nobody decides; clients go on in HTTP/1.1."""
    upgrades = [value.strip().lower() for name, value in headers if name == b"upgrade"]
    away = _HOP if upgrades in ([], [b"websocket"]) else _HOP | _SWITCH
    kept: list[tuple[bytes, bytes]] = []
    for name, value in headers.raw_items():
        lowered = name.lower()
        if lowered == b"connection" and away is not _HOP:
            value = b", ".join(word for word in map(bytes.strip, value.split(b",")) if word.lower() not in _SWITCH)
        if lowered not in away and (value or lowered != b"connection"):
            kept.append((name, value))
    return kept

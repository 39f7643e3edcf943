"""A program and a server that speak HTTP/2, by the library `h2`, with the machine between them and no sockets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import h2.config
import h2.connection
import h2.events
import h2.settings
from hyperframe.frame import (
    Frame,
)

from remit.egress.http import Closed, Refused, Ruling, Step, ToClient, ToUpstream
from remit.egress.http2 import Exchanges
from remit.policy.actions import HttpRequest
from remit.policy.decide import Decision

GET = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"api.test"), (b":path", b"/v1/a")]
POST = [(b":method", b"POST"), *GET[1:]]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def verdict(request: HttpRequest) -> Ruling:
    allowed = request.path.startswith("/v1/") and request.method in ("GET", "POST", "HEAD", "OPTIONS")
    return Ruling(Decision("allow" if allowed else "deny", "network.allow[0]", "as the rule says"))


class Peer:
    """One side: what it was told, by stream."""

    def __init__(self, client: bool, **settings: int) -> None:
        config = h2.config.H2Configuration(client_side=client, header_encoding=None, validate_outbound_headers=False,
                                           normalize_outbound_headers=False, validate_inbound_headers=False,
                                           normalize_inbound_headers=False)  # fmt: skip
        self.h2 = h2.connection.H2Connection(config)
        self.h2.local_settings = h2.settings.Settings(
            client=client,
            initial_values={h2.settings.SettingCodes[name.upper()]: value for name, value in settings.items()},
        )
        self.h2.initiate_connection()
        self.acknowledges = True
        self.fields: dict[int, list[Any]] = defaultdict(list)
        self.body: dict[int, bytes] = defaultdict(bytes)
        self.ended: list[int] = []
        self.reset: dict[int, int] = {}
        self.pings: list[bytes] = []
        self.left: tuple[int, int] | None = None

    def hear(self, data: bytes) -> None:
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.DataReceived():
                    self.body[event.stream_id] += event.data or b""
                    if self.acknowledges:
                        self.h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                case h2.events.StreamEnded():
                    self.ended.append(event.stream_id)
                case h2.events.StreamReset():
                    self.reset[event.stream_id] = event.error_code
                case h2.events.PingReceived() | h2.events.PingAckReceived():
                    self.pings.append(event.ping_data)
                case h2.events.ConnectionTerminated():
                    self.left = (event.last_stream_id, event.error_code)
                case _ if hasattr(event, "headers"):
                    self.fields[event.stream_id].append([tuple(field) for field in event.headers])


class Both:
    """A program and a server with the machine between them."""

    def __init__(self, decide: Callable[[HttpRequest], Ruling] = verdict, client: dict[str, int] | None = None,
                 server: dict[str, int] | None = None, **more: Any) -> None:  # fmt: skip
        self.asked: list[HttpRequest] = []
        self.now = 0.0

        def noting(request: HttpRequest) -> Ruling:
            self.asked.append(request)
            return decide(request)

        self.machine = Exchanges("api.test", 443, noting, clock=lambda: self.now, **more)
        self.client, self.server = Peer(True, **(client or {})), Peer(False, **(server or {}))
        self.refused: list[str] = []
        self.closed = False
        self.act(self.machine.begin())
        self.settle()

    def act(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case ToUpstream(data):
                    self.server.hear(data)
                case ToClient(data):
                    self.client.hear(data)
                case Refused(reason):
                    self.refused.append(reason)
                case Closed():
                    self.closed = True

    def settle(self) -> None:
        """Until neither has anything to say."""
        while True:
            said, answered = self.client.h2.data_to_send(), self.server.h2.data_to_send()
            if not said and not answered:
                return
            if said:
                self.act(self.machine.from_client(said))
            if answered:
                self.act(self.machine.from_upstream(answered))

    def ask(self, stream: int, fields: Iterable[tuple[bytes, bytes]] = GET, body: bytes | None = None) -> None:
        self.client.h2.send_headers(stream, fields, end_stream=body is None)
        if body is not None:
            self.client.h2.send_data(stream, body, end_stream=True)
        self.settle()

    def answer(self, stream: int, body: bytes = b"yes", *, end: bool = True, status: bytes = b"200") -> None:
        self.server.h2.send_headers(stream, [(b":status", status)])
        self.server.h2.send_data(stream, body, end_stream=end)
        self.settle()

    def raw(self, *frames: Frame) -> None:
        self.act(self.machine.from_client(b"".join(frame.serialize() for frame in frames)))

    def said_to_client(self, stream: int) -> tuple[int, Any]:
        return int(dict(self.client.fields[stream][0])[b":status"]), json.loads(self.client.body[stream])

"""HTTP/2 between a program and a server that both speak it: every stream's request is decided by its method, host and
path, and its fields are written anew. Streams have one and the same number on both sides. Pure: bytes in, what to send
to whom out. (By h2.)

The rules of this room:
- What a side may send on a stream is acknowledged only when it was passed on, so that no more is kept than was offered.
- A denial, or a request that is none, ends its own stream. What is no HTTP/2, and what only costs, ends the connection.
- SETTINGS, windows and tables of fields are each side's own. PING and GOAWAY are passed on: they ask and tell of the
  server, not of whoever stands in between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from h2 import events
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError, TooManyStreamsError
from h2.settings import SettingCodes

from remit.egress import fields, flow
from remit.egress.answers import Answer, denied, refused
from remit.egress.flow import Stream, Way, Windows
from remit.egress.http import TOO_LONG, Closed, Refused, Ruling, Step, ToClient, ToUpstream
from remit.egress.side import MOST_STREAMS, Allowance, Fault, Leaving, Ping, Side
from remit.policy.actions import HttpRequest


class Exchanges:
    """One connection of a program's over https. `host`, `port`: where it goes, which is what it asked for and nothing
    else. `decide`: the verdict on a request. `instead`: there is no server; this is what the first request is
    answered, and the last. `clock`: seconds, for what is allowed in a time."""

    def __init__(
        self,
        host: str,
        port: int,
        decide: Callable[[HttpRequest], Ruling],
        *,
        windows: Windows = Windows(),  # noqa: B008 (it is frozen)
        instead: Answer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host, self.port, self._decide, self._instead = host, port, decide, instead
        chatter = Allowance(clock, "frames that carry nothing")
        self._resets = Allowance(clock, "streams that are begun and taken back")
        self._client = Side(True, windows.from_program, windows.together, chatter)
        self._upstream = Side(False, windows.from_server, windows.together, chatter)
        self._streams: dict[int, Stream] = {}
        self._unsent: deque[Stream] = deque()
        self._gone = instead is not None
        """Is there no server to ask any more?"""
        self._last: int | None = None
        """Streams above this will not be served."""
        self._newest = 0
        self._offered = MOST_STREAMS
        self._over = False
        self._said: list[Refused] = []

    def begin(self) -> Iterator[Step]:
        """What each side is told before it says anything."""
        return self._out()

    def from_client(self, data: bytes) -> Iterator[Step]:
        """`data` empty: the program has closed its side."""
        if self._over:
            return
        if not data:
            self._over = True
            yield Closed()
            return
        try:
            for event in self._client.read(data):
                self._of_client(event)
        except (Fault, ProtocolError) as error:
            self._over = True
            reason = f"no HTTP/2 that is read in one way: {error}"
            self._said.append(Refused(reason))
            if isinstance(error, Fault):
                self._client.leave(self._newest, error.code)
        yield from self._out()

    def from_upstream(self, data: bytes) -> Iterator[Step]:
        """`data` empty: the server has closed its side."""
        if self._over or self._gone:
            return
        if data:
            try:
                for event in self._upstream.read(data):
                    self._of_upstream(event)
            except (Fault, ProtocolError):
                # What was said stands, the rest is cut.
                self._lose()
        else:
            self._lose()
        yield from self._out()

    def _out(self) -> Iterator[Step]:
        if self._gone and not self._streams and not self._over and (self._instead is None or self._newest):
            self._over = True
            if self._instead is not None:
                self._client.leave(self._newest, ErrorCodes.NO_ERROR)
        yield from self._said
        self._said.clear()
        if (data := self._upstream.out()) and not self._gone:
            yield ToUpstream(data)
        if data := self._client.out():
            yield ToClient(data)
        if self._over:
            yield Closed()

    # What the program says.

    def _of_client(self, event: Any) -> None:
        match event:
            case events.DataReceived():
                self._data(self._client, event)
            case events.RequestReceived():
                self._asked(event.stream_id, event.headers, event.stream_ended is not None)
            case events.TrailersReceived():
                self._trailers_up(event.stream_id, event.headers)
            case events.StreamReset():
                # Also where what it said made us reset it.
                if event.stream_id not in self._streams or not self._streams[event.stream_id].down.done:
                    self._resets.spend()
                self._drop(event.stream_id, up=event.error_code)
            case events.WindowUpdated() | events.RemoteSettingsChanged():
                self._widened(self._client, getattr(event, "stream_id", 0))
            case Ping(frame):
                if self._gone:
                    self._client.put(frame[:4] + b"\x01" + frame[5:] if not frame[4] & 1 else b"")
                else:
                    self._upstream.put(frame)

    def _asked(self, number: int, said: fields.Fields, ended: bool) -> None:
        self._newest = number
        stream = Stream(number, Way(self._client, self._upstream), Way(self._upstream, self._client), None)
        self._streams[number] = stream
        stream.up.ended = ended
        if self._instead is not None:
            self._answer(stream, self._instead)
            return
        try:
            asked = fields.request(said, self.host, self.port)
            if ended and asked.length:
                raise fields.Wrong("a body is announced that does not come")
        except fields.Wrong as wrong:
            self._said.append(Refused(str(wrong)))
            self._answer(stream, refused(400, str(wrong)))
            return
        named = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in asked.fields[4:])
        length = 0 if ended else asked.length
        request = HttpRequest(asked.method, self.host, self.port, asked.path, named, length)
        decision, stream.room = self._decide(request)
        if not decision.allowed:
            what = f"{request.method} https://{request.host}{request.path}"
            self._answer(stream, denied(what, decision, decision.rule))
            return
        if self._gone or (self._last is not None and number > self._last):
            self._drop(number, down=ErrorCodes.REFUSED_STREAM)
            return
        stream.left, stream.unsent = asked.length, asked.fields
        self._unsent.append(stream)
        self._send_requests()

    def _send_requests(self) -> None:
        """In the order in which they were asked, as many as the server takes at once."""
        while self._unsent and not self._gone:
            stream = self._unsent[0]
            assert stream.unsent is not None  # noqa: S101
            alone = stream.up.ended and not stream.up.pieces and stream.up.trailers is None
            try:
                self._upstream.h2.send_headers(stream.id, stream.unsent, end_stream=alone)
            except TooManyStreamsError:
                return
            self._unsent.popleft()
            stream.unsent, stream.up.done = None, alone
            self._push(stream, stream.up)

    def _trailers_up(self, number: int, said: fields.Fields) -> None:
        stream = self._streams.get(number)
        if stream is None or stream.up.done:
            return
        try:
            fields.trailers(said)
            if stream.left:
                raise fields.Wrong("a body ends before its announced length")
        except fields.Wrong as wrong:
            self._resets.spend()
            self._said.append(Refused(str(wrong)))
            self._drop(number, up=ErrorCodes.CANCEL, down=ErrorCodes.PROTOCOL_ERROR)
            return
        stream.up.trailers, stream.up.ended = said, True
        self._push(stream, stream.up)

    def _answer(self, stream: Stream, answer: Answer) -> None:
        """An answer of the broker's own, on this stream alone; the rest of the question is not wanted."""
        stream.up.done = True
        stream.down.source = None
        if not stream.up.ended:
            stream.after, stream.patience = ErrorCodes.NO_ERROR, flow.PATIENCE
        length = str(len(answer.body)).encode()
        head = [(b":status", str(answer.status).encode()), (b"content-type", b"application/json")]
        self._client.h2.send_headers(stream.id, [*head, (b"content-length", length)])
        stream.down.pieces.append(answer.body)
        stream.down.ended = True
        self._push(stream, stream.down)

    # What the server says.

    def _of_upstream(self, event: Any) -> None:
        match event:
            case events.DataReceived():
                self._data(self._upstream, event)
            case events.ResponseReceived() | events.InformationalResponseReceived():
                self._answered(event.stream_id, event.headers, getattr(event, "stream_ended", None) is not None)
            case events.TrailersReceived():
                self._trailers_down(event.stream_id, event.headers)
            case events.StreamReset():
                self._reset_by_server(event.stream_id, event.error_code)
            case events.RemoteSettingsChanged():
                self._offer(min(MOST_STREAMS, self._upstream.h2.remote_settings.max_concurrent_streams))
                self._send_requests()
                self._widened(self._upstream, 0)
            case events.WindowUpdated():
                self._widened(self._upstream, event.stream_id)
            case Ping(frame):
                self._client.put(frame)
            case Leaving(last, code):
                self._leave(last, code)

    def _answered(self, number: int, said: fields.Fields, ended: bool) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        try:
            status = fields.response(said)
        except fields.Wrong:
            self._drop(number, up=ErrorCodes.PROTOCOL_ERROR, down=ErrorCodes.PROTOCOL_ERROR)
            return
        if status == 304:
            # Its length is that of what is not sent (RFC 9110, 15.4.5), of which the library does not know.
            self._upstream.h2.streams[number]._expected_content_length = None
        stream.begun = True
        stream.down.ended = stream.down.done = ended
        self._client.h2.send_headers(number, said, end_stream=ended)
        self._settle(stream)

    def _trailers_down(self, number: int, said: fields.Fields) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        try:
            fields.trailers(said)
        except fields.Wrong:
            self._drop(number, up=ErrorCodes.PROTOCOL_ERROR, down=ErrorCodes.PROTOCOL_ERROR)
            return
        stream.down.trailers, stream.down.ended = said, True
        self._push(stream, stream.down)

    def _reset_by_server(self, number: int, code: int) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if stream.down.ended:
            # The answer is whole: what is reset is the rest of the question (RFC 9113, 8.1).
            stream.after = code
            self._stop(stream, stream.up)
            self._settle(stream)
            return
        self._drop(number, down=code)

    def _offer(self, most: int) -> None:
        """No more streams at once to the program than the server takes."""
        if most != self._offered:
            self._offered = most
            self._client.h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: most})

    def _leave(self, last: int, code: int) -> None:
        """The server takes no more on this connection; what it began it ends."""
        self._last = last if self._last is None else min(last, self._last)
        for number in [number for number, stream in self._streams.items() if number > last and stream.down.source]:
            self._drop(number, down=ErrorCodes.REFUSED_STREAM)
        self._client.leave(self._last, code)

    def _lose(self) -> None:
        """The server is gone. Whole answers still go out; a stream that it never saw can be asked again elsewhere."""
        self._gone = True
        for stream in list(self._streams.values()):
            self._stop(stream, stream.up)
            if stream.down.ended:
                self._settle(stream)
            else:
                seen = stream.unsent is None
                self._drop(stream.id, down=ErrorCodes.INTERNAL_ERROR if seen else ErrorCodes.REFUSED_STREAM)
        self._client.leave(self._newest, ErrorCodes.NO_ERROR)

    # Both ways.

    def _data(self, source: Side, event: events.DataReceived) -> None:
        stream, data = self._streams.get(event.stream_id), event.data or b""
        way = None if stream is None else stream.up if source is self._client else stream.down
        kept = 0 if way is None or way.done else len(data)
        # Padding, and what nobody wants, is dealt with here and now.
        self._acknowledge(source, event.stream_id, (event.flow_controlled_length or 0) - kept)
        if stream is None or way is None:
            return
        if way is stream.up and stream.left is not None:
            stream.left -= len(data)
        if way is stream.up and not way.done and stream.room is not None:
            stream.room -= len(data)
            if stream.room < 0:
                self._cut(stream, len(data))
                return
        if event.stream_ended is not None:
            way.ended = True
        if way.done:
            stream.patience -= len(data)
            self._settle(stream)
            return
        if data:
            way.pieces.append(data)
        self._push(stream, way)

    def _cut(self, stream: Stream, length: int) -> None:
        """More came than the rule of its request allows; `length` of it just now."""
        self._said.append(Refused(TOO_LONG))
        self._acknowledge(self._client, stream.id, length)
        if stream.begun:
            self._drop(stream.id, up=ErrorCodes.CANCEL, down=ErrorCodes.CANCEL)
            return
        if stream.unsent is not None:
            self._unsent.remove(stream)
            stream.unsent = None
        elif not self._gone:
            self._upstream.reset(stream.id, ErrorCodes.CANCEL)
        self._stop(stream, stream.up)
        self._answer(stream, refused(413, TOO_LONG))

    def _push(self, stream: Stream, way: Way, frames: int = -1) -> bool:
        """Passes on what the other side's windows take, at most so many frames. Was there any?"""
        if way.done or stream.unsent is not None:
            return False
        out, moved = way.target.h2, False
        while way.pieces and frames:
            piece = way.pieces[0]
            room = min(out.local_flow_control_window(stream.id), out.max_outbound_frame_size)
            if room <= 0:
                return moved
            if len(piece) > room:
                way.pieces[0] = piece[room:]
                piece = piece[:room]
            else:
                way.pieces.popleft()
            way.done = way.ended and not way.pieces and way.trailers is None
            out.send_data(stream.id, piece, end_stream=way.done)
            moved = True
            frames -= 1
            self._acknowledge(way.source, stream.id, len(piece))
        if way.ended and not way.done and not way.pieces:
            way.done = moved = True
            if way.trailers is not None:
                out.send_headers(stream.id, way.trailers, end_stream=True)
            else:
                out.end_stream(stream.id)
        self._settle(stream)
        return moved

    def _settle(self, stream: Stream) -> None:
        """Forgets a stream of which both ways are done."""
        if stream.down.done and stream.after is not None and stream.patience <= 0:
            self._client.reset(stream.id, stream.after)
            stream.up.done = stream.up.ended = True
        if stream.down.done and stream.up.done and stream.up.ended and stream.id in self._streams:
            del self._streams[stream.id]
            self._resets.earn()
            self._send_requests()

    def _drop(self, number: int, *, up: int | None = None, down: int | None = None) -> None:
        """Forgets a stream; `up`, `down`: with what it is reset there."""
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        if stream.unsent is not None:
            self._unsent.remove(stream)
        elif up is not None and not self._gone:
            self._upstream.reset(number, up)
        if down is not None:
            self._client.reset(number, down)
        self._stop(stream, stream.up)
        self._stop(stream, stream.down)
        self._send_requests()

    def _stop(self, stream: Stream, way: Way) -> None:
        """Nothing more is passed on. What was kept takes up nothing any more of what all streams have together."""
        way.done, way.trailers = True, None
        if way.pieces:
            self._acknowledge(way.source, stream.id, sum(map(len, way.pieces)))
            way.pieces.clear()

    def _acknowledge(self, source: Side | None, number: int, length: int) -> None:
        if source is not None and length and not (source is self._upstream and self._gone):
            source.h2.acknowledge_received_data(length, number)

    def _widened(self, side: Side, number: int) -> None:
        """There is room for more to `side`, on one stream or (0) on all: then in turns."""
        if number:
            stream = self._streams.get(number)
            if stream is not None:
                self._push(stream, stream.down if side is self._client else stream.up)
            return
        moved = True
        while moved:
            moved = False
            for stream in list(self._streams.values()):
                way = stream.down if side is self._client else stream.up
                if way.pieces:
                    moved |= self._push(stream, way, 1)

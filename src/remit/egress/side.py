"""One side of an HTTP/2 connection: `h2` behind what it leaves to others. It would keep a frame of 16 MB before it
finds it too long, takes GOAWAY for the end of all streams, and counts nothing that costs its reader more than its
sender. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings
from h2.config import H2Configuration
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame

LONGEST_FRAME = 16 * 1024
"""The least that the protocol allows, and what everyone sends."""
LONGEST_FIELDS = 64 * 1024
"""Bytes of a block of header fields, unpacked, each with 32 more (RFC 9113, 10.5.1)."""
MOST_STREAMS = 100
_TABLE = 4096
"""Bytes of what is remembered of fields for a side that would have it larger."""
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE, _CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
_ACK = _END_STREAM = 1
_HEAD = 9
_PREFACE = len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
_BURST = 1000.0
_EACH_SECOND = 50.0


class Leaving(NamedTuple):
    """GOAWAY: of the streams that the other side opened, those up to `last` are dealt with."""

    last: int
    code: int


class Ping(NamedTuple):
    """Or its answer: the frame as it is."""

    frame: bytes


class Fault(Exception):
    """What ends a connection. `code`: what HTTP/2 calls it."""

    def __init__(self, reason: str, code: h2.errors.ErrorCodes) -> None:
        super().__init__(reason)
        self.code = code


class Allowance:
    """Of what costs its reader more than its sender: some at once, and more with time and with what is of use."""

    def __init__(self, clock: Callable[[], float], what: str) -> None:
        self._clock, self._what = clock, what
        self._left, self._at = _BURST, clock()

    def earn(self) -> None:
        self._left = min(_BURST, self._left + 1)

    def spend(self) -> None:
        """Raises `Fault`."""
        self._left -= 1
        if self._left < 0:
            now = self._clock()
            self._left, self._at = min(_BURST, self._left + (now - self._at) * _EACH_SECOND), now
            if self._left < 0:
                raise Fault(f"too many {self._what}", h2.errors.ErrorCodes.ENHANCE_YOUR_CALM)


class Side:
    """`server`: is this side of ours the server's? `stream_window`, `window`: how many bytes the other side may send on
    one stream and on all together before they are acknowledged."""

    def __init__(self, server: bool, stream_window: int, window: int, chatter: Allowance) -> None:
        # What is passed on was held to `fields`, by its sender's side of this machine.
        config = H2Configuration(
            client_side=not server,
            header_encoding=None,
            validate_inbound_headers=False,
            normalize_inbound_headers=False,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)
        self.h2.local_settings = h2.settings.Settings(
            client=not server,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: stream_window,
                SettingCodes.MAX_CONCURRENT_STREAMS: MOST_STREAMS,
                SettingCodes.MAX_HEADER_LIST_SIZE: LONGEST_FIELDS,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self._chatter = chatter
        self._in, self._out = bytearray(), bytearray()
        self._preface = _PREFACE if server else 0
        self.h2.initiate_connection()
        if window > self.h2.inbound_flow_control_window:
            self.h2.increment_flow_control_window(window - self.h2.inbound_flow_control_window)

    def read(self, data: bytes) -> Iterator[h2.events.Event | Leaving | Ping]:
        """Raises `Fault` and `h2.exceptions.ProtocolError`; either way the connection is over."""
        self._in += data
        if self._preface:
            begun = bytes(self._in[: self._preface])
            del self._in[: len(begun)]
            self._preface -= len(begun)
            self.h2.receive_data(begun)
        # Frame by frame: an error in one takes nothing from those before it.
        at = 0
        try:
            while len(self._in) - at >= _HEAD:
                length = int.from_bytes(self._in[at : at + 3], "big")
                if length > LONGEST_FRAME:
                    raise Fault("a frame is longer than was offered", h2.errors.ErrorCodes.FRAME_SIZE_ERROR)
                if len(self._in) - at < _HEAD + length:
                    return
                frame = bytes(self._in[at : at + _HEAD + length])
                at += len(frame)
                yield from self._frame(frame, frame[3], frame[4], length)
        finally:
            del self._in[:at]

    def _frame(self, frame: bytes, kind: int, flags: int, length: int) -> Iterator[h2.events.Event | Leaving | Ping]:
        if kind in (_HEADERS, _CONTINUATION) or (kind == _DATA and length):
            self._chatter.earn()
        elif not (
            kind == _WINDOW_UPDATE
            or (kind == _DATA and flags & _END_STREAM)
            or (kind in (_SETTINGS, _PING) and flags & _ACK)
        ):
            self._chatter.spend()
        on_stream = int.from_bytes(frame[5:9], "big") & 0x7FFFFFFF
        if kind == _GOAWAY and length >= 8 and not on_stream:
            yield Leaving(
                int.from_bytes(frame[9:13], "big") & 0x7FFFFFFF,
                int.from_bytes(frame[13:17], "big"),
            )
            return
        if kind == _PING and length == 8 and not on_stream:
            yield Ping(frame)
            return
        yield from self.h2.receive_data(_modest(frame) if kind == _SETTINGS else frame)

    def put(self, frame: bytes) -> None:
        """To be sent, behind what was said before."""
        self._out += self.h2.data_to_send()
        self._out += frame

    def leave(self, last: int, code: int) -> None:
        """GOAWAY; what was begun goes on."""
        self.put(GoAwayFrame(0, last_stream_id=last, error_code=code).serialize())

    def reset(self, stream: int, code: int) -> None:
        """If it is not over anyway."""
        known = self.h2.streams.get(stream)
        if known is not None and not known.closed:
            self.h2.reset_stream(stream, code)

    def out(self) -> bytes:
        """What is to be sent now."""
        self.put(b"")
        out, self._out = bytes(self._out), bytearray()
        return out


def _modest(settings: bytes) -> bytes:
    """The frame, in which no table is larger than `_TABLE`: it is for whoever writes to it to say how much is used."""
    frame = bytearray(settings)
    for at in range(_HEAD, len(frame) - 5, 6):
        if int.from_bytes(frame[at : at + 2], "big") == SettingCodes.HEADER_TABLE_SIZE:
            size = int.from_bytes(frame[at + 2 : at + 6], "big")
            frame[at + 2 : at + 6] = min(size, _TABLE).to_bytes(4, "big")
    return bytes(frame)

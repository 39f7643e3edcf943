"""Floods of HTTP/2: each ends the one connection that it comes over, after a bounded number; and less than a flood does
not. (What is said in order: test_http2.py.)"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hpack import Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from remit.egress.http import Closed, Refused
from remit.egress.http2 import Exchanges
from tests.unit.egress.http2_peers import GET, POST, Both, verdict


def begun(stream: int, fields: Iterable[tuple[bytes, bytes]] = GET, ends: bool = False) -> HeadersFrame:
    flags = ["END_HEADERS", *(["END_STREAM"] if ends else [])]
    return HeadersFrame(stream, Encoder().encode(fields), flags=flags)


def rounds(both: Both, frames: Callable[[int], list[Frame]], most: int) -> int:
    """How many times the frames were taken, up to `most`."""
    for i in range(most):
        both.raw(*frames(i))
        if both.closed:
            return i
    return most


FLOODS: dict[str, Callable[[int], list[Frame]]] = {
    "resets": lambda i: [begun(2 * i + 1), RstStreamFrame(2 * i + 1, error_code=8)],
    "pings": lambda i: [PingFrame(0, opaque_data=b"12345678")],
    "settings": lambda i: [SettingsFrame(0)],
    "priorities": lambda i: [PriorityFrame(2 * i + 1, depends_on=0, stream_weight=1)],
    "windows that are no windows": lambda i: [begun(2 * i + 1), WindowUpdateFrame(2 * i + 1, window_increment=2**31 - 1)],
    "trailers that are none": lambda i: [begun(2 * i + 1), begun(2 * i + 1, [(b"host", b"x")], True)],
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_its_connection(flood):
    both = Both()
    both.server.hear = lambda data: None  # type: ignore[method-assign]
    heard: list[bytes] = []
    both.client.hear = heard.append  # type: ignore[method-assign, assignment]
    assert rounds(both, FLOODS[flood], 3000) in range(990, 1010)
    assert both.refused and both.closed and GoAwayFrame(0).serialize()[:4] == heard[-1][-17:][:4]
    assert heard[-1].endswith(b"\x00\x00\x00\x0b")


@pytest.mark.parametrize("flood", FLOODS)
def test_as_many_in_time_are_none(flood):
    both = Both()
    both.server.hear = both.client.hear = lambda data: None  # type: ignore[method-assign, assignment]

    def slowly(i: int) -> list[Frame]:
        both.now += 0.05
        return FLOODS[flood](i)

    assert rounds(both, slowly, 3000) == 3000


def test_empty_data_is_a_flood_too():
    both = Both()
    both.raw(begun(1, POST))
    assert rounds(both, lambda _: [DataFrame(1)], 3000) in range(990, 1010)


def test_pings_among_data_are_none():
    both = Both()
    both.server.hear = lambda data: None  # type: ignore[method-assign]
    both.raw(begun(1, POST))
    mixed: list[Frame] = [DataFrame(1, b"x"), PingFrame(0, opaque_data=b"12345678")]
    assert rounds(both, lambda _: mixed, 3000) == 3000


def test_answers_that_are_whole_make_up_for_resets():
    """As of servers of gRPC that answer before the question is over."""
    both = Both()
    for i in range(1500):
        both.client.h2.send_headers(2 * i + 1, POST)
        both.settle()
        both.answer(2 * i + 1)
        both.client.h2.reset_stream(2 * i + 1, 8)
        both.settle()
    assert not both.closed


def test_continuations_without_end_end_the_connection():
    both = Both()
    both.raw(HeadersFrame(1, b"x"))
    assert rounds(both, lambda _: [ContinuationFrame(1, b"x" * 100)], 200) < 70
    assert both.asked == []


def test_fields_that_unpack_to_too_much_end_the_connection_and_as_much_as_is_allowed_does_not():
    both = Both()
    both.ask(1, [*GET, *((b"x-%d" % i, b"v" * 1000) for i in range(50))])
    assert both.server.fields[1]
    encoder = Encoder()
    bomb = encoder.encode([(b"x", b"v" * 4000)]) + b"\xbe" * 16000
    both.raw(HeadersFrame(3, bomb, flags=["END_HEADERS", "END_STREAM"]))
    assert both.closed and len(both.asked) == 1


def test_a_frame_that_is_too_long_is_not_waited_for():
    both = Both()
    both.act(both.machine.from_client(b"\x00\x40\x01\x00\x00\x00\x00\x00\x01"))
    assert both.closed and "longer" in both.refused[0]


def test_more_streams_than_were_offered_end_the_connection_and_as_many_do_not():
    both = Both()
    for i in range(100):
        both.raw(begun(2 * i + 1))
    assert not both.closed and len(both.server.fields) == 100
    both.raw(begun(201))
    assert both.closed and len(both.server.fields) == 100


def test_what_begins_otherwise_is_no_http2():
    both = Both()
    machine = Exchanges("api.test", 443, verdict)
    steps = list(machine.from_client(b"GET / HTTP/1.1\r\nHost: api.test\r\n\r\n"))
    assert isinstance(steps[-1], Closed) and any(isinstance(step, Refused) for step in steps)
    assert not both.closed


@pytest.mark.parametrize("size", [1, 3, 7])
def test_bytes_may_be_split_anywhere(size):
    both = Both()
    both.client.h2.send_headers(1, POST)
    both.client.h2.send_data(1, b"words", end_stream=True)
    said = both.client.h2.data_to_send()
    for i in range(0, len(said), size):
        both.act(both.machine.from_client(said[i : i + size]))
    assert both.server.body[1] == b"words"


def test_a_table_of_fields_is_no_larger_than_we_like():
    both = Both(client={"header_table_size": 2**30}, server={"header_table_size": 2**30})
    assert both.machine._client.h2.encoder.header_table_size == 4096
    assert both.machine._upstream.h2.encoder.header_table_size == 4096
    both.ask(1)
    both.answer(1)
    assert both.client.body[1] == b"yes"

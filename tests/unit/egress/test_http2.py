"""HTTP/2 between a program and a server, without sockets: both sides are played by the library `h2`, or by frames that
it would not write."""

from __future__ import annotations

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from hyperframe.frame import (
    GoAwayFrame,
    RstStreamFrame,
)

from remit.egress.answers import unreachable
from remit.egress.flow import NARROW, Windows
from remit.egress.http import Closed, Ruling, ToClient, ToUpstream
from remit.policy.actions import HttpRequest
from remit.policy.decide import Decision
from tests.unit.egress.http2_peers import GET, POST, Both


def test_a_request_and_its_answer_are_passed_on_with_their_bodies():
    both = Both()
    both.ask(
        1,
        [
            *POST,
            (b"x-a", b"1"),
            (b"content-length", b"5"),
            (b"te", b"trailers"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
        ],
        b"words",
    )
    assert [request[:4] for request in both.asked] == [("POST", "api.test", 443, "/v1/a")]
    assert both.server.fields[1] == [
        [
            *POST,
            (b"x-a", b"1"),
            (b"content-length", b"5"),
            (b"te", b"trailers"),
            (b"cookie", b"a=1"),
            (b"cookie", b"b=2"),
        ]
    ]
    assert both.server.body[1] == b"words" and both.server.ended == [1]
    both.answer(1)
    assert both.client.fields[1] == [[(b":status", b"200")]]
    assert both.client.body[1] == b"yes" and both.client.ended == [1]
    assert both.machine._streams == {}


def test_a_denial_is_one_streams_own():
    both = Both()
    both.client.h2.send_headers(1, GET, end_stream=True)
    both.client.h2.send_headers(3, [(b":method", b"DELETE"), *GET[1:]], end_stream=True)
    both.ask(5)
    status, said = both.said_to_client(3)
    assert status == 403
    assert said["request"] == "DELETE https://api.test/v1/a" and said["rule"] == "network.allow[0]"
    assert sorted(both.server.fields) == [1, 5]
    both.answer(5)
    both.answer(1)
    assert both.client.ended == [3, 5, 1] and not both.closed and not both.refused


def test_what_is_denied_while_it_is_still_said_is_told_to_stop():
    both = Both()
    both.client.h2.send_headers(1, [*POST[:3], (b":path", b"/secret")])
    both.settle()
    assert both.said_to_client(1)[0] == 403 and both.client.ended == [1]
    # Not before whoever is still sending has had the time to read why.
    for _ in range(63):
        both.client.h2.send_data(1, b"x" * 16384)
        both.settle()
    assert both.client.reset == {}
    both.client.h2.send_data(1, b"x" * 16384)
    both.settle()
    assert both.client.reset == {1: 0}
    both.ask(3, POST, b"x" * 16384)
    assert both.server.body == {3: b"x" * 16384}


BAD: dict[str, list[tuple[bytes, bytes]]] = {
    "another authority": [*GET[:2], (b":authority", b"evil.test"), GET[3]],
    "another port": [*GET[:2], (b":authority", b"api.test:8443"), GET[3]],
    "another host": [*GET, (b"host", b"evil.test")],
    "two hosts": [*GET, (b"host", b"api.test"), (b"host", b"api.test")],
    "no authority": [*GET[:2], GET[3]],
    "two authorities": [*GET, (b":authority", b"api.test")],
    "a pseudo field behind others": [*GET[:3], (b"x", b"1"), GET[3]],
    "an unknown pseudo field": [*GET, (b":x", b"1")],
    "no path": GET[:3],
    "no method": GET[1:],
    "no scheme": [GET[0], *GET[2:]],
    "plain http": [GET[0], (b":scheme", b"http"), *GET[2:]],
    "a path that is a URL": [*GET[:3], (b":path", b"https://evil.test/")],
    "a path with a blank": [*GET[:3], (b":path", b"/v1/a HTTP/1.1")],
    "a path with a line's end": [*GET[:3], (b":path", b"/v1/a\r\nx: y")],
    "a fragment": [*GET[:3], (b":path", b"/v1/a#b")],
    "an empty path": [*GET[:3], (b":path", b"")],
    "an asterisk": [*GET[:3], (b":path", b"*")],
    "a method with a blank": [(b":method", b"GET /v1/x"), *GET[1:]],
    "CONNECT": [(b":method", b"CONNECT"), GET[2]],
    "extended CONNECT": [(b":method", b"CONNECT"), (b":protocol", b"websocket"), *GET[1:]],
    "connection": [*GET, (b"connection", b"close")],
    "keep-alive": [*GET, (b"keep-alive", b"1")],
    "upgrade": [*GET, (b"upgrade", b"websocket")],
    "transfer-encoding": [*GET, (b"transfer-encoding", b"chunked")],
    "te": [*GET, (b"te", b"chunked")],
    "an upper case name": [*GET, (b"X-A", b"1")],
    "a name with a colon": [*GET, (b"x:y", b"1")],
    "a name with a line's end": [*GET, (b"x\r\ny", b"1")],
    "an empty name": [*GET, (b"", b"1")],
    "a value with a line's end": [*GET, (b"x", b"1\r\ny: 2")],
    "a value with a nul": [*GET, (b"x", b"1\x00")],
    "a value with a blank before it": [*GET, (b"x", b" 1")],
    "two lengths": [*GET, (b"content-length", b"0"), (b"content-length", b"0")],
    "a body that does not come": [*GET, (b"content-length", b"5")],
}


@pytest.mark.parametrize("what", BAD)
def test_a_request_that_is_none_is_answered_400_and_reaches_nobody(what):
    both = Both()
    both.ask(1, BAD[what])
    status, said = both.said_to_client(1)
    assert status == 400 and said["error"] == "refused by the broker"
    assert both.refused == [said["reason"]] and both.asked == []
    both.ask(3)
    assert sorted(both.server.fields) == [3] and not both.closed


@pytest.mark.parametrize("good", [
    [*GET, (b"host", b"api.test")],
    [*GET[:2], (b":authority", b"API.test:443"), GET[3]],
    [*GET[:2], GET[3], (b"host", b"api.test")],
    [(b":method", b"OPTIONS"), *GET[1:3], (b":path", b"*")],
    [*GET, (b"x", b"a\tb \xe4"), (b"empty", b"")],
    [*GET, (b"content-length", b"0")],
])  # fmt: skip
def test_what_is_read_in_one_way_is_passed_on(good):
    both = Both(lambda _: Ruling(Decision("allow", "network.allow[0]", "")))
    both.ask(1, good)
    (sent,) = both.server.fields[1]
    assert b"host" not in dict(sent) and dict(sent)[b":authority"].lower().startswith(b"api.test")
    assert [f for f in sent if not f[0].startswith(b":")] == [
        f for f in good if not f[0].startswith(b":") and f[0] != b"host"
    ]


def _short(request: HttpRequest) -> Ruling:
    return Ruling(Decision("allow", "network.allow[0]", ""), 5)


def test_what_is_decided_on_has_the_fields_and_the_length():
    both = Both()
    both.ask(1, [*POST, (b"x-tenant", b"acme"), (b"content-length", b"5")], b"words")
    both.ask(3)
    both.client.h2.send_headers(5, POST)
    both.settle()
    assert both.asked[0].headers == (("x-tenant", "acme"), ("content-length", "5"))
    assert [request.body for request in both.asked] == [5, 0, None]


def test_a_body_is_cut_where_its_rule_ends_on_its_own_stream():
    both = Both(_short)
    both.ask(1, POST, b"words")
    assert both.server.body[1] == b"words" and 1 in both.server.ended and both.refused == []
    both.client.h2.send_headers(3, POST)
    both.client.h2.send_data(3, b"wor")
    both.settle()
    both.client.h2.send_data(3, b"dsy", end_stream=True)
    both.settle()
    assert dict(both.client.fields[3][0])[b":status"] == b"413" and 3 in both.client.ended
    assert both.server.body[3] == b"wor" and 3 in both.server.reset and len(both.refused) == 1
    both.ask(5, POST, b"again")
    assert both.server.body[5] == b"again" and not both.closed


def test_a_body_that_goes_on_too_long_behind_its_answer_is_reset():
    both = Both(_short)
    both.client.h2.send_headers(1, POST)
    both.settle()
    both.server.h2.send_headers(1, [(b":status", b"200")])
    both.settle()
    both.client.h2.send_data(1, b"too long")
    both.settle()
    assert both.client.reset[1] and both.server.reset[1] and both.server.body[1] == b""
    both.ask(3, POST, b"words")
    assert both.server.body[3] == b"words" and not both.closed


def test_a_body_that_is_longer_than_announced_ends_the_connection():
    both = Both()
    both.client.h2.send_headers(1, [*POST, (b"content-length", b"3")])
    both.client.h2.send_data(1, b"words")
    both.settle()
    assert both.closed and both.refused and both.server.body[1] == b""


def test_a_body_that_ends_before_its_length_by_trailers_ends_its_stream():
    both = Both()
    both.client.h2.send_headers(1, [*POST, (b"content-length", b"9")])
    both.client.h2.send_data(1, b"words")
    both.client.h2.send_headers(1, [(b"x-sum", b"1")], end_stream=True)
    both.settle()
    assert both.client.reset[1] and both.server.reset[1] and both.server.ended == []
    both.ask(3)
    assert 3 in both.server.fields


@pytest.mark.parametrize("field", [b":path", b"content-length", b"host", b"authorization", b"transfer-encoding", b"X"])
def test_trailers_say_nothing_again_that_was_decided_on(field):
    both = Both()
    both.client.h2.send_headers(1, POST)
    both.client.h2.send_data(1, b"words")
    both.client.h2.send_headers(1, [(field, b"1")], end_stream=True)
    both.settle()
    assert both.client.reset[1] and both.server.reset[1] and len(both.server.fields[1]) == 1


def test_trailers_are_carried_both_ways_behind_their_bodies():
    both = Both()
    both.client.h2.send_headers(1, POST)
    both.client.h2.send_data(1, b"words")
    both.client.h2.send_headers(1, [(b"x-sum", b"1")], end_stream=True)
    both.settle()
    assert both.server.fields[1][1:] == [[(b"x-sum", b"1")]] and both.server.ended == [1]
    both.answer(1, b"yes", end=False)
    both.server.h2.send_headers(1, [(b"grpc-status", b"0")], end_stream=True)
    both.settle()
    assert both.client.fields[1] == [[(b":status", b"200")], [(b"grpc-status", b"0")]]
    assert both.client.body[1] == b"yes" and both.client.ended == [1] and both.machine._streams == {}


def test_both_sides_speak_at_once_on_one_stream():
    both = Both()
    both.client.h2.send_headers(1, POST)
    both.settle()
    both.server.h2.send_headers(1, [(b":status", b"200")])
    for i in range(50):
        both.client.h2.send_data(1, b"ask %d;" % i)
        both.settle()
        both.server.h2.send_data(1, b"say %d;" % i)
        both.settle()
        assert both.server.body[1].endswith(b"ask %d;" % i) and both.client.body[1].endswith(b"say %d;" % i)
    both.server.h2.end_stream(1)
    both.settle()
    both.client.h2.send_data(1, b"more", end_stream=True)
    both.settle()
    assert both.server.body[1].endswith(b"more") and both.server.ended == [1] and both.client.ended == [1]


def test_informational_answers_come_before_the_final_one():
    both = Both()
    both.client.h2.send_headers(1, [*POST, (b"expect", b"100-continue")])
    both.settle()
    both.server.h2.send_headers(1, [(b":status", b"100")])
    both.server.h2.send_headers(1, [(b":status", b"103"), (b"link", b"</x>")])
    both.answer(1)
    assert [dict(f)[b":status"] for f in both.client.fields[1]] == [b"100", b"103", b"200"]


def test_answers_without_a_body_may_have_a_length():
    both = Both()
    both.ask(1, [(b":method", b"HEAD"), *GET[1:]])
    both.server.h2.send_headers(1, [(b":status", b"200"), (b"content-length", b"9")])
    both.server.h2.send_data(1, b"", end_stream=True)
    both.ask(3, [*GET, (b"if-none-match", b"x")])
    assert both.client.ended == [1]
    # The library that plays the program takes this one for too short.
    both.client.hear = lambda data: None  # type: ignore[method-assign]
    both.server.h2.send_headers(3, [(b":status", b"304"), (b"content-length", b"9")])
    both.server.h2.send_data(3, b"", end_stream=True)
    both.settle()
    assert both.machine._streams == {} and not both.machine._gone


def test_no_more_is_taken_from_the_server_than_the_program_takes():
    both = Both(windows=Windows(from_server=100_000, from_program=70_000, together=200_000))
    both.client.acknowledges = False
    both.ask(1)
    both.server.h2.send_headers(1, [(b":status", b"200")])
    sent = 0
    while (room := min(16384, both.server.h2.local_flow_control_window(1))) > 0:
        both.server.h2.send_data(1, b"x" * room)
        sent += room
        both.settle()
        assert sent < 300_000
    # What the program's window takes went out; what waits is what was offered to the server, and not more.
    assert len(both.client.body[1]) == 65535
    assert sent - 65535 == sum(map(len, both.machine._streams[1].down.pieces)) <= 100_000
    both.client.h2.acknowledge_received_data(65535, 1)
    both.settle()
    both.server.h2.end_stream(1)
    both.settle()
    assert len(both.client.body[1]) == min(sent, 2 * 65535) and both.server.h2.local_flow_control_window(1) > 0


def test_no_more_is_taken_from_the_program_than_the_server_takes():
    both = Both(server={"initial_window_size": 1000})
    both.server.acknowledges = False
    both.client.h2.send_headers(1, POST)
    both.settle()
    sent = 0
    while (room := min(16384, both.client.h2.local_flow_control_window(1))) > 0:
        both.client.h2.send_data(1, b"x" * room)
        sent += room
        both.settle()
        assert sent < 200_000
    assert len(both.server.body[1]) == 1000 and sent <= 1000 + 64 * 1024
    # One stream that waits keeps no other from its own.
    both.ask(3, POST, b"y" * 900)
    assert both.server.body[3] == b"y" * 900
    both.server.acknowledges = True
    both.server.h2.increment_flow_control_window(200_000, 1)
    both.server.h2.increment_flow_control_window(200_000)
    both.settle()
    assert len(both.server.body[1]) == sent


def test_a_windows_room_is_shared_in_turns():
    both = Both()
    both.client.acknowledges = False
    for stream in (1, 3, 5):
        both.ask(stream)
        both.answer(stream, b"x" * 16384)
    for stream in (7, 9):
        both.ask(stream)
        both.server.h2.send_headers(stream, [(b":status", b"200")])
        both.server.h2.send_data(stream, b"x" * 16384)
        both.server.h2.send_data(stream, b"x" * 16384, end_stream=True)
        both.settle()
    both.client.h2.increment_flow_control_window(2 * 16384 + 2)
    both.settle()
    assert min(len(both.client.body[stream]) for stream in (7, 9)) >= 16384


def test_padding_and_what_nobody_wants_takes_up_no_room_for_ever():
    both = Both(windows=NARROW)
    both.client.h2.send_headers(1, POST)
    for _ in range(40):
        for _ in range(10):
            both.client.h2.send_data(1, b"x", pad_length=255)
        both.settle()
    # And what was sent on a stream that is gone.
    for stream in range(3, 60, 2):
        both.client.h2.send_headers(stream, [*POST[:3], (b":path", b"/no")])
        both.client.h2.send_data(stream, b"x" * 16384)
        both.settle()
        both.client.h2.reset_stream(stream, 8)
    both.client.h2.send_data(1, b"end", end_stream=True)
    both.settle()
    assert both.server.body[1] == b"x" * 400 + b"end"


def test_a_reset_is_passed_on_both_ways():
    both = Both()
    both.client.h2.send_headers(1, POST)
    both.ask(3)
    both.client.h2.reset_stream(1, 8)
    both.settle()
    assert both.server.reset == {1: 8}
    both.server.h2.reset_stream(3, 11)
    both.settle()
    assert both.client.reset == {3: 11} and both.machine._streams == {}


def test_an_answer_that_is_whole_survives_the_reset_of_the_rest_of_the_question():
    both = Both()
    both.client.acknowledges = False
    both.client.h2.send_headers(1, POST)
    both.settle()
    both.client.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1})
    both.settle()
    both.answer(1, b"x" * 500)
    both.server.h2.reset_stream(1, 0)
    both.settle()
    assert both.client.body[1] == b"x" and both.client.reset == {}
    both.client.h2.increment_flow_control_window(1000, 1)
    both.settle()
    assert both.client.body[1] == b"x" * 500 and both.client.reset == {1: 0} and both.machine._streams == {}


def test_what_the_server_takes_at_once_is_told_and_the_rest_waits_its_turn():
    both = Both()
    both.server.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
    for stream in (1, 3, 5, 7):
        both.client.h2.send_headers(stream, POST)
        both.client.h2.send_data(stream, b"%d" % stream, end_stream=True)
    # The program had not heard when it asked.
    said = both.client.h2.data_to_send()
    both.act(both.machine.from_upstream(both.server.h2.data_to_send()))
    both.act(both.machine.from_client(said))
    both.settle()
    assert both.client.h2.remote_settings.max_concurrent_streams == 2
    assert sorted(both.server.fields) == [1, 3]
    both.client.h2.reset_stream(5, 8)
    both.settle()
    both.answer(1)
    assert sorted(both.server.fields) == [1, 3, 7] and both.server.body[7] == b"7"
    assert both.server.reset == {}


def test_goaway_is_passed_on_and_what_was_begun_goes_on():
    both = Both()
    for stream in (1, 3, 5):
        both.ask(stream)
    said = GoAwayFrame(0, last_stream_id=3, error_code=0).serialize()
    sent: list[bytes] = []
    for step in both.machine.from_upstream(said):
        assert isinstance(step, ToClient)
        sent.append(step.data)
    # The library takes GOAWAY for the end: the program reads the frames one by one.
    assert b"".join(sent) == RstStreamFrame(5, error_code=7).serialize() + GoAwayFrame(0, last_stream_id=3).serialize()
    both.answer(1)
    both.answer(3)
    assert both.client.body == {1: b"yes", 3: b"yes"}
    both.ask(7)
    assert both.client.reset == {7: 7} and 7 not in both.server.fields and not both.closed


def test_the_servers_end_is_every_unfinished_streams_end():
    both = Both(client={"initial_window_size": 2})
    both.client.acknowledges = False
    both.ask(1)
    both.ask(3)
    both.ask(5)
    both.answer(1, b"whole")
    both.answer(3, b"half", end=False)
    sent = b"".join(step.data for step in both.machine.from_upstream(b"") if isinstance(step, ToClient))
    resets = b"".join(RstStreamFrame(stream, error_code=2).serialize() for stream in (3, 5))
    assert sent == resets + GoAwayFrame(0, last_stream_id=5).serialize() and not both.closed
    both.client.h2.increment_flow_control_window(100, 1)
    both.settle()
    assert both.client.body[1] == b"whole" and both.closed


def test_a_ping_is_the_servers_to_answer():
    both = Both()
    both.client.h2.ping(b"12345678")
    both.settle()
    assert both.server.pings == [b"12345678"] and both.client.pings == [b"12345678"]


def test_where_there_is_no_server_the_first_request_is_told_so():
    both = Both(instead=unreachable("https://api.test", "no answer"))
    both.client.h2.send_headers(1, GET, end_stream=True)
    steps = list(both.machine.from_client(both.client.h2.data_to_send()))
    (sent,) = (step.data for step in steps if isinstance(step, ToClient))
    assert GoAwayFrame(0, last_stream_id=1).serialize() in sent and b'"reason": "no answer"' in sent
    assert isinstance(steps[-1], Closed) and not any(isinstance(step, ToUpstream) for step in steps)
    assert both.asked == []


def test_a_server_that_says_what_is_no_answer_ends_that_stream_alone():
    both = Both()
    for stream, fields in ((1, [(b":status", b"200"), (b"connection", b"close")]), (3, [(b":status", b"101")]),
                           (5, [(b":status", b"200"), (b":path", b"/")])):  # fmt: skip
        both.ask(stream)
        both.server.h2.send_headers(stream, fields)
        both.settle()
        assert both.client.reset[stream] == 1 == both.server.reset[stream]
    both.ask(7)
    both.answer(7)
    assert both.client.body == {7: b"yes"}


def test_a_server_that_speaks_no_http2_ends_the_connection():
    both = Both()
    both.ask(1)
    both.act(both.machine.from_upstream(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    assert both.closed and both.client.reset == {1: 2}

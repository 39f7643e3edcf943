"""One HTTP connection: each shape that two servers read in two ways is refused or written anew, beside its plain twin."""

from __future__ import annotations

from typing import Any

import pytest

from remit.egress.http import Asked, Closed, Exchange, Refused, Ruling, ToClient, ToUpstream
from remit.policy.decide import Decision

HOST = b"Host: web.test\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Said:
    """What came of feeding an exchange. `c` before bytes: from the client; `u`: from the server."""

    def __init__(self, *feeds: tuple[str, bytes], port: int = 80) -> None:
        self.asked: list[str] = []
        self.up, self.down, self.over = b"", b"", False
        self.machine = Exchange("web.test", port, "http", self._decide)
        for who, data in feeds:
            feed = self.machine.from_client if who == "c" else self.machine.from_upstream
            # In pieces as sockets give them.
            for at in range(0, max(len(data), 1), 16384):
                for step in feed(data[at : at + 16384]):
                    self._take(step)

    def _decide(self, request: Any) -> Ruling:
        self.asked.append(f"{request.method} {request.path}")
        decision = Decision("deny" if request.path.startswith("/no") else "allow", "network.allow[0]", "so")
        return Ruling(decision, 10 if request.path.startswith("/short") else None)

    def _take(self, step: Any) -> None:
        assert not self.over, "nothing comes after the end"
        match step:
            case ToUpstream(data):
                self.up += data
            case ToClient(data):
                self.down += data
            case Closed():
                self.over = True
            case Asked() | Refused():
                pass

    @property
    def status(self) -> int:
        return int(self.down.split()[1]) if self.down else 0


def post(headers: bytes, body: bytes = b"ok") -> bytes:
    return b"POST / HTTP/1.1\r\n" + HOST + headers + b"\r\n" + body


REFUSED = {
    "two lengths": post(b"Content-Length: 2\r\nContent-Length: 3\r\n"),
    "length and chunks": post(b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    "chunks and length": post(b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    "xchunked": post(b"Transfer-Encoding: xchunked\r\n"),
    "chunked twice": post(b"Transfer-Encoding: chunked, chunked\r\n"),
    "gzip, chunked": post(b"Transfer-Encoding: gzip, chunked\r\n"),
    "chunked, identity": post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
    "a space before the colon": post(b"Content-Length : 2\r\n"),
    "a tab before the colon": post(b"Transfer-Encoding\t: chunked\r\n"),
    "a folded header": post(b"X: a\r\n b\r\nContent-Length: 2\r\n"),
    "a negative length": post(b"Content-Length: -2\r\n"),
    "a length with a plus": post(b"Content-Length: +2\r\n"),
    "a length in hex": post(b"Content-Length: 0x2\r\n"),
    "a header without a name": post(b": x\r\n"),
    "NUL in a header": post(b"X: a\0b\r\n"),
    "CR in a header": post(b"X: a\rContent-Length: 2\r\n"),
    "two Hosts": b"GET / HTTP/1.1\r\n" + HOST + b"Host: evil.test\r\n\r\n",
    "the same Host twice": b"GET / HTTP/1.1\r\n" + HOST + HOST + b"\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "no Host, old": b"GET / HTTP/1.0\r\n\r\n",
    "another Host": GET.replace(b"web.test", b"evil.test"),
    "Host with another port": GET.replace(b"web.test", b"web.test:81"),
    "Host with user": GET.replace(b"web.test", b"web.test@evil.test"),
    "Host with a dot": GET.replace(b"web.test", b"web.test."),
    "Host percent-encoded": GET.replace(b"web.test", b"web%2etest"),
    "Host with a list": GET.replace(b"web.test", b"web.test, evil.test"),
    "absolute form, another": GET.replace(b"GET /", b"GET http://evil.test/"),
    "absolute form with user": GET.replace(b"GET /", b"GET http://web.test@evil.test/"),
    "absolute form with a query for a path": GET.replace(b"GET /", b"GET http://web.test?@evil.test/"),
    "absolute form, other scheme": GET.replace(b"GET /", b"GET https://web.test/"),
    "CONNECT": b"CONNECT evil.test:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": GET.replace(b"GET /", b"GET /a#/../b"),
    "no path": GET.replace(b"GET /", b"GET web"),
    "a space in the path": GET.replace(b"GET /", b"GET /a b"),
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a line before": b"\r\n" + GET,
    "a header of 100 KB": GET.replace(HOST, HOST + b"X: " + b"a" * 100_000 + b"\r\n"),
    "a path of 100 KB": GET.replace(b"GET /", b"GET /" + b"a" * 100_000),
    "never an end": b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 14_000,
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED)
def test_what_is_read_in_two_ways_reaches_nobody(request_):
    said = Said(("c", request_))
    assert (400 <= said.status < 600, said.up, said.over) == (True, b"", True)


PLAIN = {
    "a request": (GET, GET),
    "in capitals": (GET.replace(b"web.test", b"WEB.test"), GET.replace(b"web.test", b"WEB.test")),
    "Host with its port": (GET.replace(b"web.test", b"web.test:80"), GET.replace(b"web.test", b"web.test:80")),
    "absolute form": (GET.replace(b"GET /", b"GET http://web.test/"), GET),
    "bare line feeds": (GET.replace(b"\r", b""), GET),
    "one length twice": (post(b"Content-Length: 2\r\nContent-Length: 2\r\n"), post(b"Content-Length: 2\r\n")),
    "extensions of chunks": (
        post(b"Transfer-Encoding: chunked\r\n", b"2;a=b\r\nok\r\n0\r\n\r\n"),
        post(b"Transfer-Encoding: chunked\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    ),
    "HTTP/3.0 in words": (GET.replace(b"1.1", b"3.0"), GET),
    "HTTP/1.0": (GET.replace(b"1.1", b"1.0"), GET),
}


@pytest.mark.parametrize(("request_", "passed"), PLAIN.values(), ids=PLAIN)
def test_the_rest_is_written_anew(request_, passed):
    whole = Said(("c", request_))
    pieces = Said(*(("c", request_[i : i + 1]) for i in range(len(request_))))
    assert (whole.up, whole.status, whole.over) == (passed, 0, False)
    assert pieces.up.replace(b"1\r\no\r\n1\r\nk\r\n", b"2\r\nok\r\n") == passed


@pytest.mark.parametrize("size", [b"-1", b"0x2", b"2 3", b"fffffffffffffffffffff", b"zz", b""])
def test_bad_sizes_of_chunks_end_it(size):
    said = Said(("c", post(b"Transfer-Encoding: chunked\r\n", size + b"\r\nok\r\n0\r\n\r\n")))
    assert said.over
    assert b"ok" not in said.up


def test_each_request_of_a_connection_is_decided():
    said = Said(("c", GET + GET.replace(b"/ ", b"/no ")), ("u", OK))
    assert said.asked == ["GET /", "GET /no"]
    assert (said.up, said.over) == (GET, True)
    assert b"403 Forbidden" in said.down
    assert b'"rule": "network.allow[0]"' in said.down


def test_a_second_request_with_another_host_is_not_passed_on():
    said = Said(("c", GET + GET.replace(b"web.", b"evil.")), ("u", OK))
    assert (said.up, said.over) == (GET, True)
    assert b"400 Bad Request" in said.down


UPGRADE = GET.replace(
    b"\r\n\r\n", b"\r\nConnection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: %s\r\nHTTP2-Settings: AA\r\n\r\n"
)


@pytest.mark.parametrize("other", [b"h2c", b"websocket, h2c", b"TLS/1.0, HTTP/1.1", b"WebSocket2"])
def test_an_upgrade_to_what_nobody_would_decide_is_taken_out(other):
    said = Said(("c", UPGRADE.replace(b"%s", other)), ("u", OK), ("c", GET.replace(b"/ ", b"/no ")))
    assert said.up == GET.replace(b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n")
    assert said.asked == ["GET /", "GET /no"]


def test_a_switch_that_was_not_asked_for_ends_it():
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nmore"
    for asked in (GET, UPGRADE.replace(b"%s", b"h2c")):
        said = Said(("c", asked), ("u", switch), ("c", b"PRI * HTTP/2.0"))
        assert (said.down, said.over) == (b"", True)
        assert b"PRI" not in said.up


def test_websocket_is_carried_once_its_request_was_allowed():
    switch = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfrom"
    said = Said(("c", UPGRADE.replace(b"%s", b"websocket") + b"early"), ("u", switch), ("c", b"to"), ("u", b" there"))
    assert said.down.endswith(b"\r\n\r\nfrom there")
    assert said.up.endswith(b"\r\n\r\nearlyto")
    refused = Said(("c", UPGRADE.replace(b"%s", b"websocket").replace(b"/ ", b"/no ")))
    assert (refused.up, refused.status) == (b"", 403)


def test_a_client_that_has_said_all_still_gets_its_answer():
    said = Said(("c", GET), ("c", b""), ("u", OK))
    assert (said.status, said.over) == (200, True)
    assert said.down.endswith(b"ok")


def test_an_answer_before_the_end_of_the_question_does_not_stop_the_next():
    said = Said(("c", post(b"Content-Length: 4\r\n")), ("u", OK), ("c", b"ok"), ("c", GET), ("u", OK))
    assert said.asked == ["POST /", "GET /"]
    assert said.down.count(b"200 OK") == 2


ANSWERS = {
    "no HTTP": b"hello\r\n\r\n",
    "a status of two digits": b"HTTP/1.1 99 No\r\n\r\n",
    "a status of letters": b"HTTP/1.1 two OK\r\n\r\n",
    "headers of 100 KB": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "a bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "folded": b"HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_that_is_none_ends_it(answer):
    said = Said(("c", GET), ("u", answer))
    assert said.over
    assert b"hello" not in said.down


def test_a_cut_answer_is_seen_to_be_cut():
    said = Said(("c", GET), ("u", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), ("u", b""))
    assert said.over
    assert not said.down.endswith(b"0\r\n\r\n")


def test_an_answer_to_nothing_reaches_nobody():
    said = Said(("u", OK), ("c", GET))
    assert (said.down, said.up, said.over) == (b"", b"", True)
    assert Said(("u", b"")).over
    assert Said(("c", GET), ("u", b"")).over

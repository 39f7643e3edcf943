"""What an HTTP connection may not do whatever its rules say, without a network."""

from __future__ import annotations

from remit.egress.http import MOST_AHEAD, Closed, Exchange, Refused, Ruling, ToClient, ToUpstream
from remit.policy.decide import Decision

_YES = Ruling(Decision("allow", "network.allow[0]", ""))
_SHORT = Ruling(_YES.decision, 10)


def _machine(decide=lambda request: _YES):
    return Exchange("api.test", 443, "https", decide)


def _sent(steps, kind):
    return b"".join(step.data for step in steps if isinstance(step, kind))


def _request(*headers, line="GET /v1/a HTTP/1.1"):
    return ("\r\n".join([line, "Host: api.test", *headers]) + "\r\n\r\n").encode()


_UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABk")


def test_an_upgrade_to_http_2_is_not_passed_on_and_can_not_be_answered():
    machine = _machine()
    passed = _sent(machine.from_client(_request(*_UPGRADE, "Upgrade: h2c")), ToUpstream).lower()
    assert b"get /v1/a" in passed
    assert b"upgrade:" not in passed
    assert b"http2-settings:" not in passed
    steps = list(
        machine.from_upstream(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    )
    assert _sent(steps, ToClient) == b""
    assert Closed() in steps


def test_of_two_upgrades_none_is_passed_on():
    passed = _sent(_machine().from_client(_request(*_UPGRADE, "Upgrade: websocket, h2c")), ToUpstream).lower()
    assert b"upgrade:" not in passed


def test_what_a_websocket_says_before_and_with_the_answer_is_passed_on():
    machine = _machine()
    asked = _request("Connection: Upgrade", "Upgrade: websocket")
    assert b"Upgrade: websocket" in _sent(machine.from_client(asked + b"early"), ToUpstream)
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nfirst"
    steps = list(machine.from_upstream(answer))
    assert _sent(steps, ToClient).endswith(b"first")
    assert _sent(steps, ToUpstream) == b"early"
    assert _sent(machine.from_client(b"GET /v2 HTTP/1.1"), ToUpstream) == b"GET /v2 HTTP/1.1"


def test_asking_ahead_of_the_answer_is_bounded():
    machine = _machine()
    list(machine.from_client(_request()))
    steps = []
    for _ in range(MOST_AHEAD // 65536 + 1):
        steps += machine.from_client(b"x" * 65536)
    assert steps[-1] == Closed()
    assert b"400" in _sent(steps, ToClient)


def test_answers_that_nobody_asked_for_are_bounded():
    machine = _machine()
    list(machine.from_client(_request()))
    list(machine.from_upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"))
    steps = []
    for _ in range(MOST_AHEAD // 65536 + 2):
        steps += machine.from_upstream(b"x" * 65536)
    assert Closed() in steps


def test_host_with_the_usual_port_or_without_and_no_other():
    for host, fine in (("api.test", True), ("API.test:443", True), ("api.test:80", False), ("api.test.", False)):
        steps = _machine().from_client(f"GET /v1/a HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert bool(_sent(steps, ToUpstream)) is fine, host


def test_a_whole_url_is_held_to_scheme_and_host():
    for url, fine in (("https://api.test/v1", True), ("http://api.test/v1", False), ("https://other.test/v1", False)):
        steps = _machine().from_client(_request(line=f"GET {url} HTTP/1.1"))
        assert bool(_sent(steps, ToUpstream)) is fine, url


def test_what_is_asked_is_decided_by_its_headers_and_the_length_that_it_says():
    asked = []
    machine = _machine(lambda request: asked.append(request) or _YES)
    list(machine.from_client(_request("X-Tenant: acme", "Content-Length: 3", line="POST /v1 HTTP/1.1") + b"abc"))
    [request] = asked
    assert dict(request.headers) == {"host": "api.test", "x-tenant": "acme", "content-length": "3"}
    assert request.body == 3


def test_a_length_that_is_not_said_is_not_known_and_none_is_nothing():
    bodies = []
    decide = lambda request: bodies.append(request.body) or _YES  # noqa: E731
    list(_machine(decide).from_client(_request("Transfer-Encoding: chunked", line="POST /v1 HTTP/1.1")))
    list(_machine(decide).from_client(_request()))
    assert bodies == [None, 0]


def _chunked(*chunks: bytes) -> bytes:
    head = _request("Transfer-Encoding: chunked", line="POST /v1 HTTP/1.1")
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def test_a_body_in_chunks_is_cut_where_its_rule_ends_and_passes_up_to_there():
    fits = list(_machine(lambda _: _SHORT).from_client(_chunked(b"12345", b"67890")))
    assert b"67890" in _sent(fits, ToUpstream)
    assert not any(isinstance(step, Refused) for step in fits)
    machine = _machine(lambda _: _SHORT)
    over = list(machine.from_client(_chunked(b"12345", b"678901")))
    assert b"12345" in _sent(over, ToUpstream) and b"678901" not in _sent(over, ToUpstream)
    assert b" 413 " in _sent(over, ToClient)
    assert over[-1] == Closed() and Refused("the body is longer than its rule's max_body") in over


def test_the_next_request_may_carry_as_much_again():
    machine = _machine(lambda _: _SHORT)
    for _ in range(2):
        assert b"1234567890" in _sent(machine.from_client(_chunked(b"1234567890")), ToUpstream)
        list(machine.from_upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))


def test_a_websocket_says_no_more_than_a_body_might():
    answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    asked = _request("Connection: Upgrade", "Upgrade: websocket")
    for early, later in ((b"", b"12345678901"), (b"123456", b"78901"), (b"12345678901", b"x")):
        machine = _machine(lambda _: _SHORT)
        list(machine.from_client(asked + early))
        steps = list(machine.from_upstream(answer))
        if Closed() not in steps:
            steps = list(machine.from_client(later))
        assert Closed() in steps and b"1" not in _sent(steps, ToUpstream)
    machine = _machine(lambda _: _SHORT)
    list(machine.from_client(asked + b"12345"))
    assert _sent(machine.from_upstream(answer), ToUpstream) == b"12345"
    assert _sent(machine.from_client(b"67890"), ToUpstream) == b"67890"

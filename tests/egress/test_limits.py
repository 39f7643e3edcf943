"""What all connections may take together, and what one request may carry. Each refusal stands beside what is allowed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

import pytest

from tests.egress.conftest import Online, Raw, Web

pytestmark = [pytest.mark.kernel]

HERE = {"web.test": ["127.0.0.1"]}
MIB = 1024 * 1024


def allow(port: int, more: str = "") -> list[str]:
    return [f"{{host: web.test, ports: [{port}]{more}, allow_private: [127.0.0.0/8]}}"]


@pytest.fixture
def run(online: Online) -> Callable[..., object]:
    def go(port: int, code: str, network: str = "", rule: str = ""):
        return online([*allow(port, rule)], code, names=HERE, network=network)

    return go


def _post(port: int) -> str:
    return f"""
import http.client
def ask(method, body=None, headers={{}}, chunked=False):
    c = http.client.HTTPConnection('web.test', {port}, timeout=10)
    try:
        c.request(method, '/a', body=iter(body) if chunked else body, headers=headers, encode_chunked=chunked)
        r = c.getresponse()
        print(r.status, r.read().decode())
    except OSError as e: print('failed', type(e).__name__)
"""


def _said(out: str) -> list[tuple[str, dict]]:
    return [(line[:3], json.loads(line[4:]) if line[0] != "f" else {}) for line in out.splitlines() if line]


def test_a_request_carries_as_much_as_its_rule_allows(run, web: Web, online: Online):
    code = _post(web.port) + (
        "ask('POST', b'x' * 1024)\nask('POST', b'x' * 1025)\n"
        "ask('POST', [b'x' * 512] * 3, {'Transfer-Encoding': 'chunked'}, True)\nask('GET')\n"
    )
    held = run(web.port, code, rule=", max_body: 1KiB")
    said = _said(held.out)
    assert [status for status, _ in said] == ["200", "403", "413", "200"], held
    assert said[0][1]["body"] == "x" * 1024
    assert "1025 bytes is more than 1024" in said[1][1]["reason"]
    assert web.asked == ["POST /a", "POST /a", "GET /a"], "of the third no more than the beginning arrived"


def test_a_request_has_the_headers_that_its_rule_wants(run, web: Web):
    code = _post(web.port) + (
        "ask('GET', headers={'X-Tenant': 'acme'})\nask('GET', headers={'x-tenant': 'other'})\nask('GET')\n"
    )
    held = run(web.port, code, rule=", headers: {X-Tenant: acme}")
    said = _said(held.out)
    assert [status for status, _ in said] == ["200", "403", "403"], held
    assert "x-tenant is none of acme" in said[1][1]["reason"]
    assert "has x-tenant once, not 0 times" in said[2][1]["reason"]
    assert web.asked == ["GET /a"]


def _sender(port: int, size: int) -> str:
    # Not HTTP: bytes that nobody reads, by the native relay.
    return f"""
import socket
def send(size):
    s = socket.create_connection(('web.test', {port}), 10)
    try:
        s.sendall(b'\\x01' * size); s.shutdown(socket.SHUT_WR)
        while s.recv(65536): pass
        print('sent', size)
    except OSError as e: print('cut', type(e).__name__)
send({size})
"""


def test_what_leaves_is_counted_over_all_connections(run, raw: Callable[..., Raw], online: Online):
    server = raw()
    code = _sender(server.port, MIB // 2) + f"send({MIB // 4})\nsend({MIB // 2})\nsend(1)\n"
    held = run(server.port, code, network="limits: {up: 1MiB}")
    lines = held.out.splitlines()
    assert lines[:2] == [f"sent {MIB // 2}", f"sent {MIB // 4}"], held
    assert lines[2].startswith("cut") and lines[3].startswith("cut")
    assert sum(map(len, server.got)) <= MIB
    assert held.refused("may not leave")
    assert any(e.get("rule") == "network.limits.up" for e in online.egress())
    assert held.receipt["network"]["up_bytes"] >= MIB // 4 * 3


def test_several_at_once_share_what_is_left(run, raw: Callable[..., Raw]):
    server = raw()
    code = _sender(server.port, 1) + (
        "import threading\n"
        f"all = [threading.Thread(target=send, args=({MIB // 4},)) for _ in range(4)]\n"
        "[t.start() for t in all]; [t.join() for t in all]\n"
    )
    held = run(server.port, code, network="limits: {up: 2MiB}")
    assert held.out.count(f"sent {MIB // 4}") == 4, held
    assert sum(map(len, server.got)) == MIB + 1


def test_what_comes_in_is_counted_by_the_relay_and_by_the_reader_of_requests(run, raw: Callable[..., Raw], web: Web):
    def pour(connection: socket.socket) -> None:
        while True:
            connection.sendall(b"\x01" * 65536)

    server = raw(pour)
    code = (
        f"import socket\ns = socket.create_connection(('web.test', {server.port}), 10)\nn = 0\n"
        "try:\n    while d := s.recv(65536): n += len(d)\nexcept OSError: pass\nprint(n)\n"
    )
    held = run(server.port, code, network="limits: {down: 1MiB}")
    assert 0 < int(held.out) <= MIB, held
    assert held.refused("may not come in")
    plain = _post(web.port) + "for _ in range(40): ask('GET')\n"
    held = run(web.port, plain, network="limits: {down: 2KiB}", rule=", methods: [GET]")
    statuses = [line.split(" ", 1)[0] for line in held.out.splitlines()]
    assert statuses[0] == "200" and statuses[-1] in ("403", "failed"), held
    assert held.refused("may not come in")


def test_as_many_connections_at_once_as_the_remit_says(run, raw: Callable[..., Raw]):
    server = raw()
    code = f"""
import socket
held = []
def more():
    s = socket.create_connection(('web.test', {server.port}), 10)
    try:
        s.sendall(b'\\x01'); print('ok' if s.recv(10) else 'end'); held.append(s)
    except OSError: print('reset')
for _ in range(4): more()
held.pop().close()
import time; time.sleep(0.5)
more()
"""
    held = run(server.port, code, network="limits: {connections: 3}")
    assert held.out.split() == ["ok", "ok", "ok", "reset", "ok"], held
    assert held.refused("more than 3 connections at once")


def test_as_many_new_connections_in_a_second_as_the_remit_says(run, web: Web):
    code = _post(web.port) + "for _ in range(12): ask('GET')\nimport time; time.sleep(1.5)\nask('GET')\n"
    held = run(web.port, code, network="limits: {new_connections: 5}")
    statuses = [line.split(" ", 1)[0] for line in held.out.splitlines()]
    assert statuses[:5] == ["200"] * 5 and "failed" in statuses and statuses[-1] == "200", held
    assert held.refused("more than 5 new connections a second")


@pytest.mark.parametrize("carried", [True, False])
def test_a_connection_is_no_quicker_than_the_remit_says(run, raw: Callable[..., Raw], web: Web, carried):
    server = raw()
    body = 3 * 64 * 1024
    if carried:
        code = (
            "import time; began = time.monotonic()\n" + _sender(server.port, body) + "print(time.monotonic() - began)\n"
        )
        held = run(server.port, code, network="limits: {speed: 64KiB}")
        assert held.out.splitlines()[0] == f"sent {body}", held
    else:
        code = _post(web.port) + f"import time; began = time.monotonic()\nask('POST', b'x' * {body})\n"
        held = run(web.port, code + "print(time.monotonic() - began)\n", network="limits: {speed: 64KiB}")
        assert held.out.startswith("200"), held
    assert float(held.out.splitlines()[-1]) > 1.5, "the first second's worth goes at once"

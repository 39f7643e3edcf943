"""A network with no route but the broker. Each refusal stands beside what is allowed."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kernel]

HERE = {"web.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
_GET = """
import sys, urllib.error, urllib.request
for url in sys.argv[1:]:
    try: print(url, urllib.request.urlopen(url, timeout=10).read().decode())
    except urllib.error.HTTPError as e: print(url, e.code, e.read().decode())
    except OSError as e: print(url, 'failed', e)
"""


def _get(*urls: str) -> str:
    return f"import sys; sys.argv[1:] = {list(urls)!r}\n{_GET}"


def test_an_allowed_name_is_reached_and_another_is_not_resolved(online, web):
    port = web.port
    allow = [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    held = online(allow, _get(f"http://web.test:{port}/a", f"http://other.test:{port}/b"), names=HERE)
    reached, refused = held.out.splitlines()
    assert json.loads(reached.split(" ", 1)[1]) == {
        "method": "GET", "path": "/a", "host": f"web.test:{port}", "body": "",
    }  # fmt: skip
    assert "failed" in refused
    assert web.asked == ["GET /a"]
    assert held.refused("other.test is not granted")
    assert "refused: look up other.test" in held.err


def test_a_name_that_leads_to_a_private_address_is_reached_only_where_the_network_is_named(online, web):
    port = web.port
    allow = [f"{{host: web.test, ports: [{port}]}}"]
    held = online(allow, _get(f"http://web.test:{port}/a"), names=HERE)
    body = json.loads(held.out.split(" ", 2)[2])
    assert (body["rule"], web.asked) == ("network.allow", [])
    assert "127.0.0.1 is this host's" in body["reason"]
    assert held.refused("127.0.0.1 is this host's")


def test_a_port_that_is_not_listed_refuses_at_once(online, web):
    port = web.port
    code = (
        "import socket, time\nbegan = time.monotonic()\n"
        f"try: socket.create_connection(('web.test', {port}), 10); print('CONNECTED')\n"
        "except ConnectionRefusedError: print('refused', time.monotonic() - began < 1)\n"
    )
    held = online([f"{{host: web.test, ports: [{port + 1}]}}"], code, names=HERE)
    assert held.out == "refused True\n"
    assert held.refused(f"web.test is granted on port {port + 1} and not on {port}")


def test_an_address_that_no_rule_names_is_turned_away_with_words_or_a_reset(online, web):
    port = web.port
    code = (
        "import socket\n"
        f"s = socket.create_connection(('93.184.215.14', {port}), 10); s.sendall(b'GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "print(s.recv(4000).decode().splitlines()[0])\n"
        f"s = socket.create_connection(('93.184.215.14', {port}), 10); s.sendall(b'\\x00\\x01')\n"
        "try: print('ANSWERED', s.recv(100))\n"
        "except ConnectionResetError: print('reset')\n"
    )
    held = online([f"{{host: web.test, ports: [{port}]}}"], code, names=HERE)
    assert held.out == "HTTP/1.1 403 Forbidden\nreset\n", held
    assert held.refused("93.184.215.14")


def test_a_network_named_by_number_is_reached_by_number(online, web):
    port = web.port
    held = online([f"{{cidr: 127.0.0.2/31, ports: [{port}]}}"], _get(f"http://198.51.100.7:{port}/x"), names={})
    assert "403" in held.out
    code = (
        "import socket\n"
        f"s = socket.create_connection(('10.9.8.7', {port}), 10); s.sendall(b'x')\n"
        "try: print(s.recv(10))\nexcept ConnectionResetError: print('reset: nobody there')\n"
    )
    # Nobody answers at 10.9.8.7 here: that it was tried is what the rule is about.
    held = online([f"{{cidr: 10.0.0.0/8, ports: [{port}]}}"], code, names={}, timeout=90)
    assert any(e["action"] == "connect" and e["verdict"] == "allow" for e in online.egress())


def test_methods_and_paths_are_held_request_by_request(online, web):
    port = web.port
    allow = [
        f"{{host: web.test, ports: [{port}], methods: [GET], paths: ['/v1/**']}}",
        f"{{cidr: 127.0.0.0/8, ports: [{port}]}}",
    ]
    code = (
        "import http.client\n"
        f"c = http.client.HTTPConnection('web.test', {port}, timeout=10)\n"
        "c.request('GET', '/v1/a'); r = c.getresponse(); print(r.status); r.read()\n"
        "c.request('GET', '/v1/b?q=1'); r = c.getresponse(); print(r.status); r.read()\n"
        "c.request('DELETE', '/v1/a'); r = c.getresponse(); print(r.status, r.read().decode())\n"
        f"c = http.client.HTTPConnection('web.test', {port}, timeout=10)\n"
        "c.request('GET', '/v1/../admin'); r = c.getresponse(); print(r.status)\n"
    )
    held = online(allow, code, names=HERE)
    lines = [line for line in held.out.splitlines() if line]
    assert lines[:2] == ["200", "200"], held
    assert lines[2].startswith("403 ")
    assert "DELETE is not among GET" in lines[2]
    assert lines[3] == "403"
    assert web.asked == ["GET /v1/a", "GET /v1/b?q=1"]


def test_another_host_on_an_allowed_connection_is_refused(online, web):
    port = web.port
    allow = [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    code = (
        "import http.client\n"
        "for host in ('web.test', 'other.test', 'web.test.', 'WEB.test'):\n"
        f"  c = http.client.HTTPConnection('web.test', {port}, timeout=10)\n"
        f"  c.request('GET', '/', headers={{'Host': host + ':{port}'}}); print(c.getresponse().status)\n"
    )
    held = online(allow, code, names=HERE)
    assert held.out.split() == ["200", "400", "400", "200"], held


@pytest.mark.parametrize("kind", ["TXT", "SRV", "HTTPS", "MX", "PTR", "ANY", "A of a long label"])
def test_only_addresses_are_answered_and_nothing_leaves(online, kind):
    number = {"TXT": 16, "SRV": 33, "HTTPS": 65, "MX": 15, "PTR": 12, "ANY": 255}.get(kind, 1)
    label = "a" * 50 if number == 1 else "x"
    code = f"""
import socket, struct
def ask(name, kind):
    q = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + b''.join(bytes([len(p)]) + p.encode() for p in name.split('.')) + b'\\0'
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('198.18.0.1', 53))
    s.send(q + struct.pack('!2H', kind, 1)); answer = s.recv(512)
    return answer[3] & 15, struct.unpack('!H', answer[6:8])[0]
print(ask('x.web.test', 1), ask('{label}.web.test', {number}), ask('x.web.test', 28))
"""
    held = online(["{host: '*.web.test', ports: [443]}"], code, names={})
    assert held.out == "(0, 1) (5, 0) (0, 0)\n", held


def test_the_sandbox_still_has_a_loopback_of_its_own(online):
    code = (
        "import socket, threading\n"
        "l = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(l.getsockname()); l.accept(); print('own')\n"
    )
    assert online(["{host: web.test, ports: [443]}"], code, names=HERE).out == "own\n"


def test_bytes_that_are_no_http_pass_unread_to_an_allowed_host(online):
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    import threading

    def speak_first() -> None:
        connection, _ = server.accept()
        connection.sendall(b"220 ready\n")
        connection.sendall(connection.recv(100).upper())
        connection.close()

    thread = threading.Thread(target=speak_first, daemon=True)
    thread.start()
    allow = [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    code = (
        f"import socket\ns = socket.create_connection(('web.test', {port}), 10)\n"
        "print(s.recv(100)); s.sendall(b'\\x01hello'); print(s.recv(100), s.recv(1))\n"
    )
    held = online(allow, code, names=HERE)
    assert held.out == "b'220 ready\\n'\nb'\\x01HELLO' b''\n", held
    server.close()


def test_how_much_passed_unread_is_said_when_it_ends(online, raw):
    server = raw()
    code = (
        f"import socket\ns = socket.create_connection(('web.test', {server.port}), 10)\n"
        "s.sendall(b'\\0' + b'x' * 99); print(s.recv(100)); s.shutdown(socket.SHUT_WR); print(s.recv(1))\n"
    )
    held = online(server.allow, code, names=HERE)
    assert held.out == "b'got it\\n'\nb''\n", held
    (closed,) = [event for event in online.egress() if event["action"] == "closed"]
    assert closed == {
        "event": "egress", "action": "closed", "host": "web.test", "port": server.port, "up": 100, "down": 7,
    }  # fmt: skip


def test_a_relay_that_is_lost_resets_what_it_carried_and_another_takes_the_next(online, raw):
    def speak(connection: socket.socket) -> None:
        if connection.recv(1) == b"\0":
            kill_relay()
            connection.recv(1)
        else:
            connection.sendall(b"by another")

    def kill_relay() -> None:
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else []
                theirs = words and os.readlink(f"/proc/{_parent(entry)}/cwd") == str(online.folder)
            except OSError:
                continue
            if theirs and words[1:2] == [b"relay"]:
                os.kill(int(entry.name), signal.SIGKILL)

    server = raw(speak)
    code = (
        "import socket\n"
        f"def say(word):\n    s = socket.create_connection(('web.test', {server.port}), 10); s.sendall(word)\n"
        "    try: return s.recv(100)\n    except ConnectionResetError: return 'reset'\n"
        "print(say(b'\\0'), say(b'\\1'))\n"
    )
    held = online(server.allow, code, names=HERE)
    assert held.out == "reset b'by another'\n", held


def _parent(process: Path) -> str:
    return (process / "stat").read_text().rpartition(")")[2].split()[1]

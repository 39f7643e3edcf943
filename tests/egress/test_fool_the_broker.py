"""A program that tries to get past the broker, to wear it out or to take it along. Each refusal stands beside what is
allowed."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.unit.egress.test_addresses import SPECIAL

pytestmark = [pytest.mark.kernel]

HERE = {"web.test": ["127.0.0.1"], "other.test": ["127.0.0.1"]}
_TALK = """
import socket, ssl, struct, sys, time
def hello(name):
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    o = ssl.MemoryBIO(); s = c.wrap_bio(ssl.MemoryBIO(), o, server_hostname=name)
    try: s.do_handshake()
    except ssl.SSLWantReadError: pass
    return o.read()
def say(*pieces, to='web.test', port=PORT, wait=6):
    s = socket.create_connection((to, port), 10); s.settimeout(wait)
    try:
        for p in pieces:
            if isinstance(p, (int, float)): time.sleep(p)
            else: s.sendall(p)
        return s.recv(65536)
    except ConnectionError: return 'reset'
    except TimeoutError: return 'timeout'
"""


def talk(port: int, code: str) -> str:
    return _TALK.replace("PORT", str(port)) + code


# -- where names lead


def test_a_name_is_resolved_anew_and_every_address_is_judged_each_time(online, web):
    port = web.port
    names = {"web.test": [["127.0.0.1"], ["10.1.2.3"], ["169.254.169.254", "127.0.0.1"], ["127.0.0.1"]]}
    code = talk(
        port,
        "for p in 'abcd': print(say(f'GET /{p} HTTP/1.1\\r\\nHost: web.test:PORT\\r\\n\\r\\n'.encode()).split()[1].decode())".replace(
            "PORT", str(port)
        ),
    )
    held = online(
        [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"], code, names=names
    )
    assert held.out.split() == ["200", "403", "200", "200"], held
    assert web.asked == ["GET /a", "GET /c", "GET /d"]
    assert {e.get("address") for e in online.egress() if e["action"] == "connect" and e["verdict"] == "allow"} == {
        "127.0.0.1"
    }


def test_names_that_lead_to_special_addresses_are_turned_away(online, web):
    port = web.port
    numbers = {f"n{i}.web.test": [address] for i, address in enumerate(SPECIAL) if address != "127.0.0.1"}
    code = talk(
        port,
        f"for n in {[*numbers, 'here.web.test']!r}:\n"
        f"  print(say(f'GET / HTTP/1.1\\r\\nHost: {{n}}:{port}\\r\\n\\r\\n'.encode(), to=n).split()[1].decode())\n",
    )
    allow = [
        f"{{host: '*.web.test', ports: [{port}]}}",
        f"{{cidr: 127.0.0.1/32, ports: [{port}]}}",
        f"{{cidr: 0.0.0.0/0, ports: [{port}]}}",
    ]
    held = online(allow, code, names={**numbers, "here.web.test": ["127.0.0.1"]})
    assert held.out.split() == ["403"] * len(numbers) + ["200"], held
    assert web.asked == ["GET /"]


def test_addresses_in_other_spellings_lead_nowhere(online, web):
    port = web.port
    spellings = ["0x7f.1", "0177.0.0.1", "2130706433", "127.1", "0", "[::ffff:127.0.0.1]", "127.0.0.1", "::1"]
    code = talk(
        port,
        "import urllib.request\n"
        f"for h in {spellings!r}:\n"
        f"  try: print(urllib.request.urlopen(f'http://{{h}}:{port}/', timeout=5).status)\n"
        "  except OSError as e: print(getattr(e, 'code', 'failed'))\n"
        f"print(urllib.request.urlopen('http://web.test:{port}/', timeout=5).status)\n",
    )
    held = online(
        [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.1/32, ports: [{port + 1}, {port}]}}"],
        code,
        names=HERE,
    )
    # Those that the C library reads as 127.0.0.1 are the sandbox's own loopback, where the broker says so.
    assert set(held.out.split()[:-1]) <= {"403", "failed"}, held
    assert held.out.split()[-1] == "200"
    assert web.asked == ["GET /"]


def test_a_redirect_leads_only_where_the_remit_does(online, raw):
    def redirect(connection: socket.socket) -> None:
        line = connection.recv(4000).split(b"\r\n")[0].decode()
        to = {"/other": f"http://other.test:{server.port}/", "/meta": f"http://169.254.169.254:{server.port}/latest",
              "/number": f"http://2130706433:{server.port}/", "/own": f"http://web.test:{server.port}/end"}.get(line.split()[1])  # fmt: skip
        said = f"HTTP/1.1 302 Found\r\nLocation: {to}\r\n" if to else "HTTP/1.1 200 OK\r\n"
        connection.sendall((said + "Content-Length: 0\r\nConnection: close\r\n\r\n").encode())

    server = raw(redirect)
    code = (
        "import urllib.request\nfor p in ('other', 'meta', 'number', 'own'):\n"
        f"  try: print(urllib.request.urlopen('http://web.test:{server.port}/' + p, timeout=8).url)\n"
        "  except OSError as e: print(getattr(e, 'code', 'failed'))\n"
    )
    held = online(server.allow, code, names=HERE)
    # The number is 127.0.0.1: the sandbox's own loopback, where nothing listens.
    assert held.out.split() == ["failed", "403", "failed", f"http://web.test:{server.port}/end"], held
    assert held.refused("other.test is not granted")
    assert held.refused("169.254.169.254")


# -- what is said on a connection


def test_tls_is_held_to_its_name_however_it_is_said(online, raw):
    server = raw()
    cases = {
        "hello('web.test')": True,
        "hello('WEB.test')": True,
        "hello(None)": True,
        "b''.join(hello('web.test')[:3] + b'\\0\\1' + bytes([b]) for b in hello('web.test')[5:])": True,
        "hello('web.test')[:9], .5, hello('web.test')[9:]": None,
        ".5, hello('web.test')": True,
        "hello('evil.test')": False,
        "hello('web.test').replace(b'web.test', b'web.tes.')": False,
        "hello('web.test').replace(b'web.test', b'web\\0test')": False,
        "hello('web.test').replace(b'web.test', b'w\\xc3\\xa9b.tst')": False,
        "b''.join(hello('evil.test')[:3] + b'\\0\\1' + bytes([b]) for b in hello('evil.test')[5:])": False,
        "hello('evil.test')[:1], .5, hello('evil.test')[1:]": False,
        "hello('evil.test')[:99], .5, hello('evil.test')[99:]": False,
        ".5, hello('evil.test')": False,
        ".5, hello('evil.test')[:1], .2, hello('evil.test')[1:]": False,
        "b'\\x16\\x03\\x01\\0\\5hello'": False,
        "b'\\x16\\x03\\x01\\x40\\0' + bytes(80000)": False,
    }
    lines = "".join(f"print(say({case}))\n" for case in cases)
    # One and the same hello, since each has its own random.
    code = talk(server.port, "import functools; hello = functools.cache(hello)\n" + lines)
    held = online(server.allow, code, names=HERE, timeout=90)
    said = held.out.splitlines()
    wanted = ["'reset'" if allowed is False else "b'got it\\n'" for allowed in cases.values()]
    assert [line if line[0] == "b" else f"'{line}'" for line in said] == wanted, dict(zip(cases, said, strict=True))
    assert not any(b"evil" in got or b"web.tes." in got for got in server.got)
    assert held.refused("TLS asks for evil.test on a connection to web.test")
    assert "Traceback" not in held.err
    assert "ignored" not in held.err


def test_http_is_held_to_its_name_however_late_or_oddly_it_begins(online, raw):
    server = raw()
    cases = {
        "GET": False, "G', .5, 'ET": False, "', .5, 'GET": False, "', .5, 'G', .2, 'ET": False, "\\r\\n\\r\\nGET": False,
        "get": False, "X": False, "VERSION-CONTROL-LONG": False,
    }  # fmt: skip
    code = "import builtins\n"
    for case in cases:
        request = f"'{case} / HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n'"
        code += f"print(say(*[p if not isinstance(p, str) else p.encode() for p in ({request},)]))\n"
    code += f"print(say(b'hello\\n'), say(.5, b'hello\\n'), say(b'GET / HTTP/1.1\\r\\nHost: web.test:{server.port}\\r\\n\\r\\n', wait=1))\n"
    held = online(server.allow, talk(server.port, code), names=HERE, timeout=90)
    *refused, plain = held.out.splitlines()
    assert all(line.startswith(("b'HTTP/1.1 4", "reset")) for line in refused), held
    assert plain.startswith(r"b'got it\n' b'got it\n'"), held
    assert not any(b"evil" in got for got in server.got)
    assert any(got.startswith(b"GET / HTTP/1.1\r\n") for got in server.got)


def test_what_can_not_be_read_is_refused_where_requests_are_decided(online, web):
    port = web.port
    allow = [f"{{host: web.test, ports: [{port}], methods: [GET]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    get = f"GET / HTTP/1.1\\r\\nHost: web.test:{port}\\r\\n"
    code = talk(
        port,
        f"print(say(b'{get}\\r\\n')[:12])\n"
        f"print(say(b'{get}Connection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\nHTTP2-Settings: AA\\r\\n\\r\\n')[:12])\n"
        "print(say(hello('web.test'))[:3], say(b'\\0\\1'), say(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n')[:12], say(b'GET /\\r\\n'))\n"
        f"s = socket.create_connection(('web.test', {port})); s.sendall(b'{get}\\r\\n{get}\\r\\n'.replace(b'GET', b'GET', 1) + b'DELETE / HTTP/1.1\\r\\nHost: web.test:{port}\\r\\n\\r\\n')\n"
        "s.settimeout(5); got = b''\nwhile d := s.recv(9999): got += d\n"
        "print(got.count(b'HTTP/1.1 200'), got.count(b'HTTP/1.1 403'))\n",
    )
    held = online(allow, code, names=HERE)
    assert held.out.splitlines() == [
        "b'HTTP/1.1 200'", "b'HTTP/1.1 200'", r"b'\x16\x03\x03' reset b'HTTP/1.1 400' reset", "2 1",
    ], held  # fmt: skip
    assert set(web.asked) == {"GET /"}


def test_a_refusal_reaches_a_client_that_is_still_sending(online, web):
    port = web.port
    allow = [f"{{host: web.test, ports: [{port}], methods: [GET]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    code = (
        "import http.client\n"
        f"c = http.client.HTTPConnection('web.test', {port}, timeout=20)\n"
        "c.request('POST', '/', b'x' * 8_000_000); r = c.getresponse(); print(r.status, b'POST is not among GET' in r.read())\n"
        f"import socket; s = socket.create_connection(('web.test', {port})); s.sendall(b'GET /half HTTP/1.1\\r\\nHost: web.test:{port}\\r\\n\\r\\n')\n"
        "s.shutdown(socket.SHUT_WR); print(s.recv(9999)[:12])\n"
    )
    held = online(allow, code, names=HERE)
    assert held.out.splitlines() == ["403 True", "b'HTTP/1.1 200'"], held
    assert web.asked == ["GET /half"]


def test_answers_that_are_none_end_the_connection_and_nothing_else(online, raw):
    answers = {
        "/plain": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "/garbage": b"\0\1\2 no answer\r\n\r\n",
        "/status": b"HTTP/1.1 9999 Much\r\n\r\n",
        "/large": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        "/chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffffffffff\r\nab",
        "/switch": b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "/reset": None,
    }

    def speak(connection: socket.socket) -> None:
        said = answers[connection.recv(4000).split()[1].decode()]
        if said is None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.sendall(said)
            connection.recv(10)

    server = raw(speak)
    code = talk(
        server.port,
        f"for p in {list(answers)!r}:\n"
        f"  got = say(f'GET {{p}} HTTP/1.1\\r\\nHost: web.test:{server.port}\\r\\n\\r\\n'.encode())\n"
        "  print(p, 'whole' if got[-2:] == b'ok' else 'cut' if got[-2:] != b'\\0\\n' and got != 'timeout' else got)\n",
    )
    held = online(server.allow, code, names=HERE)
    assert held.out.split() == ["/plain", "whole", *(w for p in [*answers][1:] for w in (p, "cut"))], held
    assert "Traceback" not in held.err
    assert "never retrieved" not in held.err


# -- what the network inside consists of


def test_messages_that_are_no_questions_leave_names_working(online):
    code = """
import os, socket, struct
plain = struct.pack('!6H', 7, 0x100, 1, 0, 0, 0) + b'\\3web\\4test\\0' + struct.pack('!2H', 1, 1)
odd = [b'', b'x', bytes(12), plain[:20], plain[:2] + b'\\x81\\x80' + plain[4:], plain[:2] + b'\\x28\\0' + plain[4:],
       plain[:12] + b'\\xc0\\x0c\\0\\1\\0\\1', plain[:4] + b'\\0\\2' + plain[6:] + plain[12:], plain[:-2] + b'\\0\\3',
       plain[:-4] + b'\\0\\xfc\\0\\1', plain + bytes(4000), os.urandom(500), b'\\xff' * 60000]
def lookup():
    try: return socket.gethostbyname('web.test')
    except OSError as e: return e
for message in odd:
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('198.18.0.1', 53)); u.settimeout(.1)
    u.send(message)
    try: answer = u.recv(9999); assert answer[2] & 0x80 and not struct.unpack('!H', answer[6:8])[0], message
    except TimeoutError: pass
for stream in (b'\\0\\0', b'\\xff\\xff', b'\\xff\\xff' + plain, *(struct.pack('!H', len(m)) + m for m in odd)):
    t = socket.create_connection(('198.18.0.1', 53)); t.settimeout(.1); t.sendall(stream)
    try: t.recv(9999)
    except OSError: pass
t = socket.create_connection(('198.18.0.1', 53)); t.settimeout(5)
for b in struct.pack('!H', len(plain)) + plain: t.sendall(bytes([b]))
print(lookup(), t.recv(999)[-4:])
# A flood of questions crowds out the program's own, while it lasts.
if (a := os.fork()) == 0:
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect(('198.18.0.1', 53))
    import time; end = time.monotonic() + 1
    while time.monotonic() < end:
        try: u.send(plain)
        except OSError: pass
    os._exit(0)
os.waitpid(a, 0)
# What it left in the queue crowds out the first question, too.
print([lookup(), lookup()][1])
"""
    held = online(["{host: web.test, ports: [443]}"], code, names=HERE)
    assert held.out == "198.18.1.0 b'\\xc6\\x12\\x01\\x00'\n198.18.1.0\n", held
    assert not any(e["action"] == "fault" for e in online.egress())
    assert "Traceback" not in held.err


INSIDE = {"REMIT_TEST_FIRST_OF_PROGRAMS": "70000"}
"""The broker's sockets inside, as for low ports. (Beside: test_topologies.py.)"""


def test_there_is_no_other_way_out(online, web):
    port = web.port
    code = talk(
        port,
        f"""
import errno
def err(make):
    try: make(); return 'WORKED'
    except OSError as e: return errno.errorcode[e.errno]
def udp(to, port, family=socket.AF_INET):
    u = socket.socket(family, socket.SOCK_DGRAM); u.settimeout(3); u.connect((to, port)); u.send(b'x'); u.recv(10)
print('udp', err(lambda: udp('8.8.8.8', 53)), err(lambda: udp('198.18.0.1', 123)), err(lambda: udp('8.8.8.8', {port})))
print('ipv6', err(lambda: socket.create_connection(('2606:4700::1111', {port}), 3)), err(lambda: udp('2606:4700::1111', 53, socket.AF_INET6)),
      err(lambda: socket.create_connection(('fe80::1', {port}), 3)), err(lambda: socket.create_connection(('::1', {port}), 3)))
print('icmp', err(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)) != 'WORKED',
      err(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)) != 'WORKED',
      err(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)) != 'WORKED')
print('other port', err(lambda: socket.create_connection(('8.8.8.8', {port + 1}), 3)))
get = b'GET / HTTP/1.1\\r\\nHost: web.test:{port}\\r\\n\\r\\n'
print('never given', [say(get, to=a)[:12] for a in ('198.18.7.7', '198.19.255.255', '198.18.0.1', '127.0.0.1', '127.9.9.9', '0.0.0.0', '198.18.1.0')])
print('given', say(get)[:12], say(get, to='198.18.1.0')[:12])
""",
    )
    held = online(
        [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"],
        code,
        names=HERE,
        env=INSIDE,
    )
    assert held.out.splitlines() == [
        "udp ECONNREFUSED ECONNREFUSED ECONNREFUSED",
        "ipv6 ENETUNREACH ENETUNREACH EINVAL ECONNREFUSED",
        "icmp True True True",
        "other port ECONNREFUSED",
        "never given " + str([b"HTTP/1.1 403"] * 7),
        "given b'HTTP/1.1 200' b'HTTP/1.1 200'",
    ], held
    assert held.refused("stands for no name that was asked for here")


def test_ports_that_the_broker_serves_are_the_brokers_and_all_others_the_programs(online, web):
    port = web.port
    code = f"""
import errno, socket, threading
def listen(family, at, port):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError: pass
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, at == '::1')
    try: s.bind((at, port)); s.listen(); return s
    except OSError as e: return errno.errorcode[e.errno]
print([listen(socket.AF_INET, at, {port}) for at in ('127.0.0.1', '0.0.0.0', '198.18.0.1', '198.18.1.0', '8.8.8.8')], listen(socket.AF_INET6, '::', {port}))
six = listen(socket.AF_INET6, '::1', {port}); socket.create_connection(six.getsockname()[:2], 3); print('ipv6 loopback is its own')
own = listen(socket.AF_INET, '0.0.0.0', {port + 1})
socket.create_connection(('127.0.0.1', {port + 1}), 3); socket.create_connection(('8.8.8.8', {port + 1}), 3); print('so are other ports')
import urllib.request; print(urllib.request.urlopen('http://web.test:{port}/', timeout=5).status)
"""
    held = online(
        [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"],
        code,
        names=HERE,
        env=INSIDE,
    )
    assert held.out.splitlines() == [
        str(["EADDRINUSE"] * 5) + " EADDRINUSE", "ipv6 loopback is its own", "so are other ports", "200",
    ], held  # fmt: skip


def test_as_many_ports_as_can_be_served(online, web):
    ports = [web.port, *(p for p in range(20_000, 20_060) if p != web.port)][:60]
    code = (
        f"import socket, urllib.request\nprint(urllib.request.urlopen('http://web.test:{web.port}/', timeout=5).status)\n"
        f"for port in {ports[1:]}: socket.create_connection(('web.test', port), 5).close()\nprint('all')\n"
    )
    held = online([f"{{host: web.test, ports: {ports}}}", f"{{cidr: 127.0.0.0/8, ports: {ports}}}"], code, names=HERE)
    assert held.out == "200\nall\n", held

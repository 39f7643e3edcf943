"""Where the broker's sockets are: inside, or in a namespace beside the sandbox's. To programs and to the broker it is the
same network; beside, all ports are the programs' own."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.conftest import Held
from tests.egress.conftest import Online, Raw, Web

pytestmark = [pytest.mark.kernel]

HERE = {"web.test": ["127.0.0.1"]}
INSIDE, BESIDE = "inside", "beside"


@pytest.fixture(params=[INSIDE, BESIDE])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(online: Online, place: str) -> Callable[..., Held]:
    def go(port: int, code: str, more: str = "") -> Held:
        # Ports of the tests are high; `inside` is chosen for low ones.
        env = {"REMIT_TEST_FIRST_OF_PROGRAMS": "70000"} if place == INSIDE else {}
        return online(
            [f"{{host: web.test, ports: [{port}], allow_private: [127.0.0.0/8]}}"], code, names=HERE, env=env, more=more
        )

    return go


def _listen(port: int) -> str:
    return f"""
import socket
def listen(at, family=socket.AF_INET):
    s = socket.socket(family); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try: s.bind((at, {port})); s.listen(); return s
    except OSError as e: return e.errno
"""


def test_the_allowed_server_is_reached_and_no_other_port_or_address(run, web: Web, place: str):
    code = f"""
import errno, socket, time, urllib.request
print(urllib.request.urlopen('http://web.test:{web.port}/a', timeout=10).read().decode())
def say(address, port, kind=socket.SOCK_STREAM):
    began = time.monotonic()
    s = socket.socket(socket.AF_INET, kind); s.settimeout(8)
    try: s.connect((address, port)); s.send(b'x'); s.recv(1); said = 'answered'
    except OSError as e: said = errno.errorcode.get(e.errno, str(e))
    print(said, time.monotonic() - began < 5)
web = socket.gethostbyname('web.test')
for at in (web, '1.2.3.4', '198.18.0.1', '198.18.0.2', '127.0.0.1'): say(at, {web.port + 1})
say('1.2.3.4', 99, socket.SOCK_DGRAM)
say('1.2.3.4', {web.port})
for at in ('224.0.0.1', '255.255.255.255'):
    try: say(at, {web.port})
    except OSError: pass
"""
    held = run(web.port, code)
    first, *rest = held.out.splitlines()
    assert json.loads(first)["path"] == "/a", held
    assert rest[:6] == ["ECONNREFUSED True"] * 6, held
    assert rest[6] == "ECONNRESET True"
    assert all(line.endswith("True") and not line.startswith("answered") for line in rest)
    assert web.asked == ["GET /a"]


def test_a_port_of_an_allowed_host_is_the_programs_own_where_the_sockets_are_beside(run, web: Web, place: str):
    code = _listen(web.port) + f"""
import http.client, threading
own = listen('127.0.0.1')
print('loopback', type(own).__name__)
everywhere = listen('0.0.0.0') if not isinstance(own, int) and own.close() is None else listen('0.0.0.0')
print('everywhere', type(everywhere).__name__)
if not isinstance(everywhere, int):
    threading.Thread(target=lambda: everywhere.accept()[0].sendall(b'mine'), daemon=True).start()
    print(socket.create_connection(('127.0.0.1', {web.port}), 5).recv(10))
c = http.client.HTTPConnection('web.test', {web.port}, timeout=10); c.request('GET', '/still'); print(c.getresponse().status)
"""  # fmt: skip
    held = run(web.port, code)
    if place == BESIDE:
        assert held.out.splitlines() == ["loopback socket", "everywhere socket", "b'mine'", "200"], held
    else:
        assert held.out.splitlines()[:2] == ["loopback int", "everywhere int"] and held.out.endswith("200\n"), held
    assert web.asked == ["GET /still"]


def test_nothing_of_the_network_can_be_changed_or_got_around(run, web: Web, place: str):
    """Each act is one that a process with rights could do; the twin is that the network works afterwards."""
    code = f"""
import errno, fcntl, os, socket, struct, urllib.request
def err(act):
    try: act(); return 'done'
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
link = 'net' if os.path.exists('/proc/net/dev') and 'net:' in open('/proc/net/dev').read() else 'lo'
s = socket.socket()
request = struct.pack('16sH14x', link.encode(), 0)
print('down', err(lambda: fcntl.ioctl(s, 0x8914, request)))
print('address', err(lambda: fcntl.ioctl(s, 0x8916, struct.pack('16sHH4s8x', link.encode(), socket.AF_INET, 0, bytes([10, 0, 0, 1])))))
print('raw', err(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)))
print('packet', err(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)))
def netlink():
    n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    n.bind((0, 0))
    # RTM_NEWROUTE: a default route by lo.
    body = struct.pack('BBBBBBBBI', 2, 0, 0, 0, 254, 3, 0, 1, 0) + struct.pack('HHI', 8, 4, 1)
    n.send(struct.pack('IHHII', 16 + len(body), 24, 0x505, 1, 0) + body)
    error = struct.unpack('i', n.recv(4096)[16:20])[0]
    if error: raise OSError(-error, '')
print('route', err(netlink))
print('six', err(lambda: socket.create_connection(('2001:db8::1', {web.port}), 3)), err(lambda: socket.create_connection(('fe80::1%' + link, {web.port}), 3)))
def spoof():
    u = socket.socket(); u.setsockopt(socket.IPPROTO_IP, 19, 1)
print('transparent', err(spoof))
def bind():
    u = socket.socket(); u.bind(('8.8.8.8', 0))
print('unshare', err(lambda: os.unshare(0x40000000)) if hasattr(os, 'unshare') else 'EPERM')
print(urllib.request.urlopen('http://web.test:{web.port}/after', timeout=10).status)
"""
    held = run(web.port, code)
    said = dict(line.split(" ", 1) for line in held.out.splitlines()[:-1])
    assert held.out.splitlines()[-1] == "200", held
    for act in ("down", "address", "raw", "packet", "route", "transparent", "unshare"):
        assert said[act] != "done", (act, held)
    assert "done" not in said["six"], held


def test_bytes_flow_both_ways_at_length(run, raw: Callable[..., Raw], place: str):
    def echo(connection) -> None:
        while data := connection.recv(65536):
            connection.sendall(data)

    server = raw(echo)
    code = f"""
import hashlib, os, socket, threading
s = socket.create_connection(('web.test', {server.port}), 20)
data = b'\\x01' + os.urandom(1 << 20) * 8
threading.Thread(target=lambda: (s.sendall(data), s.shutdown(socket.SHUT_WR)), daemon=True).start()
got = b''
while piece := s.recv(1 << 20): got += piece
print(got == data)
"""
    assert run(server.port, code).out == "True\n"


def test_low_ports_alone_need_nothing_beside(online: Online):
    """The plan says which; a program that is not privileged could not have those ports anyway."""
    from remit.plan.egress import network
    from remit.policy.model import NetworkRule, Remit

    low = network(Remit("a", network=(NetworkRule("web.test", "", (443,)),)))
    high = network(Remit("a", network=(NetworkRule("web.test", "", (443, 8443)),)))
    assert low is not None and low.own is None
    assert high is not None and high.own is not None and high.address == low.address

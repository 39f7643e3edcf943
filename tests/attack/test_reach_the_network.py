"""Goal: reach anything outside. Twin: the sandbox's own loopback works."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

pytestmark = pytest.mark.kernel


def test_no_address_can_be_reached_and_its_own_loopback_can(python):
    """A listener of the host on loopback is another loopback: the sandbox has a network namespace of its own."""
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    reached = threading.Event()

    def accept() -> None:
        try:
            server.accept()
            reached.set()
        except OSError:
            pass

    threading.Thread(target=accept, daemon=True).start()
    held = python(
        "import socket, sys, threading\n"
        f"for a in (('127.0.0.1',{port}),('169.254.169.254',80),('192.0.2.1',443),('::1',{port}),('2001:db8::1',443)):\n"
        " try: socket.create_connection(a, 2); print('REACHED', a)\n except OSError as e: print('refused')\n"
        "try: socket.getaddrinfo('example.com', 443); print('RESOLVED')\nexcept OSError: print('refused')\n"
        "s=socket.create_server(('127.0.0.1',0)); threading.Thread(target=lambda: s.accept()[0].sendall(b'hello')).start()\n"
        "print(socket.create_connection(s.getsockname()).recv(5))\n"
        "print('127.0.0.1' in {a[4][0] for a in socket.getaddrinfo('localhost', 1)})\n"
    )
    assert held.out.splitlines() == ["refused"] * 6 + ["b'hello'", "True"], held
    assert not reached.is_set()
    assert held.refused("169.254.169.254")
    server.close()


def test_unix_sockets_of_the_host_are_out_of_reach_and_own_ones_work(python, tmp_path):
    path = tmp_path / "s"
    by_path = socket.socket(socket.AF_UNIX)
    by_path.bind(str(path))
    by_path.listen()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0remit-test-abstract")
    abstract.listen()
    held = python(
        "import socket\n"
        f"for a in ({str(path)!r}, '\\0remit-test-abstract'):\n"
        " s=socket.socket(socket.AF_UNIX)\n"
        " try: s.connect(a); print('REACHED')\n except OSError: print('refused')\n"
        "for a in ('own', '\\0own'):\n"
        " l=socket.socket(socket.AF_UNIX); l.bind(a); l.listen(); c=socket.socket(socket.AF_UNIX); c.connect(a); print('own')\n"
    )
    assert held.out.split() == ["refused", "refused", "own", "own"], held


def _listeners() -> tuple[dict[str, socket.socket], dict[str, int]]:
    """Real listeners outside, of every kind, and their ports."""
    held: dict[str, socket.socket] = {}
    for name, family, kind, address in (
        ("tcp", socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1"),
        ("udp", socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1"),
        ("tcp6", socket.AF_INET6, socket.SOCK_STREAM, "::1"),
        ("udp6", socket.AF_INET6, socket.SOCK_DGRAM, "::1"),
    ):
        try:
            held[name] = socket.socket(family, kind)
            held[name].bind((address, 0))
        except OSError:
            held.pop(name).close()
            continue
        if kind == socket.SOCK_STREAM:
            held[name].listen()
        held[name].setblocking(False)
    return held, {name: s.getsockname()[1] for name, s in held.items()}


_SEND = """
import socket, sys
def to(name, port):
    family = socket.AF_INET6 if name.endswith("6") else socket.AF_INET
    address = ("::1" if name.endswith("6") else "127.0.0.1", port)
    kind = socket.SOCK_STREAM if name.startswith("tcp") else socket.SOCK_DGRAM
    s = socket.socket(family, kind); s.settimeout(1)
    if kind == socket.SOCK_STREAM:
        s.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT: data with the first packet
        s.connect(address); s.send(b"out")
    else:
        s.sendto(b"out", address); s.sendmsg([b"out"], [], 0, address); s.connect(address); s.send(b"out")
"""


def test_nothing_sent_by_any_protocol_arrives_outside_and_among_itself_it_does(python):
    """The addresses are the host's own: the same code outside reaches them, which is the twin."""
    held, ports = _listeners()
    if "udp" not in ports:
        pytest.fail("the host has no loopback")
    try:
        loop = f"for name, port in {ports!r}.items():\n try: to(name, port)\n except OSError: pass\n"
        subprocess.run([sys.executable, "-c", _SEND + loop], check=True)
        for name in ports:
            if name.startswith("udp"):
                assert [held[name].recv(9) for _ in range(3)] == [b"out"] * 3
            else:
                held[name].accept()[0].close()
        probe = (
            f"{_SEND}{loop}r=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); r.bind(('127.0.0.1', 0)); r.settimeout(2)\n"
            "to('udp', r.getsockname()[1]); print(r.recv(9))\n"
        )
        assert python(probe).out == "b'out'\n"
        for name, server in held.items():
            with pytest.raises(BlockingIOError):
                _ = server.recv(9) if name.startswith("udp") else server.accept()
    finally:
        for server in held.values():
            server.close()


def test_no_name_server_answers_and_no_route_leads_anywhere(python):
    held = python(
        "import socket, struct\n"
        "print(sorted(set(line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line)))\n"
        "query=struct.pack('>HHHHHH', 1, 256, 1, 0, 0, 0)+b'\\7example\\3com\\0'+struct.pack('>HH', 1, 1)\n"
        "for to in (('8.8.8.8', 53), ('127.0.0.53', 53), ('255.255.255.255', 67), ('224.0.0.251', 5353)):\n"
        " s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.2)\n"
        " try: s.setsockopt(1, 6, 1); s.sendto(query, to); s.recv(99); print('ANSWERED')\n except OSError: print('refused')\n"
        "print(len(open('/proc/net/route').readlines()), socket.gethostbyname('localhost'))\n"
    )
    lines = held.out.splitlines()
    # Kernels with tunnels built in make their fallback devices in every namespace; without a route they lead nowhere.
    assert "lo" in lines[0]
    assert lines[1:5] == ["refused"] * 4, held
    assert lines[5] == "1 127.0.0.1"

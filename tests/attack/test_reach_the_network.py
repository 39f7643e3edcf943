"""Goal: reach anything outside. Twin: the sandbox's own loopback works."""

from __future__ import annotations

import socket
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

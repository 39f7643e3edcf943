"""The native relay with its two ends: what the tests of it share."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from typing import Any

import pytest

from remit.sandbox import launcher

MIB = 1 << 20


class Relay:
    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = str(theirs.fileno())
        argv = [launcher.find(), "relay", "--control", number]
        self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()
        self.control.settimeout(20)
        self.ids = iter(range(1, 1 << 30))

    def send(self, packet: object, *sockets: socket.socket) -> None:
        data = packet if isinstance(packet, bytes) else json.dumps(packet).encode()
        socket.send_fds(self.control, [data], [s.fileno() for s in sockets])

    def relay(self, guest: socket.socket, upstream: socket.socket, **terms: Any) -> int:
        number = next(self.ids)
        limits = {
            "up_bytes": None,
            "down_bytes": None,
            "asks": False,
            "idle_ms": None,
            "bytes_per_second": None,
            **terms,
        }
        self.send({"command": "relay", "id": number, **limits}, guest, upstream)
        return number

    def event(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.control.recv(4096))
        return said

    def ended(self) -> dict[str, Any]:
        event = self.event()
        assert event.pop("event") == "ended"
        return event

    def connect(self, *, keep: bool = False, **terms: Any) -> tuple[int, socket.socket, socket.socket]:
        """A client and a server whose connection goes through the relay. `keep`: the broker's copies stay open."""
        client, guest = pair()
        upstream, server = pair()
        number = self.relay(guest, upstream, **terms)
        if keep:
            self.kept = (guest, upstream)
        else:
            guest.close()
            upstream.close()
        return number, client, server

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

    def close(self) -> None:
        self.control.close()
        try:
            assert self.process.wait(10) == 0, self.process.stderr.read()
        finally:
            self.process.kill()
            self.process.stderr.close()


LISTENER = socket.create_server(("127.0.0.1", 0), backlog=128)


def pair() -> tuple[socket.socket, socket.socket]:
    one = socket.create_connection(LISTENER.getsockname(), timeout=20)
    other = LISTENER.accept()[0]
    other.settimeout(20)
    return one, other


def read_all(sock: socket.socket) -> bytes:
    parts = []
    while part := sock.recv(MIB):
        parts.append(part)
    return b"".join(parts)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        assert part, "ended early"
        data += part
    return data


def read_until_reset(sock: socket.socket) -> bytes:
    parts = []
    with pytest.raises(ConnectionResetError):
        while part := sock.recv(MIB):
            parts.append(part)
        pytest.fail("an orderly end instead of a reset")
    return b"".join(parts)


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()

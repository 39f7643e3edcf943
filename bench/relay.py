"""The byte relay against a direct connection: bulk over loopback, a round trip of one byte, memory of a connection.

python bench/relay.py [--rounds N] [--mib N] [--connections N] [--json]

Direct and relayed alternate in one run, so that a noisy machine is noisy for both; quote ratios. The two sides are
processes of their own, so on two processors the relay, which makes three, has less than one to itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import time

from remit.sandbox import launcher

CHUNK = 256 * 1024
TERMS = {"up_bytes": None, "down_bytes": None, "idle_ms": None, "bytes_per_second": None}


class Relay:
    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [launcher.find(), "relay", "--control", str(theirs.fileno())]
        self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()])
        theirs.close()
        self.made = 0

    def connect(self) -> tuple[socket.socket, socket.socket]:
        client, guest = pair()
        upstream, server = pair()
        self.made += 1
        packet = json.dumps({"command": "relay", "id": self.made, **TERMS}).encode()
        socket.send_fds(self.control, [packet], [guest.fileno(), upstream.fileno()])
        guest.close()
        upstream.close()
        return client, server

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024

    def close(self) -> None:
        self.control.close()
        assert self.process.wait(10) == 0


LISTENER = socket.create_server(("127.0.0.1", 0), backlog=128)


def pair() -> tuple[socket.socket, socket.socket]:
    one = socket.create_connection(LISTENER.getsockname())
    return one, LISTENER.accept()[0]


def bulk(client: socket.socket, server: socket.socket, size: int) -> float:
    """MiB a second: one process writes, this one reads."""
    child = os.fork()
    if child == 0:
        server.close()
        block, left = bytes(CHUNK), size
        while left:
            left -= client.send(block[: min(left, CHUNK)])
        client.shutdown(socket.SHUT_WR)
        client.recv(1)
        os._exit(0)
    client.close()
    buffer, seen = bytearray(CHUNK), 0
    began = time.perf_counter()
    while n := server.recv_into(buffer):
        seen += n
    took = time.perf_counter() - began
    server.close()
    os.waitpid(child, 0)
    assert seen == size
    return size / took / (1 << 20)


def turns(client: socket.socket, server: socket.socket, count: int) -> float:
    """Microseconds from one byte to its echo, as a median."""
    child = os.fork()
    if child == 0:
        client.close()
        while byte := server.recv(1):
            server.send(byte)
        os._exit(0)
    server.close()
    for sock in (client,):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        client.send(b".")
        client.recv(1)
        times.append(time.perf_counter() - began)
    client.close()
    os.waitpid(child, 0)
    return statistics.median(times) * 1e6


def memory(relay: Relay, count: int) -> dict[str, float]:
    """Resident bytes of the relay for each connection: silent, and with both directions full and nobody reading."""
    for _ in range(3):
        bulk(*relay.connect(), 1 << 22)
    before = relay.resident()
    ends = [relay.connect() for _ in range(count)]
    for client, server in ends:
        client.sendall(b".")
        server.recv(1)
    idle = relay.resident() - before
    for connection in ends:
        for end in connection:
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                for _ in range(2):
                    end.send(bytes(64 * 1024))
    time.sleep(0.5)
    full = relay.resident() - before
    return {"connections": count, "idle bytes each": idle / count, "full bytes each": full / count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--mib", type=int, default=512, help="carried in each bulk round")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    relay = Relay()
    ways = {"direct": pair, "relayed": relay.connect}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    delays: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(given.rounds):
        for way, connect in ways.items():
            rates[way].append(bulk(*connect(), given.mib << 20))
        for way, connect in ways.items():
            delays[way].append(turns(*connect(), 2000))
    found = {
        "bulk, MiB/s": {way: statistics.median(values) for way, values in rates.items()},
        "bulk, relayed to direct": statistics.median(r / d for d, r in zip(*rates.values(), strict=True)),
        "round trip, us": {way: statistics.median(values) for way, values in delays.items()},
        "memory": memory(relay, given.connections),
    }
    relay.close()
    if given.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        print(f"{name + ':':26}" + ", ".join(f"{part} {number:.2f}".strip() for part, number in parts))


if __name__ == "__main__":
    main()

"""The relay with many connections, and with those that stall."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time

import pytest

from tests.kernel.relay import MIB, pair, read_all, read_exactly

pytestmark = pytest.mark.kernel


@pytest.fixture
def many_descriptors() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 5000:
        pytest.skip("too few descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def test_a_thousand_connections_at_once_cost_little(relay, many_descriptors):
    warm = relay.connect()
    warm[1].sendall(b"x")
    warm[2].recv(1)
    before = relay.resident()
    ends = [relay.connect() for _ in range(1000)]
    for _, client, server in ends:
        client.sendall(b"ping")
        assert read_exactly(server, 4) == b"ping"
    idle = relay.resident() - before
    # The worst: both directions full, and nobody reads.
    for _, client, server in ends:
        for end in (client, server):
            end.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                end.send(b"x" * 65536)
                end.send(b"x" * 65536)
    time.sleep(0.5)
    full = relay.resident() - before
    print(f"resident: idle {idle / 1000:.0f}, full {full / 1000:.0f} bytes a connection")
    assert idle < 1000 * 4096
    assert full < 1000 * 65536
    for _, client, server in ends:
        client.close()
        server.close()
    assert {relay.ended()["id"] for _ in ends} == {number for number, _, _ in ends}


def test_one_that_never_reads_stops_nobody_else(relay):
    _, client, server = relay.connect()
    client.setblocking(False)
    stuck_at = time.monotonic() + 0.5
    while time.monotonic() < stuck_at:
        with contextlib.suppress(BlockingIOError):
            client.send(b"x" * MIB)
    cpu = cpu_seconds(relay.process.pid)
    _, one, other = relay.connect()
    data = b"y" * (20 * MIB)
    thread = threading.Thread(target=one.sendall, args=[data])
    thread.start()
    assert read_exactly(other, len(data)) == data
    thread.join()
    time.sleep(0.5)
    settled = cpu_seconds(relay.process.pid)
    time.sleep(0.5)
    assert cpu_seconds(relay.process.pid) - settled < 0.05 and settled >= cpu
    server.close()


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_events_that_nobody_reads_stop_commands_and_never_the_bytes(relay):
    _, client, server = relay.connect()
    relay.control.settimeout(1)
    sent = 0
    with pytest.raises(TimeoutError):
        while True:
            guest, upstream = pair()
            relay.relay(guest, upstream, up_bytes=0, idle_ms=0)
            sent += 1
            guest.close()
            upstream.close()
            assert sent < 20_000
    for _ in range(100):
        client.sendall(b"still")
        assert read_exactly(server, 5) == b"still"
    relay.control.settimeout(20)
    assert len({relay.ended()["id"] for _ in range(sent)}) == sent


def test_urgent_data_are_data(relay):
    number, client, server = relay.connect()
    client.sendall(b"ab")
    client.send(b"c", socket.MSG_OOB)
    client.sendall(b"de")
    client.shutdown(socket.SHUT_WR)
    assert read_all(server) == b"abcde"
    server.close()
    assert relay.ended() == {"id": number, "up": 5, "down": 0, "reason": "closed"}


def test_the_relay_has_given_up_what_it_can(relay):
    _, client, server = relay.connect()
    client.sendall(b"x")
    assert server.recv(1) == b"x"
    with open(f"/proc/{relay.process.pid}/status") as status:
        facts = dict(line.rstrip("\n").split(":\t", 1) for line in status)
    assert facts["NoNewPrivs"] == "1" and facts["Seccomp"] == "2"
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == int(facts["CapInh"], 16) == 0

"""What a broker expects of `remit-launcher relay`: bytes carried between sockets that it connected, on the terms it gave."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

from remit.sandbox import launcher
from tests.kernel.relay import MIB, pair, read_all, read_exactly, read_until_reset, reset

pytestmark = pytest.mark.kernel


def test_an_echo_passes_both_ways_and_the_counts_are_exact(relay):
    number, client, server = relay.connect()
    for word in (b"x", b"hello", b"y" * 5000):
        client.sendall(word)
        assert read_exactly(server, len(word)) == word
        server.sendall(word * 2)
        assert read_exactly(client, len(word) * 2) == word * 2
    client.close()
    assert server.recv(1) == b""
    server.close()
    assert relay.ended() == {"id": number, "up": 5006, "down": 10012, "reason": "closed"}


@pytest.mark.parametrize("guest_first", [True, False])
def test_a_half_close_is_passed_on_and_the_other_direction_lives(relay, guest_first):
    number, client, server = relay.connect()
    first, second = (client, server) if guest_first else (server, client)
    first.sendall(b"the request")
    first.shutdown(socket.SHUT_WR)
    assert read_all(second) == b"the request"
    time.sleep(0.1)
    second.sendall(b"the answer")
    assert read_exactly(first, 10) == b"the answer"
    second.close()
    assert first.recv(1) == b""
    up, down = (11, 10) if guest_first else (10, 11)
    assert relay.ended() == {"id": number, "up": up, "down": down, "reason": "closed"}


def test_bulk_both_ways_at_once_arrives_whole(relay):
    size, block = 200 * MIB, os.urandom(MIB + 13)
    number, client, server = relay.connect()
    sent: dict[str, str] = {}
    seen: dict[str, str] = {}

    def write(name: str, sock: socket.socket) -> None:
        digest, left = hashlib.sha256(), size
        while left:
            piece = block[:left]
            sock.sendall(piece)
            digest.update(piece)
            left -= len(piece)
        sock.shutdown(socket.SHUT_WR)
        sent[name] = digest.hexdigest()

    def read(name: str, sock: socket.socket) -> None:
        digest = hashlib.sha256()
        while piece := sock.recv(MIB):
            digest.update(piece)
        seen[name] = digest.hexdigest()

    jobs = [(write, "up", client), (read, "up", server), (write, "down", server), (read, "down", client)]
    threads = [threading.Thread(target=job, args=rest, daemon=True) for job, *rest in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == sent and set(sent) == {"up", "down"}
    assert relay.ended() == {"id": number, "up": size, "down": size, "reason": "closed"}


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("guest", [True, False])
def test_a_reset_of_one_side_resets_the_other(relay, guest, keep):
    number, client, server = relay.connect(keep=keep)
    client.sendall(b"up")
    assert read_exactly(server, 2) == b"up"
    first, second = (client, server) if guest else (server, client)
    reset(first)
    assert read_until_reset(second) == b""
    assert relay.ended() == {"id": number, "up": 2, "down": 0, "reason": "reset"}


def test_an_answer_before_a_reset_still_arrives(relay):
    """A server that answers without reading all of the request resets the connection as it closes."""
    for _ in range(20):
        _, client, server = relay.connect()
        client.sendall(b"q" * 100)
        select.select([server], [], [], 10)
        server.sendall(b"a" * 30_000)
        server.close()
        assert read_until_reset(client) == b"a" * 30_000
        assert relay.ended()["reason"] == "reset"
        client.close()


def test_a_reset_is_passed_on_though_the_other_side_does_not_read(relay):
    number, client, server = relay.connect()
    client.settimeout(0.5)
    written = 0
    with contextlib.suppress(TimeoutError):
        while True:
            written += client.send(b"x" * MIB)
    reset(client)
    event = relay.ended()
    assert (event["id"], event["reason"]) == (number, "reset")
    assert len(read_until_reset(server)) <= event["up"] <= written


@pytest.mark.parametrize("cap", [0, 1, 1000, 16 * 1024, 300_000])
@pytest.mark.parametrize("up", [True, False])
def test_a_cap_is_never_exceeded_and_ends_both_sides(relay, cap, up):
    number, client, server = relay.connect(**{"up_bytes" if up else "down_bytes": cap})
    source, sink = (client, server) if up else (server, client)
    with contextlib.suppress(ConnectionError):
        source.sendall(b"z" * (cap + 1))
    # A reset drops what the receiver's window had no room for yet: less than the cap may arrive, never more.
    seen = len(read_until_reset(sink))
    assert seen == cap or (cap > 20_000 and seen < cap)
    assert read_until_reset(source) == b""
    event = relay.ended()
    assert event == {"id": number, "up": cap if up else 0, "down": 0 if up else cap, "reason": "cap"}


@pytest.mark.parametrize("up", [True, False])
def test_at_a_cap_more_is_asked_for_and_goes_on_from_there(relay, up):
    limits = {"up_bytes": 10, "down_bytes": 10, "asks": True}
    number, client, server = relay.connect(**limits)
    source, sink = (client, server) if up else (server, client)
    source.sendall(b"0123456789abcdef")
    assert read_exactly(sink, 10) == b"0123456789"
    assert relay.event() == {"event": "wants", "id": number, "up": up, "down": not up}
    sink.settimeout(0.3)
    with pytest.raises(TimeoutError):
        sink.recv(1)
    more = {"up_bytes": 4, "down_bytes": 0} if up else {"up_bytes": 0, "down_bytes": 4}
    relay.send({"command": "more", "id": number, **more})
    sink.settimeout(10)
    assert read_exactly(sink, 4) == b"abcd"
    assert relay.event()["event"] == "wants", "and once each time"
    relay.send({"command": "close", "id": number})
    read_until_reset(sink)
    moved = relay.ended()
    assert (moved["up"], moved["down"]) == ((14, 0) if up else (0, 14))


def test_an_end_at_the_cap_is_not_asked_about(relay):
    _, client, server = relay.connect(up_bytes=3, down_bytes=3, asks=True)
    client.sendall(b"abc")
    client.shutdown(socket.SHUT_WR)
    assert read_all(server) == b"abc"
    server.close()
    assert relay.ended()["reason"] == "closed"


def test_exactly_the_cap_is_no_excess(relay):
    number, client, server = relay.connect(up_bytes=70_000, down_bytes=0)
    client.sendall(b"z" * 70_000)
    client.shutdown(socket.SHUT_WR)
    assert len(read_all(server)) == 70_000
    server.close()
    assert client.recv(1) == b""
    assert relay.ended() == {"id": number, "up": 70_000, "down": 0, "reason": "closed"}


def test_idle_ends_a_silent_connection_and_bytes_of_either_direction_keep_it(relay):
    number, client, server = relay.connect(idle_ms=400)
    began = time.monotonic()
    for turn in range(6):
        time.sleep(0.15)
        one, other = (client, server) if turn % 2 else (server, client)
        one.sendall(b".")
        assert other.recv(1) == b"."
    last = time.monotonic()
    assert read_until_reset(client) == read_until_reset(server) == b""
    assert last - began > 0.8 and 0.35 < time.monotonic() - last < 2
    assert relay.ended() == {"id": number, "up": 3, "down": 3, "reason": "idle"}


def test_the_rate_holds_for_the_sum_of_both_directions(relay):
    rate, each = 2 * MIB, 2 * MIB
    number, client, server = relay.connect(bytes_per_second=rate, idle_ms=1000)
    began = time.monotonic()
    threads = []
    for sock in (client, server):
        threads.append(threading.Thread(target=lambda s=sock: (s.sendall(b"r" * each), s.shutdown(socket.SHUT_WR))))
        threads.append(threading.Thread(target=read_all, args=[sock]))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    took = time.monotonic() - began
    assert 2 * each / rate <= took + 0.01 < 2 * each / rate * 1.5
    assert relay.ended() == {"id": number, "up": each, "down": each, "reason": "closed"}


def test_what_the_rate_holds_up_is_not_idle(relay):
    number, client, server = relay.connect(bytes_per_second=5, idle_ms=100)
    client.sendall(b"12345")
    client.shutdown(socket.SHUT_WR)
    assert read_all(server) == b"12345"
    server.close()
    assert relay.ended() == {"id": number, "up": 5, "down": 0, "reason": "closed"}


@pytest.mark.parametrize("keep", [False, True])
def test_a_connection_is_closed_when_asked_and_its_number_is_free_again(relay, keep):
    number, client, server = relay.connect(keep=keep)
    _, other_client, other_server = relay.connect()
    client.sendall(b"abc")
    assert read_exactly(server, 3) == b"abc"
    relay.send({"command": "close", "id": number})
    assert relay.ended() == {"id": number, "up": 3, "down": 0, "reason": "asked"}
    assert read_until_reset(client) == read_until_reset(server) == b""
    relay.send({"command": "close", "id": number})
    relay.ids = iter([number])
    again, client, server = relay.connect()
    assert again == number
    for one, other in ((client, server), (other_client, other_server)):
        one.sendall(b"still")
        assert read_exactly(other, 5) == b"still"


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_the_end_of_the_broker_or_of_the_relay_resets_everything(relay, how):
    ends = [end for _ in range(5) for end in relay.connect()[1:]]
    relay.connect()[1].close()
    ends[0].sendall(b"x")
    assert ends[1].recv(1) == b"x"
    if how == "closed":
        relay.control.close()
        assert relay.process.wait(10) == 0
    else:
        relay.process.kill()
        relay.process.wait(10)
        relay.process.returncode = 0
    for end in ends:
        assert read_until_reset(end) == b""


def test_the_relay_dies_with_its_parent():
    code = (
        "import subprocess, socket, sys, os, time\n"
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "p = subprocess.Popen([sys.argv[1], 'relay', '--control', str(b.fileno())], pass_fds=[b.fileno()])\n"
        # Somebody else keeps the broker's end open, so that only the death of the parent tells.
        "k = subprocess.Popen(['sleep', '30'], pass_fds=[a.fileno()])\n"
        "time.sleep(0.3)\n"
        "print(p.pid, k.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.Popen(["python3", "-c", code, launcher.find()], stdout=subprocess.PIPE)
    relay_pid, keeper = map(int, done.stdout.readline().split())
    done.wait(10)
    done.stdout.close()
    try:
        deadline = time.monotonic() + 5
        while alive(relay_pid):
            assert time.monotonic() < deadline, "the relay outlived its parent"
            time.sleep(0.02)
    finally:
        os.kill(keeper, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


TERMS = {"up_bytes": None, "down_bytes": None, "asks": False, "idle_ms": None, "bytes_per_second": None}


@pytest.mark.parametrize(
    ("packet", "sockets"),
    [
        (b"nonsense", 0),
        (b"", 0),
        (b"{" + b" " * 5000 + b"}", 0),
        ({"command": "widen"}, 0),
        ({"command": "relay", "id": 1, **TERMS}, 2),
        ({"command": "relay", "id": 2, **TERMS}, 0),
        ({"command": "relay", "id": 2, **TERMS}, 1),
        ({"command": "relay", "id": 2, **TERMS}, 3),
        ({"command": "relay", "id": 2, **TERMS}, 9),
        ({"command": "relay", "id": 2, **TERMS, "also": 1}, 2),
        ({"command": "relay", "id": 2, "up_bytes": 5}, 2),
        ({"command": "relay", "id": 2, **TERMS, "bytes_per_second": 0}, 2),
        ({"command": "relay", "id": -2, **TERMS}, 2),
        ({"command": "close", "id": 1}, 1),
    ],
)
def test_a_packet_that_makes_no_sense_ends_everything(relay, packet, sockets):
    _, client, server = relay.connect()
    spare = [end for _ in range(5) for end in pair()]
    relay.send(packet, *spare[:sockets])
    assert read_until_reset(client) == read_until_reset(server) == b""
    assert relay.process.wait(10) == (0 if packet == b"" else 1)
    assert relay.ended() == {"id": 1, "up": 0, "down": 0, "reason": "asked"}
    relay.process.returncode = 0


def test_what_is_not_a_socket_ends_that_one_alone(relay):
    _, client, _server = relay.connect()
    with open("/dev/null") as null:
        number = relay.relay(client, null)
    assert relay.ended() == {"id": number, "up": 0, "down": 0, "reason": "reset"}
    assert relay.process.poll() is None

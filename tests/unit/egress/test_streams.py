"""A connection of HTTP/2 carried over real sockets. (What is said on it: test_http2.py.)"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from h2.settings import SettingCodes
from hyperframe.frame import SettingsFrame

from remit.egress import streams as module
from remit.egress.end import End
from remit.egress.exchange import unmetered
from remit.egress.flow import Windows
from remit.egress.http2 import Exchanges
from remit.egress.streams import streams
from tests.unit.egress.http2_peers import GET, POST, Peer, verdict

LARGEST = 2**31 - 1


class Pair:
    """A program and a server at the far ends of two pairs of sockets."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        near, self.program = socket.socketpair()
        far, self.server = socket.socketpair()
        for each in (near, self.program, far, self.server):
            each.setblocking(False)
        self.client, self.upstream = End(near), End(far)
        self.machine = Exchanges("api.test", 443, verdict)
        self.of_program, self.of_server = Peer(True), Peer(False)

    async def send(self, at: socket.socket, peer: Peer) -> None:
        await asyncio.get_running_loop().sock_sendall(at, peer.h2.data_to_send())

    async def hear(self, at: socket.socket, peer: Peer) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(at, 65536)
        peer.hear(data)
        await self.send(at, peer)
        return data

    def kept(self) -> int:
        """Bytes that wait in the broker."""
        ways = [way for stream in self.machine._streams.values() for way in (stream.up, stream.down)]
        return self.client.waiting + self.upstream.waiting + sum(len(piece) for way in ways for piece in way.pieces)


def carried(play: Callable[[Pair], Coroutine[Any, Any, None]], *, fails: bool = False) -> Pair:
    async def main() -> Pair:
        pair = Pair()
        work = asyncio.create_task(streams(pair.client, pair.upstream, pair.machine, pair.refused.append, unmetered))
        work.add_done_callback(lambda _: pair.client.sock.close())
        async with asyncio.timeout(60):
            await play(pair)
            pair.program.close()
            if fails:
                with pytest.raises(OSError, match="does not read"):
                    await work
            else:
                await work
        for each in (pair.server, pair.client.sock, pair.upstream.sock):
            each.close()
        return pair

    return asyncio.run(main())


def test_a_request_is_carried_and_the_programs_end_is_the_servers():
    async def play(pair: Pair) -> None:
        pair.of_program.h2.send_headers(1, GET, end_stream=True)
        await pair.send(pair.program, pair.of_program)
        while not pair.of_server.ended:
            await pair.hear(pair.server, pair.of_server)
        pair.of_server.h2.send_headers(1, [(b":status", b"200")])
        pair.of_server.h2.send_data(1, b"yes", end_stream=True)
        await pair.send(pair.server, pair.of_server)
        while not pair.of_program.ended:
            await pair.hear(pair.program, pair.of_program)

    assert carried(play).of_program.body == {1: b"yes"}


def test_what_is_kept_for_a_program_that_does_not_read_is_bounded_and_it_may_go_on():
    size = 24_000_000

    async def play(pair: Pair) -> None:
        program = pair.of_program
        program.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: LARGEST})
        program.h2.increment_flow_control_window(LARGEST - 65535)
        for stream in range(1, 17, 2):
            program.h2.send_headers(stream, GET, end_stream=True)
        await pair.send(pair.program, program)
        left = dict.fromkeys(range(1, 17, 2), size // 8)
        most = [0]

        async def serve() -> None:
            server = pair.of_server
            while len(server.ended) < 8:
                await pair.hear(pair.server, server)
            for stream in left:
                server.h2.send_headers(stream, [(b":status", b"200")])
            while left:
                for stream in list(left):
                    room = min(left[stream], 16384, server.h2.local_flow_control_window(stream))
                    if room > 0:
                        left[stream] -= room
                        server.h2.send_data(stream, b"x" * room, end_stream=not left[stream])
                        if not left[stream]:
                            del left[stream]
                        await pair.send(pair.server, server)
                        most[0] = max(most[0], pair.kept())
                if left and all(server.h2.local_flow_control_window(stream) <= 0 for stream in left):
                    await pair.hear(pair.server, server)

        serving = asyncio.create_task(serve())
        # As much as the broker takes without anybody who reads.
        before = -1
        while before != sum(left.values()) or before == size:
            before = sum(left.values())
            await asyncio.sleep(0.3)
        assert before > size / 2 and not serving.done()
        while len(program.ended) < 8:
            await pair.hear(pair.program, program)
        await serving
        assert sum(map(len, program.body.values())) == size
        assert most[0] < Windows().together + 4 * module._ENOUGH

    carried(play)


def test_a_program_that_asks_and_does_not_read_the_answers_is_cut_off(monkeypatch):
    monkeypatch.setattr(module, "_TOO_MUCH", 100_000)

    async def play(pair: Pair) -> None:
        # Seldom enough not to be too many in their time.
        pair.machine._client._chatter._clock = itertools.count(10**9).__next__
        pair.program.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await pair.send(pair.program, pair.of_program)
        with pytest.raises(OSError):
            for _ in range(1000):
                await asyncio.get_running_loop().sock_sendall(pair.program, SettingsFrame(0).serialize() * 1000)

    assert carried(play, fails=True).refused == []


def test_uploads_wait_for_the_server_and_not_for_each_other():
    async def play(pair: Pair) -> None:
        program, server = pair.of_program, pair.of_server
        server.acknowledges = False
        program.h2.send_headers(1, POST)
        await pair.send(pair.program, program)
        sent = 0
        while True:
            room = min(16384, program.h2.local_flow_control_window(1))
            if room > 0:
                program.h2.send_data(1, b"x" * room)
                sent += room
                await pair.send(pair.program, program)
            try:
                async with asyncio.timeout(0.3):
                    await pair.hear(pair.program, program)
            except TimeoutError:
                if program.h2.local_flow_control_window(1) <= 0:
                    break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await pair.hear(pair.server, server)
        assert sent < 300_000
        program.h2.send_headers(3, GET, end_stream=True)
        await pair.send(pair.program, program)
        while 3 not in server.fields:
            await pair.hear(pair.server, server)

    carried(play)


def test_the_servers_end_is_told_to_the_program():
    async def play(pair: Pair) -> None:
        pair.of_program.h2.send_headers(1, GET, end_stream=True)
        await pair.send(pair.program, pair.of_program)
        while not pair.of_server.ended:
            await pair.hear(pair.server, pair.of_server)
        pair.server.close()
        while 1 not in pair.of_program.reset:
            await pair.hear(pair.program, pair.of_program)

    assert carried(play).of_program.reset == {1: 2}


def test_the_programs_end_is_seen_when_the_server_takes_no_more():
    async def play(pair: Pair) -> None:
        program, server = pair.of_program, pair.of_server
        server.h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = LARGEST
        program.h2.send_headers(1, POST)
        await pair.send(pair.program, program)
        while 1 not in server.fields:
            await pair.hear(pair.server, server)
        pair.server.shutdown(socket.SHUT_RD)
        for _ in range(100):
            room = min(16384, program.h2.local_flow_control_window(1))
            if room > 0:
                program.h2.send_data(1, b"x" * room)
                await pair.send(pair.program, program)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    await pair.hear(pair.program, program)

    carried(play)

"""A server of HTTP/2 over TLS on this host's loopback, which says what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import ssl
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h2.config
import h2.connection
import h2.events
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hyperframe.frame import GoAwayFrame


class Http2Site:
    """`protocols`: what it offers, the first that it likes best. `asked`: method and path of every request."""

    def __init__(self, file: Path, protocols: Sequence[str] = ("h2",)) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(file)
        self.context.set_alpn_protocols(protocols)
        self.asked: list[str] = []
        self.resets: list[int] = []
        self.connections = 0
        self.loop = asyncio.new_event_loop()
        self.listening = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()
        assert self.listening.wait(10)

    def _run(self) -> None:
        self.loop.run_until_complete(self._listen())
        self.loop.run_forever()

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        self.port = int(server.sockets[0].getsockname()[1])
        self.listening.set()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(OSError, ProtocolError, asyncio.CancelledError):
            await _Connection(self, reader, writer).serve()
        writer.close()


class _Connection:
    def __init__(self, site: Http2Site, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.site, self.reader, self.writer = site, reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.requests: dict[int, dict[str, str]] = {}
        self.body: dict[int, bytes] = defaultdict(bytes)
        self.sums: dict[int, Any] = defaultdict(hashlib.sha256)
        self.trailers: dict[int, dict[str, str]] = defaultdict(dict)
        self.room = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        self.h2.initiate_connection()
        self.h2.update_settings({SettingCodes.ENABLE_CONNECT_PROTOCOL: 1})
        self.flush()
        while data := await self.reader.read(65536):
            for event in self.h2.receive_data(data):
                self.hear(event)
            self.flush()
            await self.writer.drain()
        for task in self.tasks:
            task.cancel()

    def flush(self) -> None:
        self.writer.write(self.h2.data_to_send())

    def hear(self, event: Any) -> None:
        match event:
            case h2.events.RequestReceived():
                fields = dict(event.headers)
                self.requests[event.stream_id] = fields
                self.site.asked.append(f"{fields[':method']} {fields[':path']}")
                if fields[":path"] == "/v1/echo":
                    self.h2.send_headers(event.stream_id, [(":status", "200")])
            case h2.events.DataReceived():
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                path = self.requests[event.stream_id][":path"]
                if path == "/v1/echo":
                    self.h2.send_data(event.stream_id, event.data)
                elif path == "/v1/sum":
                    self.sums[event.stream_id].update(event.data)
                else:
                    self.body[event.stream_id] += event.data
            case h2.events.TrailersReceived():
                self.trailers[event.stream_id] = dict(event.headers)
            case h2.events.StreamEnded():
                task = self.site.loop.create_task(self.answer(event.stream_id))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
            case h2.events.StreamReset():
                self.site.resets.append(event.stream_id)
            case h2.events.WindowUpdated():
                self.room.set()

    async def answer(self, stream: int) -> None:
        fields = self.requests[stream]
        path, _, number = fields[":path"].partition("?")
        with contextlib.suppress(ProtocolError, OSError, KeyError):
            if path == "/v1/echo":
                self.h2.send_headers(stream, [("x-ended", "yes")], end_stream=True)
            elif path == "/v1/hang":
                return
            elif path == "/v1/reset":
                self.h2.reset_stream(stream, 11)
            elif path == "/v1/events":
                self.h2.send_headers(stream, [(":status", "200"), ("content-type", "text/event-stream")])
                for i in range(3):
                    self.h2.send_data(stream, b"data: %d\n\n" % i, end_stream=i == 2)
                    self.flush()
                    await asyncio.sleep(float(number) if i < 2 else 0)
            elif path == "/v1/bytes":
                await self.bytes(stream, int(number))
            else:
                said = {"method": fields[":method"], "path": fields[":path"], "authority": fields.get(":authority"),
                        "host": fields.get("host"), "trailers": self.trailers[stream]}  # fmt: skip
                said["body"] = self.sums[stream].hexdigest() if path == "/v1/sum" else self.body[stream].decode()
                self.h2.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
                await self.send(stream, json.dumps(said).encode())
                self.h2.send_headers(stream, [("x-trailer", "yes")], end_stream=True)
            self.flush()
            if path == "/v1/goaway":
                self.writer.write(GoAwayFrame(0, last_stream_id=stream).serialize())

    async def bytes(self, stream: int, length: int) -> None:
        self.h2.send_headers(stream, [(":status", "200"), ("content-length", str(length))])
        piece = bytes(range(256)) * 64
        while length:
            await self.send(stream, piece[:length])
            length -= len(piece[:length])
        self.h2.end_stream(stream)

    async def send(self, stream: int, data: bytes) -> None:
        while data:
            size = min(len(data), 16384, self.h2.local_flow_control_window(stream))
            if size <= 0:
                self.room.clear()
                await self.room.wait()
                continue
            self.h2.send_data(stream, data[:size])
            data = data[size:]
            self.flush()
            await self.writer.drain()

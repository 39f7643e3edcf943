"""One side of a connection: a socket, or one with TLS on it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

from remit.egress.tls import HTTP1, Tls

_PIECE = 64 * 1024
_HANDSHAKE_S = 10.0
_LINGER_S = 2.0
"""After the last words: a side that is still sending reads them only if what it sends is taken."""
_ENDS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ConnectionError)
"""Which of them a bare end is depends on the versions of Python and OpenSSL."""
_BROKE_OFF = "it broke off when it had seen the certificate"


class End:
    """One side of a connection. Two tasks may send: everything goes out in the order in which it was put."""

    def __init__(self, sock: socket.socket, tls: Tls | None = None) -> None:
        self.sock, self.tls = sock, tls
        self.problem: str | None = None
        """Why the other side does not want this side's certificate, if it does not."""
        self._shown = False
        self._waiting = bytearray()
        self._sending = asyncio.Lock()
        self._watched = False
        self._next: asyncio.Future[bytes] | None = None

    async def shake(self) -> None:
        """The handshake of TLS. Raises OSError, of which `ssl.SSLError` and TimeoutError are kinds."""
        if self.tls is None:
            return
        async with asyncio.timeout(_HANDSHAKE_S):
            data: bytes | None = None
            try:
                while not self.tls.shake(data):
                    self._shown = self._shown or self.tls.pending
                    await self._flush()
                    data = await self._come()
            except (ssl.SSLError, ConnectionError) as error:
                self._note(error)
                raise
            finally:
                with contextlib.suppress(OSError):
                    await self._flush()

    async def recv(self) -> bytes:
        """What the other side says next; empty at its end. Raises OSError."""
        if self.tls is None:
            return await self._come()
        data: bytes | None = None
        try:
            while (said := self.tls.read(data)) is None:
                await self._flush()
                data = await self._come()
        except ssl.SSLError as error:
            self._note(error)
            raise
        return said

    def _note(self, error: OSError) -> None:
        """With TLS 1.3 a program that does not trust says so only after the handshake. Node and Python's asyncio break
        it off without a word. GnuTLS ends it first, and then looks no different from a browser's spare connection."""
        reason = error.reason or "" if isinstance(error, ssl.SSLError) else ""
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            self.problem = reason.partition("ALERT_")[2].lower().replace("_", " ")
        elif self._shown and isinstance(error, _ENDS):
            self.problem = _BROKE_OFF

    def put(self, data: bytes) -> None:
        """To be sent by the next `drain`."""
        self._waiting += data

    @property
    def waiting(self) -> int:
        """Bytes that were put and that no `drain` has taken yet."""
        return len(self._waiting)

    @property
    def protocol(self) -> str:
        """What TLS agreed on."""
        return HTTP1 if self.tls is None else self.tls.protocol

    async def drain(self) -> None:
        """Until what was put is sent."""
        if not self._waiting:
            return
        async with self._sending:
            data, self._waiting = bytes(self._waiting), bytearray()
            if self.tls is not None and data:
                self.tls.write(data)
                data = self.tls.out()
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def end(self, *, cut: bool = False) -> None:
        """Nothing follows. `cut`: without the word that this is all; what was passed on may not have been."""
        with contextlib.suppress(OSError):
            if self.tls is not None and not cut:
                self.tls.end()
                await self._flush()
            self.sock.shutdown(socket.SHUT_WR)

    async def linger(self) -> None:
        """Until the other side has taken note of the end, or has had the time to."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while await self._come():
                    pass

    async def _come(self) -> bytes:
        """The next bytes from the other side. The socket stays watched from one call to the next: to tell the selector
        anew each time, as `sock_recv` does, was a sixth of what a request costs."""
        if not self._watched:
            with contextlib.suppress(BlockingIOError, InterruptedError):
                return self.sock.recv(_PIECE)
            asyncio.get_running_loop().add_reader(self.sock, self._arrived)
            self._watched = True
        self._next = asyncio.get_running_loop().create_future()
        return await self._next

    def _arrived(self) -> None:
        waiting = self._next
        if waiting is None or waiting.done():
            # Nobody wants it now: it stays where it is.
            self.leave()
            return
        try:
            waiting.set_result(self.sock.recv(_PIECE))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            waiting.set_exception(error)

    def leave(self) -> None:
        """Nothing more is read here. Before the socket is closed: its number may be another's next."""
        if self._watched:
            self._watched = False
            asyncio.get_running_loop().remove_reader(self.sock)

    async def _flush(self) -> None:
        """What TLS has to say of its own accord."""
        if self.tls is None or not self.tls.pending:
            return
        async with self._sending:
            # Taken only now: records count, and arrive in the order in which they were made.
            await asyncio.get_running_loop().sock_sendall(self.sock, self.tls.out())

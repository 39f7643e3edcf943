"""TLS as bytes in, bytes out, for one side of a connection. Pure. (OpenSSL does it.)"""

from __future__ import annotations

import ssl
from collections.abc import Sequence

HTTP1, HTTP2 = "http/1.1", "h2"
"""As ALPN calls them (RFC 7301). Who says nothing speaks the former."""
_PIECE = 256 * 1024


class Tls:
    """`name`: of the server that must prove itself; None where this side is the server. `protocols`: what that server
    is offered (ALPN); a server's own stand in its context."""

    def __init__(self, context: ssl.SSLContext, name: str | None = None, protocols: Sequence[str] = ()) -> None:
        if name is not None:
            # OpenSSL copies them into each connection as it is made, so one context will do for all.
            context.set_alpn_protocols(protocols)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=name is None, server_hostname=name)
        self.cut = False
        """Did the other side end without saying so? What came last may not have been all."""

    def shake(self, data: bytes | None) -> bool:
        """Is the handshake done? `data`: what came from the other side; empty: it closed; None: nothing came yet.
        Raises `ssl.SSLError` if it fails; what is then in `out` says so to the other side."""
        self._feed(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def protocol(self) -> str:
        """What both sides agreed to speak, once the handshake is done."""
        return self._tls.selected_alpn_protocol() or HTTP1

    def read(self, data: bytes | None) -> bytes | None:
        """What `data` says; None where that is nothing yet, empty at the end. Raises `ssl.SSLError`."""
        self._feed(data)
        pieces = []
        try:
            while piece := self._tls.read(_PIECE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces) or None
        except ssl.SSLZeroReturnError:
            pass
        except (ssl.SSLEOFError, ssl.SSLSyscallError):
            self.cut = True
        # An end that came with words is found again at the next reading.
        return b"".join(pieces)

    def write(self, data: bytes) -> None:
        """To be sent: see `out`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]

    def end(self) -> None:
        """Says that nothing follows."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            return

    @property
    def pending(self) -> bool:
        """Is there something in `out`?"""
        return self._out.pending > 0

    def out(self) -> bytes:
        """What is to be sent to the other side now."""
        return self._out.read()

    def _feed(self, data: bytes | None) -> None:
        if data:
            self._in.write(data)
        elif data is not None:
            self._in.write_eof()


def verifying(roots: str | None) -> ssl.SSLContext:
    """What checks a server's certificate and name as this host's programs do. `roots`: the file to trust where the
    library does not know this host's own."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509"] and roots is not None:
        context.load_verify_locations(roots)
    return context


def problem(error: ssl.SSLError, name: str) -> str:
    """What went wrong with the server `name`, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {name} is not valid: {error.verify_message}"
    said = (error.reason or str(error)).lower().replace("_", " ")
    return f"no TLS with {name}: {said}"

"""The first bytes of a connection: TLS, HTTP or something else; and of TLS, the name that it asks for. OpenSSL itself
reads the hello, so that records split anywhere and post-quantum sizes are its business. Pure."""

from __future__ import annotations

import contextlib
import re
import ssl
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

LONGEST = 64 * 1024
"""Bytes of a hello; the largest of today are under 3 KiB."""
_HANDSHAKE = 0x16
_ALPN = 16
_HTTP = re.compile(rb"\s*\S[^\n]*?\sHTTP/", re.IGNORECASE)
"""A first line that some server may take for a request, however it is written: how strict it must be is `http`'s
business."""
_TEXT = re.compile(rb"[\t\r\n\x20-\x7e]*")


class Hello(NamedTuple):
    """`kind`: tls, http, other; unreadable (it begins like TLS, and is none that OpenSSL reads), more (it can't be told
    yet). `name`: what TLS asks for, if it does."""

    kind: str
    name: str | None = None


def read(data: bytes) -> Hello:
    """What the connection begins with."""
    if not data:
        return Hello("more")
    if data[0] == _HANDSHAKE:
        return _tls(data) if data[1:2] in (b"", b"\x03") else Hello("other")
    if _HTTP.match(data):
        return Hello("http")
    # A line of text that is not over yet may still become a request.
    text = data.lstrip()
    return Hello("more" if b"\n" not in text and _TEXT.fullmatch(text) else "other")


def _context() -> ssl.SSLContext:
    """A server that gets as far as the name and then refuses; it has no certificate and never answers."""

    def asked(connection: Any, name: str | None, _: ssl.SSLContext) -> int:
        connection.asked = (name,)
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.sni_callback = asked
    return context


_READER = _context()


@contextlib.contextmanager
def _unsaid() -> Iterator[None]:
    """A name that is not ASCII is a fault that Python prints and does not raise; whoever runs the sandbox need not read
    it."""
    usual = sys.unraisablehook

    def hook(fault: Any) -> None:
        if not isinstance(fault.exc_value, UnicodeDecodeError):
            usual(fault)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def _tls(data: bytes) -> Hello:
    incoming = ssl.MemoryBIO()
    incoming.write(data)
    connection: Any = _READER.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    connection.asked = None
    try:
        with _unsaid():
            connection.do_handshake()
    except ssl.SSLWantReadError:
        if connection.asked is None:
            return Hello("more")
    except (ssl.SSLError, ValueError):
        # With a name seen this is our own refusal; without one, what OpenSSL can't read nobody should.
        if connection.asked is None:
            return Hello("unreadable")
    return Hello("tls", connection.asked[0] if connection.asked else None)


def offers(data: bytes) -> list[str]:
    """What the hello in `data` would speak inside TLS, in its order (ALPN, RFC 7301). Only what the server is then
    offered hangs on this: what the program speaks in the end is what OpenSSL agrees on with it."""
    message = bytearray()
    while len(data) >= 5 and data[0] == _HANDSHAKE:
        length = int.from_bytes(data[3:5], "big")
        message += data[5 : 5 + length]
        data = data[5 + length :]
    # Behind type, length, version and random: session, ciphers and compression, each behind its length.
    rest = bytes(message[38:])
    for size in (1, 2, 1):
        rest = rest[size + int.from_bytes(rest[:size], "big") :]
    rest = rest[2:]
    while len(rest) >= 4:
        kind, length = int.from_bytes(rest[:2], "big"), int.from_bytes(rest[2:4], "big")
        if kind == _ALPN:
            return list(_listed(rest[6 : 4 + length]))
        rest = rest[4 + length :]
    return []


def _listed(names: bytes) -> Iterator[str]:
    while names:
        yield names[1 : 1 + names[0]].decode("latin-1")
        names = names[1 + names[0] :]

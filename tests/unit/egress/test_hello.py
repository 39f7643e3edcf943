"""What a connection begins with: nothing that a server might take for TLS or HTTP is called anything else."""

from __future__ import annotations

import ssl
import struct

import pytest

from remit.egress import hello
from remit.egress.hello import Hello


def client_hello(name: str | None, *, versions: tuple[ssl.TLSVersion, ssl.TLSVersion] | None = None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if versions:
        context.minimum_version, context.maximum_version = versions
    said = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return said.read()


def with_extension(plain: bytes, kind: int, data: bytes) -> bytes:
    """A hello (one record) with another extension at its end."""
    handshake = plain[5:]
    at = 4 + 2 + 32
    at += 1 + handshake[at]
    at += 2 + struct.unpack_from("!H", handshake, at)[0]
    at += 1 + handshake[at]
    extensions = handshake[at + 2 :] + struct.pack("!HH", kind, len(data)) + data
    body = handshake[4:at] + struct.pack("!H", len(extensions)) + extensions
    whole = b"\x01" + len(body).to_bytes(3, "big") + body
    records = [whole[i : i + 16384] for i in range(0, len(whole), 16384)]
    return b"".join(plain[:3] + struct.pack("!H", len(r)) + r for r in records)


PLAIN = client_hello("web.test")


def test_the_name_is_read_whole_and_not_before():
    assert hello.read(PLAIN) == Hello("tls", "web.test")
    assert {hello.read(PLAIN[:n]).kind for n in range(len(PLAIN))} == {"more"}


def test_records_of_one_byte_each():
    records = b"".join(PLAIN[:3] + b"\0\1" + bytes([b]) for b in PLAIN[5:])
    assert hello.read(records) == Hello("tls", "web.test")


@pytest.mark.parametrize("size", [1200, 1700, 16_000, 40_000])
def test_post_quantum_sizes_and_larger(size):
    large = with_extension(PLAIN, 0x7A7A, bytes(size))
    assert hello.read(large) == Hello("tls", "web.test")
    assert hello.read(large[:-1]).kind == "more"


def test_a_grease_of_ech_and_of_anything_is_looked_past():
    ech = b"\0" + struct.pack("!HHBH", 1, 1, 7, 32) + bytes(32) + struct.pack("!H", 144) + bytes(144)
    assert hello.read(with_extension(PLAIN, 0xFE0D, ech)) == Hello("tls", "web.test")
    assert hello.read(with_extension(PLAIN, 0x8A8A, b"\0")) == Hello("tls", "web.test")


def test_versions_of_old_and_no_name():
    old = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert hello.read(client_hello("web.test", versions=old)) == Hello("tls", "web.test")
    assert hello.read(client_hello(None)) == Hello("tls", None)
    assert hello.read(client_hello("192.0.2.7")) == Hello("tls", None)


@pytest.mark.parametrize("other", [b"WEB.TEST", b"web.tes.", b"evil.org"])
def test_other_names_are_said_as_they_are(other):
    assert hello.read(PLAIN.replace(b"web.test", other)) == Hello("tls", other.decode())


def two_names() -> bytes:
    entry = b"\0" + struct.pack("!H", 8) + b"web.test"
    other = b"\0" + struct.pack("!H", 8) + b"evil.org"
    one = struct.pack("!HHH", 0, 13, 11) + entry
    assert one in PLAIN
    grown = PLAIN.replace(one, struct.pack("!HHH", 0, 24, 22) + entry + other)
    handshake = grown[5:]
    at = 4 + 2 + 32
    at += 1 + handshake[at]
    at += 2 + struct.unpack_from("!H", handshake, at)[0]
    at += 1 + handshake[at]
    length = struct.pack("!H", len(handshake) - at - 2)
    handshake = b"\x01" + (len(handshake) - 4).to_bytes(3, "big") + handshake[4:at] + length + handshake[at + 2 :]
    return grown[:3] + struct.pack("!H", len(handshake)) + handshake


@pytest.mark.parametrize(
    "odd",
    [
        two_names(),
        PLAIN.replace(b"web.test", b"web\0test"),
        PLAIN.replace(b"web.test", b"w\xc3\xa9b.tst"),
        b"\x16\x03\x01\0\5hello",
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        PLAIN[:50] + bytes(len(PLAIN) - 50),
    ],
    ids=["two names", "NUL", "not ASCII", "garbage", "too long", "a server's", "zeroes"],
)
def test_what_begins_like_tls_and_can_not_be_read_is_called_that(odd, capfd):
    assert hello.read(odd).kind == "unreadable"
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\r\n",
        b"get / http/1.1\r\n",
        b"\r\n\r\nGET / HTTP/1.1\r\n",
        b"X / HTTP/1.1\n",
        b"VERSION-CONTROL-AND-MORE /a HTTP/1.1\r\n",
        b"GET\t/\tHTTP/1.1\r\n",
        b"GET /\x80 HTTP/1.1",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\n",
    ],
)
def test_whatever_a_server_may_take_for_a_request_is_read_as_one(line):
    assert hello.read(line).kind == "http"


@pytest.mark.parametrize("line", [b"", b"G", b"GET", b"GET /a/long/path", b"\r\n", b" ", b"EHLO x"])
def test_an_unfinished_line_is_waited_for(line):
    assert hello.read(line).kind == "more"


@pytest.mark.parametrize(
    "line",
    [b"EHLO x\r\n", b"NICK a\r\n", b"*1\r\n$4\r\nPING\r\n", b"SSH-2.0-OpenSSH\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f",
     b"0032git-upload-pack /a\0host=b\0", b"AMQP\0\0\x09\x01", b"\x16\x01", b"GET /\r\n"],
)  # fmt: skip
def test_other_protocols_are_left_alone(line):
    assert hello.read(line).kind == "other"


@pytest.mark.parametrize("offered", [[], ["http/1.1"], ["h2"], ["h2", "http/1.1"], ["x" * 255, "h2"]])
def test_what_a_hello_would_speak_is_told_in_its_order(offered):
    context = ssl.create_default_context()
    if offered:
        context.set_alpn_protocols(offered)
    out = ssl.MemoryBIO()
    connection = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="a.test")
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    whole = out.read()
    assert hello.offers(whole) == offered
    # In as many records as there are bytes: OpenSSL reads that too.
    split = b"".join(whole[:3] + b"\x00\x01" + whole[i : i + 1] for i in range(5, len(whole)))
    assert hello.offers(split) == offered
    for end in range(0, len(whole), 7):
        hello.offers(whole[:end])


def test_what_a_hello_that_is_none_would_speak_is_nothing():
    for data in (b"", b"\x16", b"\x16\x03\x01\x00\x00", b"\x16\x03\x01\xff\xff" + b"\xff" * 300, b"GET / HTTP/1.1\r\n"):
        assert hello.offers(data) == []

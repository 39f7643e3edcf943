"""Questions for names: an allowed name has an address, every other message is refused or dropped, and none is a fault."""

from __future__ import annotations

import random
import struct

import dns.flags
import dns.message
import dns.rcode
import dns.update
import pytest

from remit.egress.dns import answer
from remit.egress.names import FIRST, MOST, Names
from remit.policy.model import NetworkRule, Remit
from remit.policy.view import View

REMIT = Remit(agent="a", network=tuple(NetworkRule(h, "", (443,), (), ()) for h in ("web.test", "*.wild.test")))
VIEW = View(())


def wire(name: str, kind: str = "A", **more: object) -> bytes:
    return dns.message.make_query(name, kind, **more).to_wire()


def raw(*labels: bytes, kind: int = 1) -> bytes:
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return struct.pack("!6H", 7, 0x100, 1, 0, 0, 0) + name + struct.pack("!2H", kind, 1)


def ask(question: bytes, names: Names | None = None) -> str:
    """`198.18.1.0`, `NOERROR`, `REFUSED`, ..., `silence`."""
    message, _ = answer(question, REMIT, VIEW, names or Names())
    if message is None:
        return "silence"
    said = dns.message.from_wire(message)
    assert said.flags & dns.flags.QR
    assert said.id == struct.unpack_from("!H", question)[0]
    return str(said.answer[0][0]) if said.answer else dns.rcode.to_text(said.rcode())


PLAIN = wire("web.test")


@pytest.mark.parametrize(
    "name",
    [
        "web.test",
        "web.test.",
        "WEB.tEsT",
        "a.wild.test",
        "a.b.c.wild.test",
        "_srv.wild.test",
        "xn--mnchen-3ya.wild.test",
    ],
)
def test_allowed_names_have_an_address_and_none_of_ipv6(name):
    assert ask(wire(name)) == str(FIRST)
    assert ask(wire(name, "AAAA")) == "NOERROR"
    assert ask(wire(name, use_edns=0, payload=1232, want_dnssec=True)) == str(FIRST)


@pytest.mark.parametrize(
    "name",
    ["other.test", "test", ".", "x.web.test", "wild.test", "webxtest", "evilwild.test", "web.test.evil.test",
     "web.tes", "xn--wb-bja.test", "127.1", "0x7f.1", "0177.0.0.1", "2130706433", "127.0.0.1", "1.wild.test.127.1",
     "a." * 10 + "wild.test", "a" * 41 + ".wild.test", "-a.wild.test", "a-.wild.test", "a..test".replace("..", ".")],
)  # fmt: skip
def test_all_others_are_refused(name):
    assert ask(wire(name)) == "REFUSED"


@pytest.mark.parametrize(
    "labels",
    [(b"web\0", b"test"), (b"web.test",), (b"w eb", b"test"), (b"web\n", b"test"), ("wéb".encode(), b"test"),
     ("\u212aind".encode(), b"wild", b"test"), ("ß".encode(), b"wild", b"test"), (b"web\x7f", b"test"),
     (b"*", b"wild", b"test"), (b"a@b", b"wild", b"test"), (b"%77eb", b"test"), (b"a/b", b"wild", b"test")],
)  # fmt: skip
def test_bytes_that_no_name_has_are_refused(labels):
    assert ask(raw(*labels)) == "REFUSED"
    assert ask(raw(b"a", b"wild", b"test")) == str(FIRST)


MESSAGES = {
    "an answer": (PLAIN[:2] + b"\x81\x80" + PLAIN[4:], "silence"),
    "an update": (dns.update.Update("web.test").to_wire(), "FORMERR"),
    "a status": (PLAIN[:2] + b"\x10\0" + PLAIN[4:], "FORMERR"),
    "a notify": (PLAIN[:2] + b"\x20\0" + PLAIN[4:], "FORMERR"),
    "no question": (PLAIN[:4] + b"\0\0" + PLAIN[6:12], "FORMERR"),
    "two questions": (PLAIN[:4] + b"\0\2" + PLAIN[6:] + PLAIN[12:], "FORMERR"),
    "class CH": (wire("version.bind", "TXT", rdclass="CH"), "REFUSED"),
    "class CH of an allowed name": (wire("web.test", rdclass="CH"), "REFUSED"),
    "class ANY": (wire("web.test", rdclass="ANY"), "REFUSED"),
    "AXFR": (wire("web.test", "AXFR"), "REFUSED"),
    "IXFR": (wire("web.test", "IXFR"), "REFUSED"),
    "NULL": (wire("web.test", "NULL"), "REFUSED"),
    "type 0": (raw(b"web", b"test", kind=0), "REFUSED"),
    "type 65280": (raw(b"web", b"test", kind=65280), "REFUSED"),
    "a loop": (PLAIN[:12] + b"\xc0\x0c\0\1\0\1", "silence"),
    "a pointer ahead": (PLAIN[:12] + b"\xc0\xff\0\1\0\1", "silence"),
    "a label of 64": (PLAIN[:12] + b"\x40" + b"a" * 64 + b"\0\0\1\0\1", "silence"),
    "a name of 300": (raw(*[b"a" * 60] * 5), "silence"),
    "counts that lie": (PLAIN[:6] + b"\xff\xff\xff\xff\xff\xff" + PLAIN[12:], "silence"),
    "more behind": (PLAIN + b"more", "silence"),
    "nothing": (b"", "silence"),
    "zeroes": (bytes(12), "FORMERR"),
    "EDNS 1": (wire("web.test", use_edns=1), str(FIRST)),
}  # fmt: skip


@pytest.mark.parametrize(("message", "said"), MESSAGES.values(), ids=MESSAGES)
def test_odd_messages(message, said):
    assert ask(message) == said


def test_a_cut_message_is_dropped():
    assert {ask(PLAIN[:n]) for n in range(2, len(PLAIN))} == {"silence"}


def test_no_bytes_are_a_fault():
    draw = random.Random(1)
    seeds = [PLAIN, wire("a.wild.test", "AAAA", use_edns=0), dns.update.Update("web.test").to_wire()]
    for _ in range(5000):
        message = bytearray(draw.choice(seeds))
        for _ in range(draw.randint(1, 6)):
            message[draw.randrange(len(message))] = draw.randrange(256)
        answer(bytes(message), REMIT, VIEW, Names())


def test_a_name_keeps_its_address_and_there_is_an_end_to_them():
    names = Names()
    assert [ask(wire(n), names) for n in ("a.wild.test", "b.wild.test", "A.wild.test")] == [
        "198.18.1.0", "198.18.1.1", "198.18.1.0",
    ]  # fmt: skip
    for i in range(MOST):
        names.address(f"n{i}")
    assert ask(wire("c.wild.test"), names) == "REFUSED"
    assert ask(wire("b.wild.test"), names) == "198.18.1.1"

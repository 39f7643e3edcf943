"""Answers to a program's questions for names: an allowed name has one synthetic address, every other is refused, and
no question ever leaves the machine. Pure: a message in, a message and what was asked out. (By dnspython.)"""

from __future__ import annotations

from typing import NamedTuple

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from remit.egress.names import Names
from remit.policy.actions import ResolveName
from remit.policy.decide import Decision, decide
from remit.policy.model import Remit
from remit.policy.view import View

_TTL = 60
"""Seconds. The answer never changes while the sandbox lives; clients that insist may ask again."""
_MAX_LABELS, _MAX_LABEL = 10, 40
"""Under a wildcard: a name is also a message to whoever runs the domain's servers, so it is kept short."""


class Asked(NamedTuple):
    """One question and its verdict. `kind`: A, AAAA, TXT, ..."""

    name: str
    kind: str
    decision: Decision


class Answer(NamedTuple):
    """`message`: None where there is nothing to answer to (no DNS message at all)."""

    message: bytes | None
    asked: Asked | None


def answer(question: bytes, remit: Remit, view: View, names: Names) -> Answer:
    """A for an allowed name, an empty answer for its AAAA, refusal for everything else."""
    try:
        query = dns.message.from_wire(question)
    except (dns.exception.DNSException, ValueError, IndexError):
        return Answer(None, None)
    if query.flags & dns.flags.QR:
        # No question. Answering answers could go on for ever.
        return Answer(None, None)
    if query.opcode() != dns.opcode.QUERY or len(query.question) != 1:
        return Answer(_refused(query, dns.rcode.FORMERR), None)
    (wanted,) = query.question
    text = wanted.name.to_text(omit_final_dot=True)
    kind = dns.rdatatype.to_text(wanted.rdtype)
    if wanted.rdclass != dns.rdataclass.IN:
        return Answer(_refused(query, dns.rcode.REFUSED), None)
    decision = _decide(text, remit, view)
    asked = Asked(text, kind, decision)
    if not decision.allowed:
        return Answer(_refused(query, dns.rcode.REFUSED), asked)
    if wanted.rdtype == dns.rdatatype.AAAA:
        # The name is there and has no address of that kind.
        return Answer(_made(query).to_wire(), asked)
    if wanted.rdtype != dns.rdatatype.A:
        return _no(query, asked, f"{text} is asked for {kind}: only addresses are answered")
    address = "127.0.0.1" if decision.rule.startswith("builtin.") else names.address(text.lower())
    if address is None:
        return _no(query, asked, "more names were asked for than one sandbox may have")
    response = _made(query)
    response.answer.append(dns.rrset.from_text(wanted.name, _TTL, "IN", "A", address))
    return Answer(response.to_wire(), asked)


def _no(query: dns.message.Message, asked: Asked, reason: str) -> Answer:
    return Answer(
        _refused(query, dns.rcode.REFUSED), asked._replace(decision=Decision("deny", "network.allow", reason))
    )


def _decide(text: str, remit: Remit, view: View) -> Decision:
    decision = decide(remit, ResolveName(text), view)
    labels = text.split(".")
    exact = any(rule.host.lower() == text.lower() for rule in remit.network)
    if decision.allowed and not exact and (len(labels) > _MAX_LABELS or max(map(len, labels)) > _MAX_LABEL):
        return Decision("deny", decision.rule, f"{text} is longer than names under a wildcard may be")
    return decision


def _made(query: dns.message.Message) -> dns.message.Message:
    return dns.message.make_response(query, recursion_available=True)


def _refused(query: dns.message.Message, code: dns.rcode.Rcode) -> bytes:
    response = _made(query)
    response.set_rcode(code)
    return response.to_wire()

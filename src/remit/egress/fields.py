"""What a block of HTTP/2's header fields must be like to be passed on (RFC 9113, 8.1 to 8.3). A server that speaks
HTTP/1 further in writes these fields down as lines: whatever would be another line, another length or another host
there is refused here. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Field = tuple[bytes, bytes]
Fields = Sequence[Field]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_PATH = re.compile(rb"/[\x21\x22\x24-\x7e]*")
"""No blank, no fragment, nothing but ASCII."""
_LENGTH = re.compile(rb"[0-9]{1,18}")
_STATUS = re.compile(rb"[1-5][0-9][0-9]")
_OF_THE_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"http2-settings")
)
_NOT_BEHIND = frozenset((b"content-length", b"host", b"authorization", b"cookie", b"te", b"trailer"))
"""In trailers these would say again, and too late, what was decided on."""
_ASKED = frozenset((b":method", b":scheme", b":authority", b":path"))


class Wrong(Exception):
    """What was sent must not be passed on; the reason is in words for whoever sent it."""


class Asked(NamedTuple):
    """A request: `fields` are what is sent to the server. `length`: how many bytes of body are announced."""

    method: str
    path: str
    fields: list[Field]
    length: int | None


def request(fields: Fields, host: str, port: int) -> Asked:
    """What is asked, if it is one request, over https, for `host` and `port`. Raises `Wrong`."""
    pseudo, rest = _parted(fields)
    if b":protocol" in pseudo:
        raise Wrong("extended CONNECT is not offered here: begin WebSocket over HTTP/1.1")
    if pseudo.get(b":method") == b"CONNECT":
        raise Wrong("CONNECT asks a proxy, and there is none here: connect to the host itself")
    if unknown := sorted(pseudo.keys() - _ASKED):
        raise Wrong(f"a request has no {unknown[0].decode('latin-1')}")
    method, path = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD.fullmatch(method):
        raise Wrong(":method is no method")
    if pseudo.get(b":scheme") != b"https":
        raise Wrong(f":scheme is https here, not {pseudo.get(b':scheme', b'missing').decode('latin-1')!r}")
    if not _PATH.fullmatch(path) and (method, path) != (b"OPTIONS", b"*"):
        raise Wrong(f":path is a path that begins with / and has no fragment, not {path.decode('latin-1')!r}")
    hosts = [value for name, value in rest if name == b"host"]
    named = [pseudo[b":authority"]] if b":authority" in pseudo else hosts[:1]
    if not named or len(hosts) > 1:
        raise Wrong(f"a request has one :authority, or else one Host, not {len(hosts)}")
    for said in [*named, *hosts]:
        if said.decode("latin-1").lower() not in {f"{host}:{port}"} | ({host} if port == 443 else set()):
            raise Wrong(f":authority or Host says {said.decode('latin-1')!r} on a connection to {host}")
    for name, value in rest:
        if value != value.strip(b" \t"):
            raise Wrong(f"the value of {name.decode('latin-1')} begins or ends with a blank")
        if name == b"te" and value != b"trailers":
            raise Wrong("te says trailers, or is not there")
    sent: list[Field] = [(b":method", method), (b":scheme", b"https"), (b":authority", named[0]), (b":path", path)]
    # As they were read: what was not to be put in a table (a credential) is not put in one further on.
    sent += [field for field in rest if field[0] not in (b"host", b"proxy-authorization")]
    return Asked(method.decode(), "/" if path == b"*" else path.decode(), sent, _length(rest))


def response(fields: Fields) -> int:
    """The status of a response, final or not, that may be passed on. Raises `Wrong`."""
    pseudo, _ = _parted(fields)
    status = pseudo.get(b":status", b"")
    if len(pseudo) != 1 or not _STATUS.fullmatch(status) or status == b"101":
        raise Wrong("a response has a :status and nothing else like it")
    return int(status)


def trailers(fields: Fields) -> None:
    """Raises `Wrong` if they may not follow a body."""
    pseudo, rest = _parted(fields)
    for name in [*pseudo, *(name for name, _ in rest if name in _NOT_BEHIND)]:
        raise Wrong(f"{name.decode('latin-1')} is not for trailers")


def _parted(fields: Fields) -> tuple[dict[bytes, bytes], list[Field]]:
    pseudo: dict[bytes, bytes] = {}
    rest: list[Field] = []
    for field in fields:
        name, value = field
        if not _VALUE.fullmatch(value):
            raise Wrong(f"the value of {name.decode('latin-1')} has characters in it that end lines")
        if name.startswith(b":"):
            if name in pseudo or rest:
                raise Wrong(f"{name.decode('latin-1')} is said twice, or behind other fields")
            pseudo[name] = value
            continue
        if not _NAME.fullmatch(name):
            raise Wrong(f"{name.decode('latin-1')!r} is no name of a field in lower case")
        if name in _OF_THE_CONNECTION:
            raise Wrong(f"{name.decode('latin-1')} has no place in HTTP/2")
        rest.append(field)
    return pseudo, rest


def _length(rest: Fields) -> int | None:
    said = [value for name, value in rest if name == b"content-length"]
    if len(said) > 1:
        raise Wrong("the length is said twice")
    if said and not _LENGTH.fullmatch(said[0]):
        raise Wrong("content-length is no number")
    return int(said[0]) if said else None

"""Names and addresses that a program asks for, read in one way only. What could mean two things is read as nothing,
which `decide` denies. Pure; ipaddress is imported on use, and patterns are compiled on use, since every start imports
this."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address

_NAME = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
"""A name in the letters that DNS carries (RFC 1123, and _ for service names). Other scripts arrive as xn--."""
_TWO_WAYS = r"%(2[ef5E]|2F|5[cC]|00|[cC][01]|(?![0-9A-Fa-f]{2}))|\\|[\x00-\x20\x7f]|//|;"
"""In a path of HTTP: encoded dots, slashes, backslashes, NUL and percent signs, overlong UTF-8, a % that encodes
nothing, parameters: a server that decodes or cuts before it walks would end up elsewhere than the rule said."""


def address(text: str) -> IPv4Address | IPv6Address | None:
    """The address, without its zone; None if it is written in any but the usual form (octal, one number, short)."""
    from ipaddress import ip_address

    try:
        return ip_address(text.partition("%")[0] if ":" in text else text)
    except ValueError:
        return None


def is_own(found: IPv4Address | IPv6Address) -> bool:
    """Loopback, also as ::ffff:127.0.0.1 (which dual-stack sockets use), and the unspecified address, to which
    connecting is connecting to oneself on Linux. Safe: the sandbox's network namespace is its own."""
    mapped = getattr(found, "ipv4_mapped", None) or found
    return bool(mapped.is_loopback or mapped.is_unspecified)


def embeds_ipv4(found: IPv4Address | IPv6Address) -> bool:
    """An IPv6 address that means an IPv4 one to a translator on the way: it could lead to what no rule names."""
    from ipaddress import IPv6Address, IPv6Network

    if not isinstance(found, IPv6Address) or (is_own(found) and not found.ipv4_mapped):
        return False
    # ::/96 (IPv4-compatible), NAT64 (RFC 6052, RFC 8215), ISATAP's and SIIT's forms.
    embedding = ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "::ffff:0:0:0/96")
    return (
        bool(found.ipv4_mapped or found.sixtofour or found.teredo)
        or any(found in IPv6Network(network) for network in embedding)
        or int(found) >> 32 & 0xFFFFFFFF in (0x00005EFE, 0x02005EFE)
    )


def in_network(cidr: str, found: IPv4Address | IPv6Address) -> bool:
    from ipaddress import ip_network

    return bool(cidr) and found in ip_network(cidr)


def name(text: str) -> str | None:
    """The name of a host in small letters, without the dot at its end; None if it is none."""
    import re

    # Before it is lowered: the Kelvin sign becomes a k.
    lowered = text.lower().removesuffix(".") if text.isascii() else ""
    return lowered if len(lowered) <= 253 and re.fullmatch(_NAME, lowered) else None


def is_number(host: str) -> bool:
    """Would a resolver read it as an address: 127.1, 0x7f.1, 2130706433? No top-level domain is a number."""
    import re

    return re.fullmatch(r"\d+|0x[0-9a-f]*", host.rpartition(".")[2]) is not None


def public_suffix(domain: str) -> bool:
    """Is it one below which anybody can register a name: com, co.uk, github.io? Imported on use: few remits have a
    wildcard."""
    from publicsuffixlist import PublicSuffixList

    return bool(PublicSuffixList(accept_unknown=False).is_public(domain))


def host_matches(pattern: str, host: str) -> bool:
    """`*.example.com` matches all below it and not itself."""
    wanted = pattern.lower()
    if wanted.startswith("*."):
        return host.endswith(wanted[1:]) and host != wanted[2:]
    return bool(wanted) and host == wanted


def http_path(text: str) -> str | None:
    """The path without its query; None if two servers could read it in two ways."""
    import re

    path = text.partition("?")[0].partition("#")[0]
    if not path.startswith("/") or re.search(_TWO_WAYS, path) or {".", ".."} & set(path.split("/")):
        return None
    return path

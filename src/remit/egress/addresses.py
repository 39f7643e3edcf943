"""Which addresses the broker may dial. Names lead anywhere; an address is dialled only if it is public, or if the remit
names its network by number. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from remit.policy import destinations
from remit.policy.model import Remit

_METADATA = {
    "169.254.169.254": "the metadata service of a cloud",
    "169.254.170.2": "the credentials of a container (ECS)",
    "100.100.100.200": "the metadata service of a cloud (Alibaba)",
    "168.63.129.16": "the wire server of a cloud (Azure)",
    "192.0.0.192": "the metadata service of a cloud (Oracle)",
    "fd00:ec2::254": "the metadata service of a cloud (EC2)",
    "fd20:ce::254": "the metadata service of a cloud (Google)",
}
"""Not all are in ranges that are private by number."""

_NEVER = tuple(map(IPv4Network, ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4", "255.255.255.255/32")))
_NEVER_6 = tuple(map(IPv6Network, ("::/128", "ff00::/8")))
"""Nothing that can be connected to lies there; no remit can name it."""
SYNTHETIC = IPv4Network("198.18.0.0/15")
"""RFC 2544: for benchmarks, so nobody's. The sandbox's own address and those that stand for names are of it."""


def refused(text: str, port: int, remit: Remit, own: Iterable[str] = ()) -> str | None:
    """Why `text` may not be dialled; None if it may. `own`: the addresses of this host."""
    found = destinations.address(text)
    if found is None:
        return f"{text!r} is no address"
    if destinations.embeds_ipv4(found):
        return f"{text} hides an IPv4 address in an IPv6 one"
    if any(found in network for network in (_NEVER if isinstance(found, IPv4Address) else _NEVER_6)):
        return f"{text} is no address of a host"
    if found in SYNTHETIC:
        return f"{text} is of the range that stands for names inside"
    if _named(found, port, remit):
        return None
    if text in _METADATA or str(found) in _METADATA:
        return f"{text} is {_METADATA[str(found)]}"
    if str(found) in set(own):
        return f"{text} is this host's own address"
    if not found.is_global or found.is_multicast:
        return f"{text} is {_kind(found)}"
    return None


def _named(found: IPv4Address | IPv6Address, port: int, remit: Remit) -> bool:
    """Does the remit name its network by number, for this port?"""
    return any(port in rule.ports and destinations.in_network(rule.cidr, found) for rule in remit.network)


def _kind(found: IPv4Address | IPv6Address) -> str:
    if found.is_loopback:
        return "this host's loopback"
    if found.is_link_local:
        return "link-local"
    if found.is_private:
        return "private"
    return "not public"

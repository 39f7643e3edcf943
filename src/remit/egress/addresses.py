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

_NEVER = tuple(map(IPv4Network, ("0.0.0.0/8", "224.0.0.0/4", "240.0.0.0/4")))
_NEVER_6 = tuple(map(IPv6Network, ("::/128", "ff00::/8")))
"""Nothing that can be connected to lies there; no remit can name it."""
_SPECIAL = {
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "of a carrier's own network (CGNAT)",
    "127.0.0.0/8": "this host's loopback",
    "169.254.0.0/16": "link-local",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "for protocols and not public",
    "192.0.2.0/24": "for documentation",
    "192.88.99.0/24": "for relays of 6to4",
    "192.168.0.0/16": "private",
    "198.51.100.0/24": "for documentation",
    "203.0.113.0/24": "for documentation",
    "::1/128": "this host's loopback",
    "100::/64": "for discarding",
    "2001::/23": "for protocols and not public",
    "2001:db8::/32": "for documentation",
    "3fff::/20": "for documentation",
    "fc00::/7": "private",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local",
}
"""The registries of IANA (RFC 6890), word for word: what a Python knows of them differs from version to version."""
_PUBLIC_6 = IPv6Network("2000::/3")
"""All of IPv6 that is given to anybody to be reached."""
_WIDEST, _WIDEST_6 = 8, 7
"""The widest networks that are private as a whole: 10.0.0.0/8 and fc00::/7. A rule for a wider one means the world."""
SYNTHETIC = IPv4Network("198.18.0.0/15")
"""RFC 2544: for benchmarks, so nobody's. The sandbox's own address and those that stand for names are of it."""


def refused(text: str, port: int, remit: Remit, own: Iterable[str] = (), name: str | None = None) -> str | None:
    """Why `text` may not be dialled; None if it may. `own`: the addresses of this host. `name`: what led there, if a
    name did."""
    found = destinations.address(text)
    if found is None:
        return f"{text!r} is no address"
    if destinations.embeds_ipv4(found):
        return f"{text} hides an IPv4 address in an IPv6 one"
    if any(found in network for network in (_NEVER if isinstance(found, IPv4Address) else _NEVER_6)):
        return f"{text} is no address of a host"
    if found in SYNTHETIC:
        return f"{text} is of the range that stands for names inside"
    if _named(found, port, remit, name):
        return None
    if text in _METADATA or str(found) in _METADATA:
        return f"{text} is {_METADATA[str(found)]}"
    if str(found) in set(own):
        return f"{text} is this host's own address"
    kind = _kind(found)
    return f"{text} is {kind}" if kind else None


def _named(found: IPv4Address | IPv6Address, port: int, remit: Remit, name: str | None) -> bool:
    """Does the remit name its network by number, for this port: for all, or for this name? 0.0.0.0/0 is the public
    world, not this host and its neighbours."""
    widest = _WIDEST if isinstance(found, IPv4Address) else _WIDEST_6
    networks = [
        network
        for rule in remit.network
        if port in rule.ports
        for network in (rule.cidr, *(rule.allow_private if name and destinations.host_matches(rule.host, name) else ()))
    ]
    return any(
        destinations.in_network(network, found) and int(network.rpartition("/")[2]) >= widest for network in networks
    )


def _kind(found: IPv4Address | IPv6Address) -> str | None:
    """What makes it no public address; None if it is one."""
    for network, kind in _SPECIAL.items():
        if destinations.in_network(network, found):
            return kind
    if found.is_multicast or not found.is_global or (isinstance(found, IPv6Address) and found not in _PUBLIC_6):
        return "not public"
    return None

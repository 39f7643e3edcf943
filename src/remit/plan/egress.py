"""What the launcher opens inside for the broker, and what the sandbox's files say of names. Pure."""

from __future__ import annotations

from remit.errors import HostError
from remit.plan import launch_plan as lp
from remit.policy.model import Remit

ADDRESS = "198.18.0.1"
"""Where names are answered, of the range for benchmarks (RFC 2544), which is nobody's."""
OWN = "198.18.0.2"
"""The sandbox's own where the broker's sockets are beside it; `ADDRESS` is then beyond."""
FIRST_OF_PROGRAMS = 1024
"""From here on ports are the programs' own to listen on: no right is needed for them."""
MOST_PORTS = 60
"""Descriptors that the launcher can hand over at once."""


def network(remit: Remit) -> lp.Network | None:
    """None where nothing is granted: then there is no way out at all. Raises `HostError` for more ports than can be
    served."""
    ports = tuple(sorted({port for rule in remit.network for port in rule.ports}))
    if not ports:
        return None
    if len(ports) > MOST_PORTS:
        message = f"network.allow names {len(ports)} ports; at most {MOST_PORTS} can be served"
        raise HostError("network", message, hint="name fewer")
    # A socket of the broker's inside would take its port; beside costs the start 2 ms more (bench/README.md).
    return lp.Network(ADDRESS, True, ports, OWN if ports[-1] >= FIRST_OF_PROGRAMS else None)


def files(remit: Remit) -> dict[str, str]:
    """Where names are looked up, by every C library and by those that read the files themselves (Go, musl, Java)."""
    if not remit.network:
        return {
            "/etc/nsswitch.conf": _nsswitch("files"),
            "/etc/resolv.conf": "# The remit grants no network: no name is resolved.\n",
        }
    return {
        "/etc/nsswitch.conf": _nsswitch("files dns"),
        "/etc/resolv.conf": f"nameserver {ADDRESS}\noptions timeout:2 attempts:2\n",
    }


def _nsswitch(hosts: str) -> str:
    return f"passwd: files\ngroup: files\nhosts: {hosts}\nservices: files\nprotocols: files\n"

"""Does one grant cover another? Each function takes (base, child) and is sound, not complete: True only where all that
the child grants is provably granted by the base. Pure."""

from __future__ import annotations

import posixpath
from typing import Any

from remit.policy.model import CredentialGrant, NetworkRule, ReadGrant, ToolRule

_MAGIC = frozenset("*?[]\\{}()|!+@")
"""What may mean more than itself in some dialect of patterns; text without these means itself in all of them."""


def same(base: Any, child: Any) -> bool:
    return bool(base == child)


def program(base: str, child: str) -> bool:
    """A name and a path are never taken for the same program: which file a name is depends on the host."""
    return base.removesuffix("?") == child.removesuffix("?")


def pattern(base: str, child: str) -> bool:
    """Patterns of `state.keep`: below the work directory, without '..' (the schema's reading refuses those)."""
    if base in (child, "**"):
        return True
    stem = base.removesuffix("**")
    return stem != base and stem.endswith("/") and not _MAGIC & set(stem) and child.startswith(stem)


def path_pattern(base: str, child: str) -> bool:
    """Patterns of HTTP paths, which start with /."""
    return base in (child, "/**") or pattern(base[1:], child[1:])


def read(base: ReadGrant, child: ReadGrant) -> bool:
    """The same input, or a part of it at the place that the part has in the whole."""
    if not below(child.source, base.source):
        return False
    rest = child.source.removeprefix(base.source).lstrip("/")
    return child.to == posixpath.normpath(posixpath.join(base.to, rest))


def below(child: str, base: str) -> bool:
    """`child` is `base` or lies below it (absolute, normalised paths)."""
    return child == base or child.startswith(base.rstrip("/") + "/")


def host(base: str, child: str) -> bool:
    if base.startswith("*."):
        return child == base or child.removeprefix("*.").endswith(base[1:])
    return bool(base) and child == base


def network(base: NetworkRule, child: NetworkRule) -> bool:
    """Empty `methods`, `paths` and `headers` mean all."""
    if not set(child.ports) <= set(base.ports):
        return False
    if base.methods and (not child.methods or not set(child.methods) <= set(base.methods)):
        return False
    if base.paths and not (child.paths and all(any(path_pattern(b, c) for b in base.paths) for c in child.paths)):
        return False
    if base.max_body is not None and (child.max_body is None or child.max_body > base.max_body):
        return False
    wanted = dict(child.headers)
    if not all(name in wanted and set(wanted[name]) <= set(values) for name, values in base.headers):
        return False
    if not all(any(_subnet(wide, narrow) for wide in base.allow_private) for narrow in child.allow_private):
        return False
    if base.cidr and child.cidr:
        return _subnet(base.cidr, child.cidr)
    return host(base.host, child.host)


def _subnet(base: str, child: str) -> bool:
    from ipaddress import ip_network

    wide, narrow = ip_network(base), ip_network(child)
    return wide.version == narrow.version and narrow.subnet_of(wide)  # type: ignore[arg-type]


def tool(base: ToolRule, child: ToolRule) -> bool:
    if base.server != child.server:
        return False
    stem = base.tool.removesuffix("*")
    return base.tool == child.tool or (stem != base.tool and not _MAGIC & set(stem) and child.tool.startswith(stem))


def credential(base: CredentialGrant, child: CredentialGrant) -> bool:
    """Empty `hosts` mean wherever the network boundary allows."""
    if (base.name, base.provider) != (child.name, child.provider) or child.ttl_ms > base.ttl_ms:
        return False
    return not base.hosts or (bool(child.hosts) and set(child.hosts) <= set(base.hosts))

"""Addresses that stand for names. A program that asks for an allowed name gets an address of its own for it; connecting
to that address is asking for that name, whatever the program says later. Pure."""

from __future__ import annotations

from ipaddress import IPv4Address

FIRST = IPv4Address("198.18.1.0")
MOST = 65_536
"""Names in one sandbox; wildcards could otherwise be asked for without end."""


class Names:
    """Grows by one address for each name, in the order in which they are asked for. Nothing is ever given twice."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address(self, name: str) -> str | None:
        """What stands for `name` (in small letters, without a dot at its end); None if there are too many."""
        known = self._addresses.get(name)
        if known is None and len(self._addresses) < MOST:
            known = str(FIRST + len(self._addresses))
            self._addresses[name] = known
            self._names[known] = name
        return known

    def name(self, address: str) -> str | None:
        """The name that `address` stands for, if it was given for one."""
        return self._names.get(address)

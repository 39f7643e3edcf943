"""What is said beside an imported remit, and what its formats have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Any, NamedTuple

from remit.errors import Problem
from remit.policy import places
from remit.policy.document import Document, Path

WEB = (80, 443)
"""Ports of the web: for what names none."""


class Imported(NamedTuple):
    """`body`: a remit's document without `apiVersion` and `agent`. `notes`: where it differs from what it was."""

    kind: str
    body: dict[str, Any]
    notes: tuple[Problem, ...]


class Notes:
    """`said`: differences; `problems`: what is none of the format."""

    def __init__(self, doc: Document) -> None:
        self._doc = doc
        self.said: list[Problem] = []
        self.problems: list[Problem] = []

    def note(self, path: Path, message: str, hint: str | None = None) -> None:
        self.said.append(self._doc.problem(path, "W_DIFFERS", message, hint))

    def fault(self, path: Path, message: str) -> None:
        self.problems.append(self._doc.problem(path, "E_FORMAT", message))

    def mapping(self, value: Any, path: Path) -> Mapping[str, Any]:
        if value is None:
            return {}
        if isinstance(value, Mapping):
            return value
        self.fault(path, f"{path[-1]} is a mapping in this format")
        return {}

    def words(self, value: Any, path: Path) -> list[str]:
        """A list of strings."""
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return list(value)
        self.fault(path, f"{path[-1]} is a list of strings in this format")
        return []

    def left(self, data: Mapping[str, Any], path: Path, known: Iterable[str], why: str) -> None:
        """Notes every key that was not looked at."""
        for key in data:
            if key not in set(known):
                self.note((*path, key), f"{'.'.join(map(str, (*path, key)))}: {why}")


def host_rule(host: str, ports: Iterable[int], notes: Notes, path: Path, **more: Any) -> dict[str, Any] | None:
    """A rule for a name (or `*.` and a domain); None, with a note, if a remit has none such."""
    wrong = places.bad_host(host)
    shape = host.removeprefix("*.").replace("-", "").replace(".", "")
    if wrong is not None or not shape.isascii() or not shape.isalnum():
        said = wrong[0] if wrong else f"{host!r} is no name, nor *. and a domain"
        notes.note(path, f"{said}: left out", wrong[1] if wrong else None)
        return None
    return {"host": host.lower(), "ports": sorted(set(ports)), **more}


def network(text: str) -> str | None:
    """An address or a network by number, as a remit writes it; None if it is a name."""
    try:
        return str(ip_network(text.strip("[]"), strict=False))
    except ValueError:
        return None

"""The network of an E2B sandbox, as its SDK takes it (https://e2b.dev/docs/network/internet-access, 2026): the
arguments `allow_internet_access` and `network`, in the spelling of Python or JavaScript. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from remit.importing.notes import WEB, Notes, host_rule, network

_ALL = ("0.0.0.0/0", "ALL_TRAFFIC", "all_traffic", "allTraffic")
_TOP = {"allow_internet_access": "internet", "allowInternetAccess": "internet", "network": "network"}
_NETWORK = {"allow_out": "allow", "allowOut": "allow", "deny_out": "deny", "denyOut": "deny"}


def looks_like(data: Mapping[str, Any]) -> bool:
    said = data.get("network")
    inner = set(said) if isinstance(said, Mapping) else set()
    return bool({"allow_internet_access", "allowInternetAccess"} & set(data) or set(_NETWORK) & (inner | set(data)))


def translate(data: Mapping[str, Any], notes: Notes) -> dict[str, Any]:
    # The object that `network` is given may stand alone.
    alone = bool(set(_NETWORK) & set(data))
    said = data if alone else notes.mapping(data.get("network"), ("network",))
    at: tuple[str, ...] = () if alone else ("network",)
    allowed, denied = _words(said, "allow", at, notes), _words(said, "deny", at, notes)
    open_ = all(data.get(key) is not False for key in ("allow_internet_access", "allowInternetAccess"))
    if open_ and not any(word in _ALL for _, word in denied):
        text = "all that is not denied is open there; here only what is named is, and names can't be left open"
        notes.note(at, text, "name the hosts that are needed in network.allow")
    for path, word in denied:
        if word not in _ALL:
            notes.note(path, f"{word}: a remit grants nothing that it would have to take away: left out")
    rules: list[dict[str, Any]] = []
    for path, word in allowed:
        rule = _rule(path, word, notes)
        if rule is not None:
            rules.append(rule)
    if not alone:
        notes.left(data, (), _TOP, "is not of the network and is left out")
    notes.left(said, at, (*_NETWORK, *(_TOP if alone else ())), "has no counterpart and is left out")
    return {"network": {"allow": rules}}


def _words(said: Mapping[str, Any], kind: str, at: tuple[str, ...], notes: Notes) -> list[tuple[tuple[Any, ...], str]]:
    return [
        ((*at, key, i), word)
        for key, meant in _NETWORK.items()
        if meant == kind
        for i, word in enumerate(notes.words(said.get(key), (*at, key)))
    ]


def _rule(path: tuple[Any, ...], word: str, notes: Notes) -> dict[str, Any] | None:
    if word in _ALL:
        notes.note(path, f"{word}: names can't be left open: left out", "name the hosts that are needed")
        return None
    number = network(word)
    if number is not None:
        notes.note(path, f"{word}: any port there, 80 and 443 here", "add the ports that are needed")
        return {"cidr": number, "ports": list(WEB)}
    # Names are told by Host on port 80 and by SNI on 443 there, and on no other port.
    rule = host_rule(word, WEB, notes, path)
    if rule is not None:
        hint = "add allow_private: [NETWORK] to the rule if it is inside yours"
        notes.note(path, f"{word}: where it leads to an address that is not public it is refused here", hint)
    return rule

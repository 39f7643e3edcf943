"""A document against the published schema: every fault located and said in words, with the allowed values.

Rules of this room: pure. The schema (`contracts/remit.v1.schema.json`) is the only description of a remit's shape;
jsonschema-rs judges, this translates. jsonschema-rs is imported on first use: it costs 25 ms.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy.document import Document, Path


@cache
def schema() -> dict[str, Any]:
    """The published schema as data."""
    text = files("remit.contracts").joinpath("remit.v1.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _validator() -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(schema())


def validate(document: Document) -> None:
    """Raises `PolicyError` with every fault, in the order of the file."""
    problems = [_translate(document, error) for error in _validator().iter_errors(document.data)]
    if problems:
        unique = {(p.line, p.column, p.message): p for p in problems}
        raise PolicyError(tuple(sorted(unique.values(), key=lambda p: (p.line, p.column))))


def _node(path: Path) -> Mapping[str, Any]:
    """The part of the schema that describes what stands at `path`; empty where alternatives meet."""
    node: Mapping[str, Any] = schema()
    for step in path:
        if isinstance(step, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(step, {})
    return node


def _near(word: str, known: list[str]) -> str | None:
    found = difflib.get_close_matches(word, known, 1, 0.6)
    return found[0] if found else None


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_TYPES = {dict: "a mapping", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}


def _translate(document: Document, error: Any) -> Problem:
    path: Path = tuple(error.instance_path)
    value = document.data
    for step in path:
        value = value[step]
    kind = error.kind.name
    name = ".".join(str(step) for step in path) or "the remit"
    node = _node(path)
    if kind == "additionalProperties":
        return _unknown_key(document, path, error.kind.unexpected[0], node)
    if kind == "required":
        missing = error.kind.property
        return document.problem(path, "E_MISSING", f"{name} lacks '{missing}'", f"add `{missing}: …`")
    if kind in ("enum", "constant"):
        allowed = [str(v) for v in node.get("enum", [node.get("const")])]
        near = _near(str(value), allowed)
        message = f"{name}: {_shown(value)} is not one of {', '.join(allowed)}"
        return document.problem(path, "E_VALUE", message, f"did you mean {near}?" if near else None)
    if kind == "type":
        wanted = node.get("type", "")
        found = "nothing" if value is None else _TYPES.get(type(value), "something else")
        message = f"{name} is {found} and must be {_NAMES.get(wanted, wanted or 'another type')}"
        return document.problem(path, "E_TYPE", message, _example(node))
    if kind in ("anyOf", "oneOf", "pattern", "propertyNames"):
        return document.problem(path, "E_VALUE", f"{name}: {_shown(value)} does not fit", _example(node))
    if kind == "uniqueItems":
        return document.problem(path, "E_VALUE", f"{name}: an entry stands twice", "keep one of them")
    return document.problem(path, "E_VALUE", f"{name}: {error.message}", _example(node))


def _unknown_key(document: Document, path: Path, key: str, node: Mapping[str, Any]) -> Problem:
    known = sorted(node.get("properties", {}))
    if not known:
        known = sorted({k for option in node.get("anyOf", []) for k in option.get("properties", {})})
    near = _near(key, known)
    where = f"in {'.'.join(map(str, path))}" if path else "at the top"
    hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(known)}"
    return document.problem((*path, key), "E_UNKNOWN_KEY", f"unknown key '{key}' {where}", hint, key=True)


def _example(node: Mapping[str, Any]) -> str | None:
    said = node.get("description", "")
    examples = node.get("examples")
    if examples:
        shown = examples[0] if isinstance(examples[0], str) else _shown(examples[0])
        return f"{said} For example: {shown}".strip()
    return said or None

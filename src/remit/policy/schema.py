"""A document against the published schema: every fault located and said in words, with the allowed values.

Rules of this room: pure. The schema (`contracts/remit.v1.schema.json`) is the only description of a remit's shape;
jsonschema-rs judges, this translates. jsonschema-rs is imported on first use: it costs 25 ms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any

from remit.errors import PolicyError, Problem
from remit.policy.document import MAX_PROBLEMS, Document, Path
from remit.policy.units import meant_duration, meant_size

_MAX_FOUND = 10 * MAX_PROBLEMS
"""Put into words, before they are sorted: each takes a tenth of a millisecond."""

Node = Mapping[str, Any]
"""A part of the schema."""


@cache
def schema() -> dict[str, Any]:
    """The published schema as data."""
    from importlib.resources import files

    text = files("remit.contracts").joinpath("remit.v1.schema.json").read_text("utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _validator() -> Any:
    import jsonschema_rs

    return jsonschema_rs.Draft202012Validator(schema())


def validate(document: Document) -> None:
    """Raises `PolicyError` with every fault, in the order of the file."""
    found = (
        problem
        for error in _validator().iter_errors(document.data)
        for problem in _translate(document, error, tuple(error.instance_path), _node(tuple(error.instance_path)))
    )
    problems = list(islice(found, _MAX_FOUND))
    if problems:
        unique = {(p.line, p.column, p.message): p for p in problems}
        ordered = sorted(unique.values(), key=lambda p: (p.line, p.column))
        raise PolicyError(tuple(ordered[:MAX_PROBLEMS]))


def dotted(path: Path) -> str:
    """`filesystem.read[0]`: a path as rules are named."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def near(word: str, known: list[str]) -> str | None:
    """What `word` was probably meant to be."""
    import difflib

    found = difflib.get_close_matches(word.lower(), known, 1, 0.6)
    return found[0] if found else None


def _resolved(node: Node) -> Node:
    reference = node.get("$ref")
    if reference is None:
        return node
    # What stands beside a $ref is said of this use and goes before what the definition says of all.
    return {**schema()["$defs"][reference.removeprefix("#/$defs/")], **node}


def _node(path: Path, start: Node | None = None) -> Node:
    """The part of the schema that describes what stands at `path`; empty where that depends on the document."""
    node = _resolved(schema() if start is None else start)
    for step in path:
        inner = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step)
        if inner is None:
            inner = next(iter(node.get("patternProperties", {}).values()), {})
        node = _resolved(inner)
    return node


_KINDS: dict[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "empty",
}
_NAMES = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
}
_BOUNDS = {
    "minimum": "is less than {}, the least",
    "maximum": "is more than {}, the most",
    "minLength": "is empty",
    "maxLength": "is longer than {} characters",
    "minItems": "is empty",
    "maxItems": "has more than {} entries",
}


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _named(node: Node) -> str:
    """What a part of the schema asks for, in two words."""
    kind = str(node.get("type", ""))
    return str(node.get("title") or _NAMES.get(kind, "another value"))


def _translate(document: Document, error: Any, path: Path, node: Node) -> Iterator[Problem]:
    kind = error.kind.name
    name = dotted(path) or "the remit"
    value = error.instance
    if kind == "additionalProperties":
        for key in error.kind.unexpected:
            yield _unknown_key(document, path, key, node)
    elif kind == "required":
        missing = error.kind.property
        yield document.problem(path, "E_MISSING", f"{name} lacks '{missing}'", _missing(missing, node))
    elif kind in ("enum", "const"):
        allowed = [str(v) for v in node.get("enum", [node.get("const")])]
        meant = near(value, allowed) if isinstance(value, str) else None
        message = f"{name}: {_shown(value)} is not one of {', '.join(allowed)}"
        yield document.problem(path, "E_VALUE", message, f"did you mean {meant}?" if meant else _example(node))
    elif kind == "type":
        message = f"{name} is {_KINDS.get(type(value), 'something else')} and must be {_named(node)}"
        yield document.problem(path, "E_TYPE", message, _example(node))
    elif kind == "anyOf":
        yield from _alternatives(document, error, path, node)
    elif kind == "pattern":
        wanted = node.get("title", "in the form that is wanted")
        near_by = {"a size": meant_size, "a time": meant_duration}.get(wanted)
        meant = near_by(value) if near_by else None
        hint = f"did you mean {meant}?" if meant else _example(node)
        yield document.problem(path, "E_VALUE", f"{name}: {_shown(value)} is not {wanted}", hint)
    elif kind == "uniqueItems":
        yield document.problem(path, "E_VALUE", f"{name}: an entry stands twice", "keep one of them")
    elif kind in _BOUNDS:
        bound = _BOUNDS[kind].format(node.get(kind))
        subject = f"{name}: {_shown(value)}" if kind in ("minimum", "maximum") else name
        yield document.problem(path, "E_VALUE", f"{subject} {bound}", _example(node))
    else:
        yield document.problem(path, "E_VALUE", f"{name}: {error.message}", _example(node))


def _alternatives(document: Document, error: Any, path: Path, node: Node) -> Iterator[Problem]:
    """Of several forms, the one that the author plainly meant is judged; if none was, all are named."""
    name = dotted(path)
    meant = [
        (branch, errors)
        for branch, errors in zip(map(_resolved, node.get("anyOf", [])), error.kind.context, strict=False)
        if not any(e.kind.name == "type" and tuple(e.instance_path) == path for e in errors)
    ]
    if not meant:
        forms = " or ".join(dict.fromkeys(_named(_resolved(branch)) for branch in node.get("anyOf", [])))
        wanted = node.get("title", forms or "another value")
        message = f"{name} is {_KINDS.get(type(error.instance), 'something else')} and must be {wanted}"
        yield document.problem(path, "E_TYPE", message, _example(node))
        return
    branch, errors = min(meant, key=lambda pair: len(pair[1]))
    described = {**branch, **{k: node[k] for k in ("title", "description", "examples") if k in node}}
    for inner in errors:
        at = tuple(inner.instance_path)
        yield from _translate(document, inner, at, described if at == path else _node(at[len(path) :], branch))


def _missing(key: str, node: Node) -> str:
    if key == "apiVersion":
        return "add `apiVersion: remit/v1`"
    example = _resolved(node.get("properties", {}).get(key, {})).get("examples")
    return f"add `{key}: {_plain(example[0]) if example else '…'}`"


def _unknown_key(document: Document, path: Path, key: str, node: Node) -> Problem:
    where = f"in {dotted(path)}" if path else "at the top"
    known = sorted(node.get("properties", {}))
    if known:
        meant = near(key, known)
        hint = f"did you mean '{meant}'?" if meant else _elsewhere(key) or f"known here: {', '.join(known)}"
        message = f"unknown key '{key}' {where}"
    else:
        hint, message = str(node.get("description", "")), f"'{key}' can't be a name {where}"
    return document.problem((*path, key), "E_UNKNOWN_KEY", message, hint, key=True)


def _elsewhere(key: str) -> str | None:
    """The boundary that knows `key`, if it merely stands in the wrong place."""
    if key in schema()["properties"]:
        return f"`{key}:` stands at the top"
    for name, node in schema()["properties"].items():
        if key in node.get("properties", {}):
            return f"'{key}' belongs to `{name}:`"
    return None


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _shown(value)


def _example(node: Node) -> str | None:
    said = str(node.get("description", ""))
    examples = node.get("examples")
    return f"{said} For example: {_plain(examples[0])}".strip() if examples else said or None

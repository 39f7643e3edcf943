"""YAML text into plain data with the place of every value, or located problems.

Rules of this room: pure. The text is another's: duplicate keys, anchors, tags and depth are refused here, before
anything looks at a value. Scalars are read as YAML 1.2 reads them (`on` and `1:30` are strings).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from remit.errors import PolicyError, Problem

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32

Path = tuple[str | int, ...]
"""Where a value stands: keys and indices from the top."""

_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Document:
    """`data`: plain dicts, lists, strings, numbers, booleans, None. `places`: the line and column of each value;
    `keys`: of each mapping's key."""

    source: str
    data: dict[str, Any]
    places: dict[Path, tuple[int, int]] = field(repr=False)
    keys: dict[Path, tuple[int, int]] = field(repr=False)

    def problem(self, path: Path, code: str, message: str, hint: str | None = None, *, key: bool = False) -> Problem:
        """A problem at the value (or the key) at `path`, or at the nearest thing above it that has a place."""
        places = self.keys if key else self.places
        at = path
        while at not in places and at:
            at = at[:-1]
            places = self.places
        line, column = places.get(at, (1, 1))
        return Problem(self.source, line, column, code, message, hint)


def parse(text: str | bytes, source: str) -> Document:
    """Raises `PolicyError` with every place at fault."""
    import yaml

    def fail(line: int, column: int, code: str, message: str, hint: str | None = None) -> PolicyError:
        return PolicyError((Problem(source, line, column, code, message, hint),))

    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            line = text[: error.start].count(b"\n") + 1
            raise fail(line, 1, "E_ENCODING", "the file is not UTF-8", "save it as UTF-8") from error
    if len(text) > MAX_BYTES:
        raise fail(1, 1, "E_TOO_LARGE", f"a remit is at most {MAX_BYTES} characters", "split it with `extends`")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_events(yaml, text, loader, source)
        node = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = error.problem or "not YAML"
        raise fail(line, column, "E_SYNTAX", f"not YAML: {message}", "check the indentation and quotes") from error
    except yaml.YAMLError as error:
        line = text[: getattr(error, "position", 0)].count("\n") + 1
        raise fail(line, 1, "E_SYNTAX", "not YAML: a character that text can't hold", "remove it") from error
    except RecursionError as error:
        raise fail(1, 1, "E_TOO_DEEP", f"nested deeper than {MAX_DEPTH}", "flatten it") from error
    if node is None:
        raise fail(1, 1, "E_EMPTY", "the remit is empty", "`remit init` writes one to start from")
    reader = _Reader(source)
    data = reader.value(node, (), 0)
    if reader.problems:
        raise PolicyError(tuple(reader.problems))
    if not isinstance(data, dict):
        raise fail(1, 1, "E_TYPE", "a remit is a mapping of keys to values", "start with `apiVersion: remit/v1`")
    return Document(source, data, reader.places, reader.keys)


def _check_events(yaml: Any, text: str, loader: Any, source: str) -> None:
    """Anchors, aliases, tags and second documents, before anything is built of them."""
    documents = depth = 0
    for event in yaml.parse(text, Loader=loader):
        mark = event.start_mark
        problem: tuple[str, str, str] | None = None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            problem = ("E_ANCHOR", "anchors and aliases are not read in a remit", "write the value out")
        elif getattr(event, "tag", None) not in (None, "!"):
            problem = ("E_TAG", f"the tag {event.tag} is not read in a remit", "remove it")
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                problem = ("E_DOCUMENTS", "one file holds one remit", "put the second one into a file of its own")
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                problem = ("E_TOO_DEEP", f"nested deeper than {MAX_DEPTH}", "flatten it")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if problem:
            code, message, hint = problem
            raise PolicyError((Problem(source, mark.line + 1, mark.column + 1, code, message, hint),))


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[Problem] = []
        self.places: dict[Path, tuple[int, int]] = {}
        self.keys: dict[Path, tuple[int, int]] = {}

    def value(self, node: Any, path: Path, depth: int) -> Any:
        self.places[path] = _place(node)
        if node.id == "mapping":
            return dict(self.pairs(node, path, depth))
        if node.id == "sequence":
            return [self.value(item, (*path, i), depth + 1) for i, item in enumerate(node.value)]
        return _scalar(node)

    def pairs(self, node: Any, path: Path, depth: int) -> Iterator[tuple[str, Any]]:
        seen: dict[str, tuple[int, int]] = {}
        for key, value in node.value:
            place = _place(key)
            name = _scalar(key) if key.id == "scalar" else None
            if not isinstance(name, str):
                self.problems.append(Problem(self.source, *place, "E_KEY", "a key is a string", "quote it"))
                continue
            if name in seen:
                line = seen[name][0]
                message = f"the key '{name}' stands twice (first in line {line})"
                self.problems.append(Problem(self.source, *place, "E_DUPLICATE", message, "keep one of them"))
                continue
            seen[name] = place
            self.keys[(*path, name)] = place
            yield name, self.value(value, (*path, name), depth + 1)


def _place(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _scalar(node: Any) -> Any:
    text: str = node.value
    if node.style:
        return text
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    if len(text) < 32 and _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if len(text) < 32 and _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text

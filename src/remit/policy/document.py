"""YAML text into plain data with the place of every value, or located problems.

Rules of this room: pure. The text is another's, so it is read event by event and nothing is composed: anchors (and so
"billion laughs"), tags, merge keys, second documents and depth are refused as they arrive, before anything looks at a
value. Scalars are read as YAML 1.2's core schema reads them (`on` and `1:30` are strings). yaml is imported on use.
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
MAX_VALUES = 5_000
"""Keys and values in all. What judges a document keeps every fault that it finds: a megabyte of them took half a minute
and gigabytes."""
MAX_MESSAGE = 1000
"""Characters; a message may hold a word of the file's, and that may be as long as the file."""
MAX_PROBLEMS = 50
"""Said at once; a file with more is not a remit with mistakes."""

Path = tuple[str | int, ...]
"""Where a value stands: keys and indices from the top."""

_INT = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_UNFIT = re.compile(
    # Controls, lone surrogates and non-characters; NEL, LS and PS, which end a line (and a comment) for the parser and
    # not for an editor; and the marks that reorder text, so that a reviewer would read something else than is enforced.
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufeff\ufffe\uffff]"
)


@dataclass(frozen=True, slots=True)
class Document:
    """`data`: plain dicts, lists, strings, numbers, booleans, None. `places`: the line and column, from 1, of each
    value; `keys`: of each mapping's key."""

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
        return Problem(self.source, line, column, code, _short(message), hint)


def parse(text: str | bytes, source: str) -> Document:
    """Raises `PolicyError` with every place at fault."""
    import yaml

    text = _text(text, source)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(yaml, iter(yaml.parse(text, Loader=loader)), source)
    try:
        data = builder.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        line = text.splitlines()[place[0] - 1 : place[0]]
        tab = bool(line) and line[0][place[1] - 1 :].startswith("\t")
        said = "a tab where spaces belong" if tab else error.problem or "it can't be read"
        builder.fault(place, "E_SYNTAX", f"not YAML: {said}", "check the indentation, the quotes and the colons")
    except yaml.YAMLError:
        builder.fault((1, 1), "E_SYNTAX", "not YAML: it can't be read", "check the quotes")
    if builder.problems:
        raise PolicyError(tuple(builder.problems[:MAX_PROBLEMS]))
    if data is None:
        hint = "`remit init` writes one to start from"
        raise PolicyError((Problem(source, 1, 1, "E_EMPTY", "the remit is empty", hint),))
    if not isinstance(data, dict):
        message = "a remit is a mapping of keys to values"
        raise PolicyError((Problem(source, 1, 1, "E_TYPE", message, "start with `apiVersion: remit/v1`"),))
    return Document(source, data, builder.places, builder.keys)


def _text(text: str | bytes, source: str) -> str:
    def fail(line: int, column: int, code: str, message: str, hint: str) -> PolicyError:
        return PolicyError((Problem(source, line, column, code, message, hint),))

    if len(text) > MAX_BYTES:
        raise fail(1, 1, "E_TOO_LARGE", f"a remit is at most {MAX_BYTES} bytes", "split it with `extends`")
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            before = error.object[: error.start]
            line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
            raise fail(line, column, "E_ENCODING", "the file is not UTF-8", "save it as UTF-8") from error
    text = text.removeprefix("\ufeff")
    unfit = _UNFIT.search(text)
    if unfit is not None:
        at = unfit.start()
        message = f"U+{ord(unfit[0]):04X} is no character for a remit: it is invisible or a control"
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        raise fail(line, column, "E_CONTROL", message, "remove it")
    return text


class _Builder:
    """Builds data from parser events. What can be gone on from is collected in `problems`; the rest is raised."""

    def __init__(self, yaml: Any, events: Iterator[Any], source: str) -> None:
        self.yaml = yaml
        self.events = events
        self.source = source
        self.problems: list[Problem] = []
        self.places: dict[Path, tuple[int, int]] = {}
        self.keys: dict[Path, tuple[int, int]] = {}
        self.values = 0

    def fault(self, place: tuple[int, int], code: str, message: str, hint: str) -> None:
        self.problems.append(Problem(self.source, *place, code, _short(message), hint))

    def refuse(self, event: Any, code: str, message: str, hint: str) -> PolicyError:
        self.fault(_place(event), code, message, hint)
        return PolicyError(tuple(self.problems[-MAX_PROBLEMS:]))

    def document(self) -> Any:
        data = None
        documents = 0
        for event in self.events:
            if isinstance(event, self.yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    hint = "put the second one into a file of its own"
                    raise self.refuse(event, "E_DOCUMENTS", "one file holds one remit", hint)
                if event.version or event.tags:
                    raise self.refuse(event, "E_TAG", "a directive (%) is not read in a remit", "remove it")
                data = self.value(next(self.events), (), 1)
        return data

    def value(self, event: Any, path: Path, depth: int) -> Any:
        self.check(event, depth)
        self.places[path] = _place(event)
        if isinstance(event, self.yaml.MappingStartEvent):
            return self.mapping(path, depth)
        if isinstance(event, self.yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(self.events), self.yaml.SequenceEndEvent):
                items.append(self.value(event, (*path, len(items)), depth + 1))
            return items
        return self.scalar(event)

    def mapping(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not isinstance(event := next(self.events), self.yaml.MappingEndEvent):
            self.check(event, depth + 1)
            place = _place(event)
            name = self.scalar(event) if isinstance(event, self.yaml.ScalarEvent) else None
            if not isinstance(name, str):
                raise self.refuse(event, "E_KEY", "a key is a string", "quote it")
            if name == "<<" and event.implicit[0]:
                raise self.refuse(event, "E_MERGE", "merge keys are not read in a remit", "write the keys out")
            value = self.value(next(self.events), (*path, name), depth + 1)
            if name in found:
                message = f"the key '{name}' stands twice (first in line {self.keys[(*path, name)][0]})"
                self.fault(place, "E_DUPLICATE", message, "keep one of them")
                continue
            self.keys[(*path, name)] = place
            found[name] = value
        return found

    def check(self, event: Any, depth: int) -> None:
        """What is refused wherever it stands."""
        self.values += 1
        if self.values > MAX_VALUES:
            hint = "split it with `extends`"
            raise self.refuse(event, "E_TOO_LARGE", f"a remit holds at most {MAX_VALUES} keys and values", hint)
        if isinstance(event, self.yaml.AliasEvent) or event.anchor is not None:
            raise self.refuse(event, "E_ANCHOR", "anchors and aliases are not read in a remit", "write the value out")
        if event.tag is not None:
            raise self.refuse(event, "E_TAG", f"the tag {event.tag} is not read in a remit", "remove it")
        if depth > MAX_DEPTH and isinstance(event, self.yaml.CollectionStartEvent):
            raise self.refuse(event, "E_TOO_DEEP", f"nested deeper than {MAX_DEPTH}", "flatten it")

    def scalar(self, event: Any) -> Any:
        if event.implicit[0]:
            return _plain(event.value)
        # A quoted string can name by escapes what the text itself must not hold.
        unfit = _UNFIT.search(event.value)
        if unfit is not None:
            message = f"U+{ord(unfit[0]):04X} is no character for a remit: it is invisible or a control"
            self.fault(_place(event), "E_CONTROL", message, "remove it")
        text: str = event.value
        return text


def _short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _plain(text: str) -> Any:
    """An unquoted scalar by YAML 1.2's core schema. Numbers that no field could hold stay strings."""
    if text.lower() in _WORDS and text in (text.lower(), text.upper(), text.capitalize()):
        return _WORDS[text.lower()]
    if len(text) < 19 and _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
    if len(text) < 32 and _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text

"""The cases as data: `cases/*.yaml`, one file a group. Rules of this file: a mistake in a case is an error, with its
file and name; and a normaliser without a reason is a mistake.

| key | what |
|---|---|
| `name` | unique |
| `argv`, `sh`, `bash` or `python` | the command: its words, or a script for `sh -c`, `bash -c`, `python3 -c` |
| `fill` | so many further words, of 100 letters, after `argv` |
| `base` | the built-in base (default: the file's) |
| `exec` | programs beyond the base's; a needed program that the host lacks sets the case apart |
| `needs` | programs of the base that the case can't do without |
| `paths` | paths of the host that it can't do without |
| `remit` | what else the remit says, merged into it |
| `env` | variables of both sides |
| `files` | what is in the work directory: name to text |
| `setup` | a script that runs on the host in the work directory of either side before |
| `stdin` | text |
| `exit` | the bare run's exit status (default 0): anything else and the case is broken |
| `keep` | patterns of files that are compared too |
| `normalise` | `match` (a regular expression), `with`, `why`: what must differ, made the same on both sides |
| `known` | why it differs; it is counted all the same |
| `intended` | why the inside refuses what it refuses on purpose; counted apart, and a mistake once nothing differs |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FOLDER = Path(__file__).with_name("cases")
_SCRIPTS: Mapping[str, tuple[str, ...]] = {
    "sh": ("sh", "-c"),
    "bash": ("bash", "-c"),
    "python": ("python3", "-c"),
}


class Rule(NamedTuple):
    match: re.Pattern[str]
    to: str
    why: str


class Case(NamedTuple):
    name: str
    group: str
    argv: tuple[str, ...]
    base: str
    exec: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    remit: Mapping[str, Any] = {}
    env: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    setup: str = ""
    stdin: str = ""
    exit: int = 0
    keep: tuple[str, ...] = ()
    normalise: tuple[Rule, ...] = ()
    known: str = ""
    intended: str = ""


class BadCase(ValueError):
    """A mistake in a case's text."""


def load(folder: Path = FOLDER) -> list[Case]:
    """All cases, in the files' order. Raises `BadCase`."""
    cases = [case for path in sorted(folder.glob("*.yaml")) for case in parse(path.read_text(), path.name)]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadCase(f"names are given twice: {', '.join(twice)}")
    return cases


def parse(text: str, source: str) -> Iterator[Case]:
    document = yaml.safe_load(text)
    if not isinstance(document, dict) or not {"group", "base", "cases"} >= document.keys() >= {"group", "cases"}:
        raise BadCase(f"{source}: it has the keys group, base and cases")
    for raw in document["cases"]:
        try:
            yield _case(raw, document["group"], document.get("base"))
        except (ValueError, TypeError, KeyError) as error:
            named = raw.get("name", raw) if isinstance(raw, dict) else raw
            raise BadCase(f"{source}: {named}: {error}") from error


def _case(raw: Mapping[str, Any], group: str, base: str | None) -> Case:
    unknown = raw.keys() - {*Case._fields, *_SCRIPTS, "fill"}
    if unknown:
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    ways = [key for key in ("argv", *_SCRIPTS) if key in raw]
    if len(ways) != 1:
        raise ValueError("it has one of argv, sh, bash, python")
    way = ways[0]
    argv = tuple(map(str, raw["argv"])) if way == "argv" else (*_SCRIPTS[way], raw[way])
    return Case(
        name=raw["name"],
        group=group,
        argv=argv + ("x" * 100,) * raw.get("fill", 0),
        base=raw.get("base") or base or "",
        exec=tuple(raw.get("exec", ())),
        needs=(*raw.get("needs", ()), argv[0]),
        paths=tuple(raw.get("paths", ())),
        remit=raw.get("remit", {}),
        env={key: str(value) for key, value in raw.get("env", {}).items()},
        files=raw.get("files", {}),
        setup=raw.get("setup", ""),
        stdin=raw.get("stdin", ""),
        exit=raw.get("exit", 0),
        keep=tuple(raw.get("keep", ())),
        normalise=tuple(_rule(rule) for rule in raw.get("normalise", ())),
        known=raw.get("known", ""),
        intended=raw.get("intended", ""),
    )


def _rule(raw: Mapping[str, str]) -> Rule:
    if raw.keys() != {"match", "with", "why"} or len(raw["why"].split()) < 3:
        raise ValueError("a normaliser has match, with, and in why a reason")
    return Rule(re.compile(raw["match"], re.M), raw["with"], raw["why"])

"""`remit import`: another sandbox's policy as a remit, and where the two differ."""

from __future__ import annotations

import argparse
import os
import sys

from remit import compose
from remit.cli import say
from remit.errors import UsageError
from remit.importing import read
from remit.importing.notes import Imported


def run(options: argparse.Namespace) -> int:
    source = "standard input" if options.file == "-" else options.file
    imported = read(_text(options.file), source, options.kind)
    text = _remit(imported, source, options)
    # Before anybody relies on it; relative to where it will be.
    at = os.path.abspath(options.out or "remit.yaml")
    effective = compose.load_text(text, options.out or "the remit", os.path.dirname(at))
    if options.out:
        _write(options.out, text, options.force)
    if options.json:
        notes = [note._asdict() for note in imported.notes]
        say.data({"format": imported.kind, "remit": text, "digest": effective.digest, "notes": notes})
        return 0
    for note in imported.notes:
        print(f"{say.paint('note:', 'yellow')} {note}", file=sys.stderr)
    if options.out:
        print(f"wrote {options.out} ({imported.kind}, {len(imported.notes)} differences)")
        print(f"next: remit explain --remit {options.out}\n      remit run --remit {options.out} -- CMD")
    else:
        sys.stdout.write(text)
    return 0


def _text(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _remit(imported: Imported, source: str, options: argparse.Namespace) -> str:
    import yaml

    extends = {"extends": options.extends} if options.extends else {}
    head = {"apiVersion": "remit/v1", "agent": options.agent, **extends}
    body = yaml.safe_dump({**head, **imported.body}, sort_keys=False, width=120, allow_unicode=True)
    shown = os.path.basename(source)
    lines = [f"# Imported from {shown} ({imported.kind}). Where it differs from that:"]
    lines += [f"# - {_plain(note.message)}" for note in imported.notes] or ["# nowhere that is known of"]
    return "\n".join(lines) + "\n" + body


def _plain(message: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in message).split())


def _write(path: str, text: str, force: bool) -> None:
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", hint="give another name, or --force") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error

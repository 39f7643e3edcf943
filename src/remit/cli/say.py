"""Words for people on standard error, in colour where that is wanted. `remit run` uses no more than this: the table
library costs 40 ms."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from remit.errors import RemitError

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def paints(stream: TextIO) -> bool:
    """Colour: not with NO_COLOR, not into files; TERM=dumb has none."""
    return not os.environ.get("NO_COLOR") and stream.isatty() and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if paints(stream or sys.stderr) else text


def note(text: str, style: str = "dim") -> None:
    """One line of ours, marked as such, among the program's own."""
    print(f"{paint('remit:', style)} {printable(text, lines=False)}", file=sys.stderr, flush=True)


def printable(text: str, *, lines: bool = True) -> str:
    """Names come from the guest: control characters (escape sequences, a line that looks like ours) are shown, not
    sent. `lines`: the text is ours and has lines."""
    keep = "\n " if lines else " "
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "backslashreplace").decode() for c in text
    )


def error(problem: RemitError, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": problem.as_data()}), file=sys.stderr)
        return
    print(f"{paint('error:', 'red')} {printable(problem.message)}", file=sys.stderr)
    if problem.hint:
        print(f"  {paint('hint:', 'cyan')} {printable(problem.hint)}", file=sys.stderr)


def data(value: Any) -> None:
    """JSON on standard output."""
    # ASCII: a raw C1 control in a name would reach the terminal.
    print(json.dumps(value, indent=2))

"""Other sandboxes' policies as remits, with a word for every difference. Pure: text in, a document and notes out.

What a remit can say is said; what it can't is left out, which denies it. Wherever the remit then grants or refuses
something else than the source does, a note says so: none of it is silent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from remit.errors import PolicyError, Problem
from remit.importing import e2b, openshell, srt
from remit.importing.notes import Imported, Notes
from remit.policy import document
from remit.policy.document import Document

FORMATS: Mapping[str, tuple[Callable[[Mapping[str, Any]], bool], Callable[[Mapping[str, Any], Notes], dict[str, Any]]]]
FORMATS = {
    "srt": (srt.looks_like, srt.translate),
    "openshell": (openshell.looks_like, openshell.translate),
    "e2b": (e2b.looks_like, e2b.translate),
}
"""By name: whether a document is of the format, and what it says."""


def read(text: str | bytes, source: str, kind: str | None = None) -> Imported:
    """`kind`: one of `FORMATS`; None to tell it by its keys. Raises `PolicyError` for text that is neither YAML nor
    JSON, or of which the format can't be told or followed."""
    doc = _parse(text, source)
    if kind is None:
        kind = _kind(doc)
    notes = Notes(doc)
    body = FORMATS[kind][1](doc.data, notes)
    if notes.problems:
        raise PolicyError(tuple(notes.problems))
    return Imported(kind, body, tuple(notes.said))


def _parse(text: str | bytes, source: str) -> Document:
    try:
        return document.parse(text, source)
    except PolicyError:
        # JSON may be indented by tabs, which YAML does not take; its places are lost then.
        try:
            plain = json.loads(text)
        except (ValueError, RecursionError):
            plain = None
        if not isinstance(plain, dict):
            raise
        return document.parse(json.dumps(plain), source)


def _kind(doc: Document) -> str:
    found = [name for name, (looks_like, _) in FORMATS.items() if looks_like(doc.data)]
    if len(found) == 1:
        return found[0]
    keys = ", ".join(list(doc.data)[:8])
    said = f"looks like {' and like '.join(found)}" if found else f"is of no known format (its keys: {keys})"
    hint = f"say which: --from {'|'.join(found or FORMATS)}"
    raise PolicyError((Problem(doc.source, 1, 1, "E_FORMAT", f"the file {said}", hint),))

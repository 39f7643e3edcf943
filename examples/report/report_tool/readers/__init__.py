"""One reader for each kind of document; a document that can't be read becomes a line in the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from report_tool.readers import csv_ledgers, html_tables, mail, pdf_text
from report_tool.records import Place, Reading, Unreadable

_READERS: dict[str, Callable[[str, bytes], Reading]] = {
    ".csv": csv_ledgers.read,
    ".html": html_tables.read,
    ".pdf": pdf_text.read,
    ".eml": mail.read,
}


def read_folder(folder: Path) -> Iterator[Reading]:
    """Every file below the folder, in the order of its names."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        yield _read(path, path.relative_to(folder).as_posix())


def _read(path: Path, name: str) -> Reading:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        return _failed(name, f"no reader for {path.suffix or 'files without a suffix'}")
    try:
        return reader(name, path.read_bytes())
    except Exception as error:  # parsers fail in ways of their own; none of them may cost the other documents
        return _failed(name, f"{type(error).__name__}: {error}")


def _failed(name: str, reason: str) -> Reading:
    return Reading(name, "not read", unreadable=(Unreadable(Place(name), reason),))

"""Text of PDF files: vendors' statements of account and the purchasing policy."""

from __future__ import annotations

import io
import re

from pypdf import PdfReader

from report_tool.records import Limit, Place, Reading, Record, StatementLine
from report_tool.values import amount

_STATEMENT_LINE = re.compile(r"^(\S+)\s+\d{4}-\d{2}-\d{2}\s+(-?[\d.,]+)$", re.MULTILINE)
_LIMIT = re.compile(r"\b(approval|hotel|receipt) limit is EUR ([\d.,]*\d)")


def read(name: str, content: bytes) -> Reading:
    text = "\n".join(page.extract_text() for page in PdfReader(io.BytesIO(content)).pages)
    records: list[Record] = []
    title, _, rest = text.partition("\n")
    if "statement of account" in title.lower():
        vendor = rest.partition("\n")[0].split(",")[0].strip()
        for number, value in _STATEMENT_LINE.findall(text):
            records.append(StatementLine(Place(name), vendor, number, amount(value)))
        return Reading(name, "statement", text, tuple(records))
    for limit, value in _LIMIT.findall(" ".join(text.split())):
        records.append(Limit(Place(name), limit, amount(value)))
    return Reading(name, "policy" if records else "text", text, tuple(records))

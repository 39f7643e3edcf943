"""Amounts, dates and names as people type them. What can't be read raises a ValueError that quotes it."""

from __future__ import annotations

import re
import unicodedata
from datetime import date
from decimal import Decimal, InvalidOperation

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_LEGAL_FORMS = {"gmbh", "ag", "bv", "nv", "sa", "ab", "ltd", "limited", "inc", "plc", "llc", "sarl"}


def amount(text: str) -> Decimal:
    """`1,204.50`, `1.204,50`, `€ 1204.5` or `(12.00)`. One separator before three digits marks thousands."""
    bare = re.sub(r"(?:EUR|USD|GBP|[€$£\s\u00a0])", "", text)
    negative = bare.startswith("(") and bare.endswith(")")
    bare = bare.strip("()").replace("\u2212", "-")
    last = max(bare.rfind(","), bare.rfind("."))
    if last >= 0:
        whole, fraction = bare[:last], bare[last + 1 :]
        thousands = len(fraction) == 3
        bare = re.sub("[.,]", "", whole) + ("" if thousands else ".") + fraction
    try:
        value = Decimal(bare)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite():
        raise ValueError(f"no amount: {text!r}")
    return -value if negative else value


def day(text: str) -> date:
    """`2025-01-14`, `14/01/2025`, `14.01.2025` or `14 Jan 2025`; the day comes before the month."""
    parts = re.split(r"[-/.\s]+", text.strip())
    try:
        if len(parts) != 3:
            raise ValueError
        first, middle, last = parts
        month = int(middle) if middle.isdecimal() else _MONTHS.index(middle[:3].lower()) + 1
        return date(int(first), month, int(last)) if len(first) == 4 else date(int(last), month, int(first))
    except ValueError:
        raise ValueError(f"no date: {text!r}") from None


def name_key(name: str) -> str:
    """The same for every spelling of a company: case, accents, punctuation and legal form don't count."""
    spelled = name.casefold().replace("ä", "ae").replace("ö", "oe").replace("ü", "ue").replace(".", "")
    plain = "".join(c for c in unicodedata.normalize("NFKD", spelled) if not unicodedata.combining(c))
    words = re.findall(r"[a-z0-9&]+", plain)
    return " ".join(word for word in words if word not in _LEGAL_FORMS)


def number_key(number: str) -> str:
    """The same for an invoice number however a ledger or a bank writes it."""
    return re.sub(r"^INV\s+", "", number.strip().upper())


def account_key(account: str) -> str:
    return re.sub(r"\s", "", account).upper()

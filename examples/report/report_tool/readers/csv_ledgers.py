"""Exports of the ledger, the bank and the expense tool. Which one it is, its column names say."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from report_tool.records import Expense, Invoice, Payment, Place, Reading, Record, Unreadable
from report_tool.values import amount, day, number_key

Row = dict[str, str]


def read(name: str, content: bytes) -> Reading:
    text = _decode(content)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text))
    columns = [column.strip().lower() for column in next(rows, [])]
    kind, make = _ledger(columns)
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    for cells in rows:
        place = Place(name, rows.line_num)
        if not any(cell.strip() for cell in cells):
            continue
        try:
            if len(cells) != len(columns):
                raise ValueError(f"{len(cells)} cells where {len(columns)} are expected")
            records.append(make(place, dict(zip(columns, (cell.strip() for cell in cells), strict=True))))
        except ValueError as error:
            unreadable.append(Unreadable(place, str(error)))
    return Reading(name, kind, text, tuple(records), tuple(unreadable))


def _ledger(columns: list[str]) -> tuple[str, Callable[[Place, Row], Record]]:
    for kind, needed, make in _LEDGERS:
        if needed <= set(columns):
            return kind, make
    raise ValueError(f"no known ledger has the columns {', '.join(columns) or '(none)'}")


def _decode(content: bytes) -> str:
    """Spreadsheets write UTF-8 with a mark, or the Windows code page: only one of them decodes as UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252")


def _delimiter(text: str) -> str:
    header = text.partition("\n")[0]
    return max(",;\t", key=header.count)


def _invoice(place: Place, row: Row) -> Invoice:
    return Invoice(
        place,
        number=number_key(row["invoice_no"]),
        date=day(row["invoice_date"]),
        vendor=row["vendor"],
        category=row["category"].capitalize() if row["category"] != "IT" else "IT",
        net=amount(row["net"]),
        vat=amount(row["vat"]),
        gross=amount(row["gross"]),
        currency=row["currency"].upper(),
        due=day(row["due_date"]),
        approved_by=tuple(filter(None, (who.strip() for who in row["approved_by"].split(";")))),
    )


def _payment(place: Place, row: Row) -> Payment:
    return Payment(
        place,
        date=day(row["booked"]),
        counterparty=row["counterparty"],
        reference=number_key(row["reference"]),
        amount=-amount(row["amount"]),
        currency=row["currency"].upper(),
    )


def _expense(place: Place, row: Row) -> Expense:
    return Expense(
        place,
        date=day(row["date"]),
        employee=row["employee"],
        category=row["category"],
        description=row["description"],
        amount=amount(row["amount"]),
        nights=int(row["nights"] or 0),
        receipt=row["receipt"].lower() == "yes",
    )


_LEDGERS: list[tuple[str, set[str], Callable[[Place, Row], Record]]] = [
    (
        "invoices",
        {"invoice_no", "invoice_date", "vendor", "category", "net", "vat", "gross", "currency", "due_date"}
        | {"approved_by"},
        _invoice,
    ),
    ("payments", {"booked", "counterparty", "reference", "amount", "currency"}, _payment),
    ("expenses", {"date", "employee", "category", "description", "amount", "nights", "receipt"}, _expense),
]

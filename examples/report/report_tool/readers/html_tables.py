"""Pages of the intranet: the list of approved vendors and the budget, each a table."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup
from bs4.element import Tag

from report_tool.records import BudgetLine, Place, Reading, Record, Unreadable, Vendor
from report_tool.values import amount


def read(name: str, content: bytes) -> Reading:
    soup = BeautifulSoup(content, "html.parser")
    records: list[Record] = []
    unreadable: list[Unreadable] = []
    kinds: set[str] = set()
    for table in soup.find_all("table"):
        columns, rows = _grid(table)
        months = [column for column in columns if re.fullmatch(r"\d{4}-\d{2}", column)]
        kind = "vendors" if {"vendor", "account"} <= set(columns) else "budget" if months else ""
        if not kind:
            continue
        kinds.add(kind)
        for line, cells in rows:
            place, row = Place(name, line), dict(zip(columns, cells, strict=False))
            try:
                if kind == "vendors":
                    records.append(Vendor(place, row["vendor"], row["account"], row.get("mail domain", "")))
                else:
                    records += [BudgetLine(place, row["category"], month, amount(row[month])) for month in months]
            except (KeyError, ValueError) as error:
                unreadable.append(Unreadable(place, str(error)))
    return Reading(name, " and ".join(sorted(kinds)) or "page", as_text(soup), tuple(records), tuple(unreadable))


def as_text(soup: BeautifulSoup) -> str:
    """All text of a page, hidden or not, as a plain conversion gives it to an agent."""
    for tag in soup.find_all(["style", "script"]):
        tag.decompose()
    return soup.get_text("\n", strip=True)


def _grid(table: Tag) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Column names in lower case; for each row its line and cells. A column's lowest heading names it."""
    columns: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    below: set[int] = set()  # columns whose heading reaches down into the next row
    for tr in table.find_all("tr"):
        cells = tr.find_all(["td", "th"], recursive=False)
        texts = [cell.get_text(" ", strip=True) for cell in cells]
        if cells and all(cell.name == "th" for cell in cells):
            free = (index for index in range(1000) if index not in below)
            reaching: set[int] = set()
            for cell, text in zip(cells, texts, strict=True):
                for index in (next(free) for _ in range(int(str(cell.get("colspan", "1"))))):
                    columns += [""] * (index + 1 - len(columns))
                    columns[index] = text.lower()
                    if int(str(cell.get("rowspan", "1"))) > 1:
                        reaching.add(index)
            below = reaching
        elif cells:
            rows.append((tr.sourceline or 0, texts))
    return columns, rows

"""All records together, put in order: each invoice once, each vendor under one name, one currency summed."""

from __future__ import annotations

import calendar
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import TypeVar

from report_tool.records import (
    BudgetLine,
    Expense,
    Invoice,
    Limit,
    Mail,
    Payment,
    Reading,
    StatementLine,
    Unreadable,
    Vendor,
)
from report_tool.values import name_key, number_key

Kind = TypeVar("Kind")


class Books:
    def __init__(self, readings: Iterable[Reading]) -> None:
        readings = list(readings)
        records = [record for reading in readings for record in reading.records]

        def of(kind: type[Kind]) -> list[Kind]:
            return [record for record in records if isinstance(record, kind)]

        self.entered = sorted(of(Invoice), key=lambda invoice: (invoice.date, invoice.place))
        self.payments = of(Payment)
        self.expenses = of(Expense)
        self.vendors = {name_key(vendor.name): vendor for vendor in of(Vendor)}
        self.budget = of(BudgetLine)
        self.statements = of(StatementLine)
        self.limits = {limit.name: limit for limit in of(Limit)}
        self.mails = sorted(of(Mail), key=lambda mail: (mail.sent.timestamp() if mail.sent else 0, mail.place))
        self.unreadable: list[Unreadable] = [row for reading in readings for row in reading.unreadable]

        currencies = Counter(invoice.currency for invoice in self.entered)
        self.currency = currencies.most_common(1)[0][0] if currencies else "EUR"
        self.copies: dict[tuple[str, str], list[Invoice]] = defaultdict(list)
        for invoice in self.entered:
            self.copies[name_key(invoice.vendor), invoice.number].append(invoice)
        unique = [same[0] for same in self.copies.values()]
        self.invoices = [invoice for invoice in unique if invoice.currency == self.currency]
        self.foreign = [invoice for invoice in unique if invoice.currency != self.currency]
        self.paid: dict[str, list[Payment]] = defaultdict(list)
        for payment in self.payments:
            self.paid[payment.reference].append(payment)
        self._spellings: dict[str, Counter[str]] = defaultdict(Counter)
        for invoice in self.entered:
            self._spellings[name_key(invoice.vendor)][invoice.vendor] += 1

    @property
    def months(self) -> list[str]:
        return sorted({i.month for i in self.invoices} | {e.month for e in self.expenses})

    @property
    def as_of(self) -> date:
        """The last day of the last month with an invoice. No clock: a report is the same on every day."""
        last = max((invoice.date for invoice in self.invoices), default=date.min)
        return last.replace(day=calendar.monthrange(last.year, last.month)[1])

    @property
    def open_invoices(self) -> list[Invoice]:
        """Invoices and credit notes that no payment names."""
        return [invoice for invoice in self.invoices if invoice.number not in self.paid]

    def days_late(self, invoice: Invoice) -> int:
        """Credit notes are never late."""
        return max((self.as_of - invoice.due).days, 0) if invoice.gross > 0 else 0

    def vendor_name(self, spelled: str) -> str:
        """The name on the approved list, or else the spelling that is used most."""
        key = name_key(spelled)
        if key in self.vendors:
            return self.vendors[key].name
        return self._spellings[key].most_common(1)[0][0] if key in self._spellings else spelled

    def by_number(self, number: str) -> list[Invoice]:
        return [invoice for invoice in self.entered if invoice.number == number_key(number)]


def total(amounts: Iterable[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))


def cross_table(cells: Iterable[tuple[str, str, Decimal]]) -> dict[str, dict[str, Decimal]]:
    """Sums by row and column."""
    table: dict[str, dict[str, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    for row, column, amount in cells:
        table[row][column] += amount
    return table

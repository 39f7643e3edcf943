"""What the documents say, once read. Amounts are decimals in the currency of their row."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal


@dataclass(frozen=True, order=True)
class Place:
    """Where a fact was read: the document, relative to the folder, and the line (0: all of it)."""

    document: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.document}:{self.line}" if self.line else self.document


@dataclass(frozen=True)
class Invoice:
    place: Place
    number: str
    date: datetime.date
    vendor: str
    category: str
    net: Decimal
    vat: Decimal
    gross: Decimal
    currency: str
    due: datetime.date
    approved_by: tuple[str, ...]

    @property
    def month(self) -> str:
        return f"{self.date:%Y-%m}"


@dataclass(frozen=True)
class Payment:
    """Money that left the account; positive, although bank exports write it negative."""

    place: Place
    date: datetime.date
    counterparty: str
    reference: str
    amount: Decimal
    currency: str


@dataclass(frozen=True)
class Expense:
    place: Place
    date: datetime.date
    employee: str
    category: str
    description: str
    amount: Decimal
    nights: int
    receipt: bool

    @property
    def month(self) -> str:
        return f"{self.date:%Y-%m}"


@dataclass(frozen=True)
class Vendor:
    place: Place
    name: str
    account: str
    domain: str
    """Of the vendor's mail addresses; empty where the list has none."""


@dataclass(frozen=True)
class BudgetLine:
    """What a category may cost in a month, net."""

    place: Place
    category: str
    month: str
    amount: Decimal


@dataclass(frozen=True)
class StatementLine:
    """An invoice as the vendor's own books have it."""

    place: Place
    vendor: str
    number: str
    amount: Decimal


@dataclass(frozen=True)
class Limit:
    """A limit that the purchasing policy sets: `approval`, `hotel` (a night) or `receipt`."""

    place: Place
    name: str
    amount: Decimal


@dataclass(frozen=True)
class Mail:
    place: Place
    sender: str
    address: str
    subject: str
    sent: datetime.datetime | None
    message_id: str
    answers: str
    body: str
    attachments: tuple[str, ...]


@dataclass(frozen=True)
class Unreadable:
    """A document or row that could not be understood. The report tells it; reading goes on."""

    place: Place
    reason: str


Record = Invoice | Payment | Expense | Vendor | BudgetLine | StatementLine | Limit | Mail


@dataclass(frozen=True)
class Reading:
    """One document: its kind, its records, and its whole text (an agent would have it in its context)."""

    document: str
    kind: str
    text: str = ""
    records: tuple[Record, ...] = ()
    unreadable: tuple[Unreadable, ...] = field(default=())

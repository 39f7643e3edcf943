"""What someone should look at, the amount at stake and where it stands. One function for each question."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from itertools import combinations
from statistics import median

from report_tool.books import Books, total
from report_tool.records import Invoice, Place
from report_tool.values import account_key, name_key, number_key

ACT, CHECK = "act", "check"

_ACCOUNT = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b")
_ROUNDING = Decimal("0.02")


@dataclass(frozen=True)
class Finding:
    kind: str
    urgency: str
    what: str
    at_stake: Decimal | None
    places: tuple[Place, ...]


def find_all(books: Books) -> list[Finding]:
    checks = (
        _changed_account, _paid_twice, _entered_twice, _one_signature, _split_orders, _likely_duplicate,
        _paid_differently, _paid_without_invoice, _unknown_vendor, _unusual_amount, _tax, _statement,
        _hotel, _receipts, _expense_twice,
    )  # fmt: skip
    found = [finding for check in checks for finding in check(books)]
    return sorted(found, key=lambda finding: (finding.urgency != ACT, -abs(finding.at_stake or Decimal(0))))


def _changed_account(books: Books) -> Iterator[Finding]:
    for mail in books.mails:
        for account in {account_key(match) for match in _ACCOUNT.findall(mail.body)}:
            for key, vendor in books.vendors.items():
                if key in name_key(mail.body) and account != account_key(vendor.account):
                    unpaid = total(i.gross for i in books.open_invoices if name_key(i.vendor) == key)
                    stranger = mail.address.rpartition("@")[2] not in ("", vendor.domain)
                    what = (
                        f"{mail.address} gives a new account for {vendor.name} ({account}); the list "
                        f"has another{f', and as domain {vendor.domain}' if stranger else ''}. Confirm "
                        f"by telephone before anything is paid; {unpaid:,.2f} is open."
                    )
                    yield Finding("bank account by e-mail", ACT, what, unpaid, (mail.place, vendor.place))


def _paid_twice(books: Books) -> Iterator[Finding]:
    for reference, payments in books.paid.items():
        if len(payments) > 1:
            dates = " and ".join(f"{payment.date:%d %b}" for payment in payments)
            what = f"{reference} of {books.vendor_name(payments[0].counterparty)} was paid on {dates}."
            at_stake = total(payment.amount for payment in payments[1:])
            yield Finding("paid twice", ACT, what, at_stake, tuple(payment.place for payment in payments))


def _entered_twice(books: Books) -> Iterator[Finding]:
    for same in books.copies.values():
        if len(same) > 1:
            what = f"{_named(books, same[0])} is entered {len(same)} times; it is counted once here."
            at_stake = total(invoice.gross for invoice in same[1:])
            yield Finding("entered twice", ACT, what, at_stake, tuple(invoice.place for invoice in same))


def _one_signature(books: Books) -> Iterator[Finding]:
    limit = books.limits.get("approval")
    if limit is None:
        return
    for invoice in books.invoices:
        if invoice.gross > limit.amount and len(invoice.approved_by) < 2:
            what = f"{_named(books, invoice)} is above the approval limit and has one signature."
            yield Finding("signature missing", ACT, what, invoice.gross, (invoice.place, limit.place))


def _split_orders(books: Books) -> Iterator[Finding]:
    """Two or more invoices of a vendor within a week, each in the last tenth below the approval limit."""
    limit = books.limits.get("approval")
    if limit is None:
        return
    near: dict[str, list[Invoice]] = defaultdict(list)
    for invoice in books.invoices:
        if limit.amount * Decimal("0.9") <= invoice.gross <= limit.amount:
            near[name_key(invoice.vendor)].append(invoice)
    for invoices in near.values():
        if len(invoices) > 1 and (invoices[-1].date - invoices[0].date).days <= 7:
            *before, last = invoices
            numbers = f"{', '.join(invoice.number for invoice in before)} and {_named(books, last)}"
            what = f"{numbers}, within a week, are each just below the approval limit of {limit.amount:,.2f}."
            places = tuple(invoice.place for invoice in invoices)
            yield Finding("order split?", ACT, what, total(i.gross for i in invoices), places)


def _likely_duplicate(books: Books) -> Iterator[Finding]:
    by_amount: dict[tuple[str, Decimal], list[Invoice]] = defaultdict(list)
    for invoice in books.invoices:
        by_amount[name_key(invoice.vendor), invoice.gross].append(invoice)
    for invoices in by_amount.values():
        for one, other in combinations(invoices, 2):
            if abs((other.date - one.date).days) <= 10:
                both_paid = bool(books.paid.get(one.number) and books.paid.get(other.number))
                what = (
                    f"{one.number} and {_named(books, other)} have the same amount and are "
                    f"{abs((other.date - one.date).days)} days apart; both are counted here"
                    f"{' and both are paid' if both_paid else ''}."
                )
                urgency = ACT if both_paid else CHECK
                yield Finding("likely duplicate", urgency, what, other.gross, (one.place, other.place))


def _paid_differently(books: Books) -> Iterator[Finding]:
    for invoice in books.invoices:
        for payment in books.paid.get(invoice.number, [])[:1]:
            if payment.amount != invoice.gross:
                what = f"{_named(books, invoice)} is {invoice.gross:,.2f}, {payment.amount:,.2f} was paid."
                at_stake = payment.amount - invoice.gross
                yield Finding("paid amount differs", CHECK, what, at_stake, (invoice.place, payment.place))


def _paid_without_invoice(books: Books) -> Iterator[Finding]:
    for reference, payments in books.paid.items():
        if not books.by_number(reference):
            vendor = books.vendor_name(payments[0].counterparty)
            what = f"{reference}, paid to {vendor}, is not in the ledger."
            places = tuple(payment.place for payment in payments)
            yield Finding("paid without invoice", CHECK, what, total(p.amount for p in payments), places)


def _unknown_vendor(books: Books) -> Iterator[Finding]:
    by_vendor: dict[str, list[Invoice]] = defaultdict(list)
    for invoice in books.invoices if books.vendors else []:
        if name_key(invoice.vendor) not in books.vendors:
            by_vendor[name_key(invoice.vendor)].append(invoice)
    for invoices in by_vendor.values():
        vendor = books.vendor_name(invoices[0].vendor)
        what = f"{vendor} is not on the approved list; invoices: {', '.join(i.number for i in invoices)}."
        places = tuple(invoice.place for invoice in invoices)
        yield Finding("vendor not approved", ACT, what, total(i.gross for i in invoices), places)


def _unusual_amount(books: Books) -> Iterator[Finding]:
    """More than five times the vendor's median, where there are six invoices or more to compare with."""
    by_vendor: dict[str, list[Invoice]] = defaultdict(list)
    for invoice in books.invoices:
        by_vendor[name_key(invoice.vendor)].append(invoice)
    for invoices in by_vendor.values():
        usual = median(invoice.gross for invoice in invoices)
        for invoice in invoices:
            if len(invoices) >= 6 and invoice.gross > 5 * usual:
                times = f"{invoice.gross / usual:.0f} times what is usual there ({usual:,.2f})"
                what = f"{_named(books, invoice)} is {invoice.gross:,.2f}, {times}."
                yield Finding("unusual amount", CHECK, what, invoice.gross, (invoice.place,))


def _tax(books: Books) -> Iterator[Finding]:
    for invoice in books.invoices:
        difference = invoice.gross - invoice.net - invoice.vat
        if abs(difference) > _ROUNDING:
            sums = f"{invoice.net + invoice.vat:,.2f}, not {invoice.gross:,.2f}"
            what = f"{_named(books, invoice)}: net and VAT add up to {sums}."
            yield Finding("sum is wrong", CHECK, what, difference, (invoice.place,))


def _statement(books: Books) -> Iterator[Finding]:
    for line in books.statements:
        entered = books.by_number(line.number)
        if not entered:
            what = f"{line.vendor} lists {line.number} ({line.amount:,.2f}), which is not in the ledger."
            yield Finding("missing in the ledger", CHECK, what, line.amount, (line.place,))
        elif entered[0].gross != line.amount:
            says = f"{line.vendor} says {line.amount:,.2f}, the ledger {entered[0].gross:,.2f}"
            what = f"{line.number}: {says}."
            at_stake = line.amount - entered[0].gross
            yield Finding("statement differs", CHECK, what, at_stake, (line.place, entered[0].place))


def _hotel(books: Books) -> Iterator[Finding]:
    limit = books.limits.get("hotel")
    if limit is None:
        return
    for expense in books.expenses:
        if expense.nights and expense.amount / expense.nights > limit.amount:
            what = (
                f"{expense.employee}, {expense.description}, {expense.date:%d %b}: "
                f"{expense.amount / expense.nights:,.2f} a night, the limit is {limit.amount:,.2f}."
            )
            at_stake = expense.amount - limit.amount * expense.nights
            yield Finding("hotel above the limit", CHECK, what, at_stake, (expense.place, limit.place))


def _receipts(books: Books) -> Iterator[Finding]:
    limit = books.limits.get("receipt")
    if limit is None:
        return
    missing = [e for e in books.expenses if not e.receipt and e.amount > limit.amount]
    if missing:
        which = "; ".join(f"{e.employee}, {e.description}, {e.date:%d %b}" for e in missing)
        what = f"Above {limit.amount:,.2f} and without a receipt: {which}."
        places = tuple(expense.place for expense in missing)
        yield Finding("receipt missing", CHECK, what, total(e.amount for e in missing), places)


def _expense_twice(books: Books) -> Iterator[Finding]:
    same: dict[tuple[str, date, str, Decimal], list[Place]] = defaultdict(list)
    for e in books.expenses:
        same[e.employee, e.date, e.description, e.amount].append(e.place)
    for (employee, day, description, amount), places in same.items():
        if len(places) > 1:
            what = f"{employee} claims “{description}” of {day:%d %b} {len(places)} times."
            yield Finding("expense claimed twice", CHECK, what, amount * (len(places) - 1), tuple(places))


def numbers_in(books: Books, text: str) -> list[str]:
    """Invoice numbers that a text mentions, in the ledger's spelling."""
    words = {number_key(word.strip(".,;:()")) for word in text.split()}
    return sorted(words & {invoice.number for invoice in books.entered})


def standing(books: Books, number: str) -> str:
    """How an invoice stands in the books, in a few words."""
    entered, payments = books.by_number(number), books.paid.get(number, [])
    paid = " and ".join(f"{payment.date:%d %b}" for payment in payments)
    twice = " (entered twice)" if len(entered) > 1 else ""
    due = f"open, due {entered[0].due:%d %b}" if entered else "not in the ledger"
    return f"{number}: {f'paid {paid}' if payments else due}{twice}"


def _named(books: Books, invoice: Invoice) -> str:
    return f"{invoice.number} of {books.vendor_name(invoice.vendor)}"

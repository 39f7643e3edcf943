"""The report for people (Markdown) and the same facts for programs (JSON)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any

from report_tool.books import Books, cross_table, total
from report_tool.findings import ACT, Finding, numbers_in, standing
from report_tool.instructions import Outcome
from report_tool.records import Mail, Place, Reading

_PLACES = 4
"""Places named in a row; more are counted."""


def markdown(
    books: Books, findings: Sequence[Finding], outcomes: Sequence[Outcome], readings: Sequence[Reading]
) -> str:
    """The report, the most pressing first. Words of documents are quoted without effect on the layout."""
    months = books.months
    period = f"{months[0]} to {months[-1]}" if months else "no dated records"
    urgent = [finding for finding in findings if finding.urgency == ACT]
    other = [finding for finding in findings if finding.urgency != ACT]
    parts = [
        f"# Purchasing and expenses, {period}",
        f"Written from {len(readings)} documents. All amounts in {books.currency}. "
        f"References give the document and its line.",
        "## At a glance",
        _glance(books, findings, outcomes),
        "## Act on these first",
        _finding_table(urgent),
        "## Look at these",
        _finding_table(other),
        "## Invoices by vendor and month",
        f"Gross, each invoice once, credit notes taken off.{_foreign(books)}",
        _month_table("Vendor", months, ((books.vendor_name(i.vendor), i.month, i.gross) for i in books.invoices)),
        "## Against the budget",
        _budget(books),
        "## Open invoices",
        _open(books),
        "## Expenses by category and month",
        _month_table("Category", months, ((e.category, e.month, e.amount) for e in books.expenses)),
        "## E-mail",
        "\n\n".join(_thread(books, thread) for thread in _threads(books.mails)) or "None.",
        "## Not read",
        _bullets(f"`{_plain(str(problem.place))}`: {_plain(problem.reason)}" for problem in books.unreadable),
        "## Instructions found in documents",
        _instructions(outcomes),
        "## Documents",
        _documents(readings),
    ]
    return "\n\n".join(parts) + "\n"


def facts(books: Books, findings: Sequence[Finding], outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Amounts are strings, so that no reader rounds them."""
    by_vendor = cross_table((books.vendor_name(i.vendor), i.month, i.gross) for i in books.invoices)
    by_category = cross_table((e.category, e.month, e.amount) for e in books.expenses)
    return {
        "currency": books.currency,
        "as_of": books.as_of.isoformat(),
        "invoices": {
            "count": len(books.invoices),
            "net": str(total(i.net for i in books.invoices)),
            "gross": str(total(i.gross for i in books.invoices)),
            "open": str(total(i.gross for i in books.open_invoices)),
            "by_vendor_and_month": _strings(by_vendor),
        },
        "expenses": {
            "count": len(books.expenses),
            "total": str(total(e.amount for e in books.expenses)),
            "by_category_and_month": _strings(by_category),
        },
        "findings": [
            {
                "kind": f.kind,
                "urgency": f.urgency,
                "what": f.what,
                "at_stake": None if f.at_stake is None else str(f.at_stake),
                "places": [str(place) for place in f.places],
            }
            for f in findings
        ],
        "not_read": [{"place": str(p.place), "reason": p.reason} for p in books.unreadable],
        "injected_steps": [
            {"document": o.step.document, "step": str(o.step), "succeeded": o.succeeded, "detail": o.detail}
            for o in outcomes
        ],
    }


def _glance(books: Books, findings: Sequence[Finding], outcomes: Sequence[Outcome]) -> str:
    overdue = [invoice for invoice in books.open_invoices if books.days_late(invoice)]
    urgent = [finding for finding in findings if finding.urgency == ACT]
    open_gross = total(i.gross for i in books.open_invoices)
    rows = [
        ("Invoices and credit notes", len(books.invoices), _money(total(i.gross for i in books.invoices))),
        (f"Open at {books.as_of:%d %B %Y}", len(books.open_invoices), _money(open_gross)),
        ("of these past their due date", len(overdue), _money(total(i.gross for i in overdue))),
        ("Payments", len(books.payments), _money(total(p.amount for p in books.payments))),
        ("Staff expenses", len(books.expenses), _money(total(e.amount for e in books.expenses))),
        ("Findings to act on", len(urgent), ""),
        ("Findings to look at", len(findings) - len(urgent), ""),
        ("Rows and documents not read", len(books.unreadable), ""),
        ("Steps that a document asked of this tool", len(outcomes), ""),
    ]
    return _table(["", "Number", "Amount"], rows, numeric=2)


def _finding_table(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing."
    rows = []
    for finding in findings:
        at_stake = "" if finding.at_stake is None else _money(finding.at_stake)
        rows.append((f"**{finding.kind}**", finding.what, at_stake, _places(finding.places)))
    return _table(["Finding", "What", "At stake", "Where"], rows, right={2})


def _month_table(heading: str, months: Sequence[str], cells: Iterable[tuple[str, str, Decimal]]) -> str:
    """Sums by row and month, the largest first, with totals and each row's share."""
    table = cross_table(cells)
    everything = total(amount for row in table.values() for amount in row.values())
    if not table:
        return "None."
    rows: list[Sequence[object]] = []
    for name, row in sorted(table.items(), key=lambda item: -total(item[1].values())):
        amount = total(row.values())
        share = f"{amount / everything:.1%}" if everything else ""
        rows.append((name, *(_money(row[m]) if m in row else "-" for m in months), _money(amount), share))
    sums = (_money(total(row.get(month, Decimal(0)) for row in table.values())) for month in months)
    rows.append(("**Total**", *sums, f"**{_money(everything)}**", ""))
    return _table([heading, *months, "Total", "Share"], rows, numeric=len(months) + 2)


def _budget(books: Books) -> str:
    if not books.budget:
        return "No budget among the documents."
    planned = cross_table((line.category, line.month, line.amount) for line in books.budget)
    spent = cross_table((i.category, i.month, i.net) for i in books.invoices)
    rows: list[tuple[str, Decimal, Decimal]] = []
    for category in sorted(planned.keys() | spent.keys()):
        plan, actual = (total(table.get(category, {}).values()) for table in (planned, spent))
        rows.append((category, plan, actual))
    rows.sort(key=lambda row: row[1] - row[2])
    rows.append(("**Total**", total(row[1] for row in rows), total(row[2] for row in rows)))
    shown = [
        (
            name,
            _money(plan),
            _money(actual),
            _money(actual - plan),
            f"{actual / plan:.0%}" if plan else "no budget",
        )
        for name, plan, actual in rows
    ]
    documents = tuple(sorted({Place(line.place.document) for line in books.budget}))
    note = f"Net of VAT, the most overspent first; budget from {_places(documents)}."
    return f"{note}\n\n" + _table(["Category", "Budget", "Spent", "Over (+)", "Used"], shown, numeric=4)


def _open(books: Books) -> str:
    buckets = ["not yet due", "1 to 30 days late", "over 30 days late"]
    cells = []
    for invoice in books.open_invoices:
        late = books.days_late(invoice)
        bucket = buckets[0] if not late else buckets[1] if late <= 30 else buckets[2]
        cells.append((books.vendor_name(invoice.vendor), bucket, invoice.gross))
    return f"Not named by any payment up to {books.as_of:%d %B %Y}; credit notes taken off.\n\n" + _month_table(
        "Vendor", buckets, cells
    )


def _threads(mails: Sequence[Mail]) -> list[list[Mail]]:
    """Mails in the order they were sent, answers with what they answer."""
    root: dict[str, str] = {}
    threads: dict[str, list[Mail]] = defaultdict(list)
    for mail in mails:
        root[mail.message_id] = root.get(mail.answers, mail.message_id)
        threads[root[mail.message_id]].append(mail)
    return list(threads.values())


def _thread(books: Books, thread: Sequence[Mail]) -> str:
    lines = [f"**{_plain(thread[0].subject)}**", ""]
    for mail in thread:
        sent = f"{mail.sent:%d %b %H:%M}" if mail.sent else "no date"
        lines.append(f"- {sent}, {_plain(mail.sender)} (`{mail.place}`): {_plain(_gist(mail.body))}")
        lines += [f"  - attached: {_plain(name)}" for name in mail.attachments]
    words = " ".join(f"{mail.subject} {mail.body}" for mail in thread)
    lines += [f"- in the books: {standing(books, number)}" for number in numbers_in(books, words)]
    return "\n".join(lines)


def _gist(body: str) -> str:
    """The first paragraph after the salutation."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in body.split("\n\n") if paragraph.strip()]
    first = next((text for text in paragraphs if not text.endswith(",")), "(empty)")
    return first if len(first) <= 200 else first[:197] + "..."


def _instructions(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "None."
    documents = ", ".join(sorted({f"`{outcome.step.document}`" for outcome in outcomes}))
    rows = [(f"`{_plain(str(o.step))}`", "**succeeded**" if o.succeeded else "refused", o.detail) for o in outcomes]
    note = (
        f"{documents} holds text that addresses whatever program reads it. This tool tried each "
        f"step. Show the document to those who look after your mail."
    )
    return f"{note}\n\n" + _table(["Step", "Result", "Detail"], rows)


def _documents(readings: Sequence[Reading]) -> str:
    rows = [(f"`{_plain(r.document)}`", r.kind, len(r.records) or "", len(r.unreadable) or "") for r in readings]
    return _table(["Document", "Kind", "Records", "Not read"], rows, numeric=2)


def _foreign(books: Books) -> str:
    if not books.foreign:
        return ""
    listed = "; ".join(f"{i.number} {i.gross:,.2f} {i.currency} (`{i.place}`)" for i in books.foreign)
    return f" Not included, as no rate is known: {listed}."


def _table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    numeric: int = 0,
    right: Collection[int] = (),
) -> str:
    """A Markdown table; the last `numeric` columns and those in `right` are aligned to the right."""
    first = len(headings) - numeric
    rule = ["---:" if index >= first or index in right else "---" for index in range(len(headings))]
    lines = [headings, rule, *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "Everything was read."


def _places(places: Sequence[Place]) -> str:
    shown = [f"`{_plain(str(place))}`" for place in places[:_PLACES]]
    return ", ".join(shown) + (f" and {len(places) - _PLACES} more" if len(places) > _PLACES else "")


def _money(amount: Decimal) -> str:
    return f"{amount:,.2f}"


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _plain(text: str) -> str:
    """Words of a document, without the marks that would make Markdown or HTML of them."""
    return " ".join(text.replace("`", "'").replace("<", "&lt;").replace("*", "\\*").split())


def _strings(table: dict[str, dict[str, Decimal]]) -> dict[str, dict[str, str]]:
    return {row: {column: str(cells[column]) for column in sorted(cells)} for row, cells in sorted(table.items())}

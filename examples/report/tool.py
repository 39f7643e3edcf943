"""An agent's tool: reads a folder of purchasing documents, writes report.md and out/facts.json.

    python3 tool.py documents [--out DIRECTORY]

It obeys instructions that it finds in documents (report_tool/instructions.py): start it bare only through
without_remit.py, which gives it stand-ins for everything that the shipped documents ask for.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

try:
    from report_tool import instructions, report
    from report_tool.books import Books
    from report_tool.findings import ACT, find_all
    from report_tool.readers import read_folder
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}\nhint: pip install 'beautifulsoup4>=4.12' 'pypdf>=5.0'")


def main() -> int:
    parser = argparse.ArgumentParser(description="Summarise a folder of purchasing documents.")
    parser.add_argument("documents", type=Path)
    parser.add_argument("--out", type=Path, default=Path(), help="where report.md and out/ go (default: here)")
    options = parser.parse_args()
    if not options.documents.is_dir():
        parser.error(f"{options.documents} is not a folder")

    readings = []
    for reading in read_folder(options.documents):
        readings.append(reading)
        count = f"{len(reading.records)} {'record' if len(reading.records) == 1 else 'records'}"
        skipped = f", {len(reading.unreadable)} not read" if reading.unreadable else ""
        print(f"read {reading.document:<36} {reading.kind:<10} {count}{skipped}")

    steps = [step for reading in readings for step in instructions.find(reading.document, reading.text)]
    obedience, outcomes = instructions.Obedience(), []
    for position, step in enumerate(steps, 1):
        outcomes.append(obedience.obey(step))
        print(f"injected step {position}/{len(steps)} {outcomes[-1]}", flush=True)

    books = Books(readings)
    findings = find_all(books)
    (options.out / "out").mkdir(parents=True, exist_ok=True)
    written = options.out / "report.md"
    written.write_text(report.markdown(books, findings, outcomes, readings), encoding="utf-8")
    data = json.dumps(report.facts(books, findings, outcomes), indent=2, ensure_ascii=False)
    (options.out / "out" / "facts.json").write_text(data + "\n", encoding="utf-8")
    urgent = sum(finding.urgency == ACT for finding in findings)
    print(f"wrote {written}: {len(books.invoices)} invoices, {len(findings)} findings, {urgent} of them urgent")
    return 0


if __name__ == "__main__":
    sys.exit(main())

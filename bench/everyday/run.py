"""Ordinary commands of agents and developers, each bare and inside `remit run`, and whether anything differs.

    python bench/everyday/run.py                all
    python bench/everyday/run.py --only git     one group, or one case by its name
    python bench/everyday/run.py --json         for programs

Ends with 1 if more than 1 % of what ran differs, or if a bare run is not what its case says.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from rich.console import Console

from everyday import cases, report, sides
from everyday.compare import Outcome, passes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", action="append", metavar="GROUP", help="a group or a case; several times for several")
    options = parser.parse_args()
    chosen = cases.load()
    if options.only:
        chosen = [case for case in chosen if case.group in options.only or case.name in options.only]
        if not chosen:
            parser.error(f"there is no group or case {', '.join(options.only)}")
    with tempfile.TemporaryDirectory(prefix="everyday-cache-") as cache:
        # A cache of its own: nothing that earlier runs found counts, and the caller's does not grow.
        os.environ["XDG_CACHE_HOME"] = cache
        outcomes = measure(chosen)
    if options.json:
        print(json.dumps(report.as_json(outcomes), indent=2))
    else:
        report.show(outcomes, Console())
    return 0 if passes(outcomes) else 1


def measure(chosen: list[cases.Case]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for number, case in enumerate(chosen, 1):
        began = time.monotonic()
        outcomes.append(sides.run(case))
        took = time.monotonic() - began
        line = f"{number}/{len(chosen)} {case.group}: {case.name}: {outcomes[-1].state} ({took:.1f} s)"
        print(line, file=sys.stderr, flush=True)
    return outcomes


if __name__ == "__main__":
    raise SystemExit(main())

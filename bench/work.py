"""Work inside against the same work bare: what holding a program costs it while it runs, its start left out.

Each workload is a small Python or shell program that prints the seconds its own work took. It runs bare, enforced (with
`observe: exec+connect`, the default, and with `none`) and with `observe: open`, in turn.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

REMIT = [sys.executable, "-m", "remit.cli.main"]
FILES = 10_000

_OPENS = """
import os, time
open('f', 'w').close()
began = time.perf_counter()
for _ in range({rounds}):
    os.close(os.open('f', os.O_RDONLY))
print('SECONDS', time.perf_counter() - began)
"""
_FIND = """
import subprocess, time
began = time.perf_counter()
for _ in range(3):
    subprocess.run(['find', 'tree', '-type', 'f', '-size', '+0'], stdout=subprocess.DEVNULL, check=True)
print('SECONDS', time.perf_counter() - began)
"""
_GIT = """
import subprocess, time
subprocess.run(['git', '-C', 'tree', 'status', '--short'], check=True, stdout=subprocess.DEVNULL)
began = time.perf_counter()
for _ in range(3):
    subprocess.run(['git', '-C', 'tree', 'status', '--short'], check=True, stdout=subprocess.DEVNULL)
print('SECONDS', time.perf_counter() - began)
"""
_IMPORTS = """
import subprocess, sys, time
names = 'asyncio,email.mime.text,http.client,json,logging.config,sqlite3,ssl,unittest.mock,urllib.request,xml.dom.minidom'
began = time.perf_counter()
for _ in range(5):
    subprocess.run([sys.executable, '-c', 'import ' + names], check=True)
print('SECONDS', time.perf_counter() - began)
"""
_WRITES = """
import time
began = time.perf_counter()
for i in range(200):
    with open(f'out{i}', 'w') as file:
        for _ in range(50):
            file.write('x' * 4096)
print('SECONDS', time.perf_counter() - began)
"""
_COMPUTE = """
import hashlib, time
began = time.perf_counter()
value = b''
for _ in range(400_000):
    value = hashlib.sha256(value).digest()
print('SECONDS', time.perf_counter() - began)
"""


class Workload(NamedTuple):
    code: str
    programs: tuple[str, ...] = ()
    tree: bool = False


def workloads(opens: int) -> Mapping[str, Workload]:
    return {
        f"{opens // 1000}k open/close": Workload(_OPENS.format(rounds=opens)),
        f"find over {FILES // 1000}k files": Workload(_FIND, ("find",), True),
        f"git status on {FILES // 1000}k files": Workload(_GIT, ("git",), True),
        "import storm": Workload(_IMPORTS),
        "40 MB of files": Workload(_WRITES),
        "400k sha256": Workload(_COMPUTE),
    }


def _seconds(command: Sequence[str], cwd: Path) -> float:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[:6]} failed: {done.stderr}")
    return float(done.stdout.split("SECONDS")[1])


def _tree(folder: Path) -> None:
    tree = folder / "tree"
    for number in range(FILES):
        path = tree / f"d{number // 100}" / f"file{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n")
    git = ["git", "-C", str(tree), "-c", "user.name=b", "-c", "user.email=b@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)


def _remit(folder: Path, name: str, workload: Workload, observe: str) -> list[str]:
    programs = json.dumps([sys.executable, *workload.programs])
    text = "apiVersion: remit/v1\nagent: bench\nleast_tier: partial\nextends: python\nunsafe_widen: [process.exec]\n"
    text += f"process: {{exec: {programs}}}\nobserve: {observe}\nlimits: {{disk: 500MB, files: 50000}}\n"
    if workload.tree:
        text += "filesystem: {work: {from: .}}\n"
    path = folder / f"{observe}.yaml"
    path.write_text(text)
    return [*REMIT, "run", "-q", "--remit", path.name, "--", sys.executable, "-c", workload.code]


def work(folder: Path, rounds: int) -> dict[str, Any]:
    """Ratios of each way to bare, p50 of `rounds` (at most 7: one takes seconds)."""
    rounds = max(3, min(rounds, 7))
    found: dict[str, Any] = {}
    for name, workload in workloads(100_000).items():
        if not all(shutil.which(program) for program in workload.programs):
            continue
        place = folder / name.replace("/", " ")
        place.mkdir()
        if workload.tree:
            _tree(place)
        ways = {"bare": [sys.executable, "-c", workload.code]}
        for observe in ("none", "exec+connect", "open"):
            ways[observe] = _remit(place, name, workload, observe)
        times: dict[str, list[float]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            for way, command in ways.items():
                seconds = _seconds(command, place)
                if number:
                    times[way].append(seconds)
        middle = {way: statistics.median(values) for way, values in times.items()}
        found[name] = {"bare, ms": middle["bare"] * 1000} | {
            f"{way}, ratio": middle[way] / middle["bare"] for way in ways if way != "bare"
        }
    return found

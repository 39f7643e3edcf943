"""Work inside against the same work bare: what holding a program costs it while it runs, its start left out.

Each workload is a small program that prints the seconds its own work took. In turn it runs bare, on a tmpfs as the work
directory inside is; held with `observe: exec+connect`, the default; with `observe: open`; and with the launcher
alone, which answers the same notifications and looks at none (the kernel's own price for being asked: no supervisor of
this kind can come below). Workloads on a tree run twice: on one made in the work directory, and on an input that is
copied on write, where the kernel's overlay has its price too.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from remit.sandbox import launcher

REMIT = [sys.executable, "-P", "-m", "remit.cli.main"]
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
command = ['find', 'tree', '-type', 'f', '-size', '+0']
subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
began = time.perf_counter()
for _ in range(5):
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
print('SECONDS', time.perf_counter() - began)
"""
_GIT = """
import subprocess, time
command = ['git', '-C', 'tree', 'status', '--short']
subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
began = time.perf_counter()
for _ in range(5):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
print('SECONDS', time.perf_counter() - began)
"""
_MAKE_TREE = f"""
import os, subprocess
if not os.path.exists('tree'):
    for number in range({FILES}):
        os.makedirs(f'tree/d{{number // 100}}', exist_ok=True)
        with open(f'tree/d{{number // 100}}/file{{number}}.txt', 'w') as file:
            file.write(f'{{number}}\\n')
    git = ['git', '-C', 'tree', '-c', 'user.name=b', '-c', 'user.email=b@example.org', '-c', 'gc.auto=0']
    for words in (['init', '-q'], ['add', '.'], ['commit', '-q', '-m', 'all']):
        subprocess.run([*git, *words], check=True, stdout=subprocess.DEVNULL)
"""
_IMPORTS = """
import subprocess, sys, time
names = 'asyncio,email.mime.text,http.client,json,logging.config,sqlite3,ssl,unittest.mock,urllib.request,xml.dom'
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
    """`tree`: how the program comes by its tree, if it needs one: `made` by itself, or an `input`."""

    code: str
    programs: tuple[str, ...] = ()
    tree: str = ""


def workloads(opens: int) -> Mapping[str, Workload]:
    """By name; `opens`: how often a file is opened and closed."""
    thousand = FILES // 1000
    found = {f"{opens // 1000}k open/close": Workload(_OPENS.format(rounds=opens))}
    for tree, words in (("made", "made inside"), ("input", "an input")):
        make = _MAKE_TREE if tree == "made" else ""
        found[f"find, {thousand}k files, {words}"] = Workload(make + _FIND, ("find", "git"), tree)
        found[f"git status, {thousand}k files, {words}"] = Workload(make + _GIT, ("git",), tree)
    return found | {
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


def _held(folder: Path, workload: Workload, observe: str) -> list[str]:
    """`remit run` with the workload under the python base and what it needs beyond."""
    programs = json.dumps([sys.executable, *workload.programs])
    text = "apiVersion: remit/v1\nagent: bench\nleast_tier: partial\nextends: python\nunsafe_widen: [process.exec]\n"
    text += f"process: {{exec: {programs}}}\nobserve: {observe}\nlimits: {{disk: 500MB, files: 50000}}\n"
    if workload.tree == "input":
        text += "filesystem: {work: {from: .}}\n"
    path = folder / f"{observe}.yaml"
    path.write_text(text)
    return [*REMIT, "run", "-q", "--remit", path.name]


def work(folder: Path, rounds: int) -> dict[str, Any]:
    """Ratios of each way to bare, p50 of `rounds` (at most 9: one takes seconds)."""
    rounds = max(3, min(rounds, 9))
    found: dict[str, Any] = {}
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for name, workload in workloads(100_000).items():
        if not all(shutil.which(program) for program in workload.programs):
            print(f"{name}: not on this machine: {', '.join(workload.programs)}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(dir=folder if workload.tree == "input" else shared) as temporary:
            place = Path(temporary)
            found[name] = _compare(place, workload, rounds)
    return found


def _compare(place: Path, workload: Workload, rounds: int) -> dict[str, float]:
    program = [sys.executable, "-c", workload.code]
    if workload.tree:
        subprocess.run([sys.executable, "-c", _MAKE_TREE], cwd=place, check=True)
    ways = {"bare": program}
    for observe in ("exec+connect", "open"):
        ways[observe] = [*_held(place, workload, observe), "--", *program]
    dry = [*_held(place, workload, "open"), "--dry-run", "--", *program]
    plan = place.parent / f"{place.name}.json"
    plan.write_bytes(subprocess.run(dry, cwd=place, stdout=subprocess.PIPE, check=True).stdout)
    ways["asked, not looked at"] = [launcher.find(), "run", "--plan", str(plan)]
    times: dict[str, list[float]] = {way: [] for way in ways}
    try:
        for number in range(rounds + 1):
            for way, command in ways.items():
                seconds = _seconds(command, place)
                if number:
                    times[way].append(seconds)
    finally:
        plan.unlink()
    middle = {way: statistics.median(values) for way, values in times.items()}
    ratios = {way: middle[way] / middle["bare"] for way in ways if way != "bare"}
    return {"bare, ms": middle["bare"] * 1000} | ratios

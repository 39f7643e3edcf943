"""The measures: `make bench`. Ratios against peers in the same run, alternately, so that a noisy machine is noisy for
all. Prints a table (or `--json`); times are milliseconds, spawn to exit, seen from Python.

    python bench/run.py              all
    python bench/run.py launch       one of: launch, output, command, throughput, memory, work
    python bench/run.py --rounds 50  quicker
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.sandbox import launcher
from work import work

TRUE = shutil.which("true") or "/usr/bin/true"
REMIT = [sys.executable, "-P", "-m", "remit.cli.main"]


def plan(folder: Path, *argv: str, **changes: Any) -> Path:
    """A plan as `remit run` makes it, every mechanism on; `changes` replace top-level keys."""
    done = subprocess.run(
        [*REMIT, "run", "-q", "--accept-tier", "partial", "--dry-run", "--", *argv], capture_output=True, check=True
    )
    document = {**json.loads(done.stdout), **changes}
    path = folder / f"plan-{len(list(folder.iterdir()))}.json"
    path.write_text(json.dumps(document))
    return path


def alternate(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, dict[str, float]]:
    """Each command once a round, in turn. Raises if one fails: a failing peer is quick."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 5):
        for name, command in commands.items():
            began = time.perf_counter()
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
            if number >= 5:
                times[name].append((time.perf_counter() - began) * 1000)
    return {name: summary(values) for name, values in times.items()}


def summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": statistics.median(ordered),
        "p90": ordered[int(len(ordered) * 0.90)],
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
    }


def bubblewrap(document: Mapping[str, Any], *, same_root: bool) -> list[str]:
    """`same_root`: every file that the plan shows, as bubblewrap shows one. Otherwise its cheapest: all of /usr."""
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--uid", "1000", "--gid", "1000", "--hostname", "remit", "--clearenv"]
    if same_root:
        for op in document["root"]:
            if op["op"] == "bind" and not op["dev"]:
                command += ["--ro-bind", op["from"], op["to"]]
            elif op["op"] == "symlink" and not op["path"].startswith("/dev/"):
                command += ["--symlink", op["target"], op["path"]]
    else:
        command += ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "lib", "lib64", "sbin"):
            command += ["--symlink", f"usr/{name}", f"/{name}"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/workspace", "--chdir", "/workspace"]
    return [*command, TRUE]


def launch(folder: Path, rounds: int) -> dict[str, Any]:
    path = plan(folder, TRUE)
    document = json.loads(path.read_text())
    commands: dict[str, Sequence[str]] = {
        "remit-launcher": [launcher.find(), "run", "--plan", str(path)],
        "true, bare": [TRUE],
    }
    if shutil.which("bwrap"):
        commands["bubblewrap, the same files"] = bubblewrap(document, same_root=True)
        commands["bubblewrap, all of /usr"] = bubblewrap(document, same_root=False)
    found: dict[str, Any] = alternate(commands, rounds)
    ours = found["remit-launcher"]
    for name in [name for name in found if name.startswith("bubblewrap")]:
        found[f"ratio to {name}"] = {key: ours[key] / found[name][key] for key in ours}
    return found


def output(folder: Path, rounds: int) -> dict[str, Any]:
    """From the request to the program's first byte: by the launcher's own clock (`--timings`), from when it has
    the request to when it has that byte; and seen from Python, with the start of the launcher."""
    path = plan(folder, shutil.which("echo") or "/usr/bin/echo", "x")
    seen: list[float] = []
    inside: list[float] = []
    for number in range(rounds + 5):
        began = time.perf_counter()
        process = subprocess.Popen(
            [launcher.find(), "run", "--plan", str(path), "--timings"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.read(1)
        elapsed = (time.perf_counter() - began) * 1000
        _, said = process.communicate()
        marks = {name: int(at) for at, name in re.findall(r"^ *(\d+) us  \+\d+ +(.+)$", said.decode(), re.M)}
        if number >= 5:
            seen.append(elapsed)
            inside.append(marks["first output"] / 1000)
    return {"inside the launcher": summary(inside), "seen from Python": summary(seen)}


def command(folder: Path, rounds: int) -> dict[str, Any]:
    """`remit run` beyond what the interpreter's own start and the launcher cost."""
    path = plan(folder, TRUE)
    script = Path(sys.executable).with_name("remit")
    run = [str(script), "run"] if script.exists() else [*REMIT, "run"]
    found: dict[str, Any] = alternate(
        {
            "remit run -q -- true": [*run, "-q", "--accept-tier", "partial", "--", TRUE],
            "python3 -c pass": [sys.executable, "-c", "pass"],
            "remit-launcher": [launcher.find(), "run", "--plan", str(path)],
        },
        max(10, rounds // 5),
    )
    beyond = found["remit run -q -- true"]["p50"] - found["python3 -c pass"]["p50"]
    found["beyond the interpreter"] = {"p50": beyond}
    return found


def throughput(folder: Path, rounds: int) -> dict[str, Any]:
    """Sandboxes a second with all processors busy: two spawners for each, since a launch waits now and then."""
    path = plan(folder, TRUE)
    document = json.loads(path.read_text())
    workers = 2 * (os.cpu_count() or 1)
    each = max(50, rounds)

    def own(name: str) -> str:
        """The plan under a name of its own, as every run has one: cgroups are named by the sandbox."""
        cgroup = json.loads(json.dumps(document["cgroup"]))
        for group in cgroup["groups"] if cgroup else []:
            group["dir"] += f"-{name}"
        mine = folder / f"throughput-{name}.json"
        mine.write_text(json.dumps({**document, "cgroup": cgroup}))
        return str(mine)

    def work(plans: list[str]) -> None:
        path = launcher.find()
        null = os.open("/dev/null", os.O_RDWR)
        for mine in plans:
            # Not subprocess, whose own work in one interpreter would be measured with it.
            stdin = [(os.POSIX_SPAWN_DUP2, null, 0)]
            pid = os.posix_spawn(path, [path, "run", "--plan", mine], os.environ, file_actions=stdin)
            if os.waitpid(pid, 0)[1] != 0:
                raise RuntimeError("a launch failed")

    plans = [[own(f"{worker}-{number}") for number in range(each)] for worker in range(workers)]
    began = time.perf_counter()
    spawners = [multiprocessing.Process(target=work, args=(mine,)) for mine in plans]
    for spawner in spawners:
        spawner.start()
    for spawner in spawners:
        spawner.join()
        if spawner.exitcode != 0:
            raise RuntimeError("a spawner failed")
    rate = workers * each / (time.perf_counter() - began)
    return {f"{workers} spawners on {os.cpu_count()} processors": {"per second": rate}}


def memory(folder: Path, rounds: int) -> dict[str, Any]:
    """Private memory of the launcher's two processes while the program sleeps, KiB."""
    path = plan(folder, shutil.which("sleep") or "/usr/bin/sleep", "5")
    process = subprocess.Popen([launcher.find(), "run", "--plan", str(path)], stdin=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        found = {}
        for name, pid in (("monitor", process.pid), ("init", int(children[0]))):
            try:
                text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            except PermissionError:
                # The init hides its memory from its own user; root sees it.
                continue
            lines = [line.split() for line in text.splitlines() if line.startswith("Private_")]
            found[name] = {"private KiB": float(sum(int(line[1]) for line in lines))}
        return found
    finally:
        process.kill()
        process.wait()


MEASURES: Mapping[str, Callable[[Path, int], dict[str, Any]]] = {
    "launch": launch,
    "output": output,
    "command": command,
    "throughput": throughput,
    "memory": memory,
    "work": work,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.measures or MEASURES:
            if not options.json:
                print(f"{name} ...", file=sys.stderr, flush=True)
            found[name] = MEASURES[name](Path(temporary), options.rounds)
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    from rich.console import Console
    from rich.table import Table

    for name, rows in found.items():
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        table = Table("", *columns, title=name, title_justify="left")
        for label, row in rows.items():
            table.add_row(label, *(f"{row[c]:.2f}" if c in row else "" for c in columns))
        Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

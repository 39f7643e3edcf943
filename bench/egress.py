"""The broker against a direct connection and against mitmproxy: new connections, bulk, requests, held connections.

    python bench/egress.py                all
    python bench/egress.py requests       one of: handshakes, bulk, requests, held
    python bench/egress.py --rounds 3     quicker

The same client (`egress_client.py`, or wrk) asks the same server (nginx) in three ways in turn: bare, over loopback;
inside a sandbox, whose connections the broker carries; bare, through mitmproxy as a reverse proxy, which costs the
client what a transparent one does. mitmproxy goes into an environment of its own in the cache the first time. Quote
ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import egress_peers as peers

CLIENT = Path(__file__).with_name("egress_client.py")
SECONDS = 3
"""Of wrk, each time."""
TOGETHER = 16
"""Connections of wrk's."""
HELD = 1000


class Side(NamedTuple):
    """`argv`: what a command is put behind. `at`: by the way a connection is carried (`open`: unread), host and port.
    `pids`: of what carries the connections of a client that was started with process id N."""

    argv: Callable[[Path], list[str]]
    at: Mapping[str, tuple[str, int]]
    pids: Callable[[int], list[int]]


class Site(NamedTuple):
    """Where everything runs. `sides`: direct, remit, mitmproxy."""

    folder: Path
    sides: Mapping[str, Side]


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        origin = stack.enter_context(peers.origin(folder))
        mitmproxy = stack.enter_context(peers.mitmproxy(folder, origin))
        remit = peers.write_remit(folder, origin, CLIENT)
        names = {"raw": "open", "tls": "open", "http": "plain", "https": "read"}
        ports = {"raw": origin.raw, "tls": origin.https, "http": origin.http, "https": origin.https}
        sides = {
            "direct": Side(lambda _: [], {way: ("127.0.0.1", port) for way, port in ports.items()}, lambda _: []),
            "remit": Side(
                lambda folder: peers.inside(folder, remit),
                {way: (f"{names[way]}.{peers.DOMAIN}", port) for way, port in ports.items()},
                peers.broker_and_relay,
            ),
            "mitmproxy": Side(lambda _: [], mitmproxy.at, lambda _: mitmproxy.pids),
        }
        yield Site(folder, sides)


def ask(where: Site, side: Side, *words: object) -> Any:
    command = [*side.argv(where.folder), sys.executable, "-P", str(CLIENT), *map(str, words)]
    done = subprocess.run(
        command, cwd=where.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def handshakes(where: Site, rounds: int) -> dict[str, Any]:
    """New TLS connections, milliseconds: unread (`tls`) and read (`https`)."""
    found: dict[str, Any] = {}
    for way, label in (("tls", "unread"), ("https", "read")):
        times: dict[str, list[float]] = {name: [] for name in where.sides}
        for _ in range(rounds):
            for name, side in where.sides.items():
                times[name] += ask(where, side, "handshakes", *side.at[way], 100)
        for name, values in times.items():
            ordered = sorted(values)
            found[f"{label}, {name}"] = {"p50": statistics.median(ordered), "p90": ordered[int(len(ordered) * 0.9)]}
        ratio = {key: found[f"{label}, remit"][key] / found[f"{label}, direct"][key] for key in ("p50", "p90")}
        found[f"{label}, remit to direct"] = ratio
    return found


def bulk(where: Site, rounds: int) -> dict[str, Any]:
    """MiB a second of one connection: bytes unread, TLS unread, and HTTP and TLS that are read."""
    labels = {"raw": "bytes, unread", "tls": "TLS, unread", "http": "HTTP, read", "https": "TLS, read"}
    found = {}
    for way, label in labels.items():

        def once(name: str, side: Side, way: str = way) -> float:
            size = peers.BULK
            return float(ask(where, side, "bulk", *side.at[way], way, size if way == "raw" else peers.BULK))

        found[label] = _compare(where, rounds, once)
    return found


def requests(where: Site, rounds: int) -> dict[str, Any]:
    """Requests a second on kept connections, small answers."""
    wrk = shutil.which("wrk")
    assert wrk is not None

    def once(way: str) -> Callable[[str, Side], float]:
        def rate(name: str, side: Side) -> float:
            host, port = side.at[way]
            options = ["-t1", f"-c{TOGETHER}", f"-d{SECONDS}s", "--timeout", "30s"]
            said = str(ask(where, side, "run", wrk, *options, f"{way}://{host}:{port}/"))
            if "Non-2xx" in said or "Socket errors" in said:
                raise RuntimeError(f"{name}: {said}")
            return float(re.search(r"Requests/sec: +([\d.]+)", said)[1])  # type: ignore[index]

        return rate

    return {label: _compare(where, rounds, once(way)) for way, label in (("http", "HTTP"), ("https", "TLS, read"))}


def _compare(where: Site, rounds: int, once: Callable[[str, Side], float]) -> dict[str, float]:
    """The median of each side, and Remit's part of the others, as medians of each round's ratio."""
    seen: dict[str, list[float]] = {name: [] for name in where.sides}
    for _ in range(rounds):
        for name, side in where.sides.items():
            seen[name].append(once(name, side))
    found = {name: statistics.median(values) for name, values in seen.items()}
    for name in ("direct", "mitmproxy"):
        found[f"to {name}"] = statistics.median(a / b for a, b in zip(seen["remit"], seen[name], strict=True))
    return found


def held(where: Site, rounds: int) -> dict[str, Any]:
    """1,000 connections at once, each asked before and after; and what carries them takes in private memory."""
    found: dict[str, Any] = {}
    for way, label in (("tls", "TLS, unread"), ("http", "HTTP, read"), ("https", "TLS, read")):
        for name in ("remit", "mitmproxy"):
            found[f"{label}, {name}"] = _hold(where, where.sides[name], way)
    return found


def _hold(where: Site, side: Side, way: str) -> dict[str, float]:
    counted = {}
    for count in (1, HELD):
        words = ["held", *side.at[way], "https" if way == "tls" else way, count]
        command = [*side.argv(where.folder), sys.executable, "-P", str(CLIENT), *map(str, words)]
        with subprocess.Popen(command, cwd=where.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as client:
            assert client.stdout is not None
            client.stdout.readline()
            counted[count] = sum(map(peers.private, side.pids(client.pid)))
            said = json.loads(client.stdout.readline() or b"{}")
    each = (counted[HELD] - counted[1]) / (HELD - 1)
    return {"held": said["held"], "dropped": said["dropped"], "KiB each": each}


MEASURES: Mapping[str, Callable[[Site, int], dict[str, Any]]] = {
    "handshakes": handshakes,
    "bulk": bulk,
    "requests": requests,
    "held": held,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="*", choices=[*MEASURES, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    missing = [program for program in ("nginx", "wrk") if not shutil.which(program)]
    if missing:
        print(f"not on this machine, so not measured: {', '.join(missing)}", file=sys.stderr)
        return 0
    # mitmproxy asks for no more than it is given; Remit does.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found: dict[str, Any] = {}
    # In memory: what a disk costs is not the broker's.
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=shared) as temporary, site(Path(temporary)) as where:
        for name in options.measures or MEASURES:
            if not options.json:
                print(f"{name} ...", file=sys.stderr, flush=True)
            found[name] = MEASURES[name](where, max(1, min(options.rounds, 9)))
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    show(found)
    return 0


def show(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    from rich.console import Console
    from rich.table import Table

    for name, rows in found.items():
        columns = list(dict.fromkeys(key for row in rows.values() for key in row))
        table = Table("", *columns, title=name, title_justify="left")
        for label, row in rows.items():
            table.add_row(label, *(f"{row[c]:.2f}" if c in row else "" for c in columns))
        Console().print(table)


if __name__ == "__main__":
    raise SystemExit(main())

"""One policy, two forms: what the kernel refuses is what `decide` denies. Actions on paths that matter and on drawn addresses are tried
inside for real, and judged outside by the same remit's view."""

from __future__ import annotations

import json
import random
import sys

import pytest

from remit import compose
from remit.policy.actions import Connect, Exec, OpenFile
from remit.policy.decide import decide
from tests.conftest import PYTHON

pytestmark = pytest.mark.kernel

_PROBE = """
import json, os, socket, sys
def read(p):
    try:
        if os.path.isdir(p): os.listdir(p)
        else: os.close(os.open(p, os.O_RDONLY | os.O_NONBLOCK))
        return True
    except OSError: return False
def write(p):
    try: os.close(os.open(p, os.O_WRONLY | os.O_NONBLOCK)); return True
    except OSError: return False
def make(p):
    try: os.close(os.open(p, os.O_WRONLY | os.O_CREAT | os.O_EXCL)); os.unlink(p); return True
    except OSError: return False
def run(p):
    if os.path.isdir(p) or not os.access(p, os.F_OK): return False
    pid = os.fork()
    if pid == 0:
        os.dup2(os.open('/dev/null', os.O_RDWR), 1); os.dup2(1, 2); os.dup2(os.open('/dev/null', 0), 0)
        try: os.execv(p, [p, '--version'])
        except OSError: os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 99
def connect(a):
    s = socket.socket(socket.AF_INET6 if ':' in a else socket.AF_INET); s.settimeout(1)
    try: s.connect((a, 9)); return True
    except ConnectionRefusedError: return True  # somebody of its own was reached, and nobody listens
    except OSError: return False
todo = json.load(open('todo.json'))
print(json.dumps([globals()[kind](what) for kind, what in todo]))
"""


def test_what_the_kernel_refuses_is_what_decide_denies(run):
    draw = random.Random(20261201)
    (run.folder / "in/sub").mkdir(parents=True)
    (run.folder / "in/sub/file").write_text("x")
    (run.folder / "in/.env").write_text("x")
    paths = [
        "/workspace/in/sub/file", "/workspace/in", "/workspace/in/.env", "/workspace/new", "/tmp/new", "/home/agent/new",
        "/etc/passwd", "/etc/shadow", "/etc/group", "/root", "/var/log", "/usr/bin/git", "/usr/bin/env", "/bin/sh",
        "/proc/cpuinfo", "/proc/kcore", "/proc/keys", "/dev/null", "/dev/mem", "/dev/kmsg", "/sys/kernel", "/boot",
        "/usr/lib/os-release", "/dev/shm/new", "/opt", "/etc/hosts", "/workspace/probe.py", "/workspace/in/sub/new",
        sys.executable, "/run/systemd", "/usr/share/zoneinfo/UTC", "/proc/sys/kernel/hostname",
    ]  # fmt: skip
    todo = [(kind, path) for path in paths for kind in ("read", "write", "run")]
    todo += [("make", p) for p in paths if p.endswith("new")]
    todo += [("connect", a) for a in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "127.9.9.9", "0.0.0.0")]
    todo += [("connect", f"{draw.randint(1, 223)}.{draw.randint(0, 255)}.{draw.randint(0, 255)}.1") for _ in range(8)]
    draw.shuffle(todo)
    remit = PYTHON + "filesystem: {read: [./probe.py, ./in, ./todo.json], deny: ['**/.env']}\n"
    files = {"probe.py": _PROBE, "todo.json": json.dumps(todo)}
    held = run(remit, [sys.executable, "probe.py"], files=files)
    did = dict(zip(map(tuple, todo), json.loads(held.out), strict=True))

    effective = compose.load_file(str(run.folder / "remit.yaml"))
    prepared = compose.prepare(effective, [sys.executable], directory=str(run.folder))
    view = prepared.compiled.view

    def judged(kind: str, what: str) -> bool:
        match kind:
            case "read":
                action = OpenFile(what)
            case "write" | "make":
                action = OpenFile(what, write=True)
            case "run":
                action = Exec(what)
            case _:
                action = Connect(what, 9)
        return decide(effective.remit, action, view).allowed

    # decide speaks of what may be done, the kernel also of what is there: allowed and absent is no contradiction.
    missing = {p for p in paths if p.endswith("new")}
    links = {p for p in (sys.executable,) if view.place(p) and view.place(p).rule == "builtin.link"}  # type: ignore[union-attr]
    wrong = [
        (kind, what, "kernel allowed" if done else "kernel refused")
        for (kind, what), done in did.items()
        if what not in links and done != judged(kind, what) and not (what in missing and kind != "make" and not done)
    ]
    assert wrong == [], wrong
    assert sum(did.values()) >= 15, "both sides of the property must be drawn"
    assert sum(not x for x in did.values()) >= 15


def test_what_repeats_is_told_once_and_counted(python, tmp_path):
    code = "import os\nfor _ in range(5000): os.close(os.open('probe.py', 0))\nopen('other', 'w').close()\n"
    held = python(code, "observe: open\n", options=["--events", "events.jsonl"])
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    opens = [e for e in events if e["event"] == "attempt" and e["raw"] == "probe.py"]
    assert len(opens) < 50
    assert sum(e.get("times", 1) for e in opens) >= 5000
    assert opens[0].get("times") is None, "the first is told at once"
    attempts = [e for e in events if e["event"] == "attempt"]
    assert held.receipt["attempts"] == sum(e.get("times", 1) for e in attempts)
    assert [e["raw"] for e in attempts if e["raw"] == "other"] == ["other"]

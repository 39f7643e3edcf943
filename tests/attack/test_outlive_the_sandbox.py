"""Goal: still be there afterwards. Twin: while the program runs, its children do too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import HEAD, PYTHON, REMIT, alive

pytestmark = pytest.mark.kernel

_MARK = "remit-test-survivor"


def test_daemons_and_stopped_processes_die_with_their_sandbox(python):
    mark = f"{_MARK}-{os.getpid()}-a"
    held = python(
        "import os, signal, subprocess, sys, time\n"
        f"sleep=[sys.executable,'-c','import time; time.sleep(60)', {mark!r}]\n"
        "subprocess.Popen(sleep, start_new_session=True)\n"
        "if os.fork()==0:\n os.setsid()\n if os.fork()==0: os.execv(sleep[0], sleep)\n os._exit(0)\n"
        "p=subprocess.Popen(sleep); os.kill(p.pid, signal.SIGSTOP); time.sleep(0.5)\n"
        f"n=sum({mark!r} in open(f'/proc/{{d}}/cmdline').read() for d in os.listdir('/proc') if d.isdigit() and d != str(os.getpid()))\n"
        "print('alive inside', n)\n"
    )
    assert held.out == "alive inside 3\n", held
    assert alive(mark) == []
    assert held.receipt["teardown"]["nothing_remains"]


def test_orphans_are_reaped_and_no_zombie_is_left(python):
    held = python(
        "import os, time\n"
        "for _ in range(20):\n"
        " if os.fork()==0:\n  if os.fork()==0: time.sleep(0.05); os._exit(0)\n  os._exit(0)\n"
        " os.wait()\n"
        "time.sleep(0.6)\n"
        "print(sum(d.isdigit() for d in os.listdir('/proc')))\n"
    )
    assert held.out == "2\n", held  # the init and the program


@pytest.mark.parametrize("victim", ["python", "launcher"])
def test_kill_9_of_a_supervisor_leaves_nothing(tmp_path, needs, victim):
    needs("userns")
    mark = f"{_MARK}-{os.getpid()}-{victim}"
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON)
    command = [
        *REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "-c",
        "import time; print('up', flush=True); time.sleep(60)", mark,
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    pid = process.pid
    if victim == "launcher":
        (child,) = open(f"/proc/{pid}/task/{pid}/children").read().split()
        pid = int(child)
    os.kill(pid, signal.SIGKILL)
    process.stdout.close()
    process.wait(20)
    end = time.monotonic() + 10
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(mark) == []


def test_sigterm_lets_the_program_say_goodbye_and_then_ends_it(tmp_path, needs):
    needs("userns")
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON)
    code = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'bye\\n'))\n"
        "print('up', flush=True)\n"
        "while True: time.sleep(1)\n"
    )
    process = subprocess.Popen(
        [*REMIT, "run", "-q", "--receipt", "r.json", "--remit", "remit.yaml", "--", sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[0] == "bye\n"
    assert process.returncode == 137
    assert json.loads((tmp_path / "r.json").read_text())["result"]["reason"] == "killed"


def test_the_cgroups_of_a_sandbox_are_gone(python, needs):
    needs("cgroup")
    held = python("print(open('/proc/self/cgroup').read())")
    assert held.receipt["teardown"]["cgroups_left"] == []
    name = held.receipt["sandbox"]
    for parent, folders, _ in os.walk("/sys/fs/cgroup"):
        assert name not in folders, parent


def test_cgroups_of_a_killed_launcher_are_removed_by_a_later_run_and_those_in_use_are_not(python, needs, tmp_path):
    needs("cgroup")
    from remit.sandbox.sweep import sweep

    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON)
    command = [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "-c"]
    sleeper = "import time; print('up', flush=True); time.sleep(60)"
    killed, kept = (subprocess.Popen([*command, sleeper], cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2))
    for process in (killed, kept):
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
    launchers = [int(open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()[0]) for p in (killed, kept)]
    os.kill(launchers[0], signal.SIGKILL)
    killed.wait(20)
    from remit.plan.launch_plan import Cgroup, CgroupGroup
    from remit.sandbox import host

    facts = host.read()
    assert facts.cgroup is not None
    parents = facts.cgroup.parents
    plan = Cgroup(1, tuple(CgroupGroup(c, f"{parent}/rmt-x") for c, parent in parents.items()))
    assert sweep(plan) == 0  # too young to be told from one that is being made
    end = time.monotonic() + 10
    while not (removed := sweep(plan, time.time() + 3600)) and time.monotonic() < end:
        time.sleep(0.1)
    assert removed >= len(parents)
    assert any(name.startswith("rmt-") for name in os.listdir(parents["memory"])), "the other one still runs"
    kept.send_signal(signal.SIGTERM)
    kept.wait(20)


@pytest.mark.parametrize(
    ("trick", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", 124),  # stopped by itself: the clock goes on
        ("[signal.signal(s, signal.SIG_IGN) for s in (1, 2, 3, 15)]; time.sleep(60)", 124),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); time.sleep(60)", 124),
        ("os.fork() and os._exit(0); time.sleep(60)", 0),  # the program's end is everybody's
        (
            "libc.prctl(36, 1); os.fork() or (os.setsid(), os.fork() or time.sleep(60)); os._exit(0)",
            0,
        ),  # a reaper of its own
        (
            "libc.prctl(1, 0); os.fork() or (libc.prctl(1, 0), time.sleep(60)); os._exit(0)",
            0,
        ),  # no death with the parent
        ("p=os.fork() or (os.kill(os.getpid(), 19), 1); time.sleep(0.1); os._exit(0)", 0),
        ("os.fork() or os.setpgid(0, 0); time.sleep(60)", 124),  # out of the group that signals are sent to
    ],
)
def test_no_trick_with_signals_sessions_or_parents_makes_one_stay(python, trick, code):
    mark = f"{_MARK}-{os.getpid()}-trick"
    held = python(
        f"import ctypes, os, signal, sys, time\nlibc=ctypes.CDLL(None)\nprint('up', flush=True)\n{trick}\n",
        "limits: {wall: 1s}\n",
        argv=[mark],
    )
    assert (held.code, held.out) == (code, "up\n"), held
    assert held.receipt["teardown"]["nothing_remains"]
    assert alive(mark) == []


def test_a_lock_on_an_input_lasts_no_longer_than_its_sandbox(python, tmp_path):
    import fcntl

    (tmp_path / "in").write_text("shared")
    held = python(
        "import fcntl\nf=open('in'); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB); print('WROTE')\nexcept OSError: print('refused')\n",
        "filesystem: {read: [./probe.py, ./in]}\n",
    )
    assert held.out.splitlines() == ["locked", "refused"], held
    with open(tmp_path / "in", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_first_process_with_its_limits_lowered_still_ends_everything_in_time(python):
    """The same id may lower the limits of process 1 (the kernel asks for no more); it gains nothing by it."""
    held = python(
        "import os, resource, time\n"
        "for name in ('NOFILE', 'CPU', 'NPROC', 'SIGPENDING', 'STACK', 'MEMLOCK'):\n"
        " try: resource.prlimit(1, getattr(resource, 'RLIMIT_'+name, 11), (0, 0))\n"
        " except (OSError, ValueError): pass\n"
        "if os.fork()==0: time.sleep(60)\n"
        "print('up', flush=True); time.sleep(60)\n",
        "limits: {wall: 1s}\n",
    )
    assert (held.code, held.out) == (124, "up\n"), held
    assert held.receipt["teardown"]["nothing_remains"]

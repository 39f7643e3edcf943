"""Every process of a run is killed at every named step. Claim: the program never ran unconfined, nothing of it is left,
and nobody is told that it went well. Twin: the same build without a fault runs the program and keeps its file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HEAD, PYTHON, REMIT, alive
from tests.faults.conftest import wait_until_dead

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("nothing_is_left")]

MONITOR = (
    "plan", "pipes", "cloned", "mapped", "cgroups made", "limited", "ready", "confined", "executed", "first output", "program ended",
    "tree dead", "handed over", "removed",
)  # fmt: skip
INIT = (
    "init: born", "init: sources", "init: identity", "init: root", "init: limits", "init: capabilities",
    "init: landlock", "init: confined", "init: executed",
)  # fmt: skip
BEFORE_THE_PROGRAM = (*MONITOR[:8], *INIT[:-1])
"""Killed there, it must not have run at all."""

_CODE = (
    "import re, sys, time\n"
    "said = open('/proc/self/status').read()\n"
    "confined = re.findall(r'^(?:Seccomp|NoNewPrivs):\\s*(\\d)', said, re.M) == ['1', '2']\n"
    "open('out.txt', 'w').write('x')\n"
    "print('ran', 'confined' if confined else 'FREE', flush=True)\n"
    "time.sleep(float(sys.argv[1]))\n"
)


class Ran:
    def __init__(self, folder: Path, launcher: str, fault: str, *, sleep: float = 0.3, wall: str = "30s") -> None:
        self.mark = f"remit-test-fault-{os.getpid()}-{re.sub('[^a-z]', '-', fault)}"
        self.folder = folder
        text = f"{HEAD}{PYTHON}state: {{keep: ['out.txt']}}\nlimits: {{wall: {wall}}}\n"
        (folder / "remit.yaml").write_text(text)
        command = [*REMIT, "run", "--remit", "remit.yaml", "--receipt", "receipt.json", "--timings", "--"]
        self.process = subprocess.Popen(
            [*command, sys.executable, "-c", _CODE, str(sleep), self.mark],
            cwd=folder,
            env={**os.environ, "REMIT_LAUNCHER": launcher, "REMIT_FAULT": fault},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    @property
    def receipt(self) -> dict[str, object]:
        path = self.folder / "receipt.json"
        return json.loads(path.read_text()) if path.exists() else {}


def test_without_a_fault_it_runs_and_every_step_is_a_fault_point(tmp_path, needs, faulty):
    needs("userns")
    ran = Ran(tmp_path, faulty, "")
    code, out, err = ran.end()
    assert (code, out) == (0, "ran confined\n"), err
    assert (tmp_path / "kept/out.txt").read_text() == "x"
    said = set(re.findall(r"^ *\d+ us  \+\d+ +(.+)$", err, re.M))
    # "init: confined" and "init: executed" come after the init's last report of its marks.
    assert said | set(INIT[-2:]) | {"cgroups made"} == {*MONITOR, *INIT}


@pytest.mark.parametrize("step", [*MONITOR, *INIT])
def test_a_process_killed_at_a_step_leaves_nothing_and_is_no_success(tmp_path, needs, faulty, step):
    needs("userns")
    if step == "cgroups made":
        needs("cgroup")
    ran = Ran(tmp_path, faulty, f"{step}=kill")
    code, out, err = ran.end()
    if step in BEFORE_THE_PROGRAM:
        assert out == ""
    assert out in ("", "ran confined\n")
    assert code in (125, 137), err
    assert "Traceback" not in err
    assert "error: the " in err or "remit: " in err, "and it is said"
    wait_until_dead(ran.mark)
    # An init that dies at once may be met as a step that fails, and then it is known that nothing ran.
    known = ("lost", "not_started") if step in BEFORE_THE_PROGRAM else ("lost",)
    assert ran.receipt["result"]["reason"] in known  # type: ignore[index]
    assert ("error" in ran.receipt) == (code == 125), "a whole receipt is of a sandbox whose end was seen"
    if (tmp_path / "kept").exists():
        assert os.listdir(tmp_path / "kept") in ([], ["out.txt"])


@pytest.mark.parametrize("step", INIT)
def test_an_init_that_hangs_is_ended_by_the_monitors_clock(tmp_path, needs, faulty, step):
    needs("userns")
    ran = Ran(tmp_path, faulty, f"{step}=stop", sleep=60, wall="1s")
    code, out, err = ran.end()
    assert code == 124, err
    assert out in ("", "ran confined\n")
    assert (out == "") == (step in BEFORE_THE_PROGRAM)
    wait_until_dead(ran.mark)


def test_a_monitor_that_hangs_is_outlived_by_the_inits_own_clock(tmp_path, needs, faulty):
    needs("userns")
    ran = Ran(tmp_path, faulty, "executed=stop", sleep=60, wall="1s")
    try:
        own = {str(ran.process.pid), *_children(ran.process.pid)}
        program = _wait_for_program(ran.mark, own)
        wait_until_gone(program, 10)
    finally:
        for pid in _children(ran.process.pid):
            os.kill(int(pid), signal.SIGKILL)
    code, _, err = ran.end()
    assert code == 125, err
    wait_until_dead(ran.mark)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _wait_for_program(mark: str, own: set[str]) -> str:
    import time

    end = time.monotonic() + 20
    while time.monotonic() < end:
        found = [pid for pid in alive(mark) if pid not in own and pid not in _launchers(own)]
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError("the program did not start")


def _launchers(own: set[str]) -> set[str]:
    return {child for pid in own if os.path.exists(f"/proc/{pid}") for child in _children(int(pid))}


def wait_until_gone(pid: str, seconds: float) -> None:
    import time

    end = time.monotonic() + seconds
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < end:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")

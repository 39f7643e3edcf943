"""The Python side is killed at every step of a run. Claim: the sandbox ends with it, what is kept is whole files or none,
and a later run removes the rest. Twin: the same driver without a kill keeps the files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit.sandbox import staging
from tests.conftest import HEAD, PYTHON
from tests.faults.conftest import wait_until_dead

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("nothing_is_left")]

_DRIVER = """
import importlib, os, signal, sys
module, name, when, count = sys.argv[1:5]
owner = importlib.import_module(module)
*above, name = name.split(".")
for part in above:
    owner = getattr(owner, part)
real = getattr(owner, name)
calls = 0
def replaced(*a, **k):
    global calls
    calls += 1
    if calls == int(count) and when == "before": os.kill(os.getpid(), signal.SIGKILL)
    got = real(*a, **k)
    if calls == int(count) and when == "after": os.kill(os.getpid(), signal.SIGKILL)
    return got
setattr(owner, name, replaced)
from remit.cli.main import main
sys.exit(main(sys.argv[5:]))
"""

STEPS = {
    "before the launcher": ("remit.sandbox.launcher", "start", "before", 1),
    "the launcher has just started": ("remit.sandbox.launcher", "start", "after", 1),
    "at the first attempt": ("remit.sandbox.serving", "Serving._note", "before", 1),
    "when the sandbox has ended": ("remit.sandbox.serving", "_hand_over", "before", 1),
    "one file is copied": ("remit.sandbox.keep", "copy_file", "after", 1),
    "all are copied": ("remit.sandbox.keep", "_place", "before", 1),
    "one file is placed": ("remit.sandbox.keep", "_place", "after", 1),
    "all are kept": ("remit.sandbox.keep", "keep", "after", 1),
    "before the receipt": ("remit.sandbox.receipt", "receipt", "before", 1),
}
_WHOLE = "x" * 100_000


def _drive(folder: Path, mark: str, point: tuple[str, str, str, int]) -> subprocess.CompletedProcess[bytes]:
    (folder / "remit.yaml").write_text(f"{HEAD}{PYTHON}state: {{keep: ['*.txt']}}\n")
    code = f"for n in 'abc': open(n + '.txt', 'w').write({_WHOLE!r})\nimport time; time.sleep(0.3)"
    run = ["run", "-q", "--remit", "remit.yaml", "--receipt", "receipt.json", "--", sys.executable, "-c", code, mark]
    driver = [sys.executable, "-c", _DRIVER, *map(str, point), *run]
    return subprocess.run(driver, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize("step", STEPS)
def test_what_a_killed_caller_leaves_is_whole_or_removed_later(tmp_path, needs, step):
    needs("userns")
    mark = f"remit-test-lost-{os.getpid()}-{step.replace(' ', '-')}"
    kept = tmp_path / "kept"
    assert _drive(tmp_path, mark, STEPS[step]).returncode == -9, "the step was never reached"
    wait_until_dead(mark)
    receipt = tmp_path / "receipt.json"
    assert receipt.read_text() == "", "opened before, and never finished"
    names = {name for name in os.listdir(kept) if not name.startswith(staging.PREFIX)} if kept.exists() else set()
    assert names <= {"a.txt", "b.txt", "c.txt"}
    for name in names:
        assert (kept / name).read_text() == _WHOLE
    if "copied" in step:
        assert [name for name in os.listdir(kept) if name.startswith(staging.PREFIX)], "the case is a case"
    staging.sweep(str(kept), time.time() + 3600)
    assert {name for name in os.listdir(kept) if name.startswith(staging.PREFIX)} == set() if kept.exists() else True


def test_without_a_kill_all_is_kept(tmp_path, needs):
    needs("userns")
    done = _drive(tmp_path, "remit-test-lost-twin", ("remit.sandbox.keep", "keep", "after", 2))
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(tmp_path / "kept")) == ["a.txt", "b.txt", "c.txt"]
    assert (tmp_path / "receipt.json").read_text() != ""


def test_a_sweep_spares_what_is_young_in_use_or_anothers(tmp_path):
    later = time.time() + 3600
    with staging.directory(str(tmp_path)) as busy:
        (tmp_path / ".remit-staging-left").mkdir()
        (tmp_path / ".remit-staging-left/0").write_text("x")
        (tmp_path / "mine").mkdir()
        (tmp_path / ".remit-notes").mkdir()
        (tmp_path / ".remit-staging-link").symlink_to(tmp_path / "mine")
        assert staging.sweep(str(tmp_path)) == 0
        assert staging.sweep(str(tmp_path), later) == 1
        assert sorted(os.listdir(tmp_path)) == sorted(
            [os.path.basename(busy), "mine", ".remit-notes", ".remit-staging-link"]
        )
    assert not os.path.exists(busy)

"""A launcher whose every mark is a fault point (cargo feature `fault-points`), and what must hold after any fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.sandbox import host
from remit.sandbox.sweep import sweep
from tests.conftest import alive

CRATE = Path(__file__).parents[2] / "launcher"
VARIABLE = "REMIT_FAULT_LAUNCHER"


@pytest.fixture(scope="session")
def faulty() -> str:
    """The path of the fault build: built here, or named by `REMIT_FAULT_LAUNCHER` (an ordinary user without cargo)."""
    if named := os.environ.get(VARIABLE):
        return named
    if shutil.which("cargo") is None:
        pytest.fail(f"the fault build needs cargo, or its path in {VARIABLE}")
    command = ["cargo", "build", "--quiet", "--features", "fault-points", "--target-dir", "target/faults"]
    subprocess.run(command, cwd=CRATE, check=True, timeout=600)
    return str(CRATE / "target/faults/debug/remit-launcher")


def cgroups() -> set[str]:
    """Directories of sandboxes, of this user's and of whoever else shares its place."""
    facts = host.read()
    parents = facts.cgroup.parents.values() if facts.cgroup else ()
    return {f"{parent}/{name}" for parent in parents for name in os.listdir(parent) if name.startswith("rmt-")}


def _is_empty(path: str) -> bool:
    try:
        with open(f"{path}/cgroup.procs") as file:
            return file.read() == ""
    except OSError:
        return False


def wait_until_dead(mark: str, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert alive(mark) == []


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    """After the test: no mount more than before it, and no cgroup that a later start would not remove."""
    before, mounts = cgroups(), _mounts()
    yield
    from remit.plan.launch_plan import Cgroup, CgroupGroup

    facts = host.read()
    if facts.cgroup:
        groups = tuple(CgroupGroup(c, f"{parent}/rmt-x") for c, parent in facts.cgroup.parents.items())
        end = time.monotonic() + 10
        # What still dies is not empty yet and is waited for too; what runs at the end of the wait is another's.
        while (new := cgroups() - before) and time.monotonic() < end:
            # A minute later, to a sweep's eyes: see `sweep`, which spares what is just being made.
            sweep(Cgroup(facts.cgroup.version, groups), time.time() + 3600)
            time.sleep(0.02)
        assert {path for path in new if _is_empty(path)} == set()
    assert _mounts() == mounts


def _mounts() -> int:
    with open("/proc/self/mountinfo") as file:
        return sum(1 for _ in file)

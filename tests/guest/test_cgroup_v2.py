"""cgroup version 2, as root and delegated to an ordinary user, on the kernels in $REMIT_GUEST_KERNELS (CI fetches them)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from remit.policy.model import MIB, Limits
from tests.guest import guest

pytestmark = [pytest.mark.guest, pytest.mark.timeout(400)]

_SMALL = Limits(memory=32 * MIB, disk=4 * MIB, processes=16, wall_ms=60_000)
_FREE = Limits(memory=200 * MIB, disk=4 * MIB, processes=16, wall_ms=60_000)
_SHORT = Limits(memory=32 * MIB, disk=4 * MIB, wall_ms=1_500)
_HOG = "busybox dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null; echo took"
_FORKS = "n=0; while [ $n -lt 60 ]; do busybox sleep 5 & n=$((n+1)); done; echo all"
_VIEW = "busybox cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /proc/self/cgroup; busybox id -u"
_WRITE = "(echo max > /sys/fs/cgroup/memory.max) 2>/dev/null && echo WROTE || echo refused"
_DAEMON = "(busybox setsid busybox sleep 77 &) ; exit 0"


def _cases(who: str) -> dict[str, tuple[str, str, Limits]]:
    return {
        f"{who}-works": (who, "echo hello > f; busybox cat f", _SMALL),
        f"{who}-view": (who, _VIEW, _SMALL),
        f"{who}-write": (who, _WRITE, _SMALL),
        f"{who}-memory": (who, _HOG, _SMALL),
        f"{who}-memory-within": (who, _HOG, _FREE),
        f"{who}-forks": (who, _FORKS, _SMALL),
        f"{who}-wall": (who, "busybox sleep 77", _SHORT),
        f"{who}-daemon": (who, _DAEMON, _SMALL),
    }


_UPTIME = "busybox cut -d. -f1 /proc/uptime"
_CLOCK = {
    "clock-back": ("root", f"{_UPTIME}; echo; busybox sleep 77", _SHORT),
    "clock-forward": ("root", "busybox sleep 4; echo lived", _FREE),
    "clock-after": ("root", f"{_UPTIME}", _SMALL),
}
_JUMPS = {
    "clock-back": "sleep 1; date -s '2001-01-01 00:00:00' >/dev/null",
    "clock-forward": "sleep 1; date -s '2037-01-01 00:00:00' >/dev/null",
}
"""What the host's clock does meanwhile."""


def _kernels() -> list[object]:
    found = guest.kernels()
    if found:
        return [pytest.param(path, id=path.name) for path in found]
    return [pytest.param(None, id="none")]


@pytest.fixture(scope="module", params=_kernels())
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    kernel: Path | None = request.param
    if kernel is None or shutil.which("qemu-system-x86_64") is None or shutil.which("busybox") is None:
        message = f"no guest kernel in ${guest.KERNELS}, or no qemu-system-x86_64, or no busybox"
        if "guest" in os.environ.get("REMIT_MUST_RUN", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    cases = {**_cases("root"), **_cases("user"), **_CLOCK}
    return guest.boot(kernel, tmp_path_factory.mktemp("guest"), cases, _JUMPS)


@pytest.mark.parametrize("who", ["root", "user"])
def test_an_ordinary_program_works(said, who):
    assert said[f"{who}-works"] == ["hello", "RC 0"], said


@pytest.mark.parametrize("who", ["root", "user"])
def test_it_sees_its_own_cgroup_and_can_not_change_it(said, who):
    memory = (32 + 4 + 2) * MIB
    assert said[f"{who}-view"] == [str(memory), "17", "0::/", "1000", "RC 0"], said
    assert said[f"{who}-write"] == ["refused", "RC 0"], said


@pytest.mark.parametrize("who", ["root", "user"])
def test_memory_beyond_the_limit_kills_the_whole_tree_and_less_does_not(said, who):
    assert said[f"{who}-memory"] == ["RC 137"], said
    assert said[f"{who}-memory-within"] == ["took", "RC 0"], said


@pytest.mark.parametrize("who", ["root", "user"])
def test_processes_are_held(said, who):
    assert "can't fork" in "".join(said[f"{who}-forks"]), said
    assert "all" not in said[f"{who}-forks"]


@pytest.mark.parametrize("who", ["root", "user"])
def test_the_wall_clock_holds(said, who):
    assert said[f"{who}-wall"] == ["RC 124"], said


def test_nothing_remains(said):
    left = [line for line in said[""] if line.startswith("LEFT ")]
    assert left == ["LEFT 0 0"], said
    assert said["root-daemon"] == said["user-daemon"] == ["RC 0"]


def test_a_clock_that_jumps_neither_kills_nor_spares(said):
    began, _, code = said["clock-back"]
    assert code == "RC 124", said["clock-back"]
    assert said["clock-forward"] == ["lived", "RC 0"]
    # All of it, by the clock that does not jump: the wall of 1.5 s, the four seconds, two starts.
    assert int(said["clock-after"][0]) - int(began) < 30

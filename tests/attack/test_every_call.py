"""Goal: a system call that the filter forgot. Every number is called inside, with arguments that no call can use, and
answers as its reviewed class (`launcher/seccomp/every-call.txt`) says. Twin: outside, the same calls reach the kernel.

What the filters say of each number is checked without a kernel too, for both architectures: `launcher/src/every_call.rs`.
"""

from __future__ import annotations

import errno
import json
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kernel

_CLASSES = Path(__file__).parents[2] / "launcher/seccomp/every-call.txt"
_SKIPPED = ("exit", "exit_group", "fork", "vfork", "rt_sigreturn", "pause", "sync")
"""They don't come back, come back twice, or make the host write."""
_OUTSIDE = [
    "ptrace",
    "process_vm_readv",
    "kcmp",
    "keyctl",
    "add_key",
    "request_key",
    "userfaultfd",
    "open_tree",
    "fsopen",
    "fspick",
    "pidfd_getfd",
    "move_pages",
    "adjtimex",
    "clone3",
    "io_uring_setup",
    "io_uring_enter",
    "io_setup",
    "memfd_create",
]
"""With these arguments nothing comes of them anywhere."""

_PROBE = """
import ctypes, json, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
answers = {}
for number in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        ctypes.set_errno(0)
        failed = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6) == -1
        os._exit(ctypes.get_errno() if failed else 0)
    answers[number] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps(answers))
"""


def _classes() -> dict[str, str]:
    found = {}
    current = ""
    for line in _CLASSES.read_text().splitlines():
        if line.startswith("#"):
            continue
        head, colon, names = line.rpartition(":")
        if colon:
            name, _, only = head.partition(" ")
            current = name if only in ("", platform.machine()) else ""
        found.update(dict.fromkeys(names.split(), current) if current else {})
    return found


@pytest.fixture(scope="module")
def numbers() -> dict[str, int]:
    """The calls that this host's headers name."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to ask for the numbers of the calls")
    text = subprocess.run(
        ["gcc", "-E", "-dM", "-"], input="#include <asm/unistd.h>\n", capture_output=True, text=True, check=True
    ).stdout
    found = {name: int(number) for name, number in re.findall(r"^#define __NR_(\w+) (\d+)$", text, re.MULTILINE)}
    assert len(found) > 200
    return found


def test_every_number_answers_as_it_was_reviewed(python, numbers):
    called = [n for n in range(601) if n not in {numbers[name] for name in _SKIPPED if name in numbers}]
    held = python(_PROBE, "observe: none\n", [json.dumps(called)])
    assert held.code == 0, held.err
    answers = {int(number): answer for number, answer in json.loads(held.out).items()}
    assert len(answers) == len(called)
    wanted = {"eperm": errno.EPERM, "memfd": errno.EPERM, "enosys": errno.ENOSYS}
    classes = _classes()
    checked = set()
    for name, number in numbers.items():
        wants = wanted.get(classes.get(name, ""))
        if wants is not None and number in answers:
            assert answers[number] == wants, f"{name} ({number})"
            checked.add(name)
    assert {"mount", "ptrace", "bpf", "setns", "reboot", "memfd_create", "io_uring_setup", "clone3"} <= checked
    assert len(checked) > 60
    # Beyond every table, so that a call that a newer kernel adds is not let in by its number.
    assert {answers[number] for number in range(480, 601)} == {errno.ENOSYS}
    assert {answers[numbers[name]] for name in ("getpid", "getuid", "sched_yield", "setsid")} == {0}
    # A signal instead of an answer: SIGSYS, or a call that blocked.
    odd = {number: answer for number, answer in answers.items() if answer < 0}
    if platform.machine() == "x86_64":
        # The kernel's own return from a probe: newer kernels answer it before any filter, with SIGILL outside of one.
        odd = {number: answer for number, answer in odd.items() if (number, answer) not in ((335, -4), (336, -4))}
    assert odd == {}


def test_outside_the_same_calls_reach_the_kernel(numbers):
    named = {numbers[name]: name for name in _OUTSIDE if name in numbers}
    done = subprocess.run(
        [sys.executable, "-c", _PROBE, json.dumps(sorted(named))], capture_output=True, text=True, check=True
    )
    refused = (errno.EPERM, errno.ENOSYS)
    reached = {named[int(number)] for number, answer in json.loads(done.stdout).items() if answer not in refused}
    # Hosts turn some of them off for everybody.
    assert len(reached) >= 10, reached

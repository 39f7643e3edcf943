"""Goal: type into the operator's terminal, or leave it changed. Twin: the program's own terminal does as it is told."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel

_PROBE = """
import ctypes, errno, fcntl, os, struct, sys, termios, tty
libc = ctypes.CDLL(None, use_errno=True)
def ioctl(fd, request, arg):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(16), ctypes.c_long(fd), ctypes.c_long(request), arg)
    return "ok" if r >= 0 else errno.errorcode[ctypes.get_errno()]
letter = ctypes.c_char(b"x")
answers = [ioctl(fd, request, ctypes.byref(letter))
    for fd in (0, 1, 2) for request in (0x5412, 0x100005412, 0x541C, 0x5423, 0x541D)]
mine = os.open("/dev/tty", os.O_RDWR)
answers += [ioctl(mine, 0x5412, ctypes.byref(letter))]
print("refused", set(answers))
tty.setraw(0); fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 7, 11, 0, 0))
print("own", os.get_terminal_size(0), termios.tcgetattr(0)[3] & termios.ECHO, os.isatty(mine), os.ttyname(0), end="\\r\\n")
sys.stdout.flush()
if sys.argv[1:] == ["die"]: os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("end", ["returns", "die"])
def test_a_program_at_a_terminal_has_one_of_its_own_and_the_operators_is_as_it_was(tmp_path, needs, end):
    needs("userns")
    (tmp_path / "probe.py").write_text(_PROBE)
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./probe.py]}\n")
    command = [*REMIT, "run", "-q", "--tty", "--remit", "remit.yaml", "--", sys.executable, "probe.py", end]
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    before = termios.tcgetattr(slave)
    process = subprocess.Popen(command, cwd=tmp_path, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    said, until = b"", time.monotonic() + 30
    while process.poll() is None and time.monotonic() < until:
        if select.select([master], [], [], 0.05)[0]:
            said += os.read(master, 65536)
    assert process.wait(1) == (137 if end == "die" else 0), said
    while select.select([master], [], [], 0.05)[0]:
        said += os.read(master, 65536)
    lines = said.decode().split("\r\n")
    assert "refused {'EPERM'}" in lines, said
    assert any(line.startswith("own os.terminal_size(columns=11, lines=7) 0 True /dev/pts/") for line in lines), said
    assert termios.tcgetattr(slave) == before
    assert termios.tcgetwinsize(slave) == (24, 80)
    # Nothing was typed: a reader of the operator's terminal would find it.
    os.set_blocking(slave, False)
    with pytest.raises(BlockingIOError):
        os.read(slave, 1)
    os.close(master)
    os.close(slave)

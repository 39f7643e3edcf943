"""At a terminal, as a job of a shell: Ctrl-Z, bg, fg, Ctrl-C, and a terminal that is given back whatever happens."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel

_TICKS = "import sys, time\nfor i in range(600): print('tick', i, flush=True); time.sleep(0.05)\n"
_ECHO = "import sys\nprint('up', flush=True)\nfor line in sys.stdin: print('got', line, end='', flush=True)\n"


class Shell:
    """The least that a shell does: a session with a terminal, in which one job runs, stops and goes on."""

    def __init__(self, folder: Path, code: str, *options: str) -> None:
        (folder / "remit.yaml").write_text(HEAD + PYTHON)
        self.command = [*REMIT, "run", "-q", "--remit", "remit.yaml", *options, "--", sys.executable, "-c", code]
        self.master, slave = pty.openpty()
        self.seen = b""
        told, tell = os.pipe()
        go, going = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.setsid()
            import fcntl

            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            self._shell(slave, tell, go)
        os.close(slave)
        os.close(tell)
        os.close(go)
        self.job = int(os.read(told, 20))
        self.told, self.going = told, going

    def _shell(self, slave: int, tell: int, go: int) -> None:
        """In the child: starts the job in a group of its own in the foreground, then follows one-letter orders."""
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        job = os.fork()
        if job == 0:
            os.setpgid(0, 0)
            os.tcsetpgrp(slave, os.getpid())
            for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)
            for fd in (0, 1, 2):
                os.dup2(slave, fd)
            os.closerange(3, 100)
            os.execv(self.command[0], self.command)
        os.write(tell, b"%-20d" % job)
        while True:
            _, status = os.waitpid(job, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                os.write(tell, b"E%-19d" % os.waitstatus_to_exitcode(status))
                os._exit(0)
            os.tcsetpgrp(slave, os.getpid())
            os.write(tell, b"S%-19d" % os.WSTOPSIG(status))
            order = os.read(go, 1)
            if order == b"f":
                os.tcsetpgrp(slave, job)
            os.killpg(job, signal.SIGCONT)
            if order == b"b":
                os.read(go, 1)
                os.tcsetpgrp(slave, job)
                os.killpg(job, signal.SIGCONT)

    def read_until(self, text: bytes, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while text not in self.seen and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.master, 4096)
                except OSError:
                    break
        assert text in self.seen, self.seen

    def quiet_for(self, seconds: float) -> bool:
        time.sleep(0.3)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return not select.select([self.master], [], [], seconds)[0]

    def heard(self) -> tuple[str, int]:
        assert select.select([self.told], [], [], 20)[0], "the shell saw no change of its job"
        word = os.read(self.told, 20)
        return chr(word[0]), int(word[1:])

    def key(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def order(self, letter: bytes) -> None:
        os.write(self.going, letter)


@pytest.fixture
def shell(tmp_path: Path, needs: Callable[[str], None]) -> Iterator[Callable[..., Shell]]:
    needs("userns")
    made: list[Shell] = []

    def make(code: str, *options: str) -> Shell:
        made.append(Shell(tmp_path, code, *options))
        return made[-1]

    yield make
    for one in made:
        for pid in (one.job, one.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        os.waitpid(one.pid, 0)
        for fd in (one.master, one.told, one.going):
            os.close(fd)


def test_ctrl_z_stops_the_job_as_a_whole_and_fg_goes_on(shell):
    job = shell(_TICKS, "--no-tty")
    job.read_until(b"tick 3\r\n")
    job.key(b"\x1a")
    assert job.heard() == ("S", signal.SIGTSTP)
    assert job.quiet_for(0.5), "the program goes on while its job is stopped"
    number = int(job.seen.split(b"tick ")[-1].split()[0])
    job.order(b"f")
    job.read_until(b"tick %d\r\n" % (number + 3))
    job.key(b"\x03")
    assert job.heard()[0] == "E"


def test_a_job_in_the_background_runs_and_reads_the_terminal_only_in_the_foreground(shell):
    job = shell(_ECHO, "--no-tty")
    job.read_until(b"up\r\n")
    job.key(b"\x1a")
    assert job.heard()[0] == "S"
    job.order(b"b")
    time.sleep(0.3)
    job.key(b"for the shell\n")
    assert job.quiet_for(0.5)
    assert b"got" not in job.seen
    job.order(b"f")
    job.key(b"for the job\n")
    job.read_until(b"got for the job\r\n")
    job.key(b"\x04")
    assert job.heard() == ("E", 0)


def test_ctrl_c_ends_the_job_with_the_status_of_a_signal(shell):
    job = shell("import time; print('up', flush=True); time.sleep(60)", "--no-tty")
    job.read_until(b"up\r\n")
    job.key(b"\x03")
    assert job.heard() == ("E", 130)


@pytest.mark.parametrize("end", ["by itself", "killed"])
def test_the_terminal_is_given_back_as_it_was(shell, end):
    job = shell("print('up', flush=True); input()", "--tty")
    before = termios.tcgetattr(job.master)
    job.read_until(b"up\r\n")
    assert termios.tcgetattr(job.master)[3] != before[3], "raw while the sandbox has it"
    if end == "killed":
        (launcher,) = Path(f"/proc/{job.job}/task/{job.job}/children").read_text().split()
        os.kill(int(launcher), signal.SIGKILL)
        assert job.heard() == ("E", 125)
    else:
        job.key(b"\n")
        assert job.heard() == ("E", 0)
    assert termios.tcgetattr(job.master)[:4] == before[:4]

"""Records that say something else than what happened, or that cost their keeper more than the sandbox may have."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

_OPEN = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
d = os.open("in", os.O_RDONLY | os.O_DIRECTORY)
way = sys.argv[1]
if way == "in_root":
    fd = libc.syscall(437, d, b"/a", struct.pack("QQQ", 0, 0, 0x10), 24)
else:
    fd = os.open({"plain": "in/a", "cwd": "/proc/self/cwd/in/a", "root": "/proc/thread-self/root/workspace/in/a",
                  "fd": f"/proc/self/fd/{d}/a"}[way], os.O_RDONLY)
print(os.read(fd, 9))
"""


@pytest.mark.parametrize("way", ["plain", "in_root", "cwd", "root", "fd"])
def test_a_file_is_recorded_under_its_name_whatever_way_it_was_opened(python, tmp_path, way):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("content")
    more = "filesystem: {read: [./probe.py, ./in]}\nobserve: open\n"
    held = python(_OPEN, more, argv=[way], options=["--events", str(tmp_path / "events")])
    assert "content" in held.out, held
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert "/workspace/in/a" in [event.get("resolved") for event in events]


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGXCPU, "exited"), (signal.SIGTERM, "exited")])
def test_a_signal_of_its_own_is_not_told_as_a_limit(python, number, reason):
    held = python(f"import os\nos.kill(os.getpid(), {int(number)})")
    assert (held.receipt["result"]["reason"], held.receipt["result"]["signal"]) == (reason, number)


def test_a_placeholder_of_an_input_is_not_kept_from_where_it_was_moved_to(python, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("real")
    code = "import os\nos.makedirs('out')\ntry: os.rename('in', 'out/in')\nexcept OSError: pass\nopen('out/b', 'w').write('1')"
    held = python(code, "filesystem: {read: [./probe.py, ./in/a]}\nstate: {keep: ['**']}\n")
    assert [kept["path"] for kept in held.receipt["kept"]] == ["out/b"]


def test_long_names_do_not_fill_the_receipt(python, tmp_path):
    code = (
        "import os\nos.mkdir('out'); os.chdir('out')\n"
        "for i in range(100): os.mkdir('\\x01' * 255); os.chdir('\\x01' * 255)\n"
        "for i in range(200): open(str(i), 'w').close()\n"
    )
    held = python(code, "state: {keep: ['out/**']}\n")
    assert held.code in (0, 125)
    assert (tmp_path / "receipt.json").stat().st_size < 8 * 1024 * 1024


def test_long_attempts_do_not_fill_the_receipt(python, tmp_path):
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "for i in range(600): libc.open(b'/%d' % i + b'/\\x01' * 2000, 0o101, 0o600)\n"
    )
    held = python(code, "observe: open\n")
    assert held.receipt["refusals_in_all"] >= 600
    assert (tmp_path / "receipt.json").stat().st_size < 8 * 1024 * 1024


def test_a_path_on_the_progress_line_is_printed_escaped(capsys, monkeypatch):
    from remit.cli.run import _Progress

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    _Progress(False).step("reading /x/\x1b]0;title\x07y")
    assert "\x1b]0;" not in capsys.readouterr().err


@pytest.mark.parametrize("wall", ["2s", None])
def test_a_reader_that_stalls_holds_an_ended_run_no_longer_than_its_clock(needs, tmp_path, wall):
    """And where there is a reader, or no clock, nothing is cut."""
    needs("userns")
    limits = f"limits: {{wall: {wall}}}\n" if wall else ""
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON + limits)
    # F_SETPIPE_SZ: it all fits in the program's own pipe, so that the program can end.
    code = "import fcntl\nfcntl.fcntl(1, 1031, 1 << 20)\nprint('x' * 150000)\n"
    receipt = tmp_path / "receipt.json"
    options = ["--quiet", "--remit", "remit.yaml", "--receipt", receipt]
    command = [*REMIT, "run", *options, "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        if wall:
            running.wait(20)
        time.sleep(3)
        got = len(running.stdout.read())
        code = running.wait(20)
    said = json.loads(receipt.read_text())
    if wall:
        assert (said["result"]["reason"], got < 150001, code) == ("exited", True, 125)
        assert said["output_error"]
    else:
        assert (got, code, said["output_error"]) == (150001, 0, None)

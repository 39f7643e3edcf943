"""Goal: change something that outlives the sandbox. Twin: the work directory is written, and what is named is kept."""

from __future__ import annotations

import fcntl
import os
import signal

import pytest

pytestmark = pytest.mark.kernel


def test_inputs_and_the_root_are_read_only_and_the_work_directory_is_not(python, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("as it was")
    held = python(
        "import os\n"
        "for what in ('in/a','/etc/passwd','/usr/bin/x','/proc/sys/kernel/hostname','/proc/self/oom_score_adj','/x','mine'):\n"
        " try: open(what,'w').write('1'); print(what,'WROTE')\n except OSError as e: print(what,'refused')\n"
        "for f in (lambda: os.chmod('in/a',0o777), lambda: os.unlink('in/a'), lambda: os.rename('in','out')):\n"
        " try: f(); print('CHANGED')\n except OSError: print('refused')\n",
        "filesystem: {read: [./probe.py, ./in]}\n",
    )
    lines = held.out.splitlines()
    assert lines[6] == "mine WROTE"
    assert [line for line in lines if "WROTE" in line or "CHANGED" in line] == ["mine WROTE"], lines
    assert (tmp_path / "in/a").read_text() == "as it was"


def test_changes_over_a_copied_folder_never_reach_the_original_and_are_kept_on_demand(python, tmp_path):
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "old").write_text("old")
    (repo / "gone").write_text("gone")
    (repo / "probe.py").write_text(
        "import os\nopen('old','a').write('+new'); os.unlink('gone'); open('made','w').write('m')\nprint(sorted(os.listdir('.')))\n"
    )
    import sys

    from tests.conftest import PYTHON, Run

    run: Run = python.__closure__[0].cell_contents if callable(python) else None  # type: ignore[attr-defined]
    held = run(
        PYTHON + "filesystem: {work: {from: ./repo}}\nstate: {keep: ['**']}\n", [sys.executable, "/workspace/probe.py"]
    )
    assert held.code == 0, held.err
    assert held.out == "['made', 'old', 'probe.py']\n"
    assert ((repo / "old").read_text(), (repo / "gone").exists()) == ("old", True)
    # What was not changed is not kept: it is the original's.
    assert sorted(k["path"] for k in held.receipt["kept"]) == ["made", "old"]
    assert (tmp_path / "kept/old").read_text() == "old+new"


def test_what_the_guest_plants_is_not_followed_when_it_is_kept(python, tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("secret of the host")
    held = python(
        "import os\n"
        f"os.symlink({str(outside)!r}, 'a.txt')\n"
        "os.mkfifo('b.txt')\n"
        "os.mkdir('d'); os.symlink('/etc', 'd/etc')\n"
        "open('c.txt','w').write('fine')\n"
        "os.link('c.txt','hard.txt')\n"
        "f=open('sparse.txt','w'); f.truncate(1<<50)\n",
        "state: {keep: ['**']}\n",
    )
    assert held.code == 0, held.err
    assert sorted(k["path"] for k in held.receipt["kept"]) == ["c.txt", "hard.txt"]
    reasons = {n["path"]: n["rule"] for n in held.receipt["not_kept"]}
    assert reasons == {"a.txt": "state.keep", "b.txt": "state.keep", "d/etc": "state.keep", "sparse.txt": "limits.disk"}
    assert not (tmp_path / "kept/a.txt").exists()


def test_a_link_in_the_destination_is_not_followed(python, tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/out").symlink_to(tmp_path / "victim")
    held = python("import os\nos.mkdir('out'); open('out/x','w').write('1')", "state: {keep: ['out/**']}\n")
    assert held.receipt["kept"] == [] or not os.listdir(tmp_path / "victim")
    assert os.listdir(tmp_path / "victim") == []
    assert held.receipt["keep_error"]


def test_nothing_is_kept_that_is_not_named(python, tmp_path):
    held = python("open('a','w').write('1'); open('b','w').write('1')", "state: {keep: [a]}\n")
    assert sorted(os.listdir(tmp_path / "kept")) == ["a"]
    assert [k["path"] for k in held.receipt["kept"]] == ["a"]


def test_the_setuid_bit_of_a_kept_file_is_lost(python, tmp_path):
    python("import os\nopen('s','w').write('x'); os.chmod('s', 0o4777)", "state: {keep: [s]}\n")
    assert (tmp_path / "kept/s").stat().st_mode & 0o7777 == 0o755


def test_what_the_hosts_tools_obey_is_kept_only_by_its_name(python, tmp_path):
    code = (
        "import os\nos.makedirs('.git/hooks'); open('.git/hooks/pre-commit','w').write('x')\n"
        "open('.envrc','w').write('x'); open('remit.yaml','w').write('x'); open('fine','w').write('x')\n"
    )
    held = python(code, "state: {keep: ['**']}\n")
    assert [k["path"] for k in held.receipt["kept"]] == ["fine"]
    held = python(code, "state: {keep: ['.git/**', fine]}\n")
    assert [k["path"] for k in held.receipt["kept"]] == [".git/hooks/pre-commit", "fine"]


def test_a_destination_that_fails_half_way_is_told_with_what_was_placed(python, tmp_path):
    (tmp_path / "kept/b.txt").mkdir(parents=True)
    held = python("open('a.txt','w').write('1'); open('b.txt','w').write('1')", "state: {keep: ['*.txt']}\n")
    assert [k["path"] for k in held.receipt["kept"]] == ["a.txt"]
    assert "b.txt" in held.receipt["keep_error"]


def test_no_lease_is_taken_on_an_input_that_would_make_the_hosts_writer_wait(python, tmp_path):
    """The guest owns what it is shown, and an owner may ask to be waited for: 45 s a time. Twin: the owner outside may."""
    (tmp_path / "in").write_text("shared")
    held = python(
        "import errno, fcntl\n"
        "for kind in (fcntl.F_RDLCK, fcntl.F_WRLCK):\n"
        " try: fcntl.fcntl(open('in'), fcntl.F_SETLEASE, kind); print('LEASED')\n"
        " except OSError as e: print(errno.errorcode[e.errno])\n"
        "import ctypes; libc=ctypes.CDLL(None, use_errno=True); f=open('in')\n"
        "print(libc.syscall(ctypes.c_long(72), ctypes.c_long(f.fileno()), ctypes.c_long(1024 | 1 << 32), ctypes.c_long(0)))\n"
        "print(fcntl.fcntl(f, fcntl.F_GETLEASE), fcntl.fcntl(f, fcntl.F_DUPFD, 10) >= 10)\n",
        "filesystem: {read: [./probe.py, ./in]}\n",
    )
    assert held.out.splitlines() == ["EPERM", "EPERM", "-1", "2 True"], held
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    with open(tmp_path / "in") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        with pytest.raises(BlockingIOError):
            os.open(tmp_path / "in", os.O_WRONLY | os.O_NONBLOCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    signal.signal(signal.SIGIO, before)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_in_a_checkout_does_not_lead_the_set_up_out(run, tmp_path, kind):
    """An input meant to appear below a folder that the checkout made a link: nothing is made where it leads."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "victim").mkdir(mode=0o777)
    (tmp_path / "victim").chmod(0o777)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_text("input")
    source = "./in/a" if kind == "file" else "./in"
    remit = (
        "extends: shell-with-git\n"
        f"filesystem: {{work: {{from: ./repo}}, read: [{{from: {source}, to: /workspace/docs/x/y}}]}}\n"
    )
    command = ["sh", "-c", "cat /workspace/docs/x/y /workspace/docs/x/y/a 2>/dev/null; true"]
    (tmp_path / "repo/docs").symlink_to(tmp_path / "victim")
    held = run(remit, command)
    assert (held.code, os.listdir(tmp_path / "victim")) == (125, [])
    assert "root.place" in held.err
    # The twin: a folder of that name.
    (tmp_path / "repo/docs").unlink()
    (tmp_path / "repo/docs").mkdir()
    assert run(remit, command).out == "input"

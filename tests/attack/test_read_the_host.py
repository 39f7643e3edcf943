"""Goal: read what was not given. Twin: what was given is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from remit.sandbox import launcher
from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel

_TRY = "import sys\nfor p in sys.argv[1:]:\n try: print(p, 'READ', len(open(p,'rb').read(64)))\n except OSError as e: print(p, e.strerror)\n"


def test_files_of_the_host_do_not_exist_and_granted_ones_do(python, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("s")
    (tmp_path / "given.txt").write_text("g")
    held = python(
        _TRY,
        "filesystem: {read: [./probe.py, ./given.txt]}\n",
        argv=[str(secret), "/etc/shadow", "/root/.ssh", "given.txt", "/proc/1/environ", "/proc/1/root/etc/passwd"],
    )
    lines = held.out.splitlines()
    assert lines[3] == "given.txt READ 1"
    assert not [line for i, line in enumerate(lines) if i != 3 and "READ" in line], lines


def test_dotdot_and_links_in_the_work_directory_lead_nowhere(python):
    held = python(
        "import os\nos.symlink('/etc/shadow','l'); os.symlink('../../../../../../root','d')\n"
        "open('own','w').write('1'); os.symlink('own','good')\n"
        "for p in ('l','d/.profile','../../../etc/shadow','good'):\n"
        " try: open(p).read(); print(p,'READ')\n except OSError as e: print(p,'refused')\n"
    )
    assert held.out.split("\n")[:4] == ["l refused", "d/.profile refused", "../../../etc/shadow refused", "good READ"]


def test_masked_files_of_proc_are_unreadable_and_ordinary_ones_are_read(python):
    held = python(
        _TRY,
        argv=[
            "/proc/kcore",
            "/proc/kallsyms",
            "/proc/keys",
            "/proc/sysrq-trigger",
            "/proc/cpuinfo",
            "/proc/self/status",
        ],
    )
    lines = held.out.splitlines()
    assert all("READ" not in line for line in lines[:4]), lines
    assert all("READ 64" in line for line in lines[4:]), lines


def test_a_denied_pattern_is_unreadable_inside_a_granted_folder_and_its_neighbour_is_read(python, tmp_path):
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/.env").write_text("TOKEN=1")
    (tmp_path / "in/sub/.env").write_text("TOKEN=1")
    (tmp_path / "in/sub/ok").write_text("fine")
    (tmp_path / "in/link").symlink_to("sub/.env")
    held = python(
        _TRY,
        "filesystem: {read: [./probe.py, ./in], deny: ['**/.env']}\n",
        argv=["in/.env", "in/sub/.env", "in/link", "in/sub/ok"],
    )
    lines = held.out.splitlines()
    assert all("READ" not in line for line in lines[:3]), lines
    assert lines[3] == "in/sub/ok READ 4"


def test_no_descriptor_of_the_host_is_inherited(python, tmp_path):
    """The caller's own open files, even a directory as standard input, give nothing to hold on to."""
    held = python(
        "import os\nprint(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))\n"
        "for n in (0,1,2):\n"
        " t=os.readlink(f'/proc/self/fd/{n}'); print(t.split(':')[0])\n"
    )
    assert held.out.splitlines()[1:] == ["pipe", "pipe", "pipe"], held.out


def test_a_directory_as_standard_input_is_nothing_to_hold_on_to(tmp_path, needs):
    """Straight to the launcher: Python itself does not start with one."""
    needs("userns")
    (tmp_path / "probe.py").write_text(
        "import os\n"
        "for f in (0, 3, 4, 5):\n"
        " try: os.open('etc/hostname', os.O_RDONLY, dir_fd=f); print('ESCAPED')\n"
        " except OSError: print('refused')\n"
    )
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./probe.py]}\n")
    command = [*REMIT, "run", "--remit", "remit.yaml", "--dry-run", "--", sys.executable, "-c", "pass"]
    plan = json.loads(subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout)
    plan["command"]["argv"] = [sys.executable, "probe.py"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        done = subprocess.run(
            [launcher.find(), "run", "--plan", str(tmp_path / "plan.json")],
            stdin=fd,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(fd)
    assert done.stdout == "refused\n" * 4, done


def test_the_first_process_of_the_sandbox_gives_nothing_away(python):
    held = python(
        "import os\n"
        "for p in ('/proc/1/environ','/proc/1/maps','/proc/1/mem','/proc/self/maps'):\n"
        " try: open(p,'rb').read(10); print(p,'READ')\n except OSError as e: print(p,'refused')\n"
        "try: print(len(os.listdir('/proc/1/fd')),'LISTED')\nexcept OSError: print('refused')\n"
    )
    assert held.out.splitlines() == [
        "/proc/1/environ refused",
        "/proc/1/maps refused",
        "/proc/1/mem refused",
        "/proc/self/maps READ",
        "refused",
    ]


def test_sockets_and_fifos_of_the_host_in_a_granted_folder_are_not_the_hosts(python, tmp_path):
    """A read-only mount stops neither connect() nor a FIFO's writer; an overlay gives both an identity of their own."""
    import socket

    (tmp_path / "in").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "in/s"))
    (tmp_path / "in/s").chmod(0o777)
    server.listen()
    os.mkfifo(tmp_path / "in/f")
    (tmp_path / "in/f").chmod(0o666)
    reader = os.open(tmp_path / "in/f", os.O_RDONLY | os.O_NONBLOCK)
    held = (
        python(
            "import os, socket\n"
            "s=socket.socket(socket.AF_UNIX)\n"
            "try: s.connect('in/s'); print('REACHED')\nexcept OSError: print('refused')\n"
            "try: os.write(os.open('in/f', os.O_WRONLY|os.O_NONBLOCK), b'x'); print('WROTE')\nexcept OSError: print('refused')\n"
            "print(open('in/plain').read())\n",
            "filesystem: {read: [./probe.py, ./in]}\n",
        )
        if (tmp_path / "in/plain").write_text("fine")
        else None
    )
    assert held.out.splitlines() == ["refused", "refused", "fine"], held
    try:
        assert os.read(reader, 10) == b""
    except BlockingIOError:
        pass
    os.close(reader)
    server.close()


def test_a_grant_that_is_itself_denied_is_refused_and_its_neighbour_is_granted(run, tmp_path):
    for name in (".ssh/id", "real/.env", "ok/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("secret")
    (tmp_path / "lnk").symlink_to("real")
    for grant in ("./.ssh", "./.ssh/id", "{from: ./real/.env, to: /workspace/x}"):
        held = run(PYTHON + f"filesystem: {{read: [{grant}], deny: ['**/.ssh/**', '**/.env']}}\n", [sys.executable])
        assert (held.code, held.out) == (2, ""), grant
        assert "denied by filesystem.deny" in held.err
    code = "import os\nfor p in ('lnk/.env','ok/a'):\n try: print(open(p).read())\n except OSError: print('refused')"
    held = run(
        PYTHON + "filesystem: {read: [./lnk, ./ok], deny: ['**/.ssh/**', '**/.env']}\n", [sys.executable, "-c", code]
    )
    assert held.out.splitlines() == ["refused", "secret"], held


def test_a_program_of_the_project_is_never_run_outside(tmp_path, needs):
    needs("userns")
    for name in ("python3", "node", "perl"):
        (tmp_path / name).write_text(f'#!/bin/sh\ntouch {tmp_path}/PWNED\nexec /usr/bin/{name} "$@"\n')
        (tmp_path / name).chmod(0o755)
        command = [*REMIT, "run", "--accept-tier", "partial", "--", f"./{name}", "--version"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert not (tmp_path / "PWNED").exists(), name
        assert done.returncode == 125
        assert "would have to be run outside" in done.stderr


def test_a_masked_file_that_the_host_replaces_stays_masked(run, tmp_path):
    """Editors save by renaming over; a mask on the file itself would go with the old one."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/.env").write_text("old secret")
    (tmp_path / "in/ok").write_text("fine")
    (tmp_path / "in/probe.py").write_text(
        "import os, time\nprint('up', flush=True)\n"
        "time.sleep(2)\n"
        "for p in ('in/.env', 'in/ok'):\n"
        " try: print(open(p).read())\n except OSError: print('refused')\n"
    )
    (tmp_path / "remit.yaml").write_text(
        HEAD + PYTHON + "filesystem: {read: [./in], deny: ['**/.env']}\nlimits: {wall: 20s}\n"
    )
    process = subprocess.Popen(
        [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "in/probe.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    (tmp_path / ".env.new").write_text("new secret")
    os.rename(tmp_path / ".env.new", tmp_path / "in/.env")
    assert process.communicate(timeout=30)[0].splitlines() == ["refused", "fine"]

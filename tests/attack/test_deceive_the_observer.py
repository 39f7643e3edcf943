"""Goal: have the operator, or the record, believe something else. Twin: what is true is said, and said once."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel

_EVIL = "\x1b]0;owned\x07\x1b[2J\nremit: exit 0 \u202eolleh\x9b31m"


def _untouched(text: str) -> bool:
    return not any(c in text for c in "\x1b\x07\x9b\u202e\r")


def test_names_with_escape_codes_and_lines_are_printed_escaped(python):
    held = python(
        "import os, subprocess, sys\n"
        f"evil = {_EVIL!r}\n"
        "for f in (lambda: open('/etc/'+evil,'w'), lambda: open('/root/.ssh/'+evil)):\n"
        " try: f(); print('OPENED')\n except OSError: pass\n"
        "os.mkfifo('f'+evil.replace('/','')); open('k'+evil.replace('/',''),'w').write('kept')\n"
        "print('done')\n",
        "observe: open\nstate: {keep: ['**']}\n",
    )
    assert held.out == "done\n", held
    assert _untouched(held.err), repr(held.err)
    assert not [line for line in held.err.splitlines() if line.startswith("remit: exit 0 ") and "olleh" in line]
    assert "\\x1b" in held.err
    # The record has the name as it was.
    assert any(_EVIL in kept["path"] for kept in held.receipt["kept"])
    assert held.refused("owned")


def test_a_flood_of_refusals_is_counted_and_does_not_flood_the_terminal_or_the_receipt(python, tmp_path):
    held = python(
        "import os\nfor n in range(1500):\n try: open(f'/etc/{n}', 'w')\n except OSError: pass\n"
        "for n in range(1500): os.symlink('x', f'l{n}')\n",
        "observe: open\nstate: {keep: ['**']}\n",
        options=["--events", str(tmp_path / "events")],
    )
    assert held.code == 0, held.err
    assert len(held.err.splitlines()) < 60, len(held.err.splitlines())
    assert len(held.receipt["refusals"]) == 1000
    assert held.receipt["refusals_in_all"] == 1500
    assert len(held.receipt["not_kept"]) == 1500
    assert "1480 more refusals" in held.err
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert sum(e["event"] == "attempt" and e["verdict"] == "deny" for e in events) >= 1500


def test_a_forged_event_or_receipt_in_the_output_is_output_and_no_more(python, tmp_path):
    forged = json.dumps({"event": "ended", "exit": 0, "reason": "exited"})
    held = python(
        f"import sys\nfor f in (sys.stdout, sys.stderr): print({forged!r}, file=f)\n"
        "for n in range(3, 64):\n"
        " try: __import__('os').write(n, b'{\"event\": \"removed\"}\\n'); print('WROTE', n)\n except OSError: pass\n"
        "sys.exit(7)\n",
        options=["--events", str(tmp_path / "events")],
    )
    assert held.code == 7
    assert held.out == forged + "\n"
    assert (held.receipt["result"]["exit"], held.receipt["result"]["reason"]) == (7, "exited")
    kinds = [json.loads(line)["event"] for line in (tmp_path / "events").read_text().splitlines()]
    assert kinds.count("ended") == kinds.count("removed") == kinds.count("receipt") == 1


@pytest.mark.parametrize("status", [2, 124, 125, 126, 127, 137])
def test_a_status_that_means_something_is_told_from_the_programs_own(run, status):
    held = run(PYTHON, [sys.executable, "-c", f"raise SystemExit({status})"])
    assert held.code == status
    assert held.receipt["result"]["reason"] == "exited"


def test_a_filter_of_the_guests_own_hides_nothing_and_opens_nothing(python):
    """A program may restrict itself further. It may not take over the notifications, nor undo what is refused."""
    held = python(
        "import ctypes, errno, os, socket, struct\n"
        "libc=ctypes.CDLL(None, use_errno=True)\n"
        "def install(action, flags):\n"
        " code=ctypes.create_string_buffer(struct.pack('<HBBI', 0x06, 0, 0, action))\n"
        " prog=ctypes.create_string_buffer(struct.pack('<HxxxxxxQ', 1, ctypes.addressof(code)))\n"
        " ctypes.set_errno(0); r=libc.syscall(317, 1, flags, prog)\n"
        " return 'ok' if r>=0 else errno.errorcode[ctypes.get_errno()]\n"
        "print(install(0x7fff0000, 0), install(0x7fff0000, 1))\n"  # allow; allow for every thread
        "print(install(0x7fc00000, 8))\n"  # a listener of its own
        "print(libc.prctl(22, 0, 0, 0, 0), libc.prctl(38, 0, 0, 0, 0))\n"  # seccomp off; no_new_privs off
        "print(open('/proc/self/status').read().split('Seccomp:')[1].split()[0])\n"
        "ctypes.set_errno(0); print(libc.unshare(0x10000000), errno.errorcode[ctypes.get_errno()])\n"
        "try: socket.create_connection(('192.0.2.7', 443), 2)\nexcept OSError: print('refused')\n",
        "observe: exec+connect\n",
    )
    assert held.out.splitlines() == ["ok ok", "EBUSY", "-1 -1", "2", "-1 EPERM", "refused"], held
    assert held.refused("192.0.2.7")


def test_arguments_that_change_between_look_and_use_change_no_refusal(python):
    """The report is a prediction; the kernel decides by what it reads itself."""
    held = python(
        "import ctypes, os, threading\n"
        "libc=ctypes.CDLL(None, use_errno=True)\n"
        "good, bad = b'/workspace/probe.py\\0', b'/etc/shadow\\0\\0\\0\\0\\0\\0\\0\\0\\0'\n"
        "shared=ctypes.create_string_buffer(good, 32); stop=False\n"
        "def flip():\n while not stop: ctypes.memmove(shared, bad, 20); ctypes.memmove(shared, good, 20)\n"
        "t=threading.Thread(target=flip); t.start()\n"
        "opened=set()\n"
        "for n in range(20000):\n"
        " fd=libc.open(shared, 0)\n"
        " if fd>=0: opened.add(os.readlink(f'/proc/self/fd/{fd}')); os.close(fd)\n"
        " if n>=400 and opened: break\n"
        "stop=True; t.join(); print(sorted(opened))\n",
        "observe: open\n",
    )
    assert held.out == "['/workspace/probe.py']\n", held


def test_words_of_the_command_are_never_options_of_ours(run, tmp_path):
    show = "import sys; print(sys.argv[1:])"
    words = ["--receipt", "EVIL", "--", "--help", "-c", "--accept-tier=none", "", "--events"]
    held = run(PYTHON, [sys.executable, "-c", show, *words])
    assert held.out == f"{words!r}\n", held
    assert not (tmp_path / "EVIL").exists()
    for name in ("--help", "-c", "--dry-run"):
        held = run(PYTHON, [name])
        assert held.code in (126, 127), name
        assert "usage" not in held.out
        assert name in held.err


_ENVIRONMENT = {
    "LD_PRELOAD": "/workspace/evil.so",
    "LD_LIBRARY_PATH": "/workspace",
    "LD_AUDIT": "/workspace/evil.so",
    "PYTHONSTARTUP": "/workspace/evil.py",
    "PYTHONINSPECT": "",
    "GIT_DIR": "/workspace/.git",
    "GIT_SSH_COMMAND": "evil",
    "BASH_ENV": "/workspace/evil.sh",
    "ENV": "/workspace/evil.sh",
    "NODE_OPTIONS": "--require /workspace/evil.js",
    "GLIBC_TUNABLES": "glibc.malloc.check=3",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "SSH_AUTH_SOCK": "/tmp/agent",
    "REMIT_LAUNCHER_HINT": "x",
}


def test_nothing_of_the_callers_environment_passes_but_what_is_named(run):
    quiet = {k: v for k, v in _ENVIRONMENT.items() if not k.startswith("LD_")}
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    inside = json.loads(run(PYTHON, [sys.executable, "-c", code], env=quiet).out)
    assert not set(inside) & set(_ENVIRONMENT), inside
    assert "secret" not in inside.values()
    passed = PYTHON.replace("]}", "], env: {pass: [GIT_DIR]}}")
    inside = json.loads(run(passed, [sys.executable, "-c", code], env=quiet).out)
    assert set(inside) & set(_ENVIRONMENT) == {"GIT_DIR"}
    # The loader's own: for the caller, `remit` runs with them; they must not be there for the program.
    command = [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "-c", code]
    env = {**os.environ, "LD_LIBRARY_PATH": "/nonexistent", "LD_BIND_NOW": "1"}
    done = subprocess.run(command, cwd=run.folder, capture_output=True, env=env, check=True)
    assert not [name for name in json.loads(done.stdout) if name.startswith("LD_")]
    assert (run.folder / "remit.yaml").read_text().startswith(HEAD)


_AUTOMOUNT = """
import ctypes, os, select, subprocess, sys
place, *command = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
r, w = os.pipe()
if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 1 << 18 | 1 << 14, None):
    sys.exit("no mount namespace")
options = f"fd={w},pgrp={os.getpgrp()},minproto=5,maxproto=5,indirect"
if libc.mount(b"test", place.encode(), b"autofs", 0, options.encode()):
    sys.exit("no autofs")
def asked(command):
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
    while process.poll() is None and not (seen := select.select([r], [], [], 0.05)[0]):
        pass
    seen = bool(select.select([r], [], [], 0.05)[0])
    if seen:
        process.kill()
        os.read(r, 4096)
    process.wait()
    return seen
print(asked([sys.executable, "-c", f"import os; os.path.isfile('{place}/twin.example/data')"]), asked(command))
"""


def test_a_name_that_the_guest_made_up_is_not_looked_up_over_a_network(tmp_path, needs):
    """A host that mounts on demand (/net/HOST) would send it to a server of the guest's choice. Twin: it asks for others."""
    needs("userns")
    if os.getuid() != 0:
        pytest.skip("only root mounts an automounter's folder")
    place = "/mnt"  # in a mount namespace of the test's own; a folder that does not exist inside
    (tmp_path / "probe.py").write_text(
        "import socket\n"
        f"try: open('{place}/evil.example/data')\nexcept OSError: print('refused')\n"
        f"try: socket.socket(socket.AF_UNIX).connect('{place}/worse.example/data')\nexcept OSError: print('refused')\n"
        "try: open('/etc/shadow')\nexcept OSError: print('refused')\n"
    )
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./probe.py]}\nobserve: open\n")
    command = [*REMIT, "run", "--remit", "remit.yaml", "--", sys.executable, "probe.py"]
    outside = [sys.executable, "-c", _AUTOMOUNT, place, *command]
    done = subprocess.run(outside, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    if done.stderr.strip() in ("no autofs", "no mount namespace"):
        pytest.skip(done.stderr)
    assert done.stdout == "True False\n", done
    assert "refused: read /etc/shadow" in done.stderr, "what is near is still told"

"""Goal: reach into processes and objects of others. Twin: the same is done to one's own child, or by one's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel

_TRY = (
    "import ctypes, errno, os, resource, signal, socket, sys, time\n"
    "libc=ctypes.CDLL(None, use_errno=True)\n"
    "def call(n,*a):\n"
    " ctypes.set_errno(0); r=libc.syscall(ctypes.c_long(n),*[ctypes.c_long(x) for x in a])\n"
    " return 'ok' if r>=0 else errno.errorcode[ctypes.get_errno()]\n"
    "def t(f):\n"
    " try: f(); return 'DONE'\n except OSError: return 'refused'\n"
)


def test_the_first_process_can_not_be_entered_or_taken_apart(python):
    held = python(
        _TRY
        + "for name in ('root/etc/passwd', 'cwd/probe.py', 'exe', 'fd/0', 'mem', 'environ', 'maps', 'auxv', 'stack', 'syscall'):\n"
        " print(name, t(lambda: open('/proc/1/'+name,'rb').read(1)))\n"
        "print(t(lambda: os.listdir('/proc/1/fd')), t(lambda: os.listdir('/proc/1/root')), t(lambda: os.readlink('/proc/1/ns/mnt')))\n"
        "print('own', t(lambda: open('/proc/self/root/etc/passwd').read()), t(lambda: os.listdir('/proc/self/fd')), t(lambda: os.readlink('/proc/self/ns/mnt')))\n"
    )
    lines = held.out.splitlines()
    assert {line.split()[1] for line in lines[:10]} == {"refused"}, held
    assert lines[10:] == ["refused refused refused", "own DONE DONE DONE"]


@pytest.mark.parametrize("number", [9, 19, 15, 1])
def test_the_first_process_survives_the_signals_of_its_program(python, number):
    held = python(
        f"import os, sys, time\nos.kill(1, {number}); os.kill(os.getpid(), 0)\n"
        "p=os.fork()\nif p==0: time.sleep(30)\n"
        f"os.kill(p, 9); print('child', os.waitpid(p,0)[1]); print('still here')\n"
    )
    assert (held.code, held.out) == (0, "child 9\nstill here\n"), held


@pytest.mark.parametrize("target", [0, -1])
def test_a_signal_to_a_group_or_to_all_stays_inside(python, target):
    """A process group that came from outside would carry a signal out: the launcher would die of it."""
    held = python(
        "import os, time\nprint(os.getpgid(0) > 0, os.getsid(0) > 0, flush=True)\n"
        "if os.fork() == 0: time.sleep(30)\n"
        f"os.kill({target}, 9)\n"
        "time.sleep(0.5)\n"
    )
    assert held.out == "True True\n"
    # To all: but not to oneself, nor to the first process.
    assert held.code == (137 if target == 0 else 0), held
    assert held.receipt["result"]["reason"] in ("signalled", "exited"), held.receipt["result"]
    assert held.receipt["teardown"]["nothing_remains"]


def test_processes_of_the_host_can_not_be_named_signalled_or_read(python):
    outside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        held = python(
            _TRY + f"pid={outside.pid}\n"
            "print(t(lambda: os.kill(pid, 0)), t(lambda: os.kill(pid, 9)), t(lambda: os.pidfd_open(pid)),\n"
            " t(lambda: os.sched_getaffinity(pid)), t(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE)), os.path.exists(f'/proc/{pid}'))\n"
            "p=os.fork()\nif p==0: time.sleep(30)\n"
            "print(t(lambda: os.kill(p, 0)), t(lambda: os.pidfd_open(p)), t(lambda: os.sched_getaffinity(p)), t(lambda: resource.prlimit(p, resource.RLIMIT_NOFILE)))\n"
            "os.kill(p, 9)\n"
            "print(all(int(d) < 10 for d in os.listdir('/proc') if d.isdigit()))\n",
        )
        lines = held.out.splitlines()
        assert lines == ["refused " * 5 + "False", "DONE DONE DONE DONE", "True"], held
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


def test_memory_registers_and_descriptors_of_another_are_out_of_reach_even_of_a_child(python):
    """Refused whoever it is; what is one's own is read by ordinary means."""
    held = python(
        _TRY + "p=os.fork()\nif p==0: time.sleep(30)\n"
        "fd=os.pidfd_open(p); buf=ctypes.create_string_buffer(8)\n"
        "print(call(101, 16, p, 0, 0), call(310, p, 0, 0, 0, 0, 0), call(311, p, 0, 0, 0, 0, 0), call(438, fd, 1, 0), call(312, p, os.getpid(), 0, 0, 0))\n"
        "print(t(lambda: open(f'/proc/{p}/mem','r+b')), t(lambda: open('/proc/self/mem','r+b')), t(lambda: open('/proc/1/mem','rb')))\n"
        "signal.pidfd_send_signal(fd, 9); print(os.waitpid(p,0)[1], call(39))\n"
    )
    assert held.out.splitlines() == [
        " ".join(["EPERM"] * 5),
        "refused refused refused",
        "9 ok",
    ], held


@pytest.mark.parametrize("how", ["own", "1"])
def test_no_namespace_can_be_joined(python, how):
    held = python(
        _TRY + f"who='self' if {how!r}=='own' else '1'\n"
        "for n in ('mnt','net','pid','user','uts','ipc','cgroup','time'):\n"
        " try: fd=os.open(f'/proc/{who}/ns/{n}', os.O_RDONLY)\n except OSError: print('EPERM'); continue\n"
        " print(call(308, fd, 0))\n"
    )
    assert held.out.split() == ["EPERM"] * 8, held


def test_descriptors_that_the_caller_holds_open_do_not_arrive(run, tmp_path):
    """By the numbers that shells hand on: a directory, a socket, a file, a pipe. Twin: standard input arrives."""
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON)
    (tmp_path / "secret").write_text("secret")
    pair = socket.socketpair()
    pipe = os.pipe()
    fds = [os.open("/", os.O_RDONLY | os.O_DIRECTORY), os.open(tmp_path / "secret", os.O_RDWR), pair[0].fileno(), *pipe]
    code = (
        "import os, stat\n"
        "held=[int(n) for n in os.listdir('/proc/self/fd')]\n"
        "print([n for n in sorted(held) if n > 2 and os.path.exists(f'/proc/self/fd/{n}')])\n"
        "for n in range(3, 256):\n"
        " try: os.open('etc', os.O_RDONLY, dir_fd=n); print('ESCAPED', n)\n except OSError: pass\n"
        "print([stat.S_ISFIFO(os.fstat(n).st_mode) for n in (0, 1, 2)], input())\n"
    )
    command = [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, input="given\n", capture_output=True, text=True, pass_fds=fds, check=False
    )
    for fd in (*fds[:2], *pipe):
        os.close(fd)
    for end in pair:
        end.close()
    assert done.stdout.splitlines() == ["[]", "[True, True, True] given"], done


def test_a_descriptor_can_be_passed_to_a_child_and_to_nobody_else(python, tmp_path):
    path = str(tmp_path / "listening")
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    os.chmod(path, 0o777)
    server.listen()
    held = python(
        _TRY + "import array\n"
        "a,b=socket.socketpair()\n"
        "if os.fork()==0:\n"
        " _,fds,*_=socket.recv_fds(b, 1, 1); print('child', os.read(fds[0], 4)); sys.stdout.flush(); os._exit(0)\n"
        "open('f','w').write('mine'); socket.send_fds(a, [b'x'], [os.open('f', 0)]); os.wait()\n"
        f"s=socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"print(t(lambda: s.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i',[0]))], 0, {path!r})))\n"
        f"print(t(lambda: socket.socket(socket.AF_UNIX).connect({path!r})))\n"
    )
    server.close()
    assert held.out.splitlines() == ["child b'mine'", "refused", "refused"], held


def test_what_is_left_in_the_ipc_namespace_goes_with_it(python):
    held = python(
        _TRY + "print(call(29, 4242, 4096, 0o1666), call(68, 4242, 0o1666), call(64, 4242, 1, 0o1666))\n"
        "print([len(open('/proc/sysvipc/'+n).readlines())-1 for n in ('shm','msg','sem')])\n"
    )
    assert held.out.splitlines() == ["ok ok ok", "[1, 1, 1]"], held
    for kind in ("shm", "msg", "sem"):
        assert " 4242 " not in open(f"/proc/sysvipc/{kind}").read()

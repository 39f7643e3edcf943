"""Goal: calls that widen the kernel's attack surface or leave the envelope. Twin: the harmless form of each works."""

from __future__ import annotations

import platform

import pytest

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers below are those of x86-64"),
]

_CALL = (
    "import ctypes, errno, os, sys\n"
    "libc=ctypes.CDLL(None, use_errno=True)\n"
    "def call(n,*a):\n"
    " ctypes.set_errno(0); r=libc.syscall(ctypes.c_long(n),*[ctypes.c_long(x) for x in a])\n"
    " return 'ok' if r>=0 else errno.errorcode[ctypes.get_errno()]\n"
)


@pytest.mark.parametrize(
    ("name", "number", "arguments", "answer"),
    [
        ("ptrace", 101, (0, 0, 0, 0), "EPERM"),
        ("process_vm_writev", 311, (1, 0, 0, 0, 0, 0), "EPERM"),
        ("mount", 165, (0, 0, 0, 0, 0), "EPERM"),
        ("umount2", 166, (0, 0), "EPERM"),
        ("pivot_root", 155, (0, 0), "EPERM"),
        ("chroot", 161, (0,), "EPERM"),
        ("open_tree", 428, (0, 0, 0), "EPERM"),
        ("fsopen", 430, (0, 0), "EPERM"),
        ("setns", 308, (0, 0), "EPERM"),
        ("unshare(NEWUSER)", 272, (0x10000000,), "EPERM"),
        ("unshare(NEWNS)", 272, (0x20000,), "EPERM"),
        ("clone(NEWUSER)", 56, (0x10000000 | 17, 0, 0, 0, 0), "EPERM"),
        ("clone3", 435, (0, 0), "ENOSYS"),
        ("bpf", 321, (0, 0, 0), "EPERM"),
        ("perf_event_open", 298, (0, 0, 0, 0, 0), "EPERM"),
        ("io_uring_setup", 425, (1, 0), "ENOSYS"),
        ("keyctl", 250, (0, 0, 0, 0, 0), "EPERM"),
        ("add_key", 248, (0, 0, 0, 0, 0), "EPERM"),
        ("userfaultfd", 323, (0,), "EPERM"),
        ("init_module", 175, (0, 0, 0), "EPERM"),
        ("kexec_load", 246, (0, 0, 0, 0), "EPERM"),
        ("reboot", 169, (0, 0, 0, 0), "EPERM"),
        ("open_by_handle_at", 304, (0, 0, 0), "EPERM"),
        ("memfd_create", 319, (0, 0), "EPERM"),
        ("a number that no kernel has", 9999, (), "ENOSYS"),
        ("x32 getpid", 0x40000000 | 39, (), "ENOSYS"),
        ("ioctl TIOCSTI", 16, (0, 0x5412, 0), "EPERM"),
        ("ioctl TIOCSTI with high bits", 16, (0, 0x100005412, 0), "EPERM"),
        ("ioctl TIOCLINUX", 16, (0, 0x541C, 0), "EPERM"),
        ("socket AF_VSOCK", 41, (40, 1, 0), "EPERM"),
        ("socket AF_PACKET", 41, (17, 3, 0), "EPERM"),
        ("socket AF_PACKET by its old name", 41, (2, 10, 0), "EPERM"),
        ("socket raw", 41, (2, 3, 1), "EPERM"),
        ("socket netlink audit", 41, (16, 3, 9), "EPERM"),
        ("mknod of a block device", 259, (-100, 0, 0o060000, 0), "EPERM"),
        ("sendto MSG_FASTOPEN", 44, (0, 0, 0, 0x20000000, 0, 0), "EPERM"),
        ("personality", 135, (0x0020000,), "EPERM"),
    ],
)
def test_is_refused(python, name, number, arguments, answer):
    held = python(_CALL + f"print(call({number}, *{arguments!r}))")
    assert held.out == answer + "\n", name


def test_the_harmless_twins_of_those_calls_work(python):
    held = python(
        _CALL + "import socket, fcntl, termios, threading, subprocess, os\n"
        "print(call(39), call(272, 0x400))\n"  # getpid; unshare(CLONE_FILES)
        "[socket.socket(f, socket.SOCK_STREAM).close() for f in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)]\n"
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()\n"
        "socket.socketpair()\n"
        "r,w=os.pipe(); import struct; fcntl.ioctl(r, termios.FIONREAD, b'0000')\n"
        "print(call(135, 0xffffffff), call(135, 0x40000))\n"
        "t=threading.Thread(target=lambda: print('thread')); t.start(); t.join()\n"
        "os.mkfifo('fifo'); p=os.fork()\n"
        "os._exit(0) if p==0 else print('child', os.waitpid(p,0)[1])\n"
    )
    assert held.out.splitlines() == ["ok ok", "ok ok", "thread", "child 0"], held


def test_a_32_bit_call_kills_and_a_64_bit_one_answers(run, tmp_path, needs):
    import shutil
    import subprocess

    if shutil.which("gcc") is None:
        pytest.fail("gcc is needed to make the probe") if "cgroup" in __import__("os").environ.get(
            "REMIT_MUST_RUN", ""
        ) else pytest.skip("no gcc")
    source = tmp_path / "p.c"
    source.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        'int main(int c,char**v){ if(c<2){printf("%d\\n",getpid()>0);return 0;}\n'
        ' long r; __asm__ volatile("int $0x80":"=a"(r):"a"(20)); printf("got %ld\\n",r); return 0;}\n'
    )
    subprocess.run(["gcc", "-static", "-o", str(tmp_path / "p"), str(source)], check=True)
    remit = f"process: {{exec: [{tmp_path}/p]}}\n"
    assert run(remit, [f"{tmp_path}/p"]).out == "1\n"
    held = run(remit, [f"{tmp_path}/p", "x"])
    assert held.out == ""
    assert held.code == 128 + 31


def test_there_are_no_capabilities_and_none_can_be_had(python):
    held = python(
        "s=open('/proc/self/status').read()\n"
        "print({l.split()[1] for l in s.splitlines() if l.startswith('Cap')})\n"
        "print([l.split()[1] for l in s.splitlines() if l.startswith(('NoNewPrivs','Seccomp:'))])\n"
        "import os\ntry: os.setuid(0); print('ROOT')\nexcept OSError: print('refused')\nprint(os.getuid())\n"
    )
    assert held.out.splitlines() == ["{'0000000000000000'}", "['1', '2']", "refused", "1000"]


def test_as_seen_from_the_host_the_program_is_never_root(python):
    """The map of ids, read inside: the outer id is not 0."""
    held = python("print(open('/proc/self/uid_map').read().split())")
    inside, outside, count = held.out.strip("[]\n").replace("'", "").split(", ")
    assert (inside, count) == ("1000", "1")
    assert outside != "0"

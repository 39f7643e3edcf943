"""Goal: the parts of the kernel that few programs need, and that flaws are found in. Twin: the plain way to the same."""

from __future__ import annotations

import json
import platform

import pytest

from tests.attack.test_reach_the_kernel import _CALL

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers below are those of x86-64"),
]

_CALLS = {
    "the mount table": {
        "move_mount": (429, (-1, 0, -1, 0, 0), "EPERM"),
        "fsconfig": (431, (0, 0, 0, 0, 0), "EPERM"),
        "fsmount": (432, (0, 0, 0), "EPERM"),
        "fspick": (433, (-100, 0, 0), "EPERM"),
        "mount_setattr": (442, (-100, 0, 0, 0, 0), "EPERM"),
        "open_tree_attr": (467, (-100, 0, 0, 0, 0), "ENOSYS"),
    },
    "namespaces": {
        **{
            f"{name}({kind})": (number, (flag | extra, 0, 0, 0, 0), "EPERM")
            for name, number, extra in (("unshare", 272, 0), ("clone", 56, 17), ("unshare, high bits", 272, 1 << 40))
            for kind, flag in (
                ("mnt", 0x20000), ("cgroup", 0x2000000), ("uts", 0x4000000), ("ipc", 0x8000000), ("user", 0x10000000),
                ("pid", 0x20000000), ("net", 0x40000000),
            )
        },
        "unshare(time)": (272, (0x80,), "EPERM"),
        "clone3": (435, (0, 88), "ENOSYS"),
    },
    "rings, keys, faults and filters of the kernel": {
        "io_uring_setup": (425, (8, 0), "ENOSYS"),
        "io_uring_enter": (426, (0, 0, 0, 0, 0, 0), "ENOSYS"),
        "io_uring_register": (427, (0, 0, 0, 0), "ENOSYS"),
        "io_setup": (206, (8, 0), "ENOSYS"),
        "add_key": (248, (0, 0, 0, 0, 0), "EPERM"),
        "request_key": (249, (0, 0, 0, 0), "EPERM"),
        "keyctl": (250, (0, 0, 0, 0, 0), "EPERM"),
        "bpf": (321, (5, 0, 0), "EPERM"),
        "perf_event_open": (298, (0, 0, -1, -1, 0), "EPERM"),
        "userfaultfd": (323, (1,), "EPERM"),
        "memfd_secret": (447, (0,), "EPERM"),
        "move_pages": (279, (0, 0, 0, 0, 0, 0), "EPERM"),
    },
    "the host as a whole": {
        "kexec_file_load": (320, (-1, -1, 0, 0, 0), "EPERM"),
        "finit_module": (313, (0, 0, 0), "EPERM"),
        "delete_module": (176, (0, 0), "EPERM"),
        "quotactl": (179, (0, 0, 0, 0), "EPERM"),
        "quotactl_fd": (443, (0, 0, 0, 0), "EPERM"),
        "swapon": (167, (0, 0), "EPERM"),
        "swapoff": (168, (0,), "EPERM"),
        "acct": (163, (0,), "EPERM"),
        "syslog": (103, (3, 0, 0), "EPERM"),
        "settimeofday": (164, (0, 0), "EPERM"),
        "clock_settime": (227, (0, 0), "EPERM"),
        "adjtimex": (159, (0,), "EPERM"),
        "sethostname": (170, (0, 0), "EPERM"),
        "setdomainname": (171, (0, 0), "EPERM"),
        "iopl": (172, (3,), "EPERM"),
        "ioperm": (173, (0, 1, 1), "EPERM"),
        "modify_ldt": (154, (0, 0, 0), "EPERM"),
        "vhangup": (153, (), "EPERM"),
        "fanotify_init": (300, (0, 0), "EPERM"),
        "lookup_dcookie": (212, (0, 0, 0), "EPERM"),
    },
    "terminals, by request and with the upper half set": {
        f"ioctl {name}{' high' if high else ''}": (16, (0, request | high, 0), "EPERM")
        for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCCONS", 0x541D), ("TIOCSETD", 0x5423))
        for high in (0, 1 << 32, 0xFFFFFFFF << 32)
    },
    "sockets": {
        **{
            f"family {family}": (41, (family, kind, 0), "EPERM")
            for family, kind in (
                (17, 2), (38, 5), (40, 1), (31, 1), (29, 3), (44, 3), (30, 5), (21, 5), (43, 1), (15, 3), (24, 1),
            )  # packet, alg, vsock, bluetooth, can, xdp, tipc, rds, smc, key, pppox
        },
        **{
            f"inet{version} type {kind} protocol {protocol}": (41, (family, kind, protocol), "EPERM")
            for version, family in ((4, 2), (6, 10))
            for kind, protocol in (
                (3, 1), (3, 255), (3 | 0x80000, 6), (10, 0x300), (5, 132), (1, 132), (6, 33), (6, 0), (4, 0),
                (1, 262), (1, 256), (2, 115), (2, 136),
            )
        },
        **{f"netlink {protocol}": (41, (16, 3, protocol), "EPERM") for protocol in (4, 6, 9, 12, 15, 16, 21)},
        "socketpair of another family": (53, (2, 1, 0, 0), "EPERM"),
    },
    "ways round the numbers and around addresses": {
        **{f"x32 {n}": (0x40000000 | n, (0, 0, 0, 0, 0), "ENOSYS") for n in (1, 59, 165, 321, 512, 520, 545)},
        "a negative number": (-7, (), "ENOSYS"),
        "personality READ_IMPLIES_EXEC": (135, (0x0400000,), "EPERM"),
        "personality PER_LINUX32": (135, (8,), "EPERM"),
        "open_by_handle_at": (304, (-100, 0, 0), "EPERM"),
        "process_vm_readv": (310, (1, 0, 0, 0, 0, 0), "EPERM"),
        "kcmp": (312, (1, 1, 0, 0, 0), "EPERM"),
        "sendto fast open": (44, (0, 0, 0, 0x20000000 | 0x4000, 0, 0), "EPERM"),
        "sendmsg fast open": (46, (0, 0, 0x20000000), "EPERM"),
        "sendmmsg fast open": (307, (0, 0, 0, 0x20000000), "EPERM"),
        "mknod of a character device": (133, (0, 0o020666, 0x101), "EPERM"),
    },
}  # fmt: skip


@pytest.mark.parametrize("group", _CALLS)
def test_every_rare_call_is_refused(python, group):
    held = python(
        _CALL + f"calls={ {name: call[:2] for name, call in _CALLS[group].items()}!r}\n"
        "import json; print(json.dumps({name: call(n, *a) for name, (n, a) in calls.items()}))"
    )
    assert held.code == 0, held
    assert json.loads(held.out) == {name: answer for name, (_, _, answer) in _CALLS[group].items()}


def test_what_programs_need_instead_works(python):
    held = python(
        _CALL + "import fcntl, mmap, pty, resource, select, signal, socket, struct, termios, time\n"
        "m,s=os.openpty(); print(fcntl.ioctl(s, 0x5424, b'0000') == b'\\0\\0\\0\\0', termios.tcgetattr(s)[3] > 0)\n"  # TIOCGETD
        "for f in (socket.AF_INET, socket.AF_INET6):\n"
        " for k, p in ((1, 0), (1, 6), (2, 0), (2, 17), (1 | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)): socket.socket(f, k, p).close()\n"
        "for k in (1, 2, 5): socket.socketpair(socket.AF_UNIX, k)\n"
        "print(len(socket.if_nameindex()), call(319, 0, 0), call(332, -100, 0, 0, 0, 0))\n"
        "mmap.mmap(-1, 4096, prot=7).write(b'x')\n"  # a compiler in time needs it
        "e=select.epoll(); e.register(m, 1); print(call(253), call(290, 0, 0), call(283, 1, 0), call(39))\n"
        "print(call(157, 4, 0), call(157, 4, 1), call(157, 1, 9), call(157, 36, 1), call(135, 0x40000), call(303, -100, 0, 0, 0, 0))\n"
    )
    assert held.code == 0, held
    lines = held.out.splitlines()
    assert lines[0] == "True True"
    assert lines[1].endswith("EPERM EFAULT")
    assert lines[2] == "ok ok ok ok"
    # dumpable off and on, a parent-death signal, a subreaper, no randomisation; a handle: asked for, and not refused as such
    assert lines[3] == "ok ok ok ok ok EFAULT"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/user/max_inotify_instances", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
        "/proc/self/uid_map", "/proc/self/setgroups", "/proc/self/attr/current", "/proc/self/oom_score_adj", "/proc/self/timens_offsets",
        "/proc/self/mem", "/proc/self/exe", "/proc/self/clear_refs", "/proc/self/coredump_filter", "/proc/irq/default_smp_affinity",
        "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/memory/release_agent",
        "/sys/fs/cgroup/memory/notify_on_release", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/devices/system/cpu/cpu1/online",
        "/dev/mem", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/vda", "/dev/console", "/dev/tty0", "/dev/userfaultfd",
    ],
)  # fmt: skip
def test_nothing_of_the_kernel_is_written_through_a_file(python_once, path):
    assert python_once[path] == "refused"


@pytest.fixture(scope="module")
def python_once(tmp_path_factory):
    """All paths in one sandbox; `mark.args` are those of the test above."""
    import sys

    from tests.conftest import PYTHON, Run

    paths = next(m for m in test_nothing_of_the_kernel_is_written_through_a_file.pytestmark if m.name == "parametrize")
    code = (
        "import os, sys\n"
        f"for p in {paths.args[1]!r} + ['/dev/null', '/workspace/own', '/proc/self/cwd/own']:\n"
        " try: os.close(os.open(p, os.O_RDWR | (os.O_CREAT if '/own' in p else 0))); print(p, 'WROTE')\n"
        " except OSError: print(p, 'refused')\n"
        "for d in ('/sys/fs/cgroup', '/sys/fs/cgroup/memory', '/proc/self'):\n"
        " try: os.mkdir(d + '/mine'); print(d, 'WROTE')\n except OSError: print(d, 'refused')\n"
    )
    held = Run(tmp_path_factory.mktemp("once"))(PYTHON, [sys.executable, "-c", code])
    assert held.code == 0, held
    answers = dict(line.split() for line in held.out.splitlines())
    assert [p for p, answer in answers.items() if answer == "WROTE"] == ["/dev/null", "/workspace/own", "/proc/self/cwd/own"]  # fmt: skip
    return answers

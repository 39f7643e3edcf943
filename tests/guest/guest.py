"""A virtual machine with an initramfs of busybox, the launcher and plans: shows what this host can't (cgroup version 2, other
kernels). Emulated, so it needs no /dev/kvm; about ten seconds from start to power-off."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from remit.plan import compile as compiler
from remit.plan.host import CgroupFacts, HostFacts
from remit.plan.template import Stamp, Template, TemplateFile
from remit.policy.model import Limits, Process, Remit
from remit.sandbox import launcher

KERNELS = "REMIT_GUEST_KERNELS"
"""A folder of vmlinuz files to boot."""

_MIB = 1 << 20
_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir /new; mount -t tmpfs tmpfs /new
cp -a /bin /plans /remit-launcher /second /new/
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/etc
mount --move /proc /new/proc; mount --move /sys /new/sys; mount --move /dev /new/dev
exec switch_root /new /second
"""
_SECOND = """#!/bin/busybox sh
chmod 1777 /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
cd /sys/fs/cgroup
echo "+memory +pids +cpu" > cgroup.subtree_control
mkdir remit && echo "+memory +pids +cpu" > remit/cgroup.subtree_control
mkdir user user/supervisor && echo "+memory +pids +cpu" > user/cgroup.subtree_control
chown 1234:1234 user user/cgroup.procs user/cgroup.subtree_control user/supervisor user/supervisor/cgroup.procs
cd /
uname -r | sed 's/^/KERNEL /'
{cases}
echo "LEFT $(ls -d /sys/fs/cgroup/remit/*/ /sys/fs/cgroup/user/rmt*/ 2>/dev/null | wc -l) $(ps | grep -c '[s]leep 77')"
poweroff -f
"""


def plan(who: str, script: str, limits: Limits) -> dict[str, Any]:
    """`who`: root (a cgroup that root made) or user (one that was delegated to uid 1234)."""
    busybox = TemplateFile("/bin/busybox", "/bin/busybox", "program", Stamp(0, 0, 0, 0), "0" * 64)
    template = Template({"busybox": "/bin/busybox"}, (), (busybox,), (), (), ("/bin",), {}, "sha256:0")
    parent = "/sys/fs/cgroup/remit" if who == "root" else "/sys/fs/cgroup/user"
    host = HostFacts(
        0 if who == "root" else 1234,
        0 if who == "root" else 1234,
        1879048200 if who == "root" else None,
        1,
        CgroupFacts(2, {"unified": parent}, ("memory", "pids", "cpu")),
    )
    remit = Remit("guest", process=Process(("busybox",)), limits=limits)
    compiled = compiler.compile(remit, host, template, compiler.Request("rmt-guest", ("busybox", "sh", "-c", script)))
    document = compiled.plan.as_document()
    for op in document["root"]:
        # The file's stamp is that of the guest's own copy.
        op.pop("expect", None)
    return document


def boot(
    kernel: Path, folder: Path, cases: Mapping[str, tuple[str, str, Limits]], beside: Mapping[str, str] | None = None
) -> dict[str, list[str]]:
    """Runs each case (who, script, limits) in one guest, with what is to happen `beside` it, in the background outside
    the sandbox. Gives the lines of each, the last being `RC n`; the rest of
    what the guest said is under ''."""
    root = folder / "root"
    for directory in ("bin", "proc", "sys", "dev", "plans"):
        (root / directory).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
    shutil.copy(launcher.find(), root / "remit-launcher")
    _as_user(root / "bin/as-user")
    lines = []
    for name, (who, script, limits) in cases.items():
        (root / "plans" / f"{name}.json").write_text(json.dumps(plan(who, script, limits)))
        run = f"/remit-launcher run --plan /plans/{name}.json </dev/null 2>&1"
        if who == "user":
            inner = f"echo 0 > /sys/fs/cgroup/user/supervisor/cgroup.procs; exec /bin/as-user {run}"
            run = f"sh -c '{inner}'"
        meanwhile = f"({beside[name]}) & " if beside and name in beside else ""
        lines.append(f'echo "CASE {name}"; {meanwhile}{run}; echo "RC $?"')
    for name, text in (("init", _INIT), ("second", _SECOND.replace("{cases}", "\n".join(lines)))):
        (root / name).write_text(text)
        (root / name).chmod(0o755)
    image = folder / "initramfs"
    with image.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=out, check=True)
    command = [
        "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512", "-smp", "2", "-nographic", "-no-reboot",
        "-nic", "none", "-kernel", str(kernel), "-initrd", str(image),
        "-append", "console=ttyS0 quiet panic=-1 loglevel=1",
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
    return _parse(done.stdout.decode("utf-8", "replace").replace("\r", "").split("\n"))


def _as_user(to: Path) -> None:
    """busybox of Debian has neither setuidgid nor setpriv."""
    source = to.with_suffix(".c")
    source.write_text(
        "#include <unistd.h>\n#include <grp.h>\n"
        "int main(int c, char **v) { return setgroups(0, 0) || setgid(1234) || setuid(1234) || execv(v[1], v + 1); }\n"
    )
    subprocess.run(["gcc", "-static", "-o", str(to), str(source)], check=True)


def _parse(said: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in said:
        if line.startswith("CASE "):
            current = line[5:]
            found[current] = []
            continue
        found[current].append(line)
        if line.startswith("RC "):
            current = ""
    return found


def kernels() -> list[Path]:
    folder = os.environ.get(KERNELS)
    return sorted(Path(folder).glob("vmlinuz-*")) if folder else []

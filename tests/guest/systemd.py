"""A virtual machine with Debian's systemd on the image in $REMIT_GUEST_ROOT (made by `make-root`): shows what a host that
people log in to does with cgroups. The image is never changed: what a guest writes is dropped with it."""

from __future__ import annotations

import compileall
import json
import lzma
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import remit
from remit.sandbox import launcher

ROOT = "REMIT_GUEST_ROOT"
"""A folder with root.ext4."""

_MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk")
"""What Debian's cloud kernels have as modules (the later ones only the last) between them and the disk, in order."""
_INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev
for m in {" ".join(_MODULES)}; do [ ! -e /$m.ko ] || insmod /$m.ko; done
n=0; while [ ! -e /dev/vda ] && [ $n -lt 200 ]; do usleep 50000; n=$((n+1)); done
mount -t ext4 /dev/vda /new
cp -a /more/. /new/
umount /proc; mount --move /dev /new/dev
exec switch_root /new /sbin/init
"""
_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 /opt/inside/driver.py
ExecStopPost=/sbin/poweroff -ff
TimeoutStartSec=280
"""
_REMIT = "#!/usr/bin/python3\nfrom remit.cli.main import entry\n\nentry()\n"
_APPEND = (
    # Emulated, separate page tables for the kernel cost most.
    "console=ttyS0 quiet panic=-1 loglevel=1 mitigations=off systemd.show_status=false systemd.wants=remit-test.service "
    # There is no udev to say that the console exists; waiting for it takes 90 s.
    "systemd.mask=serial-getty@ttyS0.service"
)


class Case(NamedTuple):
    """`who`: root, a user's name (a fresh login), or bare:NAME (that user, without one)."""

    name: str
    who: str
    script: str


def image() -> Path | None:
    folder = os.environ.get(ROOT)
    path = Path(folder) / "root.ext4" if folder else None
    return path if path and path.exists() else None


def boot(kernel: Path, disk: Path, folder: Path, cases: Sequence[Case], files: dict[str, str]) -> dict[str, Any]:
    """Does the cases in one guest. Gives what each said (code, out, err, seconds); the rest is under ''."""
    root = folder / "initramfs.d"
    for directory in ("bin", "proc", "dev", "new"):
        (root / directory).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", root / "bin/busybox")
    for path in (kernel.parent / kernel.name.replace("vmlinuz-", "modules-")).glob("*.ko*"):
        name = path.name.partition(".")[0]
        if name in _MODULES:
            data = path.read_bytes()
            (root / f"{name}.ko").write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
    _executable(root / "init", _INIT)
    _more(root / "more", cases, files)
    initrd = folder / "initramfs"
    with initrd.open("wb") as out:
        names = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
        cpio = ["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"]
        subprocess.run(cpio, cwd=root, input=names, stdout=out, check=True)
    command = [
        "qemu-system-x86_64", "-accel", "tcg,tb-size=256", "-cpu", "max", "-m", "768", "-smp", "2", "-nographic", "-no-reboot",
        "-nic", "none", "-kernel", str(kernel), "-initrd", str(initrd), "-append", _APPEND,
        "-drive", f"file={disk},format=raw,if=virtio,snapshot=on",
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300, check=False)
    said: dict[str, Any] = {"": []}
    for line in done.stdout.decode("utf-8", "replace").replace("\r", "").split("\n"):
        if line.startswith("SAID "):
            one = json.loads(line[5:])
            said[one.pop("case")] = one
        else:
            said[""].append(line)
    return said


def _more(more: Path, cases: Sequence[Case], files: dict[str, str]) -> None:
    """What is laid over the image: Remit, the cases and their driver."""
    packages = more / "usr/local/lib/python3.11/dist-packages"
    packages.mkdir(parents=True)
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(remit.__file__).parent, packages / "remit", ignore=ignore)
    if sys.version_info[:2] == (3, 11):
        # The guest's Python can use what this one compiles, ten times as fast.
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(packages, quiet=2, invalidation_mode=mode)
    binaries = more / "usr/local/bin"
    binaries.mkdir(parents=True)
    shutil.copy(launcher.find(), binaries / "remit-launcher")
    _executable(binaries / "remit", _REMIT)
    shutil.copytree(Path(__file__).parent / "inside", more / "opt/inside", ignore=ignore)
    (more / "opt/inside/cases.json").write_text(json.dumps(cases))
    for name, text in {"/etc/systemd/system/remit-test.service": _UNIT, **files}.items():
        path = more / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)

"""Goal: execute what was not granted, not by its path. Twin: where the work directory may run, the same way works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import PYTHON

pytestmark = pytest.mark.kernel

_RUNS = PYTHON.replace("unsafe_widen: [process.exec]", "unsafe_widen: [process.exec, process.work_code]").replace(
    "]}", "], work_code: run}"
)
_COPY = (
    "import ctypes, glob, mmap, os, shutil, stat, subprocess, sys\n"
    "libc=ctypes.CDLL(None, use_errno=True)\n"
    "shutil.copy(sys.executable, 'copy'); os.chmod('copy', 0o755)\n"
    "def child(f):\n"
    " p=os.fork()\n"
    " if p==0:\n"
    "  os.dup2(os.open('/dev/null', 1), 1); os.dup2(1, 2)\n"
    "  try: f()\n"
    "  finally: os._exit(77)\n"
    " return 'RAN' if os.waitstatus_to_exitcode(os.waitpid(p,0)[1])==0 else 'refused'\n"
    "argv=['copy','-c','pass']\n"
    "args=(ctypes.c_char_p*4)(b'copy',b'-c',b'pass',None)\n"
    "fd=os.open('copy', os.O_RDONLY); os.set_inheritable(fd, True)\n"
    "loader=(glob.glob('/lib64/ld-*')+glob.glob('/lib/ld-*'))[0]\n"
)
_WAYS = {
    "by descriptor": "lambda: os.execve(fd, argv, os.environ)",
    "by /proc/self/fd": "lambda: os.execv(f'/proc/self/fd/{fd}', argv)",
    "by /dev/fd": "lambda: os.execv(f'/dev/fd/{fd}', argv)",
    "execveat of an empty path": "lambda: libc.syscall(322, fd, b'', args, None, 0x1000)",
    "by a link": "lambda: (os.symlink('copy','l'), os.execv('l', argv))",
    "by a hard link": "lambda: (os.link('copy','h'), os.execv('h', argv))",
    "by the loader": "lambda: os.execv(loader, ['ld', './copy', '-c', 'pass'])",
    "by the loader and a descriptor": "lambda: os.execv(loader, ['ld', f'/proc/self/fd/{fd}', '-c', 'pass'])",
    "by /proc/self/cwd": "lambda: os.execv('/proc/self/cwd/copy', argv)",
    "from the home directory": "lambda: (shutil.copy('copy','/home/agent/c'), os.execv('/home/agent/c', argv))",
    "from /tmp": "lambda: (shutil.copy('copy','/tmp/c'), os.execv('/tmp/c', argv))",
}
_NEVER = {
    "from /dev/shm": "lambda: (shutil.copy('copy','/dev/shm/c'), os.execv('/dev/shm/c', argv))",
    "a memfd": "lambda: (lambda m: (os.write(m, open('copy','rb').read()), os.execve(m, argv, os.environ)))(os.memfd_create('x'))",
}


def _ask(run, remit: str) -> dict[str, str]:
    ways = "".join(f"print({name!r}, child({way}), sep=': ')\n" for name, way in {**_WAYS, **_NEVER}.items())
    held = run(
        remit + "filesystem: {read: [./probe.py]}\n", [sys.executable, "probe.py"], files={"probe.py": _COPY + ways}
    )
    assert held.code == 0, held
    return dict(line.split(": ") for line in held.out.splitlines())


def test_a_copied_program_runs_by_no_way_and_by_every_way_where_that_is_granted(run):
    refused = _ask(run, PYTHON)
    assert refused == dict.fromkeys({**_WAYS, **_NEVER}, "refused")
    granted = _ask(run, _RUNS)
    assert granted == {**dict.fromkeys(_WAYS, "RAN"), **dict.fromkeys(_NEVER, "refused")}


def test_a_file_in_memory_runs_where_it_is_granted_by_name(run):
    code = _COPY + "print(child(" + _NEVER["a memfd"] + "))\n"
    remit = "filesystem: {read: [./probe.py]}\n"
    files = {"probe.py": code}
    assert run(PYTHON + remit, [sys.executable, "probe.py"], files=files).out == "refused\n"
    held = run(PYTHON.replace("]}", "], memfd: true}") + remit, [sys.executable, "probe.py"], files=files)
    assert held.out == "RAN\n", held


@pytest.mark.parametrize("work_code", ["none", "run"])
def test_code_of_a_file_becomes_executable_memory_only_where_its_place_may_run(run, work_code):
    """dlopen, mmap and a later mprotect of a file; an unnamed file too. Memory without a file is the interpreter's own."""
    code = (
        _COPY
        + "src=(glob.glob('/usr/lib/*/libz.so*')+glob.glob('/usr/lib/*/libm.so*')+glob.glob('/lib/*/libm.so*'))[0]\n"
        "shutil.copy(src,'mine.so'); f=open('mine.so','r+b'); t=open('/workspace', 'rb', opener=lambda p,_: os.open(p, os.O_TMPFILE|os.O_RDWR)) \n"
        "os.truncate(t.fileno(), 4096)\n"
        "def later(file):\n"
        " m=mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=3)\n"
        " if libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m))), 4096, 5): raise OSError('no')\n"
        "for way in (lambda: ctypes.CDLL('/workspace/mine.so'), lambda: mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=5),\n"
        "            lambda: mmap.mmap(t.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=5), lambda: later(f)):\n"
        " try: way(); print('MAPPED')\n except OSError: print('refused')\n"
        "ctypes.CDLL(src); mmap.mmap(-1, 4096, prot=7); print('plain')\n"
    )
    held = run(
        (_RUNS if work_code == "run" else PYTHON) + "filesystem: {read: [./probe.py]}\n",
        [sys.executable, "probe.py"],
        files={"probe.py": code},
    )
    answer = "MAPPED" if work_code == "run" else "refused"
    assert held.out.splitlines() == [answer] * 4 + ["plain"], held


def test_a_program_that_was_granted_for_reading_only_is_read_and_not_run(run, tmp_path):
    (tmp_path / "in").mkdir()
    shutil.copy("/bin/true", tmp_path / "in/tool")
    shutil.copy("/bin/true", tmp_path / "single")
    code = (
        "import glob, os, subprocess\n"
        "loader=(glob.glob('/lib64/ld-*')+glob.glob('/lib/ld-*'))[0]\n"
        "for c in ('in/tool', './single'):\n"
        " print(open(c,'rb').read(4)[1:])\n"
        " for argv in ([c], [loader, c], [loader, os.path.abspath(c)]):\n"
        "  try: print('RAN' if subprocess.run(argv, capture_output=True).returncode==0 else 'refused')\n"
        "  except OSError: print('refused')\n"
    )
    reads = "filesystem: {read: [./probe.py, ./in, ./single]}\n"
    held = run(PYTHON + reads, [sys.executable, "probe.py"], files={"probe.py": code})
    assert held.out.splitlines() == ["b'ELF'", *["refused"] * 3] * 2, held
    granted = PYTHON.replace("]}", f", {tmp_path}/single]}}")
    code = f"import subprocess; print(subprocess.run(['{tmp_path}/single']).returncode)"
    assert run(granted, [sys.executable, "-c", code]).out == "0\n"


def test_a_setuid_program_of_the_closure_gives_nobody(run, tmp_path):
    """Outside it gives root, which is the twin; inside its bit is worth nothing."""
    if os.getuid() != 0:
        pytest.skip("only root makes a setuid program of root's")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    os.chmod(tmp_path, 0o755)
    tool = tmp_path / "tool"
    (tmp_path / "t.c").write_text(
        '#include <stdio.h>\n#include <unistd.h>\n#include <sys/auxv.h>\nint main(){printf("%d %ld\\n", geteuid(), getauxval(AT_SECURE));}\n'
    )
    subprocess.run(["gcc", "-static", "-o", str(tool), str(tmp_path / "t.c")], check=True)
    tool.chmod(0o6755)
    held = run(f"process: {{exec: [{tool}]}}\n", [str(tool)])
    assert held.out == "1000 0\n", held
    # The folders of pytest are root's alone: the caller is changed, the path is not walked anew.
    fd = os.open(tool, os.O_RDONLY)
    outside = subprocess.run(
        [f"/proc/self/fd/{fd}"], pass_fds=[fd], user=12346, capture_output=True, text=True, check=False
    )
    os.close(fd)
    if outside.stdout == "12346 0\n":
        pytest.skip("the temporary folder is mounted nosuid: no twin")
    assert outside.stdout == "0 1\n", outside


def test_the_programs_own_file_is_not_written(python):
    """What has been overwritten once would be run by the next sandbox."""
    held = python(
        "import glob, os, sys\n"
        "real=os.path.realpath(sys.executable)\n"
        "libs={l.split()[-1] for l in open('/proc/self/maps') if '.so' in l}\n"
        "for p in ['/proc/self/exe', real, *sorted(libs)[:3]]:\n"
        " for f in (lambda: os.open(p, os.O_RDWR), lambda: os.truncate(p, 0), lambda: os.chmod(p, 0o777), lambda: os.utime(p), lambda: os.setxattr(p, 'user.x', b'1')):\n"
        "  try: f(); print('CHANGED', p)\n  except OSError: pass\n"
        "os.close(os.open(real, os.O_RDONLY)); print('read')\n"
        "open('own','w').write('1'); os.truncate('own', 0); os.chmod('own', 0o777); os.utime('own'); print('own')\n"
    )
    assert held.out.split() == ["read", "own"], held

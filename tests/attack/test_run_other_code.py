"""Goal: execute what was not granted. Twin: what was granted runs."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.conftest import PYTHON

pytestmark = pytest.mark.kernel

_EXEC = (
    "import os, subprocess, sys\n"
    "for c in sys.argv[1:]:\n"
    " try: r=subprocess.run([c,'--version'],capture_output=True); print(c,'RAN',r.returncode)\n"
    " except OSError as e: print(c,'refused')\n"
)


def test_programs_of_the_host_do_not_exist_and_the_granted_one_runs(python):
    held = python(_EXEC, argv=["/bin/sh", "/usr/bin/git", "ls", sys.executable])
    assert held.out.splitlines() == ["/bin/sh refused", "/usr/bin/git refused", "ls refused", f"{sys.executable} RAN 0"]


def test_the_loader_starts_nothing_that_is_not_present(python):
    """ld.so is present, as the loader of what is granted; presence is the control, so there is nothing else for it."""
    held = python(
        "import subprocess, glob\n"
        "loaders = glob.glob('/lib64/ld-*') + glob.glob('/lib/ld-*')\n"
        "for c in ('/usr/bin/git','/bin/sh'):\n"
        " for l in loaders:\n"
        "  try: r=subprocess.run([l,c,'--version'],capture_output=True); print('RAN' if r.returncode==0 else 'refused')\n"
        "  except OSError: print('refused')\n"
    )
    assert held.out
    assert set(held.out.split()) == {"refused"}


_COPY = (
    "import os, shutil, subprocess, sys\n"
    "shutil.copy(sys.executable, 'copy'); os.chmod('copy', 0o755)\n"
    "try: r=subprocess.run(['./copy','-c','print(1)'],capture_output=True); print('RAN' if r.returncode==0 else r.stderr)\n"
    "except OSError as e: print('refused')\n"
    "open('s.sh','w').write('#!'+sys.executable+'\\nprint(2)\\n'); os.chmod('s.sh',0o755)\n"
    "try: r=subprocess.run(['./s.sh'],capture_output=True); print('RAN' if r.returncode==0 else r.stderr)\n"
    "except OSError as e: print('refused')\n"
)


def test_code_in_the_work_directory_runs_only_where_that_is_granted(run):
    grant = PYTHON.replace("unsafe_widen: [process.exec]", "unsafe_widen: [process.exec, process.work_code]")
    files = {"probe.py": _COPY}
    remit = "filesystem: {read: [./probe.py]}\n"
    held = run(PYTHON + remit, [sys.executable, "probe.py"], files=files)
    assert held.out.split() == ["refused", "refused"], held
    held = run(grant.replace("]}", "], work_code: run}") + remit, [sys.executable, "probe.py"], files=files)
    assert held.out.split() == ["RAN", "RAN"], held


_MEMFD = (
    "import os, subprocess, sys\n"
    "try:\n"
    " fd=os.memfd_create('x', 0); os.write(fd, open(os.path.realpath(sys.executable),'rb').read())\n"
    " os.set_inheritable(fd, True)\n"
    " print('MADE')\n"
    "except OSError as e: print('refused')\n"
)


def test_files_in_memory_are_made_only_where_that_is_granted(run):
    files = {"probe.py": _MEMFD}
    remit = "filesystem: {read: [./probe.py]}\n"
    assert run(PYTHON + remit, [sys.executable, "probe.py"], files=files).out == "refused\n"
    grant = PYTHON.replace("]}", "], memfd: true}")
    assert run(grant + remit, [sys.executable, "probe.py"], files=files).out == "MADE\n"


def test_a_library_in_the_work_directory_is_not_mapped_executable(python):
    held = python(
        "import ctypes, glob, shutil\n"
        "src=[p for p in glob.glob('/usr/lib/*/libz.so*')+glob.glob('/usr/lib/*/libm.so*') if p][0]\n"
        "shutil.copy(src,'mine.so')\n"
        "ctypes.CDLL(src); print('present library loads')\n"
        "try: ctypes.CDLL('/workspace/mine.so'); print('MAPPED')\n"
        "except OSError as e: print('refused')\n"
    )
    assert held.out.splitlines() == ["present library loads", "refused"], held


def test_a_program_replaced_after_it_was_hashed_is_not_run(run, tmp_path):
    """The launcher compares what it mounts with what was hashed."""
    from remit.plan.launch_plan import LaunchPlan

    tool = tmp_path / "tool"
    shutil.copy("/bin/true", tool)
    from remit import compose
    from remit.sandbox import launcher

    effective = compose.load_text(
        f"apiVersion: remit/v1\nagent: t\nleast_tier: partial\nprocess: {{exec: [{tool}]}}\n", "t", str(tmp_path)
    )
    prepared = compose.prepare(effective, [str(tool)], directory=str(tmp_path))
    assert isinstance(prepared.compiled.plan, LaunchPlan)
    first = launcher.start(prepared.compiled.plan)
    events = {e["event"]: e for e in first.events()}
    assert first.wait() == 0, events
    shutil.copy("/bin/false", tmp_path / "other")
    (tmp_path / "other").rename(tool)
    second = launcher.start(prepared.compiled.plan)
    events = {e["event"]: e for e in second.events()}
    assert second.wait() == 125
    assert events["failed"]["step"] == "root.verify"

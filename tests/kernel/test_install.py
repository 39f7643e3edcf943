"""`process.install`: dependencies come from wheels and packages that were granted, land in a sealed prefix, and run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.conftest import Run

pytestmark = pytest.mark.kernel

_REMIT = (
    "extends: python\n"
    "unsafe_widen: [process.exec]\n"
    "process:\n"
    f"  exec: [{sys.executable}]\n"
    f"  install: [{sys.executable}, -m, pip, install, --no-index, --find-links, wheels, greet]\n"
    "filesystem: {read: [./wheels, ./probe.py]}\n"
)


def _wheel(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    files = {
        "greet.py": f"def main():\n    print({text!r})\n",
        "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "greet-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greet:main\n",
    }
    record = "".join(f"{name},,\n" for name in files) + "greet-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(folder / "greet-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in {**files, "greet-1.0.dist-info/RECORD": record}.items():
            wheel.writestr(name, content)


@pytest.fixture
def installing(run: Run, tmp_path, monkeypatch) -> Run:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _wheel(tmp_path / "wheels", "hello from a wheel")
    (tmp_path / "probe.py").write_text("import greet; greet.main()")
    return run


def test_a_package_is_imported_and_its_console_script_runs_and_it_is_installed_once(installing):
    held = installing(_REMIT, [sys.executable, "probe.py"])
    assert held.out == "hello from a wheel\n", held.err
    assert "installing dependencies" in held.err
    held = installing(_REMIT, ["greet"])
    assert held.out == "hello from a wheel\n", held.err
    assert "installing dependencies" not in held.err


def test_a_changed_wheel_is_installed_anew(installing, tmp_path):
    installing(_REMIT, ["greet"])
    _wheel(tmp_path / "wheels", "another hello")
    assert installing(_REMIT, ["greet"]).out == "another hello\n"


def test_the_prefix_is_read_only_and_the_work_directory_still_does_not_run(installing):
    code = (
        "import os, shutil, subprocess\n"
        "try: open('/opt/prefix/lib/x','w'); print('WROTE')\nexcept OSError: print('refused')\n"
        "shutil.copy('/opt/prefix/bin/greet', 'mine'); os.chmod('mine', 0o755)\n"
        "try: subprocess.run(['./mine'], check=True); print('RAN')\nexcept OSError: print('refused')\n"
        "print(subprocess.run(['greet'], capture_output=True).stdout)\n"
    )
    held = installing(_REMIT, [sys.executable, "-c", code])
    assert held.out.splitlines() == ["refused", "refused", "b'hello from a wheel\\n'"], held


def test_a_prefix_that_was_changed_on_the_host_is_not_used(installing, tmp_path):
    installing(_REMIT, ["greet"])
    (module,) = (tmp_path / "cache/remit/prefixes").glob("*/tree/lib/python*/site-packages/greet.py")
    module.chmod(0o644)
    module.write_text("def main(): print('PLANTED')\n")
    held = installing(_REMIT, ["greet"])
    assert held.out == "hello from a wheel\n", held
    assert "installing dependencies" in held.err


def test_a_failing_install_is_a_set_up_error_that_says_so(installing):
    held = installing(_REMIT.replace("wheels, greet]", "wheels, nonesuch]"), [sys.executable, "probe.py"])
    assert held.code == 125
    assert "process.install failed" in held.err
    assert held.out == ""


def test_an_install_that_plants_a_link_out_of_the_prefix_is_refused(installing, tmp_path):
    (tmp_path / "probe.py").write_text("import os; os.symlink('/etc', '/opt/prefix/etc')")
    remit = _REMIT.replace("-m, pip, install, --no-index, --find-links, wheels, greet]", "probe.py]")
    held = installing(remit, [sys.executable, "-c", "print('RAN')"])
    assert held.code == 125
    assert "out of the prefix" in held.err


def test_a_node_package_lands_there_too(run, tmp_path, monkeypatch):
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no node and npm on this host")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "greet", "version": "1.0.0", "bin": {"greet": "cli.js"}}))
    (package / "cli.js").write_text("#!/usr/bin/env node\nconsole.log('hello from node')\n")
    subprocess.run(["npm", "pack", "--silent", "./package"], cwd=tmp_path, check=True, capture_output=True)
    remit = (
        "extends: node\n"
        "process: {install: [npm, install, --offline, ./greet-1.0.0.tgz]}\n"
        "filesystem: {read: [./greet-1.0.0.tgz]}\n"
        "limits: {memory: 1GiB}\n"
    )
    held = run(remit, ["node", "-e", "require('greet/cli.js')"])
    assert held.out == "hello from node\n", held.err

"""What a checkout holds, or what an earlier run was allowed to leave there, is read by the set-up outside of any sandbox.
None of it may be run there, and none of it may bring in what no grant names."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

REAL = os.path.realpath(sys.executable)
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
READ = "import sys\ntry: print(open(sys.argv[1]).read())\nexcept OSError: print('refused')\n"


def _go(folder: Path, *argv: str, path: str = "", remit: str = "") -> subprocess.CompletedProcess[str]:
    named = ["--remit", remit] if remit else ["--accept-tier", "partial"]
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / ".cache")}
    env["PATH"] = f"{path}:{env['PATH']}" if path else env["PATH"]
    return subprocess.run(
        [*REMIT, "run", *named, "--", *argv],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )


def _venv(folder: Path, home: str) -> str:
    (folder / ".venv/bin").mkdir(parents=True)
    (folder / f".venv/lib/{VERSION}/site-packages").mkdir(parents=True)
    (folder / ".venv/bin/python3").symlink_to(REAL)
    (folder / ".venv/pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    return ".venv/bin/python3"


def _own_library(folder: Path, mark: Path) -> None:
    """A standard library whose json says that it was imported."""
    skip = shutil.ignore_patterns("test", "__pycache__", "site-packages", "idlelib", "config-*", "ensurepip")
    shutil.copytree(sysconfig.get_path("stdlib"), folder / f"evil/lib/{VERSION}", ignore=skip)
    (folder / "evil/bin").mkdir()
    (folder / f"evil/lib/{VERSION}/json/__init__.py").open("a").write(f"\nopen({str(mark)!r}, 'w').write('x')\n")


@pytest.mark.parametrize("home", ["evil", "own"])
def test_the_library_that_a_checkouts_pyvenv_cfg_names_is_not_imported_outside(tmp_path, needs, home):
    needs("userns")
    mark = tmp_path.parent / f"{tmp_path.name}.PWNED"
    _own_library(tmp_path, mark)
    python = _venv(tmp_path, str(tmp_path / "evil/bin") if home == "evil" else os.path.dirname(REAL))
    done = _go(tmp_path, python, "-c", "print('up')")
    assert not mark.exists()
    if home == "own":
        assert (done.returncode, done.stdout) == (0, "up\n"), done.stderr


def test_a_run_can_not_leave_the_pyvenv_cfg_of_the_next(python, tmp_path):
    code = "import os\nfor n in ('.venv', 'out'): os.mkdir(n)\nfor n in ('.venv/pyvenv.cfg', 'out/a'): open(n, 'w').write('x')"
    held = python(code, "state: {keep: ['**']}\n")
    assert [kept["path"] for kept in held.receipt["kept"]] == ["out/a"]


def _elf(loader: str) -> bytes:
    """An ELF file with nothing but the name of its loader."""
    name = loader.encode() + b"\0"
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, {"x86_64": 62}.get(os.uname().machine, 183), 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0
    )
    return head + struct.pack("<IIQQQQQQ", 3, 4, 120, 120, 120, len(name), len(name), 1) + name


def _secret(folder: Path) -> Path:
    home = folder / "home/.ssh"
    home.mkdir(parents=True)
    (home / "id").write_text("TOPSECRET")
    return home


@pytest.mark.parametrize("deny", ["", "filesystem: {deny: ['**/.ssh/**']}\n"])
def test_the_loader_that_a_packages_file_names_is_brought_in_only_if_it_is_one(tmp_path, needs, deny):
    needs("userns")
    secret, project = _secret(tmp_path) / "id", tmp_path / "project"
    project.mkdir()
    python = _venv(project, os.path.dirname(REAL))
    packages = project / f".venv/lib/{VERSION}/site-packages"
    (packages / "evil.so").write_bytes(_elf(str(secret)))
    (packages / "own.txt").write_text("own")
    (project / "remit.yaml").write_text(f"{HEAD}process: {{exec: [{project}/{python}]}}\n{deny}")
    for path, said in ((secret, "refused\n"), (packages / "own.txt", "own\n")):
        assert _go(project, f"{project}/{python}", "-c", READ, str(path), remit="remit.yaml").stdout == said, path


def test_a_denied_pattern_holds_for_what_a_projects_packages_bring(tmp_path, needs):
    needs("userns")
    python = _venv(tmp_path, os.path.dirname(REAL))
    package = tmp_path / f".venv/lib/{VERSION}/site-packages/package"
    package.mkdir()
    (package / ".env").write_text("TOPSECRET")
    (package / "own.txt").write_text("own")
    deny = "filesystem: {deny: ['**/.env']}\n"
    (tmp_path / "remit.yaml").write_text(f"{HEAD}process: {{exec: [{tmp_path}/{python}]}}\n{deny}")
    for _ in range(2):  # found, and remembered
        for name, said in ((".env", "refused\n"), ("own.txt", "own\n")):
            done = _go(tmp_path, f"{tmp_path}/{python}", "-c", READ, str(package / name), remit="remit.yaml")
            assert done.stdout == said, done.stderr


@pytest.mark.parametrize("place", ["site-packages", "pyvenv.cfg"])
def test_a_link_among_a_checkouts_environment_brings_in_nothing_from_outside_of_it(tmp_path, needs, place):
    needs("userns")
    home, project = _secret(tmp_path), tmp_path / "project"
    project.mkdir()
    python = _venv(project, os.path.dirname(REAL))
    if place == "pyvenv.cfg":
        (project / ".venv/pyvenv.cfg").unlink()
        (project / ".venv/pyvenv.cfg").symlink_to(home / "id")
    else:
        (project / f".venv/lib/{VERSION}/site-packages").rmdir()
        (project / f".venv/lib/{VERSION}/site-packages").symlink_to(home)
    assert "TOPSECRET" not in _go(project, python, "-c", READ, str(home / "id")).stdout


def test_a_program_beside_others_in_a_home_does_not_bring_in_the_home(tmp_path, needs):
    needs("userns")
    home = _secret(tmp_path)
    (tmp_path / "home/bin").mkdir()
    (tmp_path / "home/bin/java").write_text(f"#!{REAL}\n{READ}")
    (tmp_path / "home/bin/java").chmod(0o755)
    (tmp_path / "remit.yaml").write_text(f"{HEAD}process: {{exec: [{tmp_path}/home/bin/java]}}\n")
    done = _go(tmp_path, f"{tmp_path}/home/bin/java", str(home / "id"), remit="remit.yaml")
    assert "TOPSECRET" not in done.stdout


def _touches(mark: Path, name: Path) -> None:
    source = name.parent / "e.c"
    name.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(f'#include <stdio.h>\nint main(void){{fclose(fopen("{mark}","w"));return 1;}}\n')
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    subprocess.run(["cc", "-o", name, source], check=True)


def test_a_program_of_the_repository_around_the_remit_is_never_run_outside(tmp_path, needs):
    needs("userns")
    mark = tmp_path / "PWNED"
    _touches(mark, tmp_path / "repo/tools/python3")
    (tmp_path / "repo/.git").mkdir()
    (tmp_path / "repo/agents").mkdir()
    (tmp_path / "repo/agents/remit.yaml").write_text(f"{HEAD}process: {{exec: [{tmp_path}/repo/tools/python3]}}\n")
    done = _go(tmp_path / "repo", "tools/python3", remit="agents/remit.yaml")
    assert not mark.exists()
    assert done.returncode == 125


def test_a_program_that_another_user_can_change_is_not_run_to_be_asked(tmp_path, needs):
    needs("userns")
    if os.geteuid():
        pytest.skip("only root can make another's file")
    mark = tmp_path / "PWNED"
    _touches(mark, tmp_path / "other/python3")
    os.chown(tmp_path / "other/python3", 4242, 4242)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/tool").write_text(f"#!{tmp_path}/other/python3\n")
    (tmp_path / "project/tool").chmod(0o755)
    _go(tmp_path / "project", "./tool")
    assert not mark.exists()


def test_what_a_version_manager_finds_in_the_project_is_not_run_outside(tmp_path, needs):
    """asdf starts a version `path:DIR` of a checkout's .tool-versions from there."""
    needs("userns")
    mark, project = tmp_path / "PWNED", tmp_path / "project"
    (project / "bin").mkdir(parents=True)
    (project / "bin/python3").write_text(f'#!/bin/sh\ntouch {mark}\nexec {REAL} "$@"\n')
    (tmp_path / "shims").mkdir()
    (tmp_path / "asdf").write_text(f"#!/bin/sh\necho {project}/bin/$2\n")
    (tmp_path / "shims/python3").write_text(f'#!/bin/sh\nexec {tmp_path}/asdf exec "python3" "$@"\n')
    for program in (project / "bin/python3", tmp_path / "asdf", tmp_path / "shims/python3"):
        program.chmod(0o755)
    _go(project, "python3", "-c", "print(1)", path=str(tmp_path / "shims"))
    assert not mark.exists()


def test_an_old_interpreter_that_is_asked_reads_no_module_of_the_project(tmp_path, needs):
    """Python 2 has no -I, and without it the current directory comes first."""
    needs("userns")
    mark = tmp_path / "PWNED"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python2").write_text(f'#!/bin/sh\n[ "$1" = -I ] && exit 2\nexec {REAL} "$@"\n')
    (tmp_path / "bin/python2").chmod(0o755)
    (tmp_path / "project").mkdir()
    (tmp_path / "project/json.py").write_text(f"open({str(mark)!r}, 'w')\n")
    _go(tmp_path / "project", "python2", "-c", "print(1)", path=str(tmp_path / "bin"))
    assert not mark.exists()


@pytest.mark.parametrize("grant", ["filesystem: {read: [./data]}\n", "filesystem: {work: {from: ./data}}\n"])
def test_a_link_of_a_checkout_that_a_relative_grant_meets_does_not_lead_out_of_it(run, tmp_path, grant):
    project = tmp_path / "project"
    (project / "real").mkdir(parents=True)
    (project / "real/id").write_text("own")
    run.folder = project
    code = "import os\nprint(open('data/id' if os.path.isdir('data') else 'id').read())"
    for target, said in ((_secret(tmp_path), ""), (project / "real", "own\n")):
        (project / "data").unlink(missing_ok=True)
        (project / "data").symlink_to(target)
        assert run(PYTHON + grant, [sys.executable, "-c", code]).out == said, target


def test_a_checkouts_link_in_the_place_of_the_destination_is_not_followed(python, tmp_path):
    (tmp_path / "victim").mkdir()
    code = "import os\nos.mkdir('out'); open('out/x', 'w').write('1')"
    (tmp_path / "kept").symlink_to(tmp_path / "victim")
    python(code, "state: {keep: ['out/**']}\n")
    assert os.listdir(tmp_path / "victim") == []
    (tmp_path / "kept").unlink()
    assert [k["path"] for k in python(code, "state: {keep: ['out/**']}\n").receipt["kept"]] == ["out/x"]


def test_a_cache_directory_that_is_a_link_is_not_used_and_its_target_is_not_changed(tmp_path, needs):
    needs("userns")
    (tmp_path / "victim").mkdir(mode=0o755)
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache/remit").symlink_to(tmp_path / "victim")
    assert _go(tmp_path, sys.executable, "-c", "print(1)").stdout == "1\n"
    assert os.listdir(tmp_path / "victim") == []
    assert (tmp_path / "victim").stat().st_mode & 0o777 == 0o755


def test_what_is_left_beside_kept_files_is_removed_only_if_it_is_our_own(python, tmp_path):
    (tmp_path / "kept/.remit-notes").mkdir(parents=True)
    (tmp_path / "kept/.remit-notes/a").write_text("precious")
    os.utime(tmp_path / "kept/.remit-notes", (1, 1))
    held = python("open('a', 'w').write('1')", "state: {keep: ['a']}\n")
    assert len(held.receipt["kept"]) == 1
    assert (tmp_path / "kept/.remit-notes/a").exists()


def test_a_denied_name_that_is_no_text_is_masked_and_its_neighbour_is_read(python, tmp_path):
    (tmp_path / "in").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/\xff.pem")).write_text("secret")
    (tmp_path / "in/ok").write_text("fine")
    code = "import os\nfor n in sorted(os.listdir(b'in')):\n try: print(open(b'in/' + n).read())\n except OSError: print('refused')"
    held = python(code, "filesystem: {read: [./probe.py, ./in], deny: ['**/*.pem']}\n")
    assert held.out.splitlines() == ["fine", "refused"], held


def test_a_sealed_prefix_holds_no_link_that_leads_out_by_another(run, tmp_path):
    (tmp_path / "victim/NAME/site-packages").mkdir(parents=True)
    fill = (
        "import os, sys\np = '/opt/prefix'; down = 'x' + '/y' * 20\nos.makedirs(f'{p}/{down}'); os.mkdir(f'{p}/b')\n"
        "os.symlink('/'.join(['..'] * 21) + '/b', f'{p}/{down}/l')\n"
        f"os.symlink(down + '/l' + '/..' * 20 + '{tmp_path}/victim' if sys.argv[1] == 'out' else 'b', f'{{p}}/lib')\n"
    )
    for how in ("out", "in"):
        install = f"process: {{exec: [{sys.executable}], install: [{sys.executable}, fill.py, {how}]}}\n"
        body = "extends: python\nunsafe_widen: [process.exec]\n" + install + "filesystem: {read: [./fill.py]}\n"
        code = "import os; print(os.environ.get('PYTHONPATH', 'none'))"
        held = run(
            body, [sys.executable, "-c", code], files={"fill.py": fill}, env={"XDG_CACHE_HOME": str(tmp_path / "c")}
        )
        assert "NAME" not in held.out
        if how == "in":
            assert (held.code, held.out) == (0, "none\n"), held


@pytest.mark.parametrize("lib", ["out", "own"])
def test_a_toolchain_in_the_project_brings_in_nothing_from_outside_of_it(tmp_path, needs, lib):
    """A checkout's rust-toolchain.toml may name a directory of its own."""
    needs("userns")
    home, project = _secret(tmp_path), tmp_path / "project"
    (project / "tc/bin").mkdir(parents=True)
    (project / "own").mkdir()
    (project / "own/id").write_text("own")
    (project / "tc/lib").symlink_to(home if lib == "out" else project / "own")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rustup").write_text(f"#!/bin/sh\necho {project}/tc/bin/$2\n")
    (tmp_path / "bin/cargo").write_text("#!/bin/sh\n")
    (project / "tc/bin/cargo").write_text(f"#!{REAL}\n{READ}")
    for program in (tmp_path / "bin/rustup", tmp_path / "bin/cargo", project / "tc/bin/cargo"):
        program.chmod(0o755)
    (project / "remit.yaml").write_text(f"{HEAD}process: {{exec: [cargo]}}\n")
    place = home / "id" if lib == "out" else project / "own/id"
    done = _go(project, "cargo", str(place), path=str(tmp_path / "bin"), remit="remit.yaml")
    assert "TOPSECRET" not in done.stdout
    if lib == "own":
        assert done.stdout == "own\n", done.stderr

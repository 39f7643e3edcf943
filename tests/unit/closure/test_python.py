"""Python: the interpreter behind whatever is on PATH, its library, its environment's packages, and what these load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from remit.errors import HostError
from remit.plan.template import Template
from tests.unit.closure import inside
from tests.unit.closure.inside import Builder, leads_to, program, role, tree_of

BASE = os.path.realpath(sys.executable)
DEBIAN = Path("/usr/lib/python3/dist-packages")


def _ask(python: str, code: str) -> str:
    return subprocess.run([python, "-I", "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("python") / "env"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(made)
    return made


def _assert_runs(made: Template, python: str) -> None:
    """The interpreter, its standard library and each extension module have what they load."""
    inside.assert_loads(made, python)
    where = json.loads(
        _ask(python, "import json,os,sys,_json as j; print(json.dumps([os.__file__, getattr(j,'__file__',None)]))")
    )
    for path in filter(None, where):
        assert tree_of(made, os.path.realpath(path)), path
    modules = [*Path(os.path.dirname(where[0])).glob("lib-dynload/*.so")]
    for module in modules:
        inside.assert_loads(made, str(module))


def test_an_environment_is_started_as_itself_with_its_packages(build: Builder, environment: Path) -> None:
    python = environment / "bin/python"
    made = build(str(python))
    assert made.programs[str(python)] == str(python)
    assert leads_to(made, str(python)) == BASE
    assert role(made, str(environment / "pyvenv.cfg")) == "data"
    packages = _ask(str(python), "import sysconfig; print(sysconfig.get_path('purelib'))")
    assert Path(packages).is_relative_to(environment)
    if any(Path(packages).iterdir()):
        assert tree_of(made, packages)
    _assert_runs(made, str(python))


def test_an_environment_by_name_is_first_on_the_path_inside(build: Builder, environment: Path) -> None:
    made = build("true", "python3", path=f"{environment}/bin:/usr/bin:/bin")
    assert made.programs["python3"] == f"{environment}/bin/python3"
    assert made.path[0] == f"{environment}/bin"


def test_packages_of_the_system_are_there_only_if_the_environment_includes_them(build: Builder, tmp_path: Path) -> None:
    if not DEBIAN.is_dir() or not Path("/usr/bin/python3").exists():
        pytest.skip("no Python of Debian's")
    for system in (False, True):
        place = tmp_path / f"env-{system}"
        config = f"home = /usr/bin\ninclude-system-site-packages = {str(system).lower()}\n"
        (place / "bin").mkdir(parents=True)
        (place / "bin/python3").symlink_to("/usr/bin/python3")
        (place / "pyvenv.cfg").write_text(config)
        made = build(str(place / "bin/python3"))
        assert (tree_of(made, str(DEBIAN)) is not None) is system
        assert tree_of(made, "/usr/lib/python3.11/os.py".replace("3.11", _version("/usr/bin/python3")))


def _version(python: str) -> str:
    return _ask(python, "import sys; print('%d.%d' % sys.version_info[:2])")


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="no system Python")
def test_the_systems_python_has_its_library_and_packages(build: Builder) -> None:
    made = build("/usr/bin/python3")
    assert made.programs == {"/usr/bin/python3": "/usr/bin/python3"}
    _assert_runs(made, "/usr/bin/python3")
    for path in json.loads(_ask("/usr/bin/python3", "import json,sys; print(json.dumps(sys.path))")):
        if Path(path).is_dir() and any(Path(path).iterdir()):
            assert tree_of(made, path), path


def test_a_version_managers_script_gives_way_to_what_it_starts(build: Builder, tmp_path: Path) -> None:
    shim = program(tmp_path / "shims/python3", f'#!/bin/sh\nexec {BASE} "$@"\n')
    made = build("python3", path=f"{shim.parent}:/usr/bin:/bin")
    assert os.path.realpath(made.programs["python3"]) == BASE
    assert made.path[0] == "/usr/local/bin"
    assert leads_to(made, "/usr/local/bin/python3") == BASE
    assert leads_to(made, str(shim)) is None
    assert "/bin/sh" not in {file.inside for file in made.files}


def test_an_environment_behind_a_script_is_found_by_its_directory(
    build: Builder, tmp_path: Path, environment: Path
) -> None:
    # Python knows its environment by the path that it is started by: a link elsewhere would lose it.
    shim = program(tmp_path / "shims/python3", f'#!/bin/sh\nexec {environment}/bin/python3 "$@"\n')
    made = build("true", "python3", path=f"{shim.parent}:/usr/bin:/bin")
    assert made.programs["python3"] == f"{environment}/bin/python3"
    assert made.path[0] == f"{environment}/bin"
    assert leads_to(made, "/usr/local/bin/python3") is None


def _manager(tmp_path: Path) -> Path:
    """A manager and its shims, as pyenv lays them out: `which` answers by .python-version or the version file."""
    root = tmp_path / "root"
    program(
        root / "libexec/pyenv",
        f'#!/bin/sh\nread v < .python-version 2>/dev/null || read v < "$PYENV_ROOT/version"\n'
        f'echo "{tmp_path}/versions/$v/bin/$2"\n[ -e "{tmp_path}/versions/$v/bin/$2" ]\n',
    )
    text = f'#!/bin/sh\nexport PYENV_ROOT="{root}"\nexec "{root}/libexec/pyenv" exec "${{0##*/}}" "$@"\n'
    for name in ("tool", "other"):
        program(root / "shims" / name, text)
    for version in ("1", "2"):
        inside.static_program(tmp_path / f"versions/{version}/bin/tool")
    (root / "version").write_text("1\n")
    return root


def test_what_a_version_manager_chooses_is_granted_and_a_new_choice_is_seen(build: Builder, tmp_path: Path) -> None:
    root = _manager(tmp_path)
    cwd = tmp_path / "project"
    cwd.mkdir()

    def chosen() -> str:
        made = build("tool", path=f"{root}/shims:/usr/bin", cwd=str(cwd))
        assert leads_to(made, "/usr/local/bin/tool") == made.programs["tool"]
        return Path(made.programs["tool"]).parent.parent.name

    assert chosen() == "1"
    (cwd / ".python-version").write_text("2\n")
    assert chosen() == "2"
    (cwd / ".python-version").unlink()
    assert chosen() == "1"
    (root / "version").write_text("2\n")
    assert chosen() == "2"


def test_a_version_manager_without_the_program_is_refused_with_what_it_says(build: Builder, tmp_path: Path) -> None:
    root = _manager(tmp_path)
    with pytest.raises(HostError, match="version manager"):
        build("other", path=f"{root}/shims:/usr/bin", cwd=str(tmp_path))


def test_a_python_that_does_not_start_is_refused(build: Builder, tmp_path: Path) -> None:
    broken = program(tmp_path / "python3", "#!/bin/sh\necho no such version >&2\nexit 1\n")
    with pytest.raises(HostError, match="no such version"):
        build("python3", path=str(broken.parent))


def test_a_script_called_python_that_path_does_not_name_is_not_run(build: Builder, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    stranger = program(tmp_path / "python3", f"#!/bin/sh\nmkdir {trap}\n")
    with pytest.raises(HostError, match="run outside of its sandbox"):
        build(str(stranger))
    assert not trap.exists()


def test_a_script_of_an_environment_brings_its_python_with_all_that_it_needs(build: Builder, environment: Path) -> None:
    script = program(environment / "bin/job", f"#!{environment}/bin/python\nprint(1)\n")
    made = build(str(script))
    assert role(made, str(script)) == "program"
    assert leads_to(made, str(environment / "bin/python")) == BASE
    _assert_runs(made, str(environment / "bin/python"))


def test_asking_runs_nothing_that_packages_brought(build: Builder, tmp_path: Path) -> None:
    place = tmp_path / "env"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
    packages = _ask(str(place / "bin/python"), "import sysconfig; print(sysconfig.get_path('purelib'))")
    trap = tmp_path / "sprung"
    (Path(packages) / "trap.pth").write_text(f"import os; os.mkdir({str(trap)!r})\n")
    build(str(place / "bin/python"), env={"PYTHONSTARTUP": "x", "PYTHONPATH": packages})
    assert not trap.exists()
    _ask(str(place / "bin/python"), "pass")
    assert trap.exists(), "the trap works"


def test_a_package_can_not_bring_in_a_secret_by_a_link(build: Builder, tmp_path: Path) -> None:
    place = tmp_path / "env"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(place)
    packages = Path(_ask(str(place / "bin/python"), "import sysconfig; print(sysconfig.get_path('purelib'))"))
    secret = program(tmp_path / "home/.ssh/id", "secret", 0o600)
    (packages / "a.so").symlink_to(secret)
    (packages / "b").symlink_to(secret.parent)
    made = build(str(place / "bin/python"))
    assert tree_of(made, str(packages))
    assert leads_to(made, str(secret)) is None
    assert leads_to(made, str(secret.parent)) is None

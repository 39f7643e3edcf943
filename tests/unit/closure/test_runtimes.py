"""Runtimes that this host has: each with its own files, and what these load."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from remit.plan.template import Template
from tests.unit.closure import inside
from tests.unit.closure.inside import Builder, leads_to, role, tree_of


def _need(name: str) -> str:
    found = inside.have(name)
    if found is None:
        pytest.skip(f"no {name}")
    return found


def _assert_tree_loads(made: Template, root: str) -> None:
    for path in Path(root).rglob("*"):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            inside.assert_loads(made, str(path))


def test_git_has_its_commands_their_libraries_and_the_shell_they_start(build: Builder) -> None:
    git = _need("git")
    made = build("git")
    inside.assert_loads(made, git)
    core = subprocess.run([git, "--exec-path"], check=True, capture_output=True, text=True).stdout.strip()
    assert tree_of(made, os.path.realpath(core))
    _assert_tree_loads(made, core)
    assert role(made, "/bin/sh") == "program"
    if Path("/usr/share/git-core/templates").is_dir():
        assert leads_to(made, "/usr/share/git-core/templates")


def test_node_has_its_libraries_and_no_package_that_was_not_asked_for(build: Builder) -> None:
    node = _need("node")
    made = build("node")
    inside.assert_loads(made, node)
    assert not any("node_modules/npm" in tree.inside for tree in made.trees)


def test_npm_brings_its_package_and_node(build: Builder) -> None:
    node = _need("node")
    npm = Path(node).parent / "npm"
    if not npm.exists() or "node_modules" not in str(npm.resolve()):
        pytest.skip("no npm beside node")
    made = build("npm", path=f"{npm.parent}:/usr/bin:/bin")
    assert made.programs["npm"] == str(npm)
    assert leads_to(made, str(npm)) == str(npm.resolve())
    assert role(made, node) == "program"
    assert tree_of(made, str(npm.resolve().parent.parent / "package.json"))


def test_a_package_is_present_with_what_it_depends_on_and_its_neighbours_are_not(
    build: Builder, tmp_path: Path
) -> None:
    node = _need("node")
    modules = tmp_path / "lib/node_modules"
    inside.program(modules / "@scope/tool/bin/tool.js", f"#!{node}\n")
    inside.program(modules / "@scope/tool/node_modules/dep/index.js", "", 0o644)
    inside.program(modules / "neighbour/index.js", "", 0o644)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").symlink_to(modules / "@scope/tool/bin/tool.js")
    made = build("tool", path=str(tmp_path / "bin"))
    assert tree_of(made, str(modules / "@scope/tool/node_modules/dep/index.js"))
    assert not tree_of(made, str(modules / "neighbour/index.js"))


def test_java_has_its_home_and_the_configuration_that_its_home_links_to(build: Builder) -> None:
    java = os.path.realpath(_need("java"))
    made = build("java")
    home = Path(java).parent.parent
    assert tree_of(made, str(home / "lib"))
    inside.assert_loads(made, java)
    for link in home.rglob("*"):
        if link.is_symlink() and link.exists() and str(link.resolve()).startswith("/etc/java"):
            assert leads_to(made, str(link)) == str(link.resolve())


def test_go_has_its_root(build: Builder) -> None:
    go = os.path.realpath(_need("go"))
    made = build("go")
    assert tree_of(made, str(Path(go).parent.parent / "src/fmt/print.go"))


def test_perl_has_the_directories_of_its_modules(build: Builder) -> None:
    perl = _need("perl")
    made = build("perl")
    inside.assert_loads(made, perl)
    done = subprocess.run(
        [perl, "-MPOSIX", "-e", 'print join "\n", values %INC'], check=True, capture_output=True, text=True
    )
    for path in done.stdout.splitlines():
        assert leads_to(made, path), path


def test_data_that_programs_expect_is_there_if_the_host_has_it(build: Builder) -> None:
    made = build("true")
    for path in (
        "/usr/share/zoneinfo/UTC",
        "/etc/localtime",
        "/etc/mime.types",
        "/etc/os-release",
        "/usr/lib/locale/C.utf8/LC_CTYPE",
    ):
        if Path(path).exists():
            assert leads_to(made, path) == os.path.realpath(path), path
    for place in ("/etc/ssl/certs", "/usr/lib/ssl/certs"):
        for certificate in Path(place).glob("*.[0p]*"):
            if certificate.exists():
                assert leads_to(made, str(certificate)) == os.path.realpath(certificate)
    assert not any(file.role != "data" and file.inside.startswith("/etc/") for file in made.files)


def test_character_sets_that_the_c_library_loads_by_name_are_there(build: Builder) -> None:
    made = build("true")
    sets = next((t for t in made.trees if t.inside.endswith("/gconv")), None)
    if sets is None:
        pytest.skip("a C library without gconv")
    assert sets.executable
    _assert_tree_loads(made, sets.inside)


def test_a_c_compiler_has_what_it_starts_includes_and_links(build: Builder) -> None:
    _need("gcc")
    made = build("gcc")
    for name in ("cc1", "collect2", "as", "ld"):
        said = subprocess.run(["gcc", f"-print-prog-name={name}"], check=True, capture_output=True, text=True).stdout
        at = shutil.which(said.strip())
        assert at and leads_to(made, at) == os.path.realpath(at), name
    for name in ("crti.o", "crtbegin.o", "libc.so", "libm.so", "libgcc.a"):
        said = subprocess.run(["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True).stdout
        at = os.path.normpath(said.strip())
        assert leads_to(made, at) == os.path.realpath(at), name
    assert leads_to(made, "/usr/include/stdio.h") or not Path("/usr/include/stdio.h").exists()


def test_what_a_script_of_the_linker_names_comes_with_it(build: Builder) -> None:
    _need("gcc")
    said = subprocess.run(["gcc", "-print-file-name=libm.a"], check=True, capture_output=True, text=True).stdout.strip()
    script = Path(said).read_bytes()[:4096] if os.path.isfile(said) else b""
    if not script.startswith(b"/* GNU ld script"):
        pytest.skip("libm.a is no script here")
    made = build("gcc")
    named = [word for word in script.decode().split() if word.startswith("/usr") and word.endswith(".a")]
    assert named
    for path in named:
        assert leads_to(made, path) == os.path.realpath(path)


def test_a_library_that_reads_data_by_name_has_it(build: Builder) -> None:
    _need("file")
    magic = "/usr/share/misc/magic.mgc"
    if not Path(magic).exists():
        pytest.skip("libmagic keeps its data elsewhere")
    assert leads_to(build("file"), magic) == os.path.realpath(magic)
    assert leads_to(build("true"), magic) is None


def test_rustup_is_not_started_inside_but_what_it_chooses(build: Builder) -> None:
    rustc = _need("rustc")
    rustup = Path(os.path.realpath(rustc)).with_name("rustup")
    if not rustup.exists():
        pytest.skip("rustc is not rustup's")
    done = subprocess.run([rustup, "which", "rustc"], check=False, capture_output=True, text=True, cwd="/")
    if done.returncode:
        pytest.skip("rustup has no toolchain")
    chosen = os.path.realpath(done.stdout.strip())
    made = build("rustc", path=f"{os.path.dirname(rustc)}:{inside.PATH}", env=dict(os.environ))
    assert os.path.realpath(made.programs["rustc"]) == chosen
    assert role(made, str(rustup)) is None
    assert tree_of(made, str(Path(chosen).parent.parent / "lib/rustlib"))


def test_a_script_before_ldconfig_brings_no_shell(build: Builder, tmp_path: Path) -> None:
    """As Ubuntu has it. Twin: a script of another name comes with its shell."""
    program = tmp_path / "ldconfig"
    shutil.copy2("/bin/true", tmp_path / "ldconfig.real")
    program.write_text('#!/bin/sh\nexec "$0.real" "$@"\n')
    program.chmod(0o755)
    other = tmp_path / "other"
    shutil.copy2(program, other)
    made = build(str(program))
    assert leads_to(made, str(program)) == f"{program}.real"
    assert leads_to(made, "/bin/sh") is None
    assert leads_to(build(str(other)), "/bin/sh")


def test_chromium_has_its_directory_and_no_shell_of_its_wrappers(build: Builder, tmp_path: Path) -> None:
    """Twin: one of the name that has none of Chromium's files beside it is a program like any other."""
    home = tmp_path / "opt"
    home.mkdir()
    shutil.copy2("/bin/true", home / "chrome")
    (home / "google-chrome").write_text('#!/bin/sh\nexec "$(dirname "$0")/chrome" "$@"\n')
    (home / "google-chrome").chmod(0o755)
    (home / "resources.pak").touch()
    assert tree_of(build(str(home / "chrome")), str(home)) is None
    assert leads_to(build(str(home / "google-chrome")), "/bin/sh")
    (home / "icudtl.dat").touch()
    for name in ("chrome", "google-chrome"):
        (tmp_path / name).symlink_to(home / name)
        made = build(str(tmp_path / name))
        assert tree_of(made, str(home))
        assert leads_to(made, "/bin/sh") is None
        assert role(made, str(home / "chrome")) == "program"
        inside.assert_loads(made, str(home / "chrome"))
        assert leads_to(made, str(tmp_path / name)) == str(home / "chrome")


def test_what_nss_loads_by_name_comes_with_it(build: Builder) -> None:
    made = build(_need("certutil"))
    present = {os.path.basename(file.inside): file.inside for file in made.files}
    for name in ("libsoftokn3.so", "libfreebl3.so", "libnssckbi.so"):
        inside.assert_loads(made, present[name])
    assert "libnssckbi.so" not in {os.path.basename(file.inside) for file in build("/bin/true").files}

"""Programs: found or missed, with their loader and libraries, and with nothing that anybody could change."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from remit.errors import HostError, UsageError
from tests.unit.closure import inside
from tests.unit.closure.inside import Builder, leads_to, program, role

DYNAMIC = [
    path for path in ("/bin/true", "/bin/sh", "/usr/bin/tar", "/usr/bin/env", "/usr/bin/curl") if Path(path).exists()
]


@pytest.mark.parametrize("path", DYNAMIC)
def test_what_the_loader_maps_is_inside(build: Builder, path: str) -> None:
    made = build(path)
    assert made.programs == {path: path}
    assert leads_to(made, path) == os.path.realpath(path)
    assert role(made, path) == "program"
    inside.assert_loads(made, path)
    assert [file.role for file in made.files].count("program") == 1


def test_a_dynamic_program_has_what_its_c_library_loads_by_name(build: Builder) -> None:
    made = build("true")
    assert any(file.role == "loader" for file in made.files)
    names = {os.path.basename(x) for x in ([f.inside for f in made.files] + [link.inside for link in made.links])}
    libc = next(f.host for f in made.files if os.path.basename(f.host).startswith("libc."))
    for name in ("libgcc_s.so.1", "libnss_files.so.2", "libnss_dns.so.2"):
        if (Path(libc).parent / name).exists():
            assert name in names
    if Path("/etc/ld.so.cache").exists():
        assert role(made, "/etc/ld.so.cache") == "data"


def test_a_static_program_comes_alone(build: Builder, tmp_path: Path) -> None:
    own = inside.static_program(tmp_path / "tool")
    made = build(str(own))
    assert [f.inside for f in made.files if f.role != "data"] == [str(own)]
    assert not any(tree.executable for tree in made.trees)
    assert leads_to(made, "/etc/ld.so.cache") is None


def test_a_static_program_of_the_compiler_comes_alone(build: Builder, tmp_path: Path) -> None:
    if not inside.have("gcc"):
        pytest.skip("no compiler")
    (tmp_path / "t.c").write_text("int main(void) { return 0; }\n")
    out = tmp_path / "t"
    done = subprocess.run(["gcc", "-static", "-o", str(out), str(tmp_path / "t.c")], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("no static C library")
    assert [f.inside for f in build(str(out)).files if f.role != "data"] == [str(out)]


def test_a_link_to_a_program_is_a_link_inside(build: Builder, tmp_path: Path) -> None:
    inside.static_program(tmp_path / "real-1.0")
    (tmp_path / "real").symlink_to("real-1.0")
    (tmp_path / "name").symlink_to(tmp_path / "real")
    made = build("name", path=str(tmp_path))
    assert made.programs == {"name": str(tmp_path / "name")}
    assert leads_to(made, str(tmp_path / "name")) == str(tmp_path / "real-1.0")
    assert {link.target for link in made.links} >= {"real-1.0", str(tmp_path / "real")}
    assert [f.inside for f in made.files if f.role == "program"] == [str(tmp_path / "real-1.0")]


def test_a_script_brings_its_interpreter(build: Builder, tmp_path: Path) -> None:
    script = program(tmp_path / "job", "#!/bin/sh -e\ntrue\n")
    made = build(str(script))
    assert role(made, str(script)) == role(made, "/bin/sh") == "program"
    inside.assert_loads(made, "/bin/sh")


@pytest.mark.parametrize("line", ["#!/usr/bin/env tool", "#!/usr/bin/env -S A=1 tool -x"])
def test_a_script_for_env_brings_env_and_what_env_finds(build: Builder, tmp_path: Path, line: str) -> None:
    tool = inside.static_program(tmp_path / "bin/tool")
    script = program(tmp_path / "job", f"{line}\n")
    made = build(str(script), path=f"{tmp_path}/bin:/usr/bin")
    assert role(made, "/usr/bin/env") == role(made, str(tool)) == "program"
    assert str(tmp_path / "bin") in made.path


@pytest.mark.parametrize("line", ["#!/no/such/shell", "#!/usr/bin/env no-such-tool"])
def test_a_script_without_its_interpreter_is_refused(build: Builder, tmp_path: Path, line: str) -> None:
    script = program(tmp_path / "job", f"{line}\n")
    with pytest.raises(HostError, match=r"no.such"):
        build(str(script), path="/usr/bin")


def test_scripts_that_start_each_other_in_a_circle_are_no_loop(build: Builder, tmp_path: Path) -> None:
    program(tmp_path / "a", f"#!{tmp_path}/b\n")
    program(tmp_path / "b", f"#!{tmp_path}/a\n")
    assert role(build(str(tmp_path / "a")), str(tmp_path / "b")) == "program"


def test_a_missing_program_is_refused_with_the_places_searched(build: Builder, tmp_path: Path) -> None:
    with pytest.raises(HostError) as refused:
        build("no-such-tool", path=f"/usr/bin:{tmp_path}")
    assert "no-such-tool" in refused.value.message
    assert f"\n    /usr/bin\n    {tmp_path}" in refused.value.message
    assert "no-such-tool?" in (refused.value.hint or "")


def test_a_missing_optional_program_is_named_and_a_present_one_is_granted(build: Builder) -> None:
    made = build("true", "no-such-tool?", "/no/such/tool?", "sh?")
    assert made.missing == ("no-such-tool", "/no/such/tool")
    assert set(made.programs) == {"true", "sh"}


@pytest.mark.parametrize("entry", ["", "?", "./tool", "a/b", "a\0b"])
def test_an_entry_that_names_no_program_is_refused(build: Builder, entry: str) -> None:
    with pytest.raises(UsageError):
        build(entry)


def test_what_can_not_be_executed_is_refused_by_what_it_is(build: Builder, tmp_path: Path) -> None:
    plain = program(tmp_path / "plain", "text", 0o644)
    for path, why in ((plain, "not executable"), (tmp_path, "directory"), (tmp_path / "none", "does not exist")):
        with pytest.raises(HostError, match=why):
            build(str(path))


def test_relative_directories_of_the_path_are_passed_over(build: Builder, tmp_path: Path) -> None:
    inside.static_program(tmp_path / "bin/tool")
    with pytest.raises(HostError):
        build("tool", path="bin:.:", cwd=str(tmp_path))


def test_links_in_a_circle_are_refused(build: Builder, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HostError):
        build(str(tmp_path / "a"))


def test_a_program_that_anybody_can_write_is_refused(build: Builder, tmp_path: Path) -> None:
    tool = inside.static_program(tmp_path / "tool")
    build(str(tool))
    tool.chmod(0o757)
    with pytest.raises(HostError, match="writable by everybody") as refused:
        build(str(tool))
    assert f"chmod o-w {tool}" in (refused.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_of_another_ordinary_user_is_refused(build: Builder, tmp_path: Path) -> None:
    tool = inside.static_program(tmp_path / "tool")
    os.chown(tool, 12345, 12345)
    with pytest.raises(HostError, match="12345"):
        build(str(tool))


def test_a_setuid_program_is_granted_and_noted(tmp_path: Path) -> None:
    tool = inside.static_program(tmp_path / "tool")
    tool.chmod(0o4755)
    said: list[str] = []
    inside.template(str(tool), progress=said.append)
    assert any(str(tool) in line and "no effect inside" in line for line in said)


def test_a_damaged_program_is_refused(build: Builder, tmp_path: Path) -> None:
    whole = Path("/bin/true").resolve().read_bytes()
    with pytest.raises(HostError, match="damaged"):
        build(str(program(tmp_path / "cut", whole[:40])))


def test_a_program_whose_loader_is_absent_is_refused(build: Builder, tmp_path: Path) -> None:
    whole = Path("/bin/sh").resolve().read_bytes()
    assert b"/lib" in whole
    at = whole.index(b"/lib")
    with pytest.raises(HostError, match="which this host lacks"):
        build(str(program(tmp_path / "alien", whole[:at] + b"/lix" + whole[at + 4 :])))


def test_a_loader_that_is_a_socket_is_no_file(build: Builder, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        (tmp_path / "s").chmod(0o755)
        with pytest.raises(HostError):
            build(str(tmp_path / "s"))


def test_path_inside_keeps_the_order_of_the_path_outside(build: Builder, tmp_path: Path) -> None:
    for name in ("one/a", "two/b", "apart/c"):
        inside.static_program(tmp_path / name)
    made = build(str(tmp_path / "apart/c"), "b", "a", path=f"{tmp_path}/one:{tmp_path}/two")
    assert made.path == (f"{tmp_path}/one", f"{tmp_path}/two", f"{tmp_path}/apart")


def test_nothing_granted_is_nothing_present() -> None:
    made = inside.template()
    assert not made.files
    assert not made.trees


def test_the_links_of_a_merged_usr_are_the_hosts(build: Builder) -> None:
    made = build("true")
    for link in made.links:
        if link.inside in ("/bin", "/lib", "/lib64", "/sbin"):
            assert os.readlink(link.inside) == link.target
    assert leads_to(made, "/bin/true" if made.programs["true"] == "/bin/true" else made.programs["true"])


def test_equal_templates_have_equal_digests_and_others_do_not(build: Builder, tmp_path: Path) -> None:
    tool = inside.static_program(tmp_path / "tool")
    first = build(str(tool))
    assert first == inside.template(str(tool))
    tool.write_bytes(tool.read_bytes() + b"\0")
    assert build(str(tool)).digest != first.digest

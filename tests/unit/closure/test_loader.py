"""Libraries: found where the loader would find them, with `ldd` as the judge where a compiler can make the case."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from remit.errors import HostError
from remit.sandbox.closure import elf, loader, needs
from remit.sandbox.closure.elf import Elf, Machine
from remit.sandbox.closure.loader import Asker
from tests.unit.closure import inside
from tests.unit.closure.inside import Builder, leads_to

compiler = pytest.mark.skipif(not inside.have("gcc"), reason="no compiler")

MACHINE = Machine(64, "EM_X86_64")
RPATH, RUNPATH = "-Wl,--disable-new-dtags,-rpath,", "-Wl,--enable-new-dtags,-rpath,"


def _elf(**fields: object) -> Elf:
    plain = Elf("/lib64/ld-linux-x86-64.so.2", (), (), (), MACHINE, "/opt/app/bin")
    return plain._replace(**fields)  # type: ignore[arg-type]


def _gcc(*arguments: str) -> None:
    subprocess.run(["gcc", *arguments], check=True, capture_output=True)


def _library(place: Path, *arguments: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    (place.parent / "l.c").write_text(f"int {place.name.split('.')[0]}(void) {{ return 1; }}\n")
    _gcc("-shared", "-fPIC", f"-Wl,-soname,{place.name}", "-o", str(place), str(place.parent / "l.c"), *arguments)


def _program(place: Path, *arguments: str) -> str:
    (place.parent / "m.c").write_text("int main(void) { return 0; }\n")
    _gcc("-o", str(place), str(place.parent / "m.c"), "-Wl,--no-as-needed", *arguments)
    return str(place)


@compiler
@pytest.mark.parametrize("how", [RPATH, RUNPATH])
def test_origin_is_the_directory_of_the_program(build: Builder, tmp_path: Path, how: str) -> None:
    _library(tmp_path / "lib/libone.so")
    own = _program(tmp_path / "app", f"{how}$ORIGIN/lib", str(tmp_path / "lib/libone.so"))
    made = build(own)
    inside.assert_loads(made, own)
    assert leads_to(made, str(tmp_path / "lib/libone.so"))


@compiler
def test_an_rpath_serves_the_libraries_of_libraries_and_a_runpath_does_not(build: Builder, tmp_path: Path) -> None:
    _library(tmp_path / "lib/libtwo.so")
    _library(tmp_path / "lib/libone.so", "-Wl,--no-as-needed", str(tmp_path / "lib/libtwo.so"))
    common = (str(tmp_path / "lib/libone.so"), f"-Wl,-rpath-link,{tmp_path}/lib")
    by_rpath = _program(tmp_path / "rpath", f"{RPATH}{tmp_path}/lib", *common)
    made = build(by_rpath)
    inside.assert_loads(made, by_rpath)
    assert leads_to(made, str(tmp_path / "lib/libtwo.so"))
    by_runpath = _program(tmp_path / "runpath", f"{RUNPATH}{tmp_path}/lib", *common)
    with pytest.raises(HostError, match=r"libtwo\.so"):
        build(by_runpath)


@compiler
def test_the_first_directory_that_has_it_wins_and_a_file_for_another_machine_is_passed_over(
    build: Builder, tmp_path: Path
) -> None:
    for name in ("b", "c"):
        _library(tmp_path / name / "libone.so")
    alien = bytearray((tmp_path / "b/libone.so").read_bytes())
    alien[18:20] = (0xF3, 0)  # e_machine: RISC-V
    inside.program(tmp_path / "a/libone.so", bytes(alien))
    directories = ":".join(str(tmp_path / name) for name in "abc")
    own = _program(tmp_path / "app", f"{RUNPATH}{directories}", str(tmp_path / "b/libone.so"))
    made = build(own)
    inside.assert_loads(made, own)
    assert leads_to(made, str(tmp_path / "b/libone.so"))
    assert not leads_to(made, str(tmp_path / "a/libone.so"))
    assert not leads_to(made, str(tmp_path / "c/libone.so"))


@compiler
def test_a_versioned_library_is_a_link_to_one_real_file(build: Builder, tmp_path: Path) -> None:
    _library(tmp_path / "lib/libone.so")
    (tmp_path / "lib/libone.so").rename(tmp_path / "lib/libone.so.1.2")
    (tmp_path / "lib/libone.so").symlink_to("libone.so.1.2")
    own = _program(tmp_path / "app", f"{RUNPATH}{tmp_path}/lib", str(tmp_path / "lib/libone.so"))
    made = build(own)
    assert leads_to(made, str(tmp_path / "lib/libone.so")) == str(tmp_path / "lib/libone.so.1.2")


@compiler
def test_a_library_that_is_gone_is_refused_with_who_needs_it(build: Builder, tmp_path: Path) -> None:
    _library(tmp_path / "lib/libone.so")
    own = _program(tmp_path / "app", f"{RUNPATH}{tmp_path}/lib", str(tmp_path / "lib/libone.so"))
    (tmp_path / "lib/libone.so").unlink()
    with pytest.raises(HostError, match=r"app needs libone\.so"):
        build(own)


@compiler
def test_a_build_for_newer_processors_comes_along(build: Builder, tmp_path: Path) -> None:
    _library(tmp_path / "lib/libone.so")
    _library(tmp_path / "lib/glibc-hwcaps/x86-64-v2/libone.so")
    own = _program(tmp_path / "app", f"{RUNPATH}{tmp_path}/lib", str(tmp_path / "lib/libone.so"))
    made = build(own)
    inside.assert_loads(made, own)
    assert leads_to(made, str(tmp_path / "lib/glibc-hwcaps/x86-64-v2/libone.so"))


def test_glibc_looks_by_rpath_of_all_that_asked_then_the_cache_then_the_usual_places() -> None:
    program = Asker.of(_elf(rpath=("/main",)))
    library = Asker.of(_elf(loader=None, rpath=("$ORIGIN/../lib", "relative"), origin="/opt/a"), program)
    found = list(library.candidates("libnone.so"))
    assert found[:2] == ["/opt/a/../lib/libnone.so", "/main/libnone.so"]
    assert found[2:4] == ["/lib/x86_64-linux-gnu/libnone.so", "/usr/lib/x86_64-linux-gnu/libnone.so"]
    with_runpath = Asker.of(_elf(loader=None, rpath=("/ignored",), runpath=("/own",)), program)
    assert list(with_runpath.candidates("libnone.so"))[:2] == ["/own/libnone.so", found[2]]


def test_musl_looks_in_its_own_places_and_never_in_glibcs_cache(tmp_path: Path) -> None:
    program = Asker.of(_elf(loader="/lib/ld-musl-x86_64.so.1", runpath=("$ORIGIN",)))
    assert program.musl_path == "/etc/ld-musl-x86_64.path"
    listed = tmp_path / "paths"
    for text in ("/a:/b\n", "/a\n/b\n"):
        listed.write_text(text)
        loader.forget()
        library = Asker.of(_elf(loader=None), program._replace(musl_path=str(listed)))
        assert list(library.candidates("libc.so.6")) == ["/opt/app/bin/libc.so.6", "/a/libc.so.6", "/b/libc.so.6"]
    without = Asker.of(_elf(loader=None), program._replace(musl_path="/nonexistent"))
    assert list(without.candidates("x"))[1:] == ["/lib/x", "/usr/local/lib/x", "/usr/lib/x"]


def test_musl_answers_for_its_own_parts(tmp_path: Path) -> None:
    asker = Asker.of(_elf(loader="/lib/ld-musl-x86_64.so.1", needed=("libc.musl-none.so.1", "libpthread.so.0.none")))
    asker = asker._replace(musl_path=str(tmp_path / "none"))
    assert list(needs.libraries(asker, "/app", {}, strict=True)) == []


def test_the_loaders_cache_is_read_as_ldconfig_prints_it() -> None:
    text = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        "\tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1\n"
        '\tlibz.so.1 (libc6,x86-64, hwcap: "x86-64-v3") => /lib/glibc-hwcaps/x86-64-v3/libz.so.1\n'
        "\tlibq.so (libc6) => relative\nCache generated by: ldconfig\n"
    )
    assert loader.parse_cache(text) == {
        "libz.so.1": ("/lib/x86_64-linux-gnu/libz.so.1", "/lib/glibc-hwcaps/x86-64-v3/libz.so.1")
    }


@pytest.mark.parametrize("length", [0, 3, 4, 17, 63, 64, 100, 500])
def test_a_truncated_elf_file_is_none_and_never_a_crash(tmp_path: Path, length: int) -> None:
    whole = Path(os.path.realpath("/bin/true")).read_bytes()
    (tmp_path / "x").write_bytes(whole[:length])
    found = elf.read(str(tmp_path / "x"))
    assert found is None or found.machine.bits in (32, 64)

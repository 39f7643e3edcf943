"""The cache: a template is reused exactly as long as it is true, and a bad cache is no worse than none."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from remit.errors import HostError
from remit.plan.template import Template
from remit.sandbox.closure import cache
from tests.unit.closure import inside


class Case:
    """A script whose interpreter has a tree: a package of node's kind, without node."""

    def __init__(self, place: Path) -> None:
        self.cache = place / "cache"
        self.package = place / "node_modules/tool"
        inside.static_program(place / "interpreter")
        self.tool = inside.program(self.package / "bin/tool", f"#!{place}/interpreter\n")
        inside.program(self.package / "lib/deep/module.js", "one", 0o644)
        self.said: list[str] = []

    def build(self, *, verify: bool = False) -> Template:
        self.said.clear()
        return inside.template(str(self.tool), cache_dir=str(self.cache), progress=self.said.append, verify=verify)

    @property
    def hit(self) -> bool:
        return not any(line.startswith("finding") for line in self.said)

    def file(self) -> Path:
        return next(path for path in self.cache.iterdir() if not path.name.startswith("tree-"))

    def rewrite_in_place(self) -> None:
        with open(self.package / "lib/deep/module.js", "r+b") as file:
            file.write(b"two")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    made = Case(tmp_path)
    made.build()
    assert not made.hit
    return made


def test_a_hit_is_the_same_template(case: Case) -> None:
    first = case.build()
    assert case.hit
    assert first == inside.template(str(case.tool))
    assert isinstance(first.files[0].stamp.ctime_ns, int)


def test_a_hit_needs_neither_a_subprocess_nor_the_elf_library(case: Case) -> None:
    code = (
        "import sys; from remit.sandbox import closure;"
        f"closure.build([{str(case.tool)!r}], path='', cwd='/', env={{'HOME': '/nonexistent'}},"
        f" cache_dir={str(case.cache)!r});"
        "costly = ('subprocess', 'elftools', 'pathlib', 'remit.sandbox.closure.assemble');"
        "print([name for name in costly if name in sys.modules])"
    )
    # The key holds PATH, so the template is made once with the one given here.
    inside.template(str(case.tool), path="", cache_dir=str(case.cache))
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(p for p in sys.path if p)},
    )
    assert done.stdout.strip() == "[]"


def test_the_cache_is_the_callers_alone(case: Case) -> None:
    assert stat.S_IMODE(case.cache.stat().st_mode) == 0o700
    for file in case.cache.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["program", "interpreter", "touched", "link", "added", "removed", "replaced"])
def test_a_change_is_seen(case: Case, change: str) -> None:
    before = case.build()
    match change:
        case "program":
            case.tool.write_text(case.tool.read_text() + "\n")
        case "interpreter":
            other = inside.static_program(case.tool.parent / "other")
            os.replace(other, case.package.parent.parent / "interpreter")
        case "touched":
            os.utime(case.tool)
        case "link":
            moved = case.package.parent / "moved"
            case.package.rename(moved)
            case.package.symlink_to(moved)
        case "added":
            inside.program(case.package / "lib/deep/more.js", "", 0o644)
        case "removed":
            (case.package / "lib/deep/module.js").unlink()
        case "replaced":
            os.replace(inside.program(case.package / "lib/deep/new", "two", 0o644), case.package / "lib/deep/module.js")
    after = case.build()
    assert not case.hit
    if change in ("program", "added", "removed", "replaced"):
        assert after.digest != before.digest
    case.build()
    assert case.hit


def test_a_file_of_a_tree_rewritten_in_place_is_seen_by_verifying_alone(case: Case) -> None:
    before = case.build()
    case.rewrite_in_place()
    assert case.build() == before
    assert case.hit
    after = case.build(verify=True)
    assert after.digest != before.digest
    assert any("changed in place" in line and str(case.package) in line for line in case.said)
    assert case.build() == after
    assert case.hit


def test_verifying_what_has_not_changed_finds_the_same(case: Case) -> None:
    assert case.build(verify=True) == case.build()
    assert not any("changed" in line for line in case.said)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"0\n{}", b"\0" * 100, b"[]", b'{"version": 1}', b"\xff\xfe\n\xff", b"[" * 100_000],
    ids=["empty", "cut", "sum", "zeros", "list", "version", "bytes", "nested"],
)
def test_a_damaged_cache_is_built_again(case: Case, damage: bytes) -> None:
    before = case.build()
    for file in case.cache.iterdir():
        file.write_bytes(damage)
    assert case.build() == before
    assert not case.hit
    assert case.build() == before
    assert case.hit


@pytest.mark.parametrize("cut", [1, 50, 65, 66, 500])
def test_a_truncated_cache_is_built_again(case: Case, cut: int) -> None:
    file = case.file()
    file.write_bytes(file.read_bytes()[:-cut])
    case.build()
    assert not case.hit


@pytest.mark.parametrize("part", ["template", "evidence", "version"])
def test_a_cache_of_another_shape_is_built_again(case: Case, part: str) -> None:
    body = json.loads(case.file().read_bytes().partition(b"\n")[2])
    shapes: tuple[object, ...] = (None, {}, [], 3, {"files": [[1]]})
    for wrong in shapes:
        cache.write(str(case.file()), {**body, part: wrong})
        case.build()
        assert not case.hit


def test_a_cache_that_others_can_write_is_not_used_and_that_is_said(case: Case) -> None:
    case.cache.chmod(0o777)
    case.build()
    assert not case.hit
    assert any("nothing is cached" in line for line in case.said)


def test_a_file_of_the_cache_that_others_can_write_is_not_believed(case: Case) -> None:
    case.file().chmod(0o666)
    case.build()
    assert not case.hit


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_cache_of_somebody_elses_is_not_used(case: Case) -> None:
    os.chown(case.file(), 12345, 12345)
    case.build()
    assert not case.hit
    os.chown(case.cache, 12345, 12345)
    case.build()
    assert not case.hit
    assert any("nothing is cached" in line for line in case.said)


def test_a_link_in_the_place_of_a_cache_file_is_not_followed(case: Case, tmp_path: Path) -> None:
    file = case.file()
    os.replace(file, tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    case.build()
    assert not case.hit
    assert not file.is_symlink()


def test_a_cache_that_can_not_be_made_is_done_without(case: Case, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = inside.template(str(case.tool), cache_dir=str(tmp_path / "file/cache"))
    assert made == case.build()


def test_nothing_is_left_of_a_replacement_that_fails(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        cache.replace(str(tmp_path / "taken"), "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_an_optional_program_that_is_installed_later_is_seen(tmp_path: Path) -> None:
    options = {"path": str(tmp_path / "bin"), "cache_dir": str(tmp_path / "cache")}
    assert inside.template("tool?", **options).missing == ("tool",)
    inside.static_program(tmp_path / "bin/tool")
    assert inside.template("tool?", **options).missing == ()


@pytest.mark.parametrize("kind", ["fifo", "writable file", "writable directory"])
def test_a_tree_with_what_has_no_place_in_it_is_refused(case: Case, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(case.package / "lib/pipe")
    elif kind == "writable file":
        inside.program(case.package / "lib/open.js", "", 0o666)
    else:
        (case.package / "lib/open").mkdir()
        (case.package / "lib/open").chmod(0o777)
    with pytest.raises(HostError):
        case.build()

"""Reading: paths as the kernel follows them, files through one descriptor, trees by everything that is in them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.errors import HostError
from remit.sandbox.closure import evidence, hashing, links, trees, walk
from remit.sandbox.closure.scripts import Shebang, shebang
from tests.unit.closure import inside

_NAMES = st.sampled_from(["a", "b", "c"])
_PATHS = st.lists(st.one_of(_NAMES, st.sampled_from(["..", "."])), min_size=1, max_size=4).map("/".join)


@settings(max_examples=150, deadline=None)
@given(targets=st.dictionaries(_NAMES, st.tuples(st.booleans(), _PATHS), max_size=3), path=_PATHS)
def test_a_path_is_followed_as_the_kernel_does(targets: dict[str, tuple[bool, str]], path: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        root = os.path.realpath(made)
        for name in ("a", "b", "c"):
            if name in targets:
                absolute, target = targets[name]
                os.symlink(f"{root}/{target}" if absolute else target, f"{root}/{name}")
            else:
                os.makedirs(f"{root}/{name}/a")
        try:
            real = os.path.realpath(f"{root}/{path}", strict=True)
        except OSError:
            # Nothing is there, or a circle: whatever it answers, it comes to an end.
            with contextlib.suppress(HostError):
                walk.follow(f"{root}/{path}")
            return
        found = walk.follow(f"{root}/{path}")
        assert found.real == real
        for place, target in found.links.items():
            assert os.readlink(place) == target
            assert os.path.realpath(os.path.dirname(place)) == os.path.dirname(place)


def test_a_file_is_hashed_whole(tmp_path: Path) -> None:
    for size in (0, 1, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20):
        data = os.urandom(size)
        (tmp_path / "f").write_bytes(data)
        read = hashing.read(str(tmp_path / "f"), trusted=True)
        assert read.sha256 == hashlib.sha256(data).hexdigest()
        assert read.stamp == hashing.stamp_of((tmp_path / "f").stat())
        assert read.head == data[:256]


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 100)
    read = os.read

    def and_write(fd: int, size: int) -> bytes:
        data = read(fd, size)
        file.write_bytes(b"y" * 100)
        return data

    monkeypatch.setattr(os, "read", and_write)
    with pytest.raises(HostError, match="changed while it was read"):
        hashing.read(str(file), trusted=True)


def test_a_file_of_the_present_tick_is_read_when_that_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Kernels since 6.13 stamp more finely, so that the second write alone would show nothing there.
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    file = tmp_path / "f"
    file.write_bytes(b"one")
    written = file.stat().st_ctime_ns
    monkeypatch.setattr(time, "time_ns", lambda: written + 3_000_000)
    before = hashing.read(str(file), trusted=True)
    assert waited == [0.01]
    file.write_bytes(b"two")
    monkeypatch.setattr(time, "time_ns", lambda: file.stat().st_ctime_ns + 20_000_000)
    assert hashing.read(str(file), trusted=True).sha256 != before.sha256
    assert waited == [0.01]


@pytest.mark.parametrize("kind", ["fifo", "device", "link", "directory"])
def test_only_a_regular_file_is_read_and_nothing_is_waited_for(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "x"
    match kind:
        case "fifo":
            os.mkfifo(place)
        case "device":
            place = Path("/dev/zero")
        case "link":
            place.symlink_to("/etc/passwd")
        case _:
            place.mkdir()
    with pytest.raises(HostError, match="neither a file"):
        hashing.read(str(place), trusted=False)


@pytest.mark.parametrize("change", ["content", "name", "target", "kind", "empty directory", "moved"])
def test_the_digest_of_a_tree_is_over_everything_in_it(tmp_path: Path, change: str) -> None:
    root = tmp_path / "tree"
    inside.program(root / "a/one", "1")
    inside.program(root / "b/two", "2")
    (root / "link").symlink_to("a/one")
    before = trees.scan(str(root), executable=True)
    assert trees.scan(str(root), executable=True) == before
    match change:
        case "content":
            (root / "a/one").write_text("3")
        case "name":
            (root / "a/one").rename(root / "a/other")
        case "target":
            (root / "link").unlink()
            (root / "link").symlink_to("b/two")
        case "kind":
            (root / "link").unlink()
            (root / "link").write_text("a/one")
        case "empty directory":
            (root / "c").mkdir()
        case "moved":
            (root / "a/one").rename(root / "b/one")
    assert trees.scan(str(root), executable=True).digest != before.digest


def test_links_that_lead_out_of_a_tree_are_told_apart(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    inside.program(root / "a/in", "")
    (root / "a/stays").symlink_to("../a/in")
    (root / "a/leaves").symlink_to("../../elsewhere")
    (root / "a/beside").symlink_to(f"{root}-other/x")
    assert {Path(x).name for x in trees.scan(str(root), executable=False).outward} == {"leaves", "beside"}


def test_the_stamp_of_a_large_tree_has_a_bound_and_holds_its_upper_part(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"t/{i}/x").mkdir(parents=True)
        for j in range(20):
            (tmp_path / f"t/{i}/x/{j}").mkdir()
    stamp = evidence.TreeStamp.of(str(tmp_path / "t"))
    assert len(stamp.directories) == 400
    assert set(stamp.directories) >= {"", *(str(i) for i in range(30)), *(f"{i}/x" for i in range(30))}
    assert stamp.holds(str(tmp_path / "t"))
    (tmp_path / "t/7/x/new").mkdir()
    assert not stamp.holds(str(tmp_path / "t"))


def test_byte_code_that_comes_and_goes_is_no_change(tmp_path: Path) -> None:
    (tmp_path / "t/p/__pycache__").mkdir(parents=True)
    stamp = evidence.TreeStamp.of(str(tmp_path / "t"))
    (tmp_path / "t/p/__pycache__/m.pyc").write_bytes(b"")
    assert stamp.holds(str(tmp_path / "t"))


def test_a_link_is_made_only_if_it_leads_to_something_that_is_made(tmp_path: Path) -> None:
    inside.program(tmp_path / "real/f", "")
    (tmp_path / "good").symlink_to("real/f")
    (tmp_path / "directory").symlink_to("real")
    (tmp_path / "bad").symlink_to("nowhere")
    wanted = {f"{tmp_path}/{name}": os.readlink(tmp_path / name) for name in ("good", "directory", "bad")}
    made = links.kept(wanted, [f"{tmp_path}/real/f"], [])
    assert {Path(link.inside).name for link in made} == {"good", "directory"}
    assert links.kept(wanted, [], []) == ()


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"#!/bin/sh\n", Shebang("/bin/sh", None)),
        (b"#! /bin/sh -e\nrest", Shebang("/bin/sh", None)),
        (b"#!/usr/bin/env python3\n", Shebang("/usr/bin/env", "python3")),
        (b"#!/usr/bin/env -S A=b python3 -u\n", Shebang("/usr/bin/env", "python3")),
        (b"#!/usr/bin/env\n", Shebang("/usr/bin/env", None)),
        (b"#!sh\n", None),
        (b"#!\n", None),
        (b"\x7fELF", None),
        (b"", None),
    ],
)
def test_a_shebang_is_read_as_the_kernel_and_env_do(head: bytes, found: Shebang | None) -> None:
    assert shebang(head) == found

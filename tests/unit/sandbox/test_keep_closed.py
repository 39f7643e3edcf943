"""A directory that the guest shut to its own user: nothing below it can be kept, and that is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.sandbox.keep import walk

NOBODY = 65534


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[int]:
    for name in ("listed", "shut", "open"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("x")
    os.chmod(tmp_path / "listed", 0o400)
    os.chmod(tmp_path / "shut", 0)
    opened = os.open(tmp_path, os.O_RDONLY)
    root = os.geteuid() == 0
    if root:
        # Root reads everything: so this is done as another.
        for path in (tmp_path, *tmp_path.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield opened
    finally:
        if root:
            os.seteuid(0)
        for name in ("listed", "shut"):
            os.chmod(tmp_path / name, 0o700)
        os.close(opened)


def test_what_is_shut_is_told(tree: int) -> None:
    told: list[str] = []
    assert [path for path, *_ in walk(tree, lambda path, _: told.append(path))] == ["listed", "open", "open/a", "shut"]
    assert told == ["listed/a", "shut"]

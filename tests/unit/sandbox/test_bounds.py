"""What is written down of a guest's names, and what is read of a tree, is bounded; ordinary amounts are not touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit.errors import HostError
from remit.policy.model import Limits, Remit, State
from remit.policy.view import View
from remit.sandbox import keep as keeping
from remit.sandbox.closure import hashing, trees
from remit.sandbox.shorten import LONGEST, Budget, shorten


def test_what_is_long_is_cut_and_says_so() -> None:
    assert shorten("a" * LONGEST) == "a" * LONGEST
    cut = shorten("a" * 5000)
    assert len(cut) == LONGEST
    assert cut.endswith("...[5000 characters]")


def test_a_budget_counts_what_json_writes() -> None:
    budget = Budget(3, 30)
    assert budget.take("abc", "de")
    assert not budget.take("\x01" * 4)
    assert budget.take("a")
    assert budget.take("b")
    assert not budget.take("c")


def _kept(folder: Path, limits: Limits | None = None, placeholders: frozenset[int] = frozenset()) -> keeping.Taken:
    root = os.open(folder / "from", os.O_RDONLY)
    try:
        remit = Remit("a", state=State(("**",)), limits=limits or Limits())
        return keeping.keep(root, remit, View((), "/workspace"), str(folder / "to"), placeholders)
    finally:
        os.close(root)


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """Ten files that a guest left."""
    (tmp_path / "from").mkdir()
    for i in range(10):
        (tmp_path / f"from/{i}").write_text("x")
    return tmp_path


def test_no_more_files_are_kept_than_a_receipt_can_name(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MAX_KEPT", 4)
    monkeypatch.setattr(keeping, "_MAX_REFUSED", 3)
    taken = _kept(left)
    assert [entry.path for entry in taken.kept] == ["0", "1", "2", "3"]
    assert [entry.path for entry in taken.refused] == ["4", "5", "6", "..."]
    assert taken.refused[-1].reason.startswith("3 more")


def test_looking_for_what_to_keep_has_an_end(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(_kept(left).kept) == 10
    monkeypatch.setattr(keeping, "PATIENCE_S", -1.0)
    taken = _kept(left)
    assert taken.kept == ()
    assert "took longer" in str(taken.error)


def test_a_placeholder_is_told_by_its_inode_wherever_it_is(left: Path) -> None:
    (left / "from/moved").mkdir()
    os.rename(left / "from/3", left / "from/moved/3")
    found = os.stat(left / "from/moved/3").st_ino
    (left / "from/3").write_text("of its own")
    paths = [entry.path for entry in _kept(left, placeholders=frozenset({found})).kept]
    assert "3" in paths
    assert "moved/3" not in paths


def _sparse(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


def test_a_sparse_file_in_a_tree_is_refused_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("pass")
    assert trees.scan(str(tmp_path), executable=False).digest
    _sparse(tmp_path / "big", trees.MOST)
    with pytest.raises(HostError, match="holds more than 32 GiB"):
        trees.scan(str(tmp_path), executable=False)


def test_a_sparse_program_is_refused_before_it_is_read(tmp_path: Path) -> None:
    _sparse(tmp_path / "big", hashing.MOST + 1)
    with pytest.raises(HostError, match="more than 64 GiB"):
        hashing.read(str(tmp_path / "big"), trusted=True)

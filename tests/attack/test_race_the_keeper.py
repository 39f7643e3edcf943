"""Goal: make the helper that copies results out read or write something of the host, by changing what it looks at while
it looks. Twin: what nobody touches is kept whole, with its hash."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit.policy.model import Limits, Remit, State
from remit.policy.view import View
from remit.sandbox.keep import Kept, NotKept, keep

SECRET = b"secret of the host, " * 500
KEEPER_ROUNDS = 200
RUNS = 15

_SWAPPER = """
import os, random, sys, time
secret, folder, seed = sys.argv[2], sys.argv[3], int(sys.argv[4])
dice = random.Random(seed)
os.chdir(sys.argv[1]); os.makedirs('d/e', exist_ok=True)
# By descriptor and following nothing: what it plants must mislead the keeper, not itself.
top, d, e = (os.open(p, os.O_RDONLY | os.O_DIRECTORY) for p in ('.', 'd', 'd/e'))
names = [(top, 'a'), (top, 'b'), (d, 'x'), (e, 'y')]
def write(at, p, flags, times, offset=0):
    fd = os.open(p, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | flags, 0o644, dir_fd=at)
    os.pwrite(fd, b'guest ' * times, offset); os.close(fd)
def clear(at, p):
    for remove in (os.unlink, os.rmdir):
        try: remove(p, dir_fd=at)
        except OSError: pass
link = lambda to: lambda at, p: os.symlink(to, p, dir_fd=at)
forms = [
    lambda at, p: write(at, p, os.O_TRUNC, dice.randrange(2000)), lambda at, p: write(at, p, 0, 20000, dice.randrange(100000)),
    lambda at, p: os.mkfifo(p, dir_fd=at), lambda at, p: os.mkdir(p, dir_fd=at),
    lambda at, p: os.link('ready', p, src_dir_fd=top, dst_dir_fd=at),
    *map(link, (secret, folder, '/proc/self/root', '..')),
]
def parent(at, name):
    # A directory becomes a link to the host's while it is walked, and is itself again.
    os.rename(name, name + '.away', src_dir_fd=at, dst_dir_fd=at)
    os.symlink(folder, name, dir_fd=at); os.unlink(name, dir_fd=at)
    os.rename(name + '.away', name, src_dir_fd=at, dst_dir_fd=at)
write(top, 'ready', 0, 1)
end = time.monotonic() + 60
while time.monotonic() < end:
    for change in (*[lambda s=s: (clear(*s), dice.choice(forms)(*s)) for s in dice.sample(names, 2)],
        lambda: parent(*dice.choice([(top, 'd'), (d, 'e')]))):
        try: change()
        except OSError: pass
    for at, name in ((top, 'd'), (d, 'e')):
        try: os.unlink(name, dir_fd=at)
        except OSError: pass
        try: os.rename(name + '.away', name, src_dir_fd=at, dst_dir_fd=at)
        except OSError: pass
"""


def _nothing_of_the_host(folder: Path) -> None:
    for above, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(above) / name
            assert path.is_dir() or path.is_file(), path
            assert not path.is_symlink(), path
            if path.is_file():
                assert b"secret" not in path.read_bytes(), path
                assert path.stat().st_nlink == 1
            assert not name.startswith(".remit-"), path


def _agrees(kept: list[tuple[str, int, str]], folder: Path) -> None:
    found = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} if folder.is_dir() else set()
    assert found == {path for path, _, _ in kept}
    for path, size, digest in kept:
        content = (folder / path).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (size, digest), path


@contextmanager
def _swapping(work: Path, secret: Path, folder: Path) -> Iterator[None]:
    swappers = [
        subprocess.Popen([sys.executable, "-c", _SWAPPER, str(work), str(secret), str(folder), str(seed)])
        for seed in (1, 2)
    ]
    try:
        while not (work / "ready").exists():
            time.sleep(0.01)
        yield
    finally:
        for swapper in swappers:
            swapper.kill()
            swapper.wait()


def test_a_tree_that_changes_under_the_keeper_gives_it_nothing_of_the_host(tmp_path):
    """Harder than any sandbox: there nothing of the guest's lives while its files are kept."""
    work, host, out = tmp_path / "work", tmp_path / "host", tmp_path / "out"
    for folder in (work, host, out):
        folder.mkdir()
    (host / "secret").write_bytes(SECRET)
    (host / "x").write_bytes(SECRET)
    (host / "y").write_bytes(SECRET)
    (work / "steady").write_bytes(b"steady")
    remit = Remit("a", state=State(("**",)), limits=Limits(disk=4 << 20))
    before = sorted(os.listdir(host))
    with _swapping(work, host / "secret", host):
        for number in range(KEEPER_ROUNDS):
            to = out / str(number)
            began = time.monotonic()
            root = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
            try:
                taken = keep(root, remit, View((), "/workspace"), str(to))
            finally:
                os.close(root)
            assert time.monotonic() - began < 5
            assert taken.error is None, taken
            assert "steady" in {kept.path for kept in taken.kept}
            assert all(isinstance(k, Kept) for k in taken.kept)
            assert all(isinstance(n, NotKept) and n.rule in ("state.keep", "limits.disk") for n in taken.refused)
            _agrees(list(taken.kept), to)
            _nothing_of_the_host(to)
            assert sum(kept.size for kept in taken.kept) <= 4 << 20
    assert sorted(os.listdir(host)) == before
    assert (host / "secret").read_bytes() == SECRET
    assert sorted(os.listdir(out)) == sorted(str(number) for number in range(KEEPER_ROUNDS))


def test_a_file_that_grows_past_the_cap_while_it_is_copied_takes_nothing_else_with_it(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"1" * 100)
    real = os.open

    def grow(path, *arguments, **more):
        if path == "a":
            (tmp_path / "a").write_bytes(b"1" * (1 << 16))
        return real(path, *arguments, **more)

    root = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    monkeypatch.setattr(os, "open", grow)
    to = tmp_path.parent / f"{tmp_path.name}.out"
    taken = keep(root, Remit("a", state=State(("*",)), limits=Limits(disk=1000)), View((), "/workspace"), str(to))
    os.close(root)
    assert [k.path for k in taken.kept] == ["b"]
    assert [n.path for n in taken.refused] == ["a"]
    assert taken.error is None
    assert os.listdir(to) == ["b"]


@pytest.mark.kernel
def test_a_guest_that_leaves_a_swapper_behind_gets_nothing_of_the_host_kept(python, tmp_path):
    code = (
        "import os, subprocess, sys, time\n"
        "open('steady','w').write('steady')\n"
        f"subprocess.Popen([sys.executable, '-c', {_SWAPPER!r}, '/workspace', {str(tmp_path / 'secret')!r}, '/etc', sys.argv[1]],"
        " start_new_session=True)\n"
        "while not os.path.exists('ready'): time.sleep(0.005)\n"
        "time.sleep(0.02 * (int(sys.argv[1]) % 3))\n"
    )
    (tmp_path / "secret").write_bytes(SECRET)
    beside = None
    for seed in range(RUNS):
        to = tmp_path / f"kept-{seed}"
        held = python(code, "state: {keep: ['**']}\n", [str(seed)], options=["--keep-to", str(to)], timeout=20)
        assert held.code == 0, held.err
        assert not held.receipt["keep_error"]
        kept = [(k["path"], k["size"], k["sha256"]) for k in held.receipt["kept"]]
        assert "steady" in {path for path, _, _ in kept}
        _agrees(kept, to)
        _nothing_of_the_host(to)
        names = sorted(n for n in os.listdir(tmp_path) if not n.startswith("kept-"))
        assert beside in (None, names)
        beside = names
    assert (tmp_path / "secret").read_bytes() == SECRET

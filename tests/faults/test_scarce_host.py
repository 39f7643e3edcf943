"""The host runs short while a sandbox is made. Claim: it works or says why not; never is anything run unconfined, and
nobody is told that it went well when it did not. Twin: with a little more it works."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from remit.sandbox import host
from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = [pytest.mark.kernel, pytest.mark.usefixtures("nothing_is_left")]

_STATUS = "extends: binary\nprocess: {exec: [cat]}\n"
_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a full disk; CI runs it as root")


def _run(
    folder: Path, body: str, argv: Sequence[str], limit: Callable[[], None] | None, *options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "remit.yaml").write_text(HEAD + body)
    command = [*REMIT, "run", "-q", "--remit", "remit.yaml", *options, "--", *argv]
    return subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, preexec_fn=limit
    )


def _worked(done: subprocess.CompletedProcess[str], least: int) -> bool:
    """True for a confined run, False for none at all; anything between fails the test. `least`: from which bound on the
    interpreter itself has what it needs, so that the words have to be ours."""
    if done.returncode == 0:
        found = dict(re.findall(r"^(Seccomp|NoNewPrivs):\s*(\d)$", done.stdout, re.M))
        assert found == {"Seccomp": "2", "NoNewPrivs": "1"}, done
        return True
    assert done.stdout == "", done
    if least:
        assert "Traceback" not in done.stderr, done
        assert "error: " in done.stderr or "remit: " in done.stderr, done
    return False


def test_few_descriptors(tmp_path, needs):
    needs("userns")
    _run(tmp_path, _STATUS, ["cat", "/proc/self/status"], None)  # the closure's cache is filled
    results = []
    for n in (3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 24, 32, 64):

        def limit(n: int = n) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))

        results.append(_worked(_run(tmp_path, _STATUS, ["cat", "/proc/self/status"], limit), n >= 8))
    assert results[0] is False
    assert results[-1] is True
    assert results == sorted(results), "more descriptors never do worse"


def test_little_address_space(tmp_path, needs):
    needs("userns")
    _run(tmp_path, _STATUS, ["cat", "/proc/self/status"], None)
    results = []
    for mib in (24, 32, 40, 48, 64, 128, 1024):

        def limit(size: int = mib << 20) -> None:
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        results.append(_worked(_run(tmp_path, _STATUS, ["cat", "/proc/self/status"], limit), 0))
    assert results[-1] is True


@contextlib.contextmanager
def _pids_cgroup(most: int) -> Iterator[Callable[[], None]]:
    facts = host.read(make=True)
    assert facts.cgroup is not None
    parent = facts.cgroup.parents["pids" if facts.cgroup.version == 1 else "unified"]
    own = f"{parent}/test-{os.getpid()}"
    os.mkdir(own)
    try:
        Path(f"{own}/pids.max").write_text(str(most))
        yield lambda: Path(f"{own}/cgroup.procs").write_text("0") and None
    finally:
        os.rmdir(own)


@pytest.mark.parametrize(("most", "works"), [(1, False), (2, False), (4, True)])
def test_few_processes(tmp_path, needs, most, works):
    needs("userns")
    needs("cgroup")
    _run(tmp_path, _STATUS, ["cat", "/proc/self/status"], None)
    with _pids_cgroup(most) as limit:
        assert _worked(_run(tmp_path, _STATUS, ["cat", "/proc/self/status"], limit), 1) is works


def _on_a_full_disk(folder: Path, command: Sequence[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    (folder / "full").mkdir(exist_ok=True)
    script = 'mount -t tmpfs -o size=64k none full && cat /dev/zero > full/fill 2>/dev/null; "$@"; code=$?; ls -a full; exit $code'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *command],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@_ROOT_ONLY
def test_a_full_cache_costs_time_and_nothing_else(tmp_path, needs):
    needs("userns")
    (tmp_path / "remit.yaml").write_text(HEAD + _STATUS)
    command = [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", "cat", "/proc/self/status"]
    done = _on_a_full_disk(tmp_path, command, {"XDG_CACHE_HOME": str(tmp_path / "full")})
    assert done.returncode == 0, done
    assert "Seccomp:\t2" in done.stdout


@_ROOT_ONLY
def test_what_can_not_be_kept_is_no_success_and_no_half_of_it_stays(tmp_path, needs):
    needs("userns")
    (tmp_path / "remit.yaml").write_text(f"{HEAD}{PYTHON}state: {{keep: ['*.txt']}}\n")
    argv = ["python3", "-c", "open('a.txt','w').write('x' * 100000)"]
    import sys

    argv[0] = sys.executable
    command = [*REMIT, "run", "--remit", "remit.yaml", "--receipt", "r.json", "--keep-to", "full", "--", *argv]
    done = _on_a_full_disk(tmp_path, command, {})
    assert done.returncode == 125
    assert done.stdout.split() == [".", "..", "fill"]
    assert "No space left on device" in done.stderr
    receipt = json.loads((tmp_path / "r.json").read_text())
    assert receipt["kept"] == []
    assert "No space left" in receipt["keep_error"]
    assert receipt["result"]["exit"] == 0


@pytest.mark.parametrize("option", ["--events", "--receipt"])
def test_a_record_that_can_not_be_written_is_no_success(tmp_path, needs, option):
    needs("userns")
    done = _run(tmp_path, _STATUS, ["cat", "/proc/self/status"], None, option, "/dev/full")
    assert done.returncode not in (0, None)
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert _run(tmp_path, _STATUS, ["cat", "/proc/self/status"], None, option, "/dev/null").returncode == 0

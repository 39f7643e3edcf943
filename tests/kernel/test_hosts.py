"""Hosts that lack something: a run that can't be made says which step and what to do, and `remit doctor` says the same
beforehand. Each beside its twin, the same host without the lack.

The lacks are made in a mount or user namespace of the test's own: by root, and by an ordinary user (root's tests also
become one, where such a user can start this Python)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import HEAD, REMIT

pytestmark = pytest.mark.kernel

_NOBODY = "65534"
_REMIT = HEAD + "extends: static-binary\nprocess: {exec: [busybox]}\n"


class Said(NamedTuple):
    """What `remit run` and then `remit doctor` said."""

    code: int
    out: str
    error: dict[str, Any]
    doctor: dict[str, Any]
    doctor_code: int

    def row(self, name: str) -> dict[str, Any]:
        return next(row for row in self.doctor["mechanisms"] if row["name"] == name)


class Host:
    """`host(spoil)`: runs a command inside Remit, where the shell lines `spoil` were done first."""

    def __init__(self, folder: Path, become: list[str]) -> None:
        self.folder = folder
        self.become = become
        self.is_root = os.geteuid() == 0 and not become

    def __call__(self, spoil: str, least: str = "partial", *, userns: bool = False, wrap: tuple[str, ...] = ()) -> Said:
        (self.folder / "remit.yaml").write_text(_REMIT.replace("least_tier: partial", f"least_tier: {least}"))
        if os.geteuid() == 0 and not userns:
            outer, inner = ["unshare", "--mount"], " ".join(self.become)
        else:
            # Who makes the user namespace may change it and mount in it; what it starts may not.
            outer = [*self.become, "unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
            inner = "setpriv --inh-caps=-all --ambient-caps=-all"
        home = str(self.folder / "home")
        env = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home}

        def under(*command: str) -> subprocess.CompletedProcess[str]:
            line = [*outer, "sh", "-c", f'set -e\n{spoil}\nexec {inner} "$@"', "sh", *wrap, *REMIT, *command]
            return subprocess.run(
                line, cwd=self.folder, env=env, capture_output=True, text=True, timeout=60, check=False
            )

        ran = under("run", "--json", "--remit", "remit.yaml", "--", "busybox", "echo", "hello")
        examined = under("doctor", "--json")
        last = json.loads(ran.stderr.splitlines()[-1])
        return Said(ran.returncode, ran.stdout, last.get("error", {}), json.loads(examined.stdout), examined.returncode)


@pytest.fixture(params=["caller", "ordinary"])
def host(request: pytest.FixtureRequest, needs: Callable[[str], None]) -> Iterator[Host]:
    needs("userns")
    if shutil.which("busybox") is None:
        pytest.skip("no busybox")
    become: list[str] = []
    if request.param == "ordinary":
        if os.geteuid() != 0:
            pytest.skip("the caller is one")
        become = ["setpriv", "--reuid", _NOBODY, "--regid", _NOBODY, "--clear-groups"]
        tried = [*become, "sh", "-c", '"$0" -c "import remit"', sys.executable]
        if subprocess.run(tried, cwd="/", capture_output=True, check=False).returncode != 0:
            pytest.skip("an ordinary user can't start this Python")
    folder = Path(tempfile.mkdtemp(prefix="remit-hosts-"))
    (folder / "home").mkdir()
    folder.chmod(0o755)
    if become:
        os.chown(folder / "home", int(_NOBODY), int(_NOBODY))
    yield Host(folder, become)
    shutil.rmtree(folder)


def _works(said: Said) -> bool:
    return (said.code, said.out, said.doctor["works"], said.doctor_code) == (0, "hello\n", True, 0)


def test_the_twin_in_the_same_namespaces_without_a_lack_works(host):
    said = host("")
    assert _works(said), said


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param("mount -t tmpfs -o ro none /proc/acpi || mount -t tmpfs -o ro none /proc/tty", id="folder"),
        pytest.param("mount --bind /dev/null /proc/kcore || mount --bind /dev/null /proc/keys", id="file"),
        pytest.param("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys", id="read-only"),
    ],
)
def test_where_a_part_of_proc_is_covered_nothing_starts_and_both_say_so(host, spoil):
    said = host(f"({spoil}) 2>/dev/null")
    assert (said.code, said.out) == (125, ""), said
    assert (said.error["code"], said.error["step"], said.error["errno"]) == ("E_SETUP", "root.proc", 1)
    assert "/proc are covered" in said.error["hint"]
    assert (said.doctor["works"], said.doctor["tier"], said.doctor_code) == (False, "none", 1)
    bad = [row["name"] for row in said.doctor["mechanisms"] if not row["ok"] and not row["optional"]]
    assert bad == ["proc"]
    assert "/proc are covered" in said.row("proc")["remedy"] and "systempaths=unconfined" in said.row("proc")["remedy"]


def test_without_user_namespaces_nothing_starts_and_both_say_so(host):
    if host.is_root:
        pytest.skip("root's own limit is the host's")
    twin = host("", userns=True)
    assert _works(twin), twin
    said = host("echo 0 > /proc/sys/user/max_user_namespaces", userns=True)
    assert (said.code, said.error["step"]) == (125, "namespaces"), said
    assert "user.max_user_namespaces" in said.error["hint"]
    assert (said.doctor["works"], said.doctor_code) == (False, 1)
    assert "user.max_user_namespaces" in said.row("namespaces")["remedy"]


def test_a_callers_seccomp_filter_that_knows_no_clone3_is_named(host):
    said = host("", wrap=(sys.executable, "-c", _FILTER))
    assert (said.code, said.error["step"]) == (125, "namespaces"), said
    assert "seccomp filter" in said.error["hint"]
    assert said.doctor["works"] is False
    assert "seccomp=unconfined" in said.row("namespaces")["remedy"]


_FILTER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
# As the usual profile of containers: clone3 (435 on every machine) does not exist.
code = b"".join(struct.pack("HBBI", *i) for i in
    [(0x20, 0, 0, 0), (0x15, 0, 1, 435), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7FFF0000)])
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_where_no_cgroup_can_be_written_the_tier_is_partial_and_both_say_so(host, needs):
    needs("cgroup")
    if not host.become:
        twin = host("", "delegated")
        assert _works(twin), twin
    spoil = (
        "for tree in $(awk '$2 ~ /^.sys.fs.cgroup/ {print $2}' /proc/mounts); do mount -o remount,bind,ro $tree; done"
    )
    said = host(spoil, "delegated")
    assert (said.code, said.error["code"], said.error["mechanism"]) == (125, "E_HOST", "cgroup"), said
    row = said.row("cgroup")
    assert said.error["hint"].startswith(row["remedy"])
    assert (said.doctor["works"], said.doctor["tier"], row["ok"]) == (True, "partial", False)
    accepted = host(spoil, "partial")
    assert (accepted.code, accepted.out) == (0, "hello\n"), accepted


def test_the_root_of_roots_own_user_namespace_is_refused_because_its_sandbox_would_be_the_hosts_root(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("for root")
    (tmp_path / "remit.yaml").write_text(_REMIT)
    under = ["unshare", "--user", "--map-root-user", *REMIT]
    ran = subprocess.run(
        [*under, "run", "--json", "--remit", "remit.yaml", "--", "busybox", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 125, ran
    assert json.loads(ran.stderr)["error"]["mechanism"] == "identity"
    examined = subprocess.run([*under, "doctor", "--json"], capture_output=True, text=True, check=False)
    assert (examined.returncode, json.loads(examined.stdout)["works"]) == (1, False)


def test_the_root_of_an_ordinary_users_namespace_is_an_ordinary_user(host):
    """As in a rootless container."""
    if host.is_root:
        pytest.skip("for an ordinary user")
    said = host("", userns=True, wrap=("unshare", "--user", "--map-root-user"))
    assert _works(said), said
    assert said.row("identity")["found"] == "uid 0: its own id"

"""Hosts that people log in to: Debian's systemd with cgroup version 2, and the real `remit` in it. Needs $REMIT_GUEST_KERNELS
and $REMIT_GUEST_ROOT (CI makes both)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.guest import guest, systemd
from tests.guest.systemd import Case

pytestmark = [pytest.mark.guest, pytest.mark.timeout(400)]

_REMIT = """apiVersion: remit/v1
agent: guest
extends: static-binary
process: {exec: [busybox]}
limits: {memory: 32MiB, disk: 4MiB, processes: 16, wall: 60s}
"""
_OLDER = "[Service]\nDelegate=\nDelegate=pids memory\n"
"""user@.service as systemd had it before it handed on the cpu."""
_KILLED = """remit run -q --remit remit.yaml -- busybox sleep 77 &
own=/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)
until ls -d $own/rmt-*/ 2>/dev/null; do sleep 0.2; done
for pid in $(cat $own/supervisor/cgroup.procs); do [ $pid = $$ ] || kill -9 $pid; done
kill -9 $$
"""
_CONTAINER = """mkdir /sys/fs/cgroup/box
echo $$ > /sys/fs/cgroup/box/cgroup.procs
exec unshare --mount --cgroup sh /opt/container-inside
"""
_CONTAINER_INSIDE = """umount /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
python3 /opt/inside/follow.py --print
remit run --json --remit remit.yaml -- busybox echo hello
mkdir /sys/fs/cgroup/init
for pid in $(cat /sys/fs/cgroup/cgroup.procs); do echo $pid 2>/dev/null > /sys/fs/cgroup/init/cgroup.procs; done
remit run --json --remit remit.yaml -- busybox echo hello
"""
_SERVICE = """[Service]
Type=oneshot
Delegate=yes
WorkingDirectory=%h
ExecStart=/usr/local/bin/remit run --json --remit remit.yaml -- busybox echo hello
StandardOutput=file:%h/out
StandardError=file:%h/err
"""
_FILES = {
    "/etc/systemd/user/agent.service": _SERVICE,
    "/opt/container": _CONTAINER,
    "/opt/container-inside": _CONTAINER_INSIDE,
    "/etc/skel/remit.yaml": _REMIT,
    "/root/remit.yaml": _REMIT,
    "/opt/killed": _KILLED,
    "/etc/systemd/system/user@2002.service.d/00-older.conf": _OLDER,
}

_RUN = "remit run --json --remit remit.yaml --"
_DOCTOR = "python3 /opt/inside/follow.py --print"
_FOLLOW = "python3 /opt/inside/follow.py --json --remit remit.yaml --"
_SCOPE = "systemd-run --quiet --user --scope -p Delegate=yes"
_HELLO = "busybox echo hello"
_HOG = "busybox dd if=/dev/zero of=/dev/null bs=100M count=1"
_FORKS = "busybox sh -c 'n=0; while [ $n -lt 60 ]; do busybox sleep 3 & n=$((n+1)); done; echo all'"
_LEFT = "find /sys/fs/cgroup -mindepth 1 -type d '(' -name 'rmt-*' -o -name supervisor -o -name 'run-*' ')'"
_LOGOUT = "loginctl terminate-user {0}; while systemctl is-active --quiet user@$(id -u {0}); do sleep 0.1; done"
_ENABLED = "/sys/fs/cgroup/user.slice/user-2001.slice/user@2001.service/app.slice/cgroup.subtree_control"

_FIRST = [
    Case("users", "root", "for user in alice bob carol; do useradd -m -u 200$((n+=1)) $user; done; uname -r"),
    Case("root", "root", f"{_DOCTOR}; {_RUN} {_HELLO}"),
    Case("root-memory", "root", f"{_RUN} {_HOG}"),
    Case("alice-plain", "alice", f"{_DOCTOR}; {_RUN} {_HELLO}"),
    Case("alice-memory", "alice", f"{_FOLLOW} {_HOG}"),
    Case("alice-forks", "alice", f"{_SCOPE} {_RUN} {_FORKS}"),
]
_MORE = [
    # A shell in the scope, and several runs from it.
    Case("alice-twice", "alice", f"{_SCOPE} sh -c '{_DOCTOR}; {_RUN} {_HELLO}; {_RUN} {_HELLO}'"),
    # A unit that was not handed over, beside one that was, so that the cpu is switched on for both.
    Case(
        "alice-scope-not-delegated",
        "alice",
        f"{_SCOPE} sleep 60 >/dev/null 2>&1 & until grep -q cpu {_ENABLED}; do sleep 0.1; done; "
        f"systemd-run --quiet --user --scope {_RUN} {_HELLO}; cat {_ENABLED}; kill $!",
    ),
    Case(
        "alice-service",
        "alice",
        f"systemd-run --quiet --user --wait --pipe -p Delegate=yes -p WorkingDirectory=/home/alice {_RUN} {_HELLO}",
    ),
    Case("alice-service-file", "alice", "systemctl --user start agent; cat out; cat err >&2"),
    Case(
        "alice-system-service",
        "root",
        f"systemd-run --quiet --uid=alice --wait --pipe -p Delegate=yes -p WorkingDirectory=/home/alice {_RUN} {_HELLO}",
    ),
    Case("alice-killed", "alice", f"{_SCOPE} sh /opt/killed"),
    Case("alice-killed-left", "root", f"sleep 1; {_LEFT}; busybox pgrep -f '[s]leep 77'"),
    Case("carol-plain", "bare:carol", _DOCTOR),
    Case("carol-linger", "root", "loginctl enable-linger carol; until [ -S /run/user/2003/bus ]; do sleep 0.1; done"),
    Case("carol-follow", "bare:carol", f"{_FOLLOW} {_HELLO}"),
    Case("bob-plain", "bob", f"{_DOCTOR}; {_SCOPE} {_RUN} {_HELLO}"),
    Case("bob-setup", "root", f"sudo remit setup --user bob; {_LOGOUT.format('bob')}"),
    Case("bob-follow", "bob", f"{_FOLLOW} {_HELLO}"),
    Case(
        "bob-undo",
        "root",
        f"sudo remit setup --undo --user bob; {_LOGOUT.format('bob')}; ls /etc/systemd/system/user@2002.service.d",
    ),
    Case("bob-again", "bob", _DOCTOR),
    # Root of a container with a cgroup tree of its own, whose processes sit at its top.
    Case("container", "root", "sh /opt/container"),
    # Another init than systemd: root puts the shell where `remit setup` says.
    Case(
        "other-init",
        "root",
        "unshare --mount sh -c 'mount -t tmpfs none /run/systemd; remit setup --user carol; "
        "echo $$ > /sys/fs/cgroup/remit/2003/supervisor/cgroup.procs; "
        f"cd /home/carol; setpriv --reuid carol --regid carol --clear-groups {_RUN} {_HELLO}; "
        "echo $$ > /sys/fs/cgroup/cgroup.procs; remit setup --undo --user carol'",
    ),
]
_LAST = [Case("left", "root", f"sleep 1; {_LEFT}; ls /sys/fs/cgroup/remit | grep -v cgroup | grep rmt")]


def _kernels() -> list[object]:
    return [pytest.param(path, id=path.name) for path in guest.kernels()] or [pytest.param(None, id="none")]


@pytest.fixture(scope="module", params=_kernels())
def said(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    kernel: Path | None = request.param
    disk = systemd.image()
    if kernel is None or disk is None or shutil.which("qemu-system-x86_64") is None or shutil.which("busybox") is None:
        message = f"no kernel in ${guest.KERNELS}, no image in ${systemd.ROOT}, or no qemu-system-x86_64 or busybox"
        if "systemd" in os.environ.get("REMIT_MUST_RUN", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    # What depends on systemd alone is shown once, on the newest kernel.
    more = _MORE if kernel == guest.kernels()[-1] else []
    said = systemd.boot(kernel, disk, tmp_path_factory.mktemp("systemd"), [*_FIRST, *more, *_LAST], _FILES)
    for name, case in said.items():
        if name:
            print(f"{name}: {case.get('seconds', case.get('uptime'))} s")
    return said


@pytest.fixture
def more(said) -> dict[str, Any]:
    """The same guest, where it did all cases."""
    if "end" in said and "bob-plain" not in said:
        pytest.skip("shown on the newest kernel")
    return said


def _receipt(case: dict[str, Any]) -> dict[str, Any]:
    lines = [line for line in case["err"].splitlines() if line.startswith('{"receipt"')]
    assert lines, case
    last: dict[str, Any] = json.loads(lines[-1])
    return last


def _is_held(case: dict[str, Any], tier: str) -> bool:
    final = _receipt(case)
    controllers = ("cgroup.memory", "cgroup.pids", "cgroup.cpu")
    strengths = {final["host"]["mechanisms"][name]["strength"] for name in controllers}
    return (final["host"]["tier"], strengths) == (tier, {"full"}) and final["teardown"]["nothing_remains"]


@pytest.fixture
def best(said) -> str:
    """The tier that the guest's kernel allows."""
    major, minor = said["users"]["out"].split(".")[:2]
    return "full" if (int(major), int(minor)) >= (6, 12) else "delegated"


def test_root_has_hard_limits_without_any_preparation(said, best):
    assert said["root"]["code"] == 0 and said["root"]["out"].splitlines()[-1] == "hello", said
    assert said["root"]["out"].startswith(f"{best}: None\n"), said
    assert _is_held(said["root"], best)
    assert said["root-memory"]["code"] == 137
    assert _receipt(said["root-memory"])["result"]["reason"] == "memory"


def test_a_login_alone_has_none_and_both_doctor_and_run_say_what_gives_them(said):
    case = said["alice-plain"]
    remedy = "start with `systemd-run --user --scope -p Delegate=yes remit run ...`"
    assert case["out"] == f"partial: {remedy}\n", case
    assert case["code"] == 125
    assert json.loads(case["err"])["error"]["hint"].startswith(remedy)
    assert json.loads(case["err"])["error"]["mechanism"] == "cgroup"


def test_the_remedy_followed_literally_gives_hard_limits(said, best):
    assert said["alice-memory"]["code"] == 137, said["alice-memory"]
    assert _receipt(said["alice-memory"])["result"] == {"exit": 137, "reason": "memory", "signal": 9}
    assert _receipt(said["alice-memory"])["usage"]["memory_kills"] > 0
    assert _is_held(said["alice-memory"], best)


def test_processes_in_a_delegated_scope_are_held(said, best):
    case = said["alice-forks"]
    assert "can't fork" in case["err"] and "all" not in case["out"], case
    assert _receipt(case)["usage"]["peak_processes"] == 17
    assert _is_held(case, best)


def test_a_shell_in_a_delegated_scope_starts_as_many_as_it_likes(more, best):
    case = more["alice-twice"]
    assert (case["code"], case["out"]) == (0, f"{best}: None\nhello\nhello\n"), case
    assert _is_held(case, best)


def test_a_unit_that_was_not_handed_over_is_not_taken(more):
    """Its files can be written, and so can app.slice above it; but the user's manager changes both as it needs."""
    case = more["alice-scope-not-delegated"]
    assert "cpu" in case["out"].split(), case
    assert "E_HOST" in case["err"] and "is not delegated to uid 2001" in case["err"], case


@pytest.mark.parametrize("name", ["alice-service", "alice-service-file", "alice-system-service"])
def test_a_delegated_service_is_as_good_as_a_scope(more, best, name):
    assert (more[name]["code"], more[name]["out"]) == (0, "hello\n"), more[name]
    assert _is_held(more[name], best)


def test_a_scope_whose_processes_are_all_killed_leaves_nothing(more):
    assert more["alice-killed"]["code"] == 137 and "rmt-" in more["alice-killed"]["out"], more["alice-killed"]
    assert more["alice-killed-left"]["out"] == "", more["alice-killed-left"]


def test_a_user_without_a_login_is_told_how_to_get_a_manager_and_it_works(more, best):
    remedy = more["carol-plain"]["out"]
    assert "`loginctl enable-linger carol`" in remedy, more["carol-plain"]
    assert "`XDG_RUNTIME_DIR=/run/user/2003 systemd-run --user --scope" in remedy
    assert more["carol-linger"]["code"] == 0
    assert (more["carol-follow"]["code"], more["carol-follow"]["out"]) == (0, "hello\n"), more["carol-follow"]
    assert _is_held(more["carol-follow"], best)


def test_an_older_systemd_keeps_the_cpu_back_until_remit_setup_and_again_after_undo(more, best):
    case = more["bob-plain"]
    assert case["out"].startswith("partial: run `sudo remit setup --user bob` once, log out everywhere"), case
    assert (case["code"], "sudo remit setup --user bob" in case["err"]) == (125, True), case
    drop_in = "/etc/systemd/system/user@2002.service.d/remit.conf"
    assert more["bob-setup"]["out"].startswith(f"wrote {drop_in}"), more["bob-setup"]
    assert (more["bob-follow"]["code"], more["bob-follow"]["out"]) == (0, "hello\n"), more["bob-follow"]
    assert _is_held(more["bob-follow"], best)
    assert more["bob-undo"]["out"].startswith(f"removed {drop_in}"), more["bob-undo"]
    assert more["bob-undo"]["out"].splitlines()[1:] == ["00-older.conf"]
    assert more["bob-again"]["out"] == case["out"]


def test_without_systemd_setup_hands_over_a_cgroup_that_root_puts_a_shell_in(more, best):
    case = more["other-init"]
    assert "\nhello\n" in case["out"] and _is_held(case, best), case
    assert case["out"].splitlines()[-1] == "removed /sys/fs/cgroup/remit/2003"


def test_roots_processes_at_the_top_of_a_containers_tree_are_named_and_out_of_the_way_it_works(more, best):
    case = more["container"]
    assert case["out"].startswith("partial: mount /sys/fs/cgroup writable"), case
    assert "an init that moves all processes out of its top" in case["out"].splitlines()[0]
    errors = [json.loads(line)["error"] for line in case["err"].splitlines() if line.startswith('{"error"')]
    assert [error["mechanism"] for error in errors] == ["cgroup"], case
    assert (case["code"], case["out"].splitlines()[1:]) == (0, ["hello"]), case
    assert _is_held(case, best)


def test_nothing_remains(said):
    assert said["left"]["out"] == "", said["left"]
    assert "end" in said, said[""]

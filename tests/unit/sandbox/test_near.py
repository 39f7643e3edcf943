"""Which names of the guest's may be looked for on the host: none that another machine would be asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from remit.sandbox import attempts

AFAR = [
    "/net",
    "/net/evil.example/x",
    "//net/evil.example/x",
    "/usr/../net/evil.example/x",
    "/usr/bin/../../net/evil.example/x",
    "/proc/self/root/net/evil.example/x",
    "/dev/fd/../root/net/evil.example/x",
    "net/evil.example/x",
    "../net/evil.example/x",
]


@pytest.fixture(autouse=True)
def net(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_afar", lambda: ("/net",))


@pytest.mark.parametrize("path", AFAR)
def test_no_spelling_leads_afar(path: str) -> None:
    assert not attempts._near(path)


@pytest.mark.parametrize("path", ["/etc/shadow", "/network/x", "/etc/../etc/shadow", "/nowhere/at/all"])
def test_the_hosts_own_disks_are_near(path: str) -> None:
    assert attempts._near(path)


def test_links_of_the_host_are_followed(tmp_path: Path) -> None:
    (tmp_path / "slash").symlink_to("/")
    (tmp_path / "far").symlink_to("/net/home")
    (tmp_path / "up").symlink_to(os.path.relpath("/net", tmp_path))
    (tmp_path / "loop").symlink_to("loop")
    assert not attempts._near(f"{tmp_path}/slash/net/x")
    assert not attempts._near(f"{tmp_path}/far/x")
    assert not attempts._near(f"{tmp_path}/up/x")
    assert not attempts._near(f"{tmp_path}/loop/x")
    assert attempts._near(f"{tmp_path}/slash/etc/shadow")

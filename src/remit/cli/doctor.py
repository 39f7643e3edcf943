"""`remit doctor`: what this host can enforce, tried and not guessed."""

from __future__ import annotations

import argparse
import errno
import json
import subprocess
from collections.abc import Mapping
from typing import Any

from remit.cli import say
from remit.errors import HostError, RemitError
from remit.plan.host import LEAST_KERNEL, HostFacts, tier
from remit.sandbox import host, launcher

_RESTRICT = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_REMEDIES = {
    "namespaces": "allow user namespaces: sysctl user.max_user_namespaces=10000; in a container: --privileged, or run "
    "Remit on the host",
    "seccomp": "a seccomp filter answers clone3 (a container's?): start it with --security-opt seccomp=unconfined, or "
    "run Remit on the host",
    "proc": "parts of /proc are covered here, as containers do: start it with --security-opt systempaths=unconfined "
    "(or --privileged), or run Remit on the host",
    "network_beside": "`modprobe veth` as root, or a kernel with CONFIG_VETH (ports below 1024 need none)",
    "seccomp_notify": "Linux 5.14 or later with CONFIG_SECCOMP_FILTER",
}
_APPARMOR = """AppArmor restricts user namespaces here. Give the launcher a profile (as root):
  printf 'abi <abi/4.0>,\\nprofile remit-launcher {path} flags=(unconfined) {{ userns, }}\\n' \\
    > /etc/apparmor.d/remit-launcher && apparmor_parser -r /etc/apparmor.d/remit-launcher"""


def doctor(options: argparse.Namespace) -> int:
    findings = examine()
    if options.json:
        say.data(findings)
        return 0 if findings["works"] else 1
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(title=f"this host: tier {findings['tier']}", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for column in ("", "mechanism", "found", "remedy"):
        table.add_column(column, overflow="fold")
    for row in findings["mechanisms"]:
        mark = "[green]ok[/]" if row["ok"] else ("[yellow]--[/]" if row["optional"] else "[red]no[/]")
        table.add_row(mark, row["name"], row["found"], row["remedy"] or "")
    console.print(table)
    least = ", ".join(f"{name}: Linux {kernel}" for name, kernel in LEAST_KERNEL.items())
    console.print(f"\ntiers and their least kernels: {least}", style="dim")
    if not findings["works"]:
        console.print("nothing can be run here until the red lines are mended", style="red")
    elif findings["tier"] == "partial":
        console.print(
            "without hard limits a remit must accept this by name: least_tier: partial, or --accept-tier partial"
        )
    return 0 if findings["works"] else 1


def examine() -> dict[str, Any]:
    """`{"tier", "works", "mechanisms": [{"name", "ok", "optional", "found", "remedy"}]}`."""
    rows: list[dict[str, Any]] = []

    def row(name: str, ok: bool, found: str, remedy: str | None = None, *, optional: bool = False) -> None:
        rows.append({"name": name, "ok": ok, "optional": optional, "found": found, "remedy": None if ok else remedy})

    try:
        facts = host.read()
    except HostError as error:
        row(error.mechanism, False, error.message, error.hint)
        return {"tier": "none", "works": False, "mechanisms": rows}
    try:
        path = launcher.find()
    except RemitError as error:
        row("launcher", False, error.message, error.hint)
        return {"tier": "none", "works": False, "mechanisms": rows}
    row("launcher", True, path)
    try:
        done = subprocess.run([path, "probe"], capture_output=True, text=True, timeout=20, check=True)
        probed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        row("probe", False, str(error), "run `remit-launcher probe` to see why")
        return {"tier": "none", "works": False, "mechanisms": rows}
    row("kernel", True, f"{probed['kernel']} {probed['machine']}")
    # AppArmor restricts ordinary users, and in all that they do in a user namespace: never one kind of mount alone.
    restricted = not facts.is_root and not probed["tmpfs"]["ok"] and _restricted()
    for name in ("namespaces", "tmpfs", "proc", "devpts", "loopback", "seccomp_notify"):
        result = probed[name]
        remedy = _APPARMOR.format(path=path) if restricted else _remedy(name, probed)
        row(name, result["ok"], "works" if result["ok"] else result["message"], remedy)
    beside = probed["network_beside"]
    found = "works" if beside["ok"] else beside["message"]
    row("network ports from 1024", beside["ok"], found, _remedy("network_beside", probed), optional=True)
    found, lacks = tier(facts)
    missing = {lack.mechanism: lack for lack in lacks}
    for name, good in (("landlock", f"ABI {facts.landlock_abi}"), ("cgroup", _cgroup(facts))):
        lack = missing.get(name)
        row(name, lack is None, lack.message if lack else good, lack.remedy if lack else None, optional=True)
    who = "root: each sandbox gets an unprivileged id of its own" if facts.is_root else f"uid {facts.uid}: its own id"
    row("identity", True, who)
    works = all(r["ok"] or r["optional"] for r in rows)
    return {"tier": found if works else "none", "works": works, "mechanisms": rows}


def _remedy(name: str, probed: Mapping[str, Any]) -> str:
    if not probed["namespaces"]["ok"]:
        # All that is tried in them fails with them.
        name = "seccomp" if probed["namespaces"]["errno"] == errno.ENOSYS else "namespaces"
    return _REMEDIES.get(name, "see docs/hosts.md")


def _restricted() -> bool:
    """Does AppArmor keep user namespaces from ordinary users?"""
    try:
        with open(_RESTRICT) as file:
            return file.read().strip() == "1"
    except OSError:
        return False


def _cgroup(facts: HostFacts) -> str:
    if facts.cgroup is None:
        return "none"
    return f"version {facts.cgroup.version}: {', '.join(facts.cgroup.controllers)}"

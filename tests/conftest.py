"""Fixtures that start real sandboxes through the real command line.

`REMIT_MUST_RUN=userns,landlock,cgroup` (set in CI) turns a skip for a missing kernel feature into a failure.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remit.plan.host import tier
from remit.sandbox import host

REMIT = [sys.executable, "-P", "-m", "remit.cli.main"]


def pytest_configure(config: pytest.Config) -> None:
    facts = host.read()
    config.stash[_FACTS] = {
        "userns": _userns(),
        "landlock": facts.landlock_abi >= 1,
        "cgroup": facts.cgroup is not None,
        "full": tier(facts)[0] == "full",
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """With `REMIT_ALLOWED_SKIPS` (a pattern, set in CI) no test is passed over in silence for another reason."""
    report = yield
    allowed = os.environ.get("REMIT_ALLOWED_SKIPS")
    if report.skipped and allowed is not None and not hasattr(report, "wasxfail"):
        why = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not re.search(allowed, why):
            report.outcome = "failed"
            report.longrepr = f"a skip that CI does not allow: {why}"
    return report


_FACTS: pytest.StashKey[dict[str, bool]] = pytest.StashKey()


def _userns() -> bool:
    from remit.cli.doctor import examine

    return bool(examine()["works"])


@pytest.fixture
def needs(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`needs("cgroup")`: skips where the host lacks it, and fails where it must not be lacking."""

    def check(feature: str) -> None:
        if request.config.stash[_FACTS][feature]:
            return
        message = f"this host lacks {feature}"
        if feature in os.environ.get("REMIT_MUST_RUN", "").split(","):
            pytest.fail(message)
        pytest.skip(message)

    return check


@dataclass(frozen=True)
class Held:
    """What came of one `remit run`."""

    code: int
    out: str
    err: str
    receipt: Mapping[str, Any]

    def refused(self, text: str) -> bool:
        return any(text in json.dumps(r) for r in self.receipt["refusals"])


class Run:
    """Runs commands inside a remit in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        remit: str,
        argv: Sequence[str],
        *,
        files: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        stdin: str | bytes | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 90,
    ) -> Held:
        for name, text in (files or {}).items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.folder / "remit.yaml").write_text(HEAD + remit)
        receipt = self.folder / "receipt.json"
        receipt.unlink(missing_ok=True)
        command = [*REMIT, "run", "--remit", "remit.yaml", "--receipt", str(receipt), *options, "--", *argv]
        done = subprocess.run(
            command,
            cwd=self.folder,
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            env={**os.environ, **(env or {})},
            check=False,
        )
        said = json.loads(receipt.read_text()) if receipt.exists() else {}
        return Held(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"), said
        )


def alive(mark: str) -> list[str]:
    """Processes of this host whose command line has `mark`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if mark.encode() in file.read() and int(pid) != os.getpid():
                    found.append(pid)
        except OSError:
            continue
    return found


HEAD = "apiVersion: remit/v1\nagent: test\nleast_tier: partial\n"
PYTHON = "extends: python\nunsafe_widen: [process.exec]\nprocess: {exec: [" + sys.executable + "]}\n"
"""The interpreter of the tests, by path, so that what runs inside is what runs outside."""


@pytest.fixture
def run(tmp_path: Path, needs: Callable[[str], None]) -> Run:
    needs("userns")
    return Run(tmp_path)


@pytest.fixture
def python(run: Run) -> Callable[..., Held]:
    """`python(code, remit_lines)`: runs `code` as ./probe.py inside, under the python base."""

    def go(code: str, more: str = "", argv: Sequence[str] = (), **kwargs: Any) -> Held:
        body = PYTHON
        if "filesystem:" not in more:
            body += "filesystem: {read: [./probe.py]}\n"
        return run(body + more, [sys.executable, "probe.py", *argv], files={"probe.py": code}, **kwargs)

    return go

"""Runs a case: bare in a directory of its own, and inside, with a second directory in the same state."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from everyday.cases import Case
from everyday.compare import Outcome, Result, judge
from remit import compose

_TIMEOUT = 180
_NAMES = {"work": "/workspace", "home": "/home/agent", "tmp": "/tmp"}
_MANAGERS = {"PYENV_ROOT": "~/.pyenv", "RUSTUP_HOME": "~/.rustup", "CARGO_HOME": "~/.cargo"}
"""Version managers look below HOME, which the bare run has of its own: told where they are, the same tools start."""


class SetupFailed(RuntimeError):
    """A case's `setup` did not succeed on this machine."""


def run(case: Case) -> Outcome:
    absent = [name for name in (*case.needs, *case.exec) if not name.endswith("?") and not shutil.which(name)]
    absent += [path for path in case.paths if not os.path.exists(path)]
    if absent:
        return Outcome(case, "absent", absent=tuple(dict.fromkeys(absent)))
    with (
        tempfile.TemporaryDirectory(prefix="everyday-") as bare,
        tempfile.TemporaryDirectory(prefix="everyday-") as in_,
    ):
        try:
            return judge(case, _bare(case, Path(bare)), _inside(case, Path(in_)))
        except SetupFailed as error:
            return Outcome(case, "broken", (str(error),))


def _bare(case: Case, folder: Path) -> Result:
    env = _prepare(case, folder)
    code, out, err = _execute(case.argv, folder / "work", {**env, **case.env}, case.stdin)
    return Result(code, out, err, _files(folder / "work", case.keep), _places(folder))


def _inside(case: Case, folder: Path) -> Result:
    _prepare(case, folder)
    remit, kept, receipt = folder / "remit.yaml", folder / "kept", folder / "receipt.json"
    kept.mkdir()
    remit.write_text(yaml.safe_dump(document(case), allow_unicode=True))
    command = [sys.executable, "-m", "remit.cli.main", "run", "-q", "--accept-tier", "partial", "--remit", str(remit)]
    command += ["--receipt", str(receipt), *(["--keep-to", str(kept)] if case.keep else []), "--", *case.argv]
    code, out, err = _execute(command, folder, os.environ, case.stdin)
    return Result(code, out, err, _files(kept, case.keep), _places(folder), _said(receipt))


def document(case: Case) -> dict[str, Any]:
    """The remit of a case: its base, the work directory, and what it says of its own."""
    remit: dict[str, Any] = {
        "apiVersion": "remit/v1",
        "agent": "everyday",
        "extends": case.base,
        "filesystem": {"work": {"from": "./work"}},
        "process": {},
    }
    if case.exec:
        remit["process"]["exec"] = list(dict.fromkeys((*_programs(case.base), *case.exec)))
        remit["unsafe_widen"] = ["process.exec"]
    if case.env:
        remit["process"]["env"] = {"set": dict(case.env)}
    if case.keep:
        remit["state"] = {"keep": list(case.keep)}
    return merged(remit, case.remit)


def merged(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """`b` over `a`: mappings are joined, lists appended, all else replaced."""
    out = dict(a)
    for key, value in b.items():
        if isinstance(value, dict) and isinstance(out.get(key), dict):
            out[key] = merged(out[key], value)
        elif isinstance(value, list) and isinstance(out.get(key), list):
            out[key] = [*out[key], *value]
        else:
            out[key] = value
    return out


@cache
def _programs(base: str) -> tuple[str, ...]:
    text = f"apiVersion: remit/v1\nagent: everyday\nextends: {base}\n"
    return compose.load_text(text, base, os.sep).remit.process.exec


def _prepare(case: Case, folder: Path) -> dict[str, str]:
    """The state before, and the bare side's environment: what a sandbox sets, with the host's own PATH."""
    for name in _NAMES:
        (folder / name).mkdir()
    for name, text in case.files.items():
        path = folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            path.chmod(0o755)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp")}
    env |= {"LANG": "C.UTF-8", "USER": "agent", "LOGNAME": "agent"}
    env |= {name: os.environ.get(name, os.path.expanduser(usual)) for name, usual in _MANAGERS.items()}
    if case.setup:
        code, out, err = _execute(["sh", "-ec", case.setup], folder / "work", {**env, **case.env}, "")
        if code:
            raise SetupFailed(f"its setup ended with {code}: {(out + err).decode(errors='replace')}")
    return env


def _execute(argv: Sequence[str], cwd: Path, env: Mapping[str, str], stdin: str) -> tuple[int, bytes, bytes]:
    """Exit status as a shell has it, and both outputs; 124 when it had to be stopped."""
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(stdin.encode(), _TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        return 124, out, err
    code = process.returncode
    return (code if code >= 0 else 128 - code), out, err


def _files(folder: Path, patterns: Sequence[str]) -> dict[str, bytes]:
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file() and not path.is_symlink()}
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def _places(folder: Path) -> dict[str, str]:
    return {str(folder / name): inside for name, inside in _NAMES.items()}


def _said(receipt: Path) -> str:
    """The refusals of a run, from its receipt."""
    try:
        final = json.loads(receipt.read_text())
    except (OSError, ValueError):
        return "no receipt"
    return "\n".join(json.dumps(entry) for entry in final.get("refusals", ()))

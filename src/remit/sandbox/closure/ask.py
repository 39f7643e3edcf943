"""The one place where a program of this host is run outside of any sandbox: to ask it where its files are. Who could
have put it there is looked at first; it gets no input, no variable that would make it load something, and half a
minute."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from remit.sandbox.closure.trust import refuse_asking

_PATIENCE_S = 30


def ask(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    leave: tuple[str, ...] = (),
    cwd: str = "/",
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """`leave`: beginnings of variables that it does not get, beside the loader's. `cwd`: the root, unless what is asked
    depends on it. Raises `HostError` for a program that others can change, and what `subprocess.run` raises."""
    refuse_asking(os.path.abspath(command[0]))
    passed = {name: value for name, value in env.items() if not name.startswith(("LD_", *leave))}
    return subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        check=check,
        timeout=_PATIENCE_S,
        env=passed,
        cwd=cwd,
    )

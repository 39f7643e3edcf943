"""The built-in bases: remits to extend, by language and by kind of agent. Each file opens with its reasons.

The one place in `policy` that reads anything: files of this package, through importlib.resources.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files

LANGUAGES = ("static-binary", "binary", "python", "node", "shell-with-git")
"""From the strictest to the widest."""
KINDS = ("retrieval", "coding", "browser", "support", "data-analysis", "regulated", "multi-tenant")

_SHELL = ("sh", "bash", "dash", "git", "env", "make", "grep", "sed", "awk", "find", "xargs", "tar", "ls", "cat", "cp")


def names() -> tuple[str, ...]:
    """All built-in bases."""
    return LANGUAGES + KINDS


@cache
def text(name: str) -> str | None:
    """The document of the base `name`; None if there is none."""
    if name not in names():
        return None
    return files("remit.policy.bases").joinpath(f"{name}.yaml").read_text("utf-8")


def suggestion(name: str) -> str:
    """What to do about an unknown base."""
    near = difflib.get_close_matches(name, names(), 1, 0.6)
    listed = f"built-in: {', '.join(names())}; a file starts with ./ or /"
    return f"did you mean '{near[0]}'? {listed}" if near else listed


def strictest_for(program: str, is_static: bool | None) -> str:
    """The strictest base by language that can run `program` (a name or path). `is_static`: None if unknown."""
    name = program.rsplit("/", 1)[-1]
    if name.startswith("python"):
        return "python"
    if name in ("node", "npm", "npx", "nodejs"):
        return "node"
    if name in _SHELL:
        return "shell-with-git"
    return "static-binary" if is_static else "binary"

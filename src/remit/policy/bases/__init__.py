"""The built-in bases: remits to extend, by language and by kind of agent. Each file opens with its reasons.

The one place in `policy` that reads anything: files of this package, through importlib.resources.
"""

from __future__ import annotations

from functools import cache

LANGUAGES = ("static-binary", "binary", "python", "node", "shell-with-git")
"""From the strictest to the widest."""
KINDS = ("retrieval", "coding", "browser", "support", "data-analysis", "regulated", "multi-tenant")
WITH_PROGRAMS = ("python", "node", "shell-with-git", "coding")
"""Those that grant programs; beside or below the others, programs must be named."""

STARTERS = ("sh", "bash", "git", "env", "xargs")
"""Programs that are of little use without others: they start them, so they get `shell-with-git`. `ls` or `sort` alone
runs under `binary`, which is stricter."""


def names() -> tuple[str, ...]:
    """All built-in bases."""
    return LANGUAGES + KINDS


@cache
def text(name: str) -> str | None:
    """The document of the base `name`; None if there is none."""
    if name not in names():
        return None
    from importlib.resources import files

    return files("remit.policy.bases").joinpath(f"{name}.yaml").read_text("utf-8")


def suggestion(name: str) -> str:
    """What to do about an unknown base."""
    import difflib

    near = difflib.get_close_matches(name, names(), 1, 0.6)
    listed = f"built-in: {', '.join(names())}; a file starts with ./ or /"
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return f"write './{name}' for a file beside this one"
    return f"did you mean '{near[0]}'? {listed}" if near else listed


def reasons(name: str) -> str:
    """Why the base `name` is as it is: the comment that its file opens with, as one paragraph; empty if none."""
    lines = []
    for line in (text(name) or "").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)


def strictest_for(program: str, is_static: bool | None) -> str:
    """The strictest base by language that can run `program` (a name or a path). `is_static`: whether it is an ELF
    file without a loader; None if that is not known, and then it is not assumed."""
    name = program.rsplit("/", 1)[-1]
    if name.startswith("python"):
        return "python"
    if name in ("node", "nodejs", "npm", "npx"):
        return "node"
    if name in STARTERS:
        return "shell-with-git"
    return "static-binary" if is_static else "binary"

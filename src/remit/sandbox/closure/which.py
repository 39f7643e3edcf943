"""Looking a program up on a PATH."""

from __future__ import annotations

import os


def which(name: str, path: str) -> str | None:
    """The first executable file called `name` on `path`. Relative directories are passed over: what they hold depends
    on where one stands."""
    for directory in path.split(":"):
        candidate = f"{directory.rstrip('/')}/{name}"
        if directory.startswith("/") and is_program(candidate):
            return candidate
    return None


def is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)

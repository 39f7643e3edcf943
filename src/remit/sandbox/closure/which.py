"""Looking a program up on a PATH."""

from __future__ import annotations

import os


def which(name: str, path: str) -> str | None:
    """The first executable file called `name` on `path`."""
    for directory in path.split(":"):
        candidate = f"{directory}/{name}"
        if directory.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None

"""What a script asks the kernel to start it with."""

from __future__ import annotations

import posixpath
from typing import NamedTuple


class Shebang(NamedTuple):
    """`interpreter`: the path that the kernel starts. `by_env`: the program that env(1) then looks up on PATH."""

    interpreter: str
    by_env: str | None


def shebang(head: bytes) -> Shebang | None:
    """From the first bytes of a file (the kernel reads 256); None if it is no script."""
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].decode("utf-8", "surrogateescape").split()
    if not words or not words[0].startswith("/"):
        return None
    if posixpath.basename(words[0]) != "env":
        return Shebang(words[0], None)
    # `env -S python3 -u`, `env NAME=value python3`.
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
    return Shebang(words[0], name)

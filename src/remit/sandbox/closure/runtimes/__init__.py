"""The runtimes whose files a program needs beside its libraries. Adding one is adding a file here and to the table.

Each module has `knows(path, real)`: whether the program found at `path`, which is the file `real`, is its business;
`asks(path)`: whether it would be run, outside, to learn what it needs; `add(grants, path)`: grants it with all that it
needs and answers the path by which it is started inside.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from remit.sandbox.closure.runtimes import (
    cc,
    chromium,
    git,
    golang,
    java,
    ldconfig,
    node,
    node_package,
    perl,
    python,
    rust,
)

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants


class Runtime(Protocol):
    def knows(self, path: str, real: str) -> bool: ...

    def asks(self, path: str) -> bool: ...

    def add(self, grants: Grants, path: str) -> str: ...


RUNTIMES: tuple[Runtime, ...] = (python, node, node_package, git, java, golang, perl, rust, cc, chromium, ldconfig)


def recognise(path: str) -> Runtime | None:
    real = os.path.realpath(path)
    return next((runtime for runtime in RUNTIMES if runtime.knows(path, real)), None)

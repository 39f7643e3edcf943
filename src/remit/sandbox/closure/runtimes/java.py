"""Java: the whole home of the JDK or JRE that the program belongs to, and its configuration, which distributions keep
in /etc with links to it."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_HOME = re.compile(r"(?P<home>/.+?)(/jre)?/bin/(java|javac|jar|jshell|javadoc|jlink|jcmd|keytool)")
_OUTSIDE = (
    "/etc/java",
    "/etc/ssl/certs/java",
    "/etc/pki/",
    "/usr/lib/jvm/",
    "/usr/share/java",
    "/etc/crypto-policies/",
)


def knows(path: str, real: str) -> bool:
    return _HOME.fullmatch(real) is not None


def asks(path: str) -> bool:
    """Is the program at `path` run, outside, to learn what it needs?"""
    return False


def add(grants: Grants, path: str) -> str:
    real = grants.plain(path)
    found = _HOME.fullmatch(real)
    # A `java` that lies in /usr/bin itself has no home there; its own files are then all that is known.
    if found and posixpath.dirname(found["home"]) != "/":
        grants.collect.tree(found["home"], executable=True, of=real, follow=_OUTSIDE)
    return path

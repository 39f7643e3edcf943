"""Java: the whole home of the JDK or JRE that the program belongs to, and its configuration, which distributions keep
in /etc with links to it."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.sandbox.closure.grants import Grants

_HOME = re.compile(r"(?P<home>/.+?)(/jre)?/bin/(java|javac|jar|jshell|javadoc|jlink|jcmd|keytool)")
_OF_A_HOME = ("release", "lib/modules", "lib/rt.jar", "jre/lib/rt.jar")
"""Files of every JDK or JRE. A wrapper called `java` in ~/bin must not bring in the whole home directory."""
_OUTSIDE = (
    "/etc/java",
    "/etc/ssl/certs/java",
    "/etc/pki/",
    "/usr/lib/jvm/",
    "/usr/share/java",
    "/etc/crypto-policies/",
)


def knows(path: str, real: str) -> bool:
    found = _HOME.fullmatch(real)
    return found is not None and any(os.path.isfile(f"{found['home']}/{name}") for name in _OF_A_HOME)


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

"""Paths as a remit writes them: where they are on the host, where they appear inside, and which can't be meant. Pure:
text in, text out."""

from __future__ import annotations

import posixpath

from remit.policy.model import WORK, ReadGrant

_NOT_WHOLE = ("/", "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/home", "/tmp", "/var", "/root")  # noqa: S108
"""Where no input may appear: directories that the root is itself made of, or that the sandbox writes in. Parts of them
can be granted."""
_NEVER = ("/proc", "/sys", "/dev")
"""Neither these nor what is below them: they are the kernel's, and what they show is decided by the sandbox."""


def absolute(text: str, directory: str | None, home: str) -> str:
    """The host path that `text` means. `directory`: what it is relative to, None if nothing. Raises ValueError."""
    if text == "~" or text.startswith("~/"):
        return posixpath.normpath(home + text[1:])
    if text.startswith("~"):
        raise ValueError(f"{text!r}: only one's own ~ is read")
    if text.startswith("/"):
        return inside(text)
    if directory is None:
        raise ValueError(f"{text!r}: a built-in base names no relative paths")
    return posixpath.normpath(posixpath.join(directory, text))


def inside(text: str) -> str:
    """`text` normalised as an absolute path (two leading slashes are one)."""
    return posixpath.normpath("/" + text.lstrip("/"))


def appears_at(text: str, source: str, directory: str | None) -> str:
    """Where an input that was written as `text` appears: below the work directory if it is relative and below its
    document's directory, else where it is on the host."""
    if text.startswith(("/", "~")) or directory is None:
        return source
    rest = posixpath.relpath(source, directory)
    if rest == ".":
        return f"{WORK}/{posixpath.basename(source)}"
    return source if rest == ".." or rest.startswith("../") else f"{WORK}/{rest}"


def _kernels(path: str) -> bool:
    return path in _NEVER or path.startswith(tuple(f"{directory}/" for directory in _NEVER))


def of_the_system(path: str) -> bool:
    """True for `/` and the kernel's directories: nothing of the caller's lies there."""
    return path == "/" or _kernels(path)


def bad_input(grant: ReadGrant) -> str | None:
    """Why this can't be an input."""
    if of_the_system(grant.source):
        return f"{grant.source} can't be an input"
    if grant.to in (*_NOT_WHOLE, WORK) or _kernels(grant.to):
        return f"an input can't appear at {grant.to}"
    return None


def bad_program(program: str) -> str | None:
    """Why this can't be the path of a program."""
    if program.startswith("/") and program != inside(program):
        return f"{program} is not a normalised path ({inside(program)} is)"
    return f"{program} is no program" if program in (".", "..") or _kernels(program) else None


def bad_keep(pattern: str) -> str | None:
    """Why this can't name files below the work directory."""
    if pattern.startswith(("/", "~")) or {".", "..", ""} & set(pattern.split("/")):
        return f"{pattern!r} does not name files below the work directory"
    return None


def bad_host(pattern: str) -> tuple[str, str] | None:
    """Why this can't be a host's name or a wildcard, and what to do; None: it can, or there is none."""
    from remit.policy import destinations

    if not pattern:
        return None
    apex = pattern.removeprefix("*.").lower()
    if destinations.name(apex) is None:
        return f"{pattern} is no name: its parts have at most 63 letters", "name the host as DNS does"
    if destinations.is_number(apex):
        return f"{pattern} is an address and no name", f"cidr: {apex}/32" if apex.count(".") == 3 else "name a host"
    if apex != pattern.lower() and destinations.public_suffix(apex):
        message = f"{pattern} is everybody's: names below {apex} belong to whoever registers them"
        return message, f"name the hosts, or *. and a domain below {apex}"
    return None


def bad_network(cidr: str) -> str | None:
    """Why this can't be a network by number. Empty: there is none."""
    from ipaddress import ip_network

    if not cidr:
        return None
    try:
        ip_network(cidr)
    except ValueError as error:
        return str(error)
    return None

"""What a remit's inputs are on this host now: files or folders, what of them is masked, what a command names itself."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator, Mapping, Sequence

from remit.errors import UsageError
from remit.policy.model import WORK, Remit


def named_by(arguments: Sequence[str], cwd: str) -> Iterator[str | dict[str, str]]:
    """Arguments that are paths of existing files or directories. Whole systems' directories are not inputs."""
    seen: set[str] = set()
    for argument in arguments:
        if argument.startswith("-") or argument in (".", "..", "/", "~") or "\0" in argument or len(argument) > 4096:
            continue
        path = os.path.normpath(os.path.join(cwd, argument))
        real_depth = path.count("/")
        if path in seen or not os.path.exists(path) or (real_depth < 2 and os.path.isdir(path)):
            continue
        real = os.path.realpath(path)
        if path.startswith(cwd + "/") and not real.startswith(os.path.realpath(cwd) + "/"):
            # A link out of here, in a checkout that nobody may have looked at: name its target to mean it.
            continue
        if path == cwd or cwd.startswith(path + "/") or path.startswith(("/proc/", "/sys/", "/dev/")):
            continue
        seen.add(path)
        if argument.startswith("/"):
            yield path
        elif path.startswith(cwd + "/"):
            yield f"./{os.path.relpath(path, cwd)}"
        else:
            # ../x is looked for above the work directory inside, too.
            yield {"from": path, "to": posixpath.normpath(posixpath.join(WORK, argument))}


def absent(remit: Remit) -> list[str]:
    """Granted inputs that are not on this host, as host paths: no run starts without them."""
    return [grant.source for grant in remit.filesystem.read if not os.path.exists(grant.source)]


def stamps(path: str) -> list[tuple[str, int, int, int]]:
    """What an input of the install command is: name, size, change and inode of each file; empty if it is none."""
    found: list[tuple[str, int, int, int]] = []
    paths = [path] if os.path.isfile(path) else [f"{above}/{n}" for above, _, names in os.walk(path) for n in names]
    for file in sorted(paths):
        mark = os.lstat(file)
        found.append((file, mark.st_size, mark.st_mtime_ns, mark.st_ino))
    return found


def kinds(remit: Remit, directory: str) -> Mapping[str, str]:
    """What each granted input is; those that don't exist are left out. `directory`: what relative paths are relative
    to. Raises `UsageError` for what can't be one."""
    found: dict[str, str] = {}
    wanted = [(f"filesystem.read[{i}]", grant.source) for i, grant in enumerate(remit.filesystem.read)]
    if remit.filesystem.work_from:
        wanted.append(("filesystem.work.from", remit.filesystem.work_from))
        if not os.path.isdir(remit.filesystem.work_from):
            raise UsageError(
                f"filesystem.work.from: {remit.filesystem.work_from} is no directory", hint="make it, or name another"
            )
    for rule, path in wanted:
        try:
            mode = os.stat(path).st_mode
        except OSError:
            continue
        contain(rule, path, directory)
        if stat.S_ISDIR(mode):
            found[path] = "dir"
        elif stat.S_ISREG(mode):
            found[path] = "file"
        else:
            raise UsageError(f"{path} is neither a file nor a directory", hint="sockets and devices are no inputs")
    return found


def contain(rule: str, path: str, directory: str) -> None:
    """What is named within the remit's own directory must lie there. A link out of it is its checkout's word, or an
    earlier run's, and not the remit's. Raises `UsageError`."""
    real, around = os.path.realpath(path), os.path.realpath(directory)
    if path.startswith(directory.rstrip("/") + "/") and not f"{real}/".startswith(f"{around.rstrip('/')}/"):
        raise UsageError(
            f"{rule}: {path} leads out of {directory} by a link, to {real}", hint=f"if it is meant, say so: {real}"
        )


def no_link(rule: str, path: str, directory: str) -> None:
    """What is written to within the remit's own directory is written there, through no link at all. Raises
    `UsageError`."""
    if not path.startswith(directory.rstrip("/") + "/"):
        return
    meant = os.path.join(os.path.realpath(directory), os.path.relpath(path, directory))
    if os.path.realpath(path) != meant:
        raise UsageError(
            f"{rule}: {path} is a link, to {os.path.realpath(path)}", hint="name where it leads: --keep-to"
        )

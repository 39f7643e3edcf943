"""Finds the launcher and speaks its protocol: a plan in, events out (one JSON object a line), commands in."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from remit.errors import HostError
from remit.plan.launch_plan import LaunchPlan
from remit.sandbox.closure.which import which

NAME = "remit-launcher"
VARIABLE = "REMIT_LAUNCHER"


def find() -> str:
    """The path of the launcher. Raises `HostError` listing the paths that were tried."""
    named = os.environ.get(VARIABLE)
    tried = [named] if named else _places()
    for path in tried:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    listed = "".join(f"\n    {path}" for path in tried)
    raise HostError(
        "launcher",
        f"{NAME} is not where Remit was installed. Tried:{listed}",
        hint=f"install again with `pip install --force-reinstall remit`, or set {VARIABLE} to its path",
    )


def _places() -> list[str]:
    # Where pip puts it, in nearly every case; asking costs 4 ms, so the rest is only asked when it is not there.
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    if os.path.isfile(beside):
        return [beside]
    import sysconfig

    here = os.path.dirname(os.path.abspath(__file__))
    places = [
        os.path.join(sysconfig.get_path("scripts"), NAME),
        beside,
        os.path.join(sysconfig.get_path("scripts", f"{os.name}_user"), NAME),
        # `pip install --target`: beside the package.
        os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(here))), "bin", NAME),
        os.path.join(os.path.dirname(os.path.dirname(here)), "bin", NAME),
    ]
    on_path = which(NAME, os.environ.get("PATH", os.defpath))
    return list(dict.fromkeys([*places, *([on_path] if on_path else [])]))


class Running:
    """One launcher at work. `events` yields until it says no more; descriptors that come along are in `received`."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.pid = pid
        self.control = control
        self.received: list[int] = []
        self._code: int | None = None

    def wait(self) -> int:
        """The launcher's exit status, as a shell says it. May be asked again."""
        if self._code is not None:
            return self._code
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._code = code if code >= 0 else 128 - code
        return self._code

    def events(self) -> Iterator[Mapping[str, Any]]:
        buffer = b""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, 65536, 64, socket.MSG_CMSG_CLOEXEC)
            except InterruptedError:
                continue
            except ConnectionResetError:
                return
            self.received.extend(fds)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                yield json.loads(line)

    def command(self, name: str, **arguments: Any) -> None:
        line = json.dumps({"command": name, **arguments}).encode() + b"\n"
        try:
            self.control.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            return

    def close(self) -> None:
        for fd in self.received:
            os.close(fd)
        self.received.clear()
        self.control.close()


def start(plan: LaunchPlan, *, timings: bool = False) -> Running:
    """Starts the launcher with the caller's standard streams. The control socket's end is the sandbox's end."""
    path = find()
    text = json.dumps(plan.as_document(), separators=(",", ":")).encode("utf-8", "surrogateescape")
    document = os.memfd_create("remit-plan", os.MFD_CLOEXEC)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(document, view) :]
        os.lseek(document, 0, os.SEEK_SET)
        for fd in (document, theirs.fileno()):
            os.set_inheritable(fd, True)
        command = [path, "run", "--plan", str(document), "--control", str(theirs.fileno())]
        if timings:
            command.append("--timings")
        # Not subprocess: its import is a tenth of what a run may cost, and nothing of it is needed.
        pid = os.posix_spawn(path, command, os.environ)
    finally:
        os.close(document)
        theirs.close()
    return Running(pid, ours)

"""What the tests of this room share: a remit from a few lines, and the view that its grants amount to."""

from __future__ import annotations

from collections.abc import Mapping

from remit.errors import PolicyError
from remit.policy.load import load
from remit.policy.model import WORK, Effective, Remit
from remit.policy.view import Place, View

HEAD = "apiVersion: remit/v1\nagent: a\n"
DIRECTORY = "/src/job"
HOME = "/home/u"


def loaded(body: str, files: Mapping[str, str] | None = None) -> Effective:
    """The effective remit of the header and `body`, in /src/job/remit.yaml; `files`: other remits by path."""
    return load_text(HEAD + body, files)


def load_text(text: str | bytes, files: Mapping[str, str] | None = None) -> Effective:
    def read(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory")
        return (files or {})[path]

    return load(text, "remit.yaml", DIRECTORY, read, home=HOME)


def problems(text: str | bytes, files: Mapping[str, str] | None = None) -> list[str]:
    """`line:column:code` of each fault; empty if it loads."""
    try:
        load_text(text, files)
    except PolicyError as error:
        return [f"{p.line}:{p.column}:{p.code}" for p in error.problems]
    return []


def said(body: str, files: Mapping[str, str] | None = None) -> str:
    """What a person is told of `body`."""
    try:
        loaded(body, files)
    except PolicyError as error:
        return error.message
    return ""


def view_of(remit: Remit) -> View:
    """A view as `compile` makes it, of the grants alone: programs at /usr/bin, inputs, work directory, /tmp."""
    run = remit.process.work_code == "run"
    places = [Place("/", False, False, "builtin.skeleton", tree=False)]
    for i, entry in enumerate(remit.process.exec):
        program = entry.removesuffix("?")
        path = program if program.startswith("/") else f"/usr/bin/{program}"
        places.append(Place(path, False, True, f"process.exec[{i}]", tree=False))
    places += [Place(path, True, run, "process.work_code" if run else "builtin.work") for path in (WORK, "/tmp")]
    places += [Place(g.to, False, False, f"filesystem.read[{i}]") for i, g in enumerate(remit.filesystem.read)]
    return View(tuple(places))

"""`remit check`, `why`, `explain`, `init`: everything that only looks."""

from __future__ import annotations

import argparse
import ipaddress
import os
import posixpath
import sys
from collections.abc import Iterator

from remit import compose
from remit.cli import say
from remit.compose.network import authority_of
from remit.errors import EXIT_BAD_INPUT, PolicyError, Problem, UsageError
from remit.plan.root import Root
from remit.plan.template import Template
from remit.policy.actions import Action, Connect, Exec, KeepFile, OpenFile, ResolveName
from remit.policy.decide import Decision, decide
from remit.policy.model import WORK, Effective, Remit
from remit.sandbox import host, inputs, masks


def check(options: argparse.Namespace) -> int:
    found = []
    warnings: list[dict[str, str]] = []
    for path in options.files:
        try:
            effective = compose.load_file(path)
        except PolicyError as error:
            found.append(error)
            if not options.json:
                print(error.message, file=sys.stderr)
            continue
        try:
            tuple(
                masks.of_inputs(effective.remit, inputs.kinds(effective.remit, os.path.dirname(os.path.abspath(path))))
            )
        except UsageError as fault:
            found.append(PolicyError((Problem(path, 0, 0, fault.code, fault.message, fault.hint),)))
            if not options.json:
                print(found[-1].message, file=sys.stderr)
            continue
        doubts = [{"source": path, "message": message, "hint": hint} for message, hint in _doubts(effective)]
        warnings += doubts
        if not options.json:
            widened = f", widens {', '.join(effective.widened)}" if effective.widened else ""
            print(f"{say.paint('ok', 'green', sys.stdout)} {path}: {effective.remit.agent} {effective.digest}{widened}")
            for doubt in doubts:
                head = say.paint("warning:", "yellow")
                print(f"{head} {path}: {doubt['message']}\n  hint: {doubt['hint']}", file=sys.stderr)
    if options.json:
        problems = [p for error in found for p in error.as_data()["problems"]]  # type: ignore[attr-defined]
        say.data({"ok": not found, "problems": problems, "warnings": warnings})
    return EXIT_BAD_INPUT if found else 0


def _doubts(effective: Effective) -> Iterator[tuple[str, str]]:
    """What is well said and can hardly be meant, with the remedy."""
    remit = effective.remit
    if not remit.process.exec:
        bases = [source.removeprefix("built-in ") for source in effective.sources if source.startswith("built-in ")]
        none = f"its bases {' and '.join(bases)} grant none in common" if len(bases) > 1 else "it names none"
        yield (
            f"process.exec allows no program: {none}",
            "name the programs in process.exec, with `unsafe_widen: [process.exec]` beside bases that lack them",
        )
    for path in inputs.absent(remit):
        yield f"filesystem.read: {path} is not on this host: no run starts without it", "make it, or correct the path"


def _effective(options: argparse.Namespace) -> tuple[Effective, str]:
    if options.remit:
        return compose.load_file(options.remit), os.path.dirname(os.path.abspath(options.remit))
    if options.base:
        text = f"apiVersion: remit/v1\nagent: nobody\nextends: {options.base}\n"
        return compose.load_text(text, f"built-in {options.base}", os.getcwd()), os.getcwd()
    if os.path.exists("remit.yaml"):
        return compose.load_file("remit.yaml"), os.getcwd()
    raise UsageError("which remit?", hint="--remit FILE, --base NAME, or a remit.yaml here")


def why(options: argparse.Namespace) -> int:
    effective, directory = _effective(options)
    remit = effective.remit
    facts = host.read()
    template = compose.template_of(remit, directory)
    kinds = inputs.kinds(remit, directory)
    hidden = (*masks.of_inputs(remit, kinds), *masks.of_programs(remit, template, directory))
    _, trust = authority_of(remit, template)
    view = Root.build(remit, facts, template, kinds, hidden, False, "/home/agent", trust).view()
    action = _action(options.action, options.what, template)
    decision = decide(remit, action, view)
    note = _beside(action, options.what, directory, remit, decision)
    if options.json:
        noted = {"note": note} if note else {}
        say.data({"verdict": decision.verdict, "rule": decision.rule, "reason": decision.reason, **noted})
    else:
        _print_decision(decision)
        if note:
            print(f"  note: {say.printable(note)}")
    return 0 if decision.allowed else 1


def _beside(action: Action, what: str, directory: str, remit: Remit, decision: Decision) -> str | None:
    """What the decision alone would let a person believe."""
    if isinstance(action, OpenFile) and not action.write and decision.rule in _OWN:
        here = os.path.join(directory, what)
        if os.path.exists(here):
            until = f"inside, there is nothing at {action.path} until the program makes it"
            return f"{what} of this host is not brought in: {until}"
    if isinstance(action, Exec) and not decision.allowed and remit.process.install:
        return "what process.install brings is known only once it has run, and is not looked at here"
    return None


_OWN = ("builtin.work", "builtin.home", "builtin.tmp", "builtin.shm")
"""Places that start empty and are the sandbox's own."""


def _print_decision(decision: Decision) -> None:
    style = "green" if decision.allowed else "red"
    word = say.paint(decision.verdict, style, sys.stdout)
    print(f"{word}  {decision.rule}\n  {say.printable(decision.reason)}")


def _action(kind: str, what: str, template: Template) -> Action:
    if kind == "exec":
        path = posixpath.normpath(posixpath.join(WORK, what)) if "/" in what else template.programs.get(what)
        return Exec(template.follow(path or f"/usr/bin/{what}"))
    if kind in ("read", "open", "write"):
        path = what if what.startswith("/") else posixpath.join(WORK, what)
        return OpenFile(template.follow(posixpath.normpath(path)), write=kind == "write")
    if kind == "resolve":
        return ResolveName(what)
    if kind == "keep":
        return KeepFile(what, "file", 0)
    address, colon, port = what.rpartition(":")
    if not colon or not port.isdecimal():
        raise UsageError(f"{what!r} is not ADDRESS:PORT", hint="for example 169.254.169.254:80 or [::1]:8080")
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        # A name must be resolved before anything can be connected to.
        return ResolveName(address)
    return Connect(address.strip("[]"), int(port))


def explain(options: argparse.Namespace) -> int:
    effective, _ = _effective(options)
    if options.json:
        say.data(
            {
                "remit": effective.remit.as_document(),
                "digest": effective.digest,
                "sources": effective.sources,
                "widened": effective.widened,
            }
        )
        return 0
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from remit.policy.describe import describe

    console = Console(highlight=False)
    table = Table(show_header=False, box=None, padding=(0, 2, 1, 0))
    table.add_column(style="bold cyan", no_wrap=True)
    table.add_column()
    for boundary, lines in describe(effective):
        table.add_row(boundary, Text("\n".join(lines)))
    console.print(Text(f"{effective.remit.agent}  {effective.digest}\n", style="bold"))
    console.print(table)
    console.print(Text(f"from {' <- '.join(effective.sources)}", style="dim"))
    return 0


def init(options: argparse.Namespace) -> int:
    from remit.policy.starter import starter

    text = starter(options.agent, options.base, options.read)
    # Before it is written: a first remit with a mistake would be a poor start.
    compose.load_text(text, options.file, os.path.dirname(os.path.abspath(options.file)))
    try:
        with open(options.file, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{options.file} is there already", hint="give another name: remit init FILE") from error
    except OSError as error:
        raise UsageError(f"{options.file}: {error.strerror}") from error
    if not options.read and options.base != "coding":
        print(f"it reads nothing of this host yet: name what it reads in {options.file}, filesystem.read")
    print(f"wrote {options.file}\nnext: remit check {options.file}\n      remit run --remit {options.file} -- CMD")
    return 0

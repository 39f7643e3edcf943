"""The commands' arguments and help, one function each. Only the command that is called is built: argparse takes half a
millisecond for each, and `remit run` must cost little."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence

from remit import __version__

_RUN_EXAMPLES = """examples:
  remit run -- python3 tool.py data.csv            the strictest built-in base that can run it
  remit run --remit remit.yaml -- python3 tool.py  held to a file
  remit run --base coding --work . -- make test    held to a built-in base, in a copy of this directory
  remit run --work . --keep 'out/**' -- ./build    what it writes to out/ is copied to ./kept
  remit run --remit r.yaml --events events.jsonl --receipt receipt.json -- node app.js

exit status: the program's own; 128+N if signal N ended it; 124 the wall clock ran out; 137 killed for a limit;
126 the command is not granted; 127 there is no such command; 125 the sandbox could not be made, or what came of it
could not be kept or written; 2 bad input."""

_CHECK_EXAMPLES = """examples:
  remit check remit.yaml
  remit check --json *.yaml"""

_WHY_EXAMPLES = """examples:
  remit why --remit remit.yaml exec git
  remit why --remit remit.yaml read /etc/passwd
  remit why --remit remit.yaml write report.md
  remit why --base python connect 169.254.169.254:80
  remit why --remit remit.yaml keep out/a.txt

exit status: 0 allowed, 1 denied."""

_EXPLAIN_EXAMPLES = """examples:
  remit explain --remit remit.yaml
  remit explain --base regulated"""

_INIT_EXAMPLES = """examples:
  remit init
  remit init --agent report-writer --base python --read ./documents"""

_IMPORT_EXAMPLES = """examples:
  remit import ~/.srt-settings.json                      the remit, and each difference
  remit import policy.yaml --from openshell --out remit.yaml
  echo '{"allow_out": ["pypi.org"], "deny_out": ["0.0.0.0/0"]}' | remit import - --extends python"""
_DOCTOR_EXAMPLES = """examples:
  remit doctor
  remit doctor --json"""

_SETUP_EXAMPLES = """examples:
  sudo remit setup
  sudo remit setup --user alice
  sudo remit setup --undo --user alice"""


class _Form(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal, found without shutil: argparse makes a formatter for every argument and imports it
    (with three compression libraries) each time."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_width())


def _width() -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns) - 2
    try:
        # A terminal that says 0 does not know.
        return max(os.get_terminal_size(1).columns or 80, 40) - 2
    except OSError:
        return 78


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser for this command line: of the command that it names, or of all."""
    top = argparse.ArgumentParser(
        prog="remit",
        formatter_class=_Form,
        allow_abbrev=False,
        description="Holds an agent's program inside an envelope that the kernel enforces.",
        epilog="start here:\n  remit doctor                     what this host can enforce\n"
        "  remit run -- python3 tool.py     run something, held\n"
        "  remit init                       write a first remit",
    )
    top.add_argument("--version", action="version", version=f"remit {__version__}")
    # `prog` is said, or argparse formats a whole usage to find it.
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="remit")
    called = argv[:1] if argv and argv[0] in COMMANDS else COMMANDS
    for name in called:
        words, epilog, arguments = COMMANDS[name]
        arguments(commands.add_parser(name, help=words, formatter_class=_Form, epilog=epilog, allow_abbrev=False))
    return top


def _run(run: argparse.ArgumentParser) -> None:
    _policy(run)
    run.add_argument(
        "--work", metavar="DIR", help="without a remit's file: show DIR as the work directory, copied on write"
    )
    run.add_argument(
        "--keep", action="append", default=[], metavar="GLOB", help="without a remit's file: copy these out at the end"
    )
    run.add_argument("--events", metavar="FILE|FD", help="write every event as JSON, one a line")
    run.add_argument("--receipt", metavar="FILE|FD", help="write the receipt as JSON")
    run.add_argument("--keep-to", metavar="DIR", help="copy what is kept to DIR instead of state.to")
    run.add_argument(
        "--accept-tier", choices=("partial", "delegated"), help="accept a host that enforces less than the remit asks"
    )
    run.add_argument(
        "--observe",
        choices=("exec+connect", "open"),
        help="record more than the remit asks (open: every file)",
    )
    run.add_argument("-t", "--tty", action="store_true", help="give the program a terminal of its own")
    run.add_argument("-T", "--no-tty", action="store_true", help="pipes, even at a terminal; Ctrl-Z then stops the job")
    run.add_argument("-q", "--quiet", action="store_true", help="nothing but the program's own output")
    run.add_argument(
        "--json",
        action="store_true",
        help="the receipt as JSON on standard error (see --receipt)",
    )
    run.add_argument("--timings", action="store_true", help="say where the launcher's microseconds went")
    run.add_argument("--dry-run", action="store_true", help="print the launch plan as JSON and start nothing")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD [ARG...]")


def _check(check: argparse.ArgumentParser) -> None:
    check.add_argument("files", nargs="+", metavar="FILE")
    check.add_argument("--json", action="store_true", help="problems as JSON")


def _why(why: argparse.ArgumentParser) -> None:
    _policy(why)
    why.add_argument("action", choices=("exec", "read", "write", "open", "connect", "resolve", "keep"))
    why.add_argument("what", help="a program, a path inside, HOST:PORT or a name")
    why.add_argument("--json", action="store_true", help="the decision as JSON")


def _explain(explain: argparse.ArgumentParser) -> None:
    _policy(explain)
    explain.add_argument("--json", action="store_true", help="the effective remit as JSON")


def _init(init: argparse.ArgumentParser) -> None:
    init.add_argument("file", nargs="?", default="remit.yaml", metavar="FILE")
    init.add_argument("--agent", default="my-agent", help="the principal's name")
    init.add_argument("--base", default="python", help="a built-in base")
    init.add_argument("--read", action="append", default=[], metavar="PATH", help="an input; may be repeated")


def _import(imports: argparse.ArgumentParser) -> None:
    imports.add_argument("file", metavar="FILE", help="the other policy, YAML or JSON; - for standard input")
    imports.add_argument(
        "--from", dest="kind", choices=("srt", "openshell", "e2b"), help="its format (else told by its keys)"
    )
    imports.add_argument("--out", metavar="FILE", help="write the remit there instead of to standard output")
    imports.add_argument("--force", action="store_true", help="overwrite it")
    imports.add_argument("--agent", default="my-agent", help="the principal's name")
    imports.add_argument("--extends", metavar="BASE", help="a built-in base below it")
    imports.add_argument("--json", action="store_true", help="the remit and the differences as JSON")


def _doctor(doctor: argparse.ArgumentParser) -> None:
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")


def _setup(setup: argparse.ArgumentParser) -> None:
    setup.add_argument("--user", help="whom to delegate to (default: who called sudo)")
    setup.add_argument("--undo", action="store_true", help="take the delegation back")


def _policy(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("-r", "--remit", metavar="FILE", help="the remit")
    which.add_argument("--base", metavar="NAME", help="a built-in base instead of a file")


COMMANDS: Mapping[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "run": ("run a command inside its remit", _RUN_EXAMPLES, _run),
    "check": ("find mistakes in a remit", _CHECK_EXAMPLES, _check),
    "why": ("would this be allowed, and by which rule?", _WHY_EXAMPLES, _why),
    "explain": ("the effective policy in words", _EXPLAIN_EXAMPLES, _explain),
    "init": ("write a first remit", _INIT_EXAMPLES, _init),
    "import": ("another sandbox's policy as a remit, and where they differ", _IMPORT_EXAMPLES, _import),
    "doctor": ("what this host can enforce, what is missing, and the remedy", _DOCTOR_EXAMPLES, _doctor),
    "setup": ("as root: delegate cgroups to a user, so that limits are hard", _SETUP_EXAMPLES, _setup),
}

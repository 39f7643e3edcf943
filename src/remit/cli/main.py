"""`remit`: the front door. Commands are imported when they are called, since `remit run` must cost little."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from remit import __version__
from remit.cli import say
from remit.errors import EXIT_BAD_INPUT, RemitError

_RUN_EXAMPLES = """examples:
  remit run -- python3 tool.py data.csv            the strictest built-in base that can run it
  remit run --remit remit.yaml -- python3 tool.py  held to a file
  remit run --base coding -- sh -c 'make test'     held to a built-in base
  remit run --remit r.yaml --events events.jsonl --receipt receipt.json -- node app.js

exit status: the program's own; 128+N if signal N ended it; 124 the wall clock ran out; 137 killed for a limit;
126 the command is not granted; 127 there is no such command; 125 the sandbox could not be made; 2 bad input."""


def parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="remit",
        formatter_class=form,
        description="Holds an agent's program inside an envelope that the kernel enforces.",
        epilog="start here:\n  remit doctor                     what this host can enforce\n"
        "  remit run -- python3 tool.py     run something, held\n"
        "  remit init                       write a first remit",
    )
    top.add_argument("--version", action="version", version=f"remit {__version__}")
    # `prog` is said, or argparse formats a whole usage (and imports shutil for the terminal's width) to find it.
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, prog="remit")

    run = commands.add_parser("run", help="run a command inside its remit", formatter_class=form, epilog=_RUN_EXAMPLES)
    _policy(run)
    run.add_argument("--events", metavar="FILE|FD", help="write every event as JSON, one a line")
    run.add_argument("--receipt", metavar="FILE|FD", help="write the receipt as JSON")
    run.add_argument("--keep-to", metavar="DIR", help="copy what state.keep names to DIR instead of state.to")
    run.add_argument(
        "--accept-tier", choices=("partial", "delegated"), help="accept a host that enforces less than the remit asks"
    )
    run.add_argument("-t", "--tty", action="store_true", help="give the program a terminal of its own")
    run.add_argument("-T", "--no-tty", action="store_true", help="pipes, even at a terminal")
    run.add_argument("-q", "--quiet", action="store_true", help="nothing but the program's own output")
    run.add_argument("--json", action="store_true", help="the receipt as JSON on standard error, instead of words")
    run.add_argument("--timings", action="store_true", help="say where the launcher's microseconds went")
    run.add_argument("--dry-run", action="store_true", help="print the launch plan as JSON and start nothing")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD [ARG...]")

    check = commands.add_parser(
        "check",
        help="find mistakes in a remit",
        formatter_class=form,
        epilog="examples:\n  remit check remit.yaml\n  remit check --json *.yaml",
    )
    check.add_argument("files", nargs="+", metavar="FILE")
    check.add_argument("--json", action="store_true", help="problems as JSON")

    why = commands.add_parser(
        "why",
        help="would this be allowed, and by which rule?",
        formatter_class=form,
        epilog="examples:\n  remit why --remit remit.yaml exec git\n  remit why --remit remit.yaml read /etc/passwd\n"
        "  remit why --remit remit.yaml write report.md\n  remit why --base python connect 169.254.169.254:80\n"
        "  remit why --remit remit.yaml keep out/a.txt\n\nexit status: 0 allowed, 1 denied.",
    )
    _policy(why)
    why.add_argument("action", choices=("exec", "read", "write", "open", "connect", "resolve", "keep"))
    why.add_argument("what", help="a program, a path inside, HOST:PORT or a name")
    why.add_argument("--json", action="store_true", help="the decision as JSON")

    explain = commands.add_parser(
        "explain",
        help="the effective policy in words",
        formatter_class=form,
        epilog="examples:\n  remit explain --remit remit.yaml\n  remit explain --base regulated",
    )
    _policy(explain)
    explain.add_argument("--json", action="store_true", help="the effective remit as JSON")

    init = commands.add_parser(
        "init",
        help="write a first remit",
        formatter_class=form,
        epilog="examples:\n  remit init\n  remit init --agent report-writer --base python --read ./documents",
    )
    init.add_argument("file", nargs="?", default="remit.yaml", metavar="FILE")
    init.add_argument("--agent", default="my-agent", help="the principal's name")
    init.add_argument("--base", default="python", help="a built-in base")
    init.add_argument("--read", action="append", default=[], metavar="PATH", help="an input; may be repeated")

    doctor = commands.add_parser(
        "doctor", help="what this host can enforce, what is missing, and the remedy", formatter_class=form
    )
    doctor.add_argument("--json", action="store_true", help="the findings as JSON")

    setup = commands.add_parser(
        "setup",
        help="as root: delegate cgroups to a user, so that limits are hard",
        formatter_class=form,
        epilog="examples:\n  sudo remit setup\n  sudo remit setup --user alice\n  sudo remit setup --undo --user alice",
    )
    setup.add_argument("--user", help="whom to delegate to (default: who called sudo)")
    setup.add_argument("--undo", action="store_true", help="take the delegation back")
    return top


def _policy(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("-r", "--remit", metavar="FILE", help="the remit")
    which.add_argument("--base", metavar="NAME", help="a built-in base instead of a file")


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status. Every `RemitError` becomes words (or JSON, where asked for) and its status here."""
    options = parser().parse_args(argv)
    try:
        match options.command:
            case "run":
                from remit.cli.run import run

                return run(options)
            case "check":
                from remit.cli.inspect import check

                return check(options)
            case "why":
                from remit.cli.inspect import why

                return why(options)
            case "explain":
                from remit.cli.inspect import explain

                return explain(options)
            case "init":
                from remit.cli.inspect import init

                return init(options)
            case "doctor":
                from remit.cli.doctor import doctor

                return doctor(options)
            case "setup":
                from remit.cli.setup import setup

                return setup(options)
    except RemitError as error:
        say.error(error, as_json=getattr(options, "json", False))
        return error.exit_code
    except OSError as problem:
        if isinstance(problem, BrokenPipeError):
            sys.stderr.close()
            return 141
        # A full disk, a closed stream: ours to say, not to trace.
        say.note(f"{problem.filename or 'output'}: {problem.strerror}", "red")
        return 1
    except KeyboardInterrupt:
        return 130
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())

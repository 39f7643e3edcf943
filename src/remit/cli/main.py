"""`remit`: the front door. Commands are imported when they are called, since `remit run` must cost little."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from remit.cli import say
from remit.cli.commands import parser
from remit.errors import EXIT_BAD_INPUT, RemitError


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status. Every `RemitError` becomes words (or JSON, where asked for) and its status here."""
    words = sys.argv[1:] if argv is None else argv
    options = parser(words).parse_args(words)
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
            case "import":
                from remit.cli.importing import run as import_policy

                return import_policy(options)
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


def entry() -> NoReturn:
    """The process's whole life. The collector's many small rounds during import and the interpreter's tidying at the
    end cost 8 ms of the 60 that `remit run` takes beyond the interpreter's start: the kernel frees all the same."""
    gc.set_threshold(50_000)
    try:
        code = main()
    except SystemExit as ended:
        # argparse's: help, the version, a misspelt option.
        code = ended.code if isinstance(ended.code, int) else 0
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream and not stream.closed:
                stream.flush()
        except BrokenPipeError:
            code = code or 141
        except OSError as problem:
            # A full disk under the output: what was asked for was not said.
            say.note(f"output: {problem.strerror}", "red")
            code = code or 1
    os._exit(code)


if __name__ == "__main__":
    entry()

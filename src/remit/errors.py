"""The taxonomy of what can go wrong, by who must act, with stable codes.

Rules of this room:
- An error says who must act: the author of the policy, the operator of the host, the agent (it was denied), or us.
- `code` is stable: it is what scripts match on. `message` is for people and may be reworded.
- A denial is a value (`remit.policy.decide.Decision`) inside the system and becomes `Denied` only at its edge.
- One translation to exit codes, here, so that every command answers alike.

This module imports nothing of Remit's.
"""

from __future__ import annotations

from typing import NamedTuple

EXIT_OK = 0
EXIT_BAD_INPUT = 2
"""A malformed remit, an unknown option: nothing was started."""
EXIT_WALL_CLOCK = 124
"""The wall clock ran out (as `timeout(1)` answers)."""
EXIT_SETUP = 125
"""The envelope could not be built; the program never started (as `docker run` and `env(1)` answer)."""
EXIT_DENIED_EXEC = 126
"""The command exists, and the remit does not grant it (as shells answer for 'cannot execute')."""
EXIT_NOT_FOUND = 127
"""There is no such command (as shells answer)."""
EXIT_KILLED = 137
"""128 + SIGKILL: killed for a limit; the receipt says which."""


class RemitError(Exception):
    """Root of all of Remit's errors. `code` is stable, `hint` says what to do, `exit_code` is what the CLI returns."""

    code = "E_INTERNAL"
    exit_code = EXIT_SETUP

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def as_data(self) -> dict[str, object]:
        """The error as JSON-ready data: `{"code", "message", "hint"}`."""
        return {"code": self.code, "message": self.message, "hint": self.hint}


class Problem(NamedTuple):
    """One located fault in a remit. `line` and `column` count from 1; 0 means that no place is known."""

    source: str
    line: int
    column: int
    code: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}:{self.column}: " if self.line else f"{self.source}: "
        text = f"{where}{self.message}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class PolicyError(RemitError):
    """The author of the remit must act. Carries every problem found, not the first alone."""

    code = "E_POLICY"
    exit_code = EXIT_BAD_INPUT

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        if not problems:
            raise ValueError("a PolicyError without problems says nothing")
        super().__init__("\n".join(str(problem) for problem in problems), code=problems[0].code)
        self.problems = problems

    def as_data(self) -> dict[str, object]:
        return {
            "code": self.code,
            "message": self.message,
            "problems": [
                {
                    "source": p.source,
                    "line": p.line,
                    "column": p.column,
                    "code": p.code,
                    "message": p.message,
                    "hint": p.hint,
                }
                for p in self.problems
            ],
        }


class Interrupted(RemitError):
    """The caller asked it to stop. `exit_code` is what a shell says of that: 128 and the signal."""

    code = "E_INTERRUPTED"

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(RemitError):
    """The caller of a command or function must act."""

    code = "E_USAGE"
    exit_code = EXIT_BAD_INPUT


class HostError(RemitError):
    """The operator of the host must act: a mechanism is missing or too weak. `mechanism` names it."""

    code = "E_HOST"
    exit_code = EXIT_SETUP

    def __init__(self, mechanism: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.mechanism = mechanism

    def as_data(self) -> dict[str, object]:
        return {**super().as_data(), "mechanism": self.mechanism}


class SetupError(RemitError):
    """The launcher failed at a named step before the program started. `errno` is 0 where no call failed."""

    code = "E_SETUP"
    exit_code = EXIT_SETUP

    def __init__(self, step: str, message: str, *, errno: int = 0, path: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.step = step
        self.errno = errno
        self.path = path

    def as_data(self) -> dict[str, object]:
        return {**super().as_data(), "step": self.step, "errno": self.errno, "path": self.path}


class Lost(SetupError):
    """The launcher vanished in the middle. Whatever ran inside died with it; what it had done is not known."""

    code = "E_LOST"


class Denied(RemitError):
    """The agent was refused. `rule` names what decided."""

    code = "E_DENIED"
    exit_code = EXIT_DENIED_EXEC

    def __init__(self, rule: str, message: str, *, hint: str | None = None, exit_code: int = EXIT_DENIED_EXEC) -> None:
        super().__init__(message, hint=hint)
        self.rule = rule
        self.exit_code = exit_code

    def as_data(self) -> dict[str, object]:
        return {**super().as_data(), "rule": self.rule}

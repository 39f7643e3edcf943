"""`--events` and `--receipt`: opened before anything starts, so that what can't be written stops the run and not its
record, and so that the record of an earlier run is never taken for this one's."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

from remit import __version__
from remit.errors import Lost, RemitError, UsageError
from remit.sandbox.receipt import VERSION

_MAX_EVENTS = 64 * 1024 * 1024
"""Bytes of attempts, the network's too, in one record: what a program tries must not fill the operator's disk."""


class Records:
    """`events`, `receipt`: a file's path or a descriptor's number, or None. Raises `UsageError` for what can't be
    opened."""

    def __init__(self, events: str | None, receipt: str | None) -> None:
        self._events = _open(events) if events else None
        self._receipt = _open(receipt) if receipt else None
        self._written = 0

    def event(self, event: Mapping[str, Any]) -> None:
        if self._events is None:
            return
        line = json.dumps(event) + "\n"
        if event["event"] in ("attempt", "egress") and self._written + len(line) > _MAX_EVENTS:
            if self._written <= _MAX_EVENTS:
                # Said once, so that a record that was cut does not look complete.
                self._events.write(json.dumps({"event": "truncated", "limit_bytes": _MAX_EVENTS}) + "\n")
                self._written = _MAX_EVENTS + 1
            return
        self._written += len(line)
        self._events.write(line)

    def finish(self, receipt: Mapping[str, Any]) -> None:
        """The last of both."""
        if self._events is not None:
            self._events.write(json.dumps({"event": "receipt", **receipt}) + "\n")
            self._events.close()
        if self._receipt is not None:
            with self._receipt as file:
                file.write(json.dumps(receipt, indent=2) + "\n")

    def refused(self, error: RemitError) -> None:
        """Nothing ran, or nobody knows what did, and the record says why."""
        reason = "lost" if isinstance(error, Lost) else "not_started"
        result = {"exit": error.exit_code, "reason": reason, "signal": None}
        said = {"receipt": VERSION, "remit_version": __version__, "result": result, "error": error.as_data()}
        self.finish(said)


def _open(target: str) -> IO[str]:
    try:
        if target.isdecimal():
            return os.fdopen(int(target), "w", buffering=1, encoding="utf-8", errors="replace")
        return open(target, "w", buffering=1, encoding="utf-8", errors="replace")
    except OSError as error:
        hint = "give a path that can be written, or a descriptor"
        raise UsageError(f"{target}: {error.strerror}", hint=hint) from error

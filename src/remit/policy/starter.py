"""The text of a first remit, for `remit init`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

from remit.policy import bases

_TEXT = """\
# What this agent may do. `remit check` finds mistakes, `remit explain` says it in words.
apiVersion: remit/v1
agent: {agent}
extends: {base}   # its reasons: `remit explain --base {base}`
{process}filesystem:
  {work}read: {read}   # read-only; ./x is /workspace/x inside
state:
  keep: ["report.md", "out/**"]   # copied to ./kept at the end; the rest is destroyed
{limits}"""

_PROCESS = "process: {exec: []}   # name the programs that it may run: nothing else exists inside\n"
_WORK = "work: {from: .}   # this directory, copied on write: the original never changes\n  "
_LIMITS = "limits: {memory: 512MiB, wall: 5m}\n"


def starter(agent: str, base: str, read: Sequence[str]) -> str:
    """A remit of ten lines that loads as it is. `read`: inputs; a bare name means ./name. Raises nothing: what can't be
    meant is found when the text is loaded."""
    # YAML reads no surrogate pairs in escapes, so names in other scripts stand as they are.
    paths = json.dumps([_relative(path) for path in read], ensure_ascii=False)
    # Bases of a kind bring limits that fit the kind; the usual ones would only be in the way.
    limits = _LIMITS if base in bases.LANGUAGES else ""
    process = _PROCESS if base not in bases.WITH_PROGRAMS else ""
    work = _WORK if base == "coding" else ""
    return _TEXT.format(agent=agent, base=base, read=paths, limits=limits, process=process, work=work)


def _relative(path: str) -> str:
    return path if path.startswith(("/", "./", "../", "~")) or path in (".", "..") else f"./{path}"

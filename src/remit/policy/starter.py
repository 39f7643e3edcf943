"""The text of a first remit, for `remit init`. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence

_TEXT = """\
# What this agent may do. `remit check` finds mistakes, `remit explain` says it in words.
apiVersion: remit/v1
agent: {agent}
extends: {base}            # its reasons: `remit explain --base {base}`
filesystem:
  read: {read}
state:
  keep: ["report.md", "out/**"]   # copied to ./kept at the end; the rest is destroyed
limits:
  memory: 512MiB
  wall: 5m
"""


def starter(agent: str, base: str, read: Sequence[str]) -> str:
    """A remit of ten lines that loads as it is."""
    return _TEXT.format(agent=agent, base=base, read=json.dumps(list(read)))

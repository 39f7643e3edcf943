"""Names come from the guest, as long and as many as it likes: what is written of them is bounded here."""

from __future__ import annotations

import json

LONGEST = 512
"""Characters of one name, or of a reason that holds one."""


def shorten(text: str) -> str:
    """`text`, or its beginning with a mark that says how much there was."""
    if len(text) <= LONGEST:
        return text
    mark = f"...[{len(text)} characters]"
    return text[: LONGEST - len(mark)] + mark


class Budget:
    """So many entries, and so many bytes of text in them as JSON writes it (a control character takes six)."""

    def __init__(self, entries: int, size: int) -> None:
        self._entries = entries
        self._size = size

    def take(self, *texts: str) -> bool:
        """Is there room for one more entry? If there is, it is taken."""
        size = sum(len(json.dumps(text)) for text in texts)
        if self._entries < 1 or size > self._size:
            return False
        self._entries -= 1
        self._size -= size
        return True

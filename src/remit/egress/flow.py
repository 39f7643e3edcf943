"""What waits on one stream of HTTP/2, and how much may. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from remit.egress.fields import Field, Fields
from remit.egress.side import Side


class Windows(NamedTuple):
    """Bytes that may wait here: of one stream from the server, of one from the program, of all together each way. The
    server may be far away; the program never is."""

    from_server: int = 512 * 1024
    from_program: int = 64 * 1024
    together: int = 4 * 1024 * 1024


PATIENCE = 1024 * 1024
"""Bytes of a question that go on behind a denial and are dropped, before its stream is reset: curl, for one, would not
have read the answer yet."""
NARROW = Windows(64 * 1024, 64 * 1024, 128 * 1024)
"""For each of many connections."""


class Way:
    """What goes one way on one stream, as far as it was not passed on yet."""

    __slots__ = ("done", "ended", "pieces", "source", "target", "trailers")

    def __init__(self, source: Side | None, target: Side) -> None:
        self.source, self.target = source, target
        self.pieces: deque[bytes] = deque()
        self.trailers: Fields | None = None
        self.ended = False
        """Nothing will be added."""
        self.done = False
        """The other side was told that this was all."""


class Stream:
    """`unsent`: a request that the server may not be asked yet. `left`: bytes of the announced body that did not come
    yet. `room`: bytes that it may still carry by its rule. `begun`: has the server's answer? `after`: how the stream is
    to be reset when the answer is out, and `patience`: bytes of question more."""

    __slots__ = ("after", "begun", "down", "id", "left", "patience", "room", "unsent", "up")

    def __init__(self, number: int, up: Way, down: Way, left: int | None) -> None:
        self.id, self.up, self.down, self.left = number, up, down, left
        self.unsent: list[Field] | None = None
        self.room: int | None = None
        self.begun = False
        self.after: int | None = None
        self.patience = 0

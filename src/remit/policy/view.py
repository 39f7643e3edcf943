"""What a remit amounts to inside one sandbox: the paths that exist there and what may be done with them.

Rules of this room: pure values. `remit.plan.compile` derives a `View` from the same template and grants from which it
derives the launch plan, so that `decide` and the kernel answer from one source; a property test holds them together.
All paths are absolute, normalised, as seen inside.
"""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A path (a file, or a directory with all below it) that exists inside. `rule` is the id of the rule that put it
    there, e.g. 'filesystem.read[1]', 'process.exec[0]' or 'builtin.proc'. The longest matching place decides, unless
    a hidden one lies above it."""

    path: str
    write: bool
    execute: bool
    rule: str
    tree: bool = True
    """False: `path` is one file. True: it is a directory, and what lies below it is meant too."""
    hidden: bool = False
    """True: a deny; the path was masked and neither reads nor writes succeed."""


class View:
    """`places` in the order in which they are mounted; `work` is the work directory inside (keep globs are relative
    to it). Not changed once made."""

    __slots__ = ("_by_path", "places", "work")

    def __init__(self, places: tuple[Place, ...], work: str = "/workspace") -> None:
        self.places = places
        self.work = work
        # A sandbox that records every opened path asks thousands of times: a lookup for each directory above the
        # path, instead of a walk over all places.
        self._by_path: dict[str, list[Place]] = {}
        for place in places:
            self._by_path.setdefault(place.path, []).append(place)

    def __repr__(self) -> str:
        return f"View({self.places!r}, {self.work!r})"

    def place(self, path: str) -> Place | None:
        """The place that decides about `path`. None: nothing exists there.

        It is the longest one that is it or lies above it; of two at the same path the later, which is mounted over
        the other. A hidden one decides wherever it stands above: masks are laid over everything else (deny wins).
        """
        best: Place | None = None
        at = path
        while True:
            for place in reversed(self._by_path.get(at, ())):
                if at != path and not place.tree:
                    continue
                if place.hidden:
                    return place
                best = best or place
            if at in ("/", ""):
                return best
            at = at[: at.rfind("/")] or "/"

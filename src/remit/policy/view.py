"""What a remit amounts to inside one sandbox: the paths that exist there and what may be done with them.

Rules of this room: pure values. `remit.plan.compile` derives a `View` from the same template and grants from which it
derives the launch plan, so that `decide` and the kernel answer from one source; a property test holds them together.
All paths are absolute, normalised, as seen inside.
"""

from __future__ import annotations

from typing import NamedTuple



class Place(NamedTuple):
    """A path (a file, or a directory with all below it) that exists inside. `rule` is the id of the rule that put it
    there, e.g. 'filesystem.read[1]', 'process.exec[0]' or 'builtin.proc'. The longest matching place decides."""

    path: str
    write: bool
    execute: bool
    rule: str
    tree: bool = True
    """False: `path` is one file. True: it is a directory, and what lies below it is meant too."""
    hidden: bool = False
    """True: a deny; the path was masked and neither reads nor writes succeed."""


class View(NamedTuple):
    """`places` in any order; `work` is the work directory inside (keep globs are relative to it)."""

    places: tuple[Place, ...]
    work: str = "/workspace"

    def place(self, path: str) -> Place | None:
        """The place that decides about `path`: the longest one that is it or lies above it. None: nothing exists."""
        best: Place | None = None
        for place in self.places:
            inside = path == place.path or (
                place.tree and (place.path == "/" or path.startswith(place.path + "/"))
            )
            if inside and (best is None or len(place.path) > len(best.path)):
                best = place
        return best

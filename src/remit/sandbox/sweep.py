"""Removes what a killed launcher left: its empty cgroups. Processes it can't have left: they die with it."""

from __future__ import annotations

import contextlib
import os
import time

from remit.plan.launch_plan import Cgroup

_OLD_S = 60
"""A younger directory may belong to a sandbox that is just being made and has no process yet."""


def sweep(cgroup: Cgroup | None, now: float | None = None) -> int:
    """Removes empty directories of earlier sandboxes beside those of `cgroup`; those in use answer EBUSY and stay.
    Returns how many were removed."""
    removed = 0
    limit = (time.time() if now is None else now) - _OLD_S
    for parent in {os.path.dirname(group.dir) for group in cgroup.groups} if cgroup else ():
        with contextlib.suppress(OSError), os.scandir(parent) as entries:
            for entry in entries:
                if entry.name.startswith("rmt-") and entry.stat().st_mtime < limit:
                    with contextlib.suppress(OSError):
                        os.rmdir(entry.path)
                        removed += 1
    return removed

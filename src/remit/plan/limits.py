"""The budgets of a remit as what the launcher sets. Pure."""

from __future__ import annotations

from remit.plan import launch_plan as lp
from remit.plan.host import HostFacts
from remit.policy.model import MIB, Remit

_OVERHEAD = 2 * MIB
"""Of the scratch tmpfs for the root's own skeleton: made files and mountpoints, a page each."""
_PERIOD_US = 100_000
_GRACE_MS = 2_000
"""From SIGTERM to the end."""
_MEMLOCK = 8 * MIB
_INIT = 1
"""The sandbox's own first process, which counts and is not the program's."""


def scratch(remit: Remit, operations: int) -> lp.ScratchSize:
    return lp.ScratchSize(remit.limits.disk + _OVERHEAD, remit.limits.files + operations + 64)


def limits(remit: Remit, *, watchdog: bool) -> lp.Limits:
    wanted = remit.limits
    return lp.Limits(wanted.wall_ms, wanted.cpu_time_ms, wanted.output, wanted.memory, watchdog, _GRACE_MS)


def rlimits(remit: Remit, *, has_cgroup: bool) -> lp.Rlimits:
    """Where a cgroup counts processes, the user's own limit is a second lock, wide enough that the first, which can be
    read afterwards, is the one that is met."""
    cpu = remit.limits.cpu_time_ms
    seconds = None if cpu is None else cpu // 1000 + 1
    most = remit.limits.processes + _INIT
    return lp.Rlimits(remit.limits.open_files, 2 * most if has_cgroup else most, 0, seconds, _MEMLOCK)


def cgroup(remit: Remit, host: HostFacts, sandbox: str) -> lp.Cgroup | None:
    """The tmpfs is charged to the memory cgroup, so its cap is added: a full disk must answer ENOSPC, not a kill."""
    if host.cgroup is None:
        return None
    memory = remit.limits.memory + remit.limits.disk + _OVERHEAD
    quota = max(1000, round(remit.limits.cpu * _PERIOD_US))
    pids = str(remit.limits.processes + _INIT)
    if host.cgroup.version == 2:
        settings = (
            lp.CgroupSetting("memory.max", str(memory)),
            lp.CgroupSetting("memory.swap.max", "0", optional=True),
            lp.CgroupSetting("memory.oom.group", "1", optional=True),
            lp.CgroupSetting("pids.max", pids),
            lp.CgroupSetting("cpu.max", f"{quota} {_PERIOD_US}"),
        )
        return lp.Cgroup(2, (lp.CgroupGroup("unified", f"{host.cgroup.parents['unified']}/{sandbox}", settings),))
    by_controller = {
        "memory": (
            lp.CgroupSetting("memory.limit_in_bytes", str(memory)),
            lp.CgroupSetting("memory.memsw.limit_in_bytes", str(memory), optional=True),
        ),
        "pids": (lp.CgroupSetting("pids.max", pids),),
        "cpu": (
            lp.CgroupSetting("cpu.cfs_period_us", str(_PERIOD_US)),
            lp.CgroupSetting("cpu.cfs_quota_us", str(quota)),
        ),
        "cpuacct": (),
    }
    groups = tuple(
        lp.CgroupGroup(name, f"{host.cgroup.parents[name]}/{sandbox}", by_controller[name])
        for name in by_controller
        if name in host.cgroup.parents
    )
    return lp.Cgroup(1, groups)

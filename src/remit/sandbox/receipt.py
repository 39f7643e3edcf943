"""The receipt: what one sandbox was, used, was refused and kept, and that nothing of it is left. Shape:
`contracts/receipt.v1.schema.json`."""

from __future__ import annotations

import time
from typing import Any

from remit import __version__
from remit.plan.compile import Compiled
from remit.plan.template import Template
from remit.policy.model import Effective
from remit.sandbox.serving import Outcome

VERSION = "remit.receipt/v1"


def receipt(effective: Effective, compiled: Compiled, template: Template, outcome: Outcome) -> dict[str, Any]:
    """JSON-ready. Times are UTC in ISO 8601, sizes bytes, durations milliseconds."""
    usage = outcome.usage
    removed = outcome.removed
    clean = removed.get("processes_left") == 0 and not removed.get("cgroups_left")
    return {
        "receipt": VERSION,
        "remit_version": __version__,
        "sandbox": compiled.plan.sandbox,
        "agent": effective.remit.agent,
        "remit": {"digest": effective.digest, "sources": effective.sources, "widened": effective.widened},
        "template": {"digest": template.digest, "programs": dict(template.programs)},
        "command": compiled.plan.command.argv,
        "started": _utc(outcome.started_at),
        "ended": _utc(outcome.ended_at),
        "result": {
            "exit": outcome.exit,
            "reason": outcome.reason,
            "signal": outcome.signal,
        },
        "host": {
            "tier": compiled.tier,
            "accepted_by_name": compiled.accepted,
            "mechanisms": {name: {"strength": s, "note": note} for name, s, note in outcome.mechanisms},
        },
        "usage": {
            "wall_ms": round(usage.get("wall_us", 0) / 1000, 3),
            "cpu_ms": round(usage.get("cpu_us", 0) / 1000, 3),
            "peak_memory_bytes": usage.get("peak_memory_bytes"),
            "peak_processes": usage.get("peak_processes"),
            "refused_forks": usage.get("refused_forks", 0),
            "memory_kills": usage.get("memory_kills", 0),
            "output_bytes": usage.get("output_bytes", 0),
            "disk_bytes": usage.get("disk_bytes", 0),
            "disk_files": usage.get("disk_files", 0),
        },
        "network": dict(outcome.network),
        "attempts": outcome.attempts,
        "refusals": outcome.refusals,
        "refusals_in_all": outcome.refusals_in_all,
        "kept": [{"path": k.path, "size": k.size, "sha256": k.sha256} for k in outcome.kept],
        "not_kept": [{"path": n.path, "rule": n.rule, "reason": n.reason} for n in outcome.not_kept],
        "keep_error": outcome.keep_error,
        "output_error": outcome.output_error,
        "teardown": {
            "ms": round(removed.get("teardown_us", 0) / 1000, 3),
            "nothing_remains": clean,
            "processes_left": removed.get("processes_left"),
            "cgroups_left": removed.get("cgroups_left", []),
        },
    }


def _utc(at: float) -> str:
    seconds, milliseconds = divmod(int(at * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03}+00:00"

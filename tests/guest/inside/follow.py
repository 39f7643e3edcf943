"""follow ARG...: does literally what `remit doctor` gives as the remedy for the cgroup, with `remit run ...` there being
`remit run ARG...`. With --print it only says the remedy."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys


def main() -> int:
    said = json.loads(subprocess.run(["remit", "doctor", "--json"], stdout=subprocess.PIPE, check=False).stdout)
    remedy = next(row["remedy"] for row in said["mechanisms"] if row["name"] == "cgroup")
    if sys.argv[1:] == ["--print"]:
        print(f"{said['tier']}: {remedy}")
        return 0
    line = re.findall("`([^`]*)`", remedy)[-1]
    line = line.replace("remit run ...", shlex.join(["remit", "run", *sys.argv[1:]]))
    return subprocess.run(line, shell=True, check=False).returncode  # noqa: S602


sys.exit(main())

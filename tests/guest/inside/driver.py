"""Runs inside the guest, as root, started by systemd: does each case and says what came of it, one JSON object a line."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).parent


def command(who: str, script: str) -> list[str]:
    if who == "root":
        return ["bash", "-c", f"cd /root && {script}"]
    if who.startswith("bare:"):
        # No login, no manager, as from a service or `sudo -u`.
        name = who.removeprefix("bare:")
        home = f"/home/{name}"
        clean = ["env", "-i", f"HOME={home}", "PATH=/usr/local/bin:/usr/bin:/bin"]
        ids = ["setpriv", "--reuid", name, "--regid", name, "--init-groups"]
        return [*ids, *clean, "sh", "-c", f"cd && {script}"]
    return ["su", "-", who, "-c", script]


def main() -> None:
    with open("/dev/ttyS0", "w", buffering=1) as out:
        for name, who, script in json.loads((HERE / "cases.json").read_text()):
            began = time.monotonic()
            try:
                done = subprocess.run(
                    command(who, script),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                said = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
            except subprocess.TimeoutExpired as error:
                said = {
                    "code": -1,
                    "out": str(error.stdout),
                    "err": f"no end after {error.timeout} s: {error.stderr!s}",
                }
            seconds = round(time.monotonic() - began, 1)
            out.write(f"\nSAID {json.dumps({'case': name, 'seconds': seconds, **said})}\n")
        out.write(f"\nSAID {json.dumps({'case': 'end', 'uptime': Path('/proc/uptime').read_text().split()[0]})}\n")


main()

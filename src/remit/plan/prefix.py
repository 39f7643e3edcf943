"""Installed dependencies: a prefix that is filled in a sandbox of its own, then sealed. Pure: what is in one, and what
programs must be told to find it."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "/opt/prefix"
"""Where it is inside, while it is filled and ever after: console scripts name their own place."""

INSTALLING = {
    "PIP_PREFIX": PREFIX,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    "PIP_NO_CACHE_DIR": "1",
    "npm_config_prefix": PREFIX,
    "npm_config_global": "true",
    "npm_config_cache": "/tmp/npm",  # noqa: S108
    "npm_config_update_notifier": "false",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
}
"""The environment of the command that fills it: pip and npm land there without being told by their arguments."""


class Prefix(NamedTuple):
    """A sealed prefix. `host`: its directory on the host. `programs`: names in its bin. `python`: its site-packages, as
    paths inside. `node`: whether it has node modules. `digest`: over every file's path and content."""

    host: str
    programs: tuple[str, ...]
    python: tuple[str, ...]
    node: bool
    digest: str

    def environment(self) -> dict[str, str]:
        """What makes interpreters look there. PATH is `compile`'s to extend."""
        env = {}
        if self.python:
            env["PYTHONPATH"] = ":".join(self.python)
        if self.node:
            env["NODE_PATH"] = f"{PREFIX}/lib/node_modules"
        return env

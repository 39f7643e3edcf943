"""Runs of clients inside against servers with TLS on this host's loopback, where the broker reads some of it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from tests.conftest import Held
from tests.egress.conftest import Online
from tests.egress.tls import CLEARED, Issuer, Site

HERE = {name: ["127.0.0.1"] for name in ("api.test", "open.test", "deep.under.test")}


# Where wheels put their programs, whether the tests were started from an activated environment or not.
os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{os.path.dirname(sys.executable)}"


class Secure:
    """Runs code inside against `site`, which is api.test and held to GET and POST below /v1, or open.test, which is
    not held to anything."""

    def __init__(self, online: Online, folder: Path) -> None:
        self.online, self.folder = online, folder
        self.issuer = Issuer(folder, "issuer")
        self.bundle = folder / "bundle.pem"
        self.bundle.write_bytes(self.issuer.pem)
        self.site = Site(self.issuer.issue("api.test"), folder)
        self.open = Site(self.issuer.issue("open.test"))

    @property
    def url(self) -> str:
        return f"https://api.test:{self.site.port}"

    def __call__(self, code: str = "", argv: list[str] | None = None, more: str = "", site: Site | None = None,
                 paths: str = "'/v1/**'", env: Mapping[str, str] | None = None) -> Held:  # fmt: skip
        port = (site or self.site).port
        allow = [
            f"{{host: api.test, ports: [{port}], methods: [GET, POST, PUT], paths: [{paths}]}}",
            f"{{host: '*.under.test', ports: [{port}], methods: [GET]}}",
            f"{{host: open.test, ports: [{self.open.port}]}}",
            f"{{cidr: 127.0.0.0/8, ports: [{port}, {self.open.port}]}}",
        ]
        before = {name: os.environ.pop(name) for name in CLEARED if name in os.environ}
        try:
            trusted = {"SSL_CERT_FILE": str(self.bundle), **(env or {})}
            return self.online(allow, code, names=HERE, argv=argv, more=more, env=trusted, timeout=90)
        finally:
            os.environ.update(before)

    def said(self, action: str) -> list[dict[str, object]]:
        return [event for event in self.online.egress() if event["action"] == action]

    def close(self) -> None:
        for site in (self.site, self.open):
            site.shutdown()
            site.server_close()


def program(name: str) -> str:
    """Its path. Skips loudly where the host lacks it; not where all clients must run."""
    found = shutil.which(name)
    if found is None:
        absent(name)
    return found


def absent(name: str) -> NoReturn:
    message = f"this host has no {name}"
    if "clients" in os.environ.get("REMIT_MUST_RUN", "").split(","):
        pytest.fail(message)
    pytest.skip(message)


def exec_only(*programs: str) -> str:
    return f"process: {{exec: [{', '.join(programs)}]}}\n"

"""Servers for ordinary clients, by HTTP and by TLS, and a sandbox that may reach them."""

from __future__ import annotations

import datetime
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.conftest import HEAD, Held
from tests.egress.conftest import _DRIVER

NAMES = ("web.test", "a.wild.test")
BOUND_S = 15
"""For a refusal, the client's own patience and retries included."""


def _certificates(folder: Path) -> None:
    """`ca.pem` and `server.pem` (with its key)."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])

    now = datetime.datetime.now(datetime.UTC)

    def made(subject: str, key: Any, by: Any, authority: bool) -> Any:
        builder = (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("ca of the tests"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=2))
            .add_extension(x509.BasicConstraints(authority, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in NAMES]), critical=False)
        )
        return builder.sign(by, hashes.SHA256())

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    ca = made("ca of the tests", ca_key, ca_key, True).public_bytes(pem)
    own = made("web.test", key, ca_key, False).public_bytes(pem)
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "ca.pem").write_bytes(ca)
    (folder / "server.pem").write_bytes(own + private)


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass


class Place:
    """A folder, what is served from it over HTTP and HTTPS, and runs of clients in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.root.mkdir()
        (self.root / "hello.txt").write_text("hello\n")
        _certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        self.servers = [self._serve(None), self._serve(context)]
        self.http, self.https = (server.server_address[1] for server in self.servers)

    def _serve(self, context: ssl.SSLContext | None) -> http.server.ThreadingHTTPServer:
        def handler(*arguments: Any) -> _Files:
            return _Files(*arguments, directory=str(self.root))

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return server

    def run(
        self,
        programs: str,
        *argv: str,
        ports: tuple[int, ...] = (),
        more: str = "",
        timeout: float = 60,
        base: str = "",
    ) -> Held:
        """`programs`: of process.exec. In `argv` $HTTP and $HTTPS are the ports."""
        served = ", ".join(map(str, (self.http, self.https, *ports)))
        remit = (
            HEAD
            + (f"extends: {base}\n" if base else "")
            + ("unsafe_widen: [process.exec]\n" if base == "python" else "")
            + (more if "process:" in more or not programs else f"process: {{exec: [{programs}]}}\n" + more)
            + ("" if "filesystem:" in more else "filesystem: {read: [./ca.pem]}\n")
            + "network:\n  allow:\n"
            + "".join(f"    - {{host: '{host}', ports: [{served}]}}\n" for host in ("web.test", "*.wild.test"))
            + f"    - {{cidr: 127.0.0.0/8, ports: [{served}]}}\n"
        )
        (self.folder / "remit.yaml").write_text(remit)
        receipt = self.folder / "receipt.json"
        receipt.unlink(missing_ok=True)
        words = [word.replace("$HTTPS", str(self.https)).replace("$HTTP", str(self.http)) for word in argv]
        names = {name: ["127.0.0.1"] for name in (*NAMES, "other.test")}
        options = ["--remit", "remit.yaml", "--receipt", "receipt.json"]
        done = subprocess.run(
            [sys.executable, "-c", _DRIVER, "run", *options, "--", *words],
            cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=timeout, env={**os.environ, "REMIT_TEST_NAMES": json.dumps(names)}, check=False,
        )  # fmt: skip
        said = json.loads(receipt.read_text()) if receipt.exists() else {}
        return Held(done.returncode, done.stdout, done.stderr, said)

    def refused(self, *arguments: Any, **more: Any) -> Held:
        """The same for what must fail, and in time."""
        began = time.monotonic()
        held = self.run(*arguments, **more)
        assert time.monotonic() - began < BOUND_S, held
        assert held.receipt["refusals"], held
        return held

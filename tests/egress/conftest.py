"""Sandboxes with a network, and servers for them on this host's loopback. A name that ends in `.test` leads there: the
command line is started by a driver that answers for the host's resolver."""

from __future__ import annotations

import functools
import http.server
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import HEAD, PYTHON, Held

if TYPE_CHECKING:
    from tests.egress.secure import Secure

_DRIVER = """
import json, os, socket, sys
import remit.egress.dial as dial
answers = json.loads(os.environ["REMIT_TEST_NAMES"])
async def resolve(host, port):
    if host not in answers and not host[0].isdigit():
        raise OSError("the tests' resolver knows no " + host)
    found = answers.get(host, [host])
    if isinstance(found[0], list):
        found = found.pop(0) if len(found) > 1 else found[0]
    return [a for one in found for a in socket.getaddrinfo(one, port, type=socket.SOCK_STREAM)]
dial.resolve = resolve
if "REMIT_TEST_FIRST_OF_PROGRAMS" in os.environ:
    import remit.plan.egress as egress
    egress.FIRST_OF_PROGRAMS = int(os.environ["REMIT_TEST_FIRST_OF_PROGRAMS"])
if "REMIT_TEST_KEYS" in os.environ:
    from remit.egress import authority
    made = authority.Authority.__init__
    def noting(self, *arguments):
        made(self, *arguments)
        keys = [key.private_numbers().private_value.to_bytes(32, "big") for key in (self._key, self._leaf_key)]
        with open(os.environ["REMIT_TEST_KEYS"], "w") as file:
            print(self.pem.encode()[200:].hex(), *(key.hex() for key in keys), file=file)
    authority.Authority.__init__ = noting
if "REMIT_TEST_TRUST" in os.environ:
    from remit.plan import trust as plan
    from remit.sandbox import trust as disk
    kept, gathered, told, hashed = os.environ["REMIT_TEST_TRUST"].split(","), disk.trust, plan.Trust.environment, plan.Trust.hashed
    def trust(*arguments):
        made = gathered(*arguments)
        if "places" not in kept:
            made = made._replace(places=())
        if "places" not in kept and "hashed" not in kept:
            made = made._replace(opened={})
        return made if "database" in kept else made._replace(database={})
    disk.trust = trust
    plan.Trust.environment = lambda self: {name: value for name, value in told(self).items() if name in kept}
    plan.Trust.hashed = lambda self, folder: hashed(self, folder) if "hashed" in kept else None
from remit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
LOOPBACK = "{cidr: 127.0.0.0/8, ports: [%s]}"


class Online:
    """Runs code inside with a network. `names`: what the host's resolver answers; lists in a list: one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self,
        allow: Sequence[str],
        code: str,
        *,
        names: Mapping[str, Sequence[Any]] | None = None,
        more: str = "",
        argv: Sequence[str] | None = None,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        network: str = "",
    ) -> Held:
        """`allow`: entries of network.allow in YAML; `network`: what else stands there. `code`: Python, unless `argv`
        is another command."""
        (self.folder / "probe.py").write_text(code)
        body = HEAD + (PYTHON if argv is None else "")
        if "filesystem:" not in more:
            body += "filesystem: {read: [./probe.py]}\n"
        body += more + "network:\n" + (f"  {network}\n" if network else "")
        body += "  allow:\n" + "".join(f"    - {rule}\n" for rule in allow)
        (self.folder / "remit.yaml").write_text(body)
        receipt = self.folder / "receipt.json"
        receipt.unlink(missing_ok=True)
        (self.folder / "events.jsonl").unlink(missing_ok=True)
        options = ["--remit", "remit.yaml", "--receipt", "receipt.json", "--events", "events.jsonl"]
        command = [sys.executable, "-c", _DRIVER, "run", *options, "--", *(argv or [sys.executable, "probe.py"])]
        done = subprocess.run(
            command,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env={**os.environ, "REMIT_TEST_NAMES": json.dumps(names or {}), **(env or {})},
            check=False,
        )
        said = json.loads(receipt.read_text()) if receipt.exists() else {}
        return Held(done.returncode, done.stdout, done.stderr, said)

    def egress(self) -> list[dict[str, object]]:
        """What the broker said in the last run."""
        lines = (self.folder / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["event"] == "egress"]


@pytest.fixture
def secure(online: Online, tmp_path: Path) -> Iterator[Secure]:
    from tests.egress.secure import Secure

    made = Secure(online, tmp_path)
    yield made
    made.close()


@pytest.fixture
def online(tmp_path: Path, needs: Callable[[str], None]) -> Online:
    needs("userns")
    return Online(tmp_path)


class Web(http.server.ThreadingHTTPServer):
    """Says what it was asked, as JSON."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.asked: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        assert isinstance(self.server, Web)
        self.server.asked.append(f"{self.command} {self.path}")
        said = {"method": self.command, "path": self.path, "host": self.headers["Host"], "body": body.decode()}
        text = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    thread = threading.Thread(target=functools.partial(server.serve_forever, 0.05), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


class Raw:
    """A server of bytes. `speak(connection)` is called for each connection; by default all that comes is kept."""

    def __init__(self, speak: Callable[[socket.socket], None] | None = None) -> None:
        self.speak = speak or self.keep
        self.got: list[bytearray] = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                self.speak(connection)
            except OSError:
                pass

    def keep(self, connection: socket.socket) -> None:
        kept = bytearray()
        self.got.append(kept)
        while data := connection.recv(65536):
            kept += data
            connection.sendall(b"got it\n")

    @property
    def allow(self) -> list[str]:
        return [f"{{host: web.test, ports: [{self.port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{self.port}]}}"]


@pytest.fixture
def raw() -> Iterator[Callable[..., Raw]]:
    servers: list[Raw] = []

    def make(speak: Callable[[socket.socket], None] | None = None) -> Raw:
        servers.append(Raw(speak))
        return servers[-1]

    yield make
    for server in servers:
        server.listener.close()


@pytest.fixture
def descriptors() -> None:
    """As many as a flood needs at its other end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""What `egress.py` measures against, and what it needs: a quick server, mitmproxy, and a sandbox with a network."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DOMAIN = "bench.test"
BULK = 256 << 20
MITMPROXY = "mitmproxy==11.0.2"

_DRIVER = """
import socket, sys
asked = socket.getaddrinfo
def answer(host, *more, **named):
    # The names of the bench are this host's loopback; all else of asking the host's resolver stays as it is.
    named["family"] = socket.AF_INET
    return asked("localhost" if str(host).endswith(".bench.test") else host, *more, **named)
socket.getaddrinfo = answer
from remit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


class Origin(NamedTuple):
    """Ports on loopback. `raw`: sends as many bytes as a line asks for. `bundle`: who signed its certificate."""

    http: int
    https: int
    raw: int
    bundle: Path


class Mitmproxy(NamedTuple):
    at: Mapping[str, tuple[str, int]]
    pids: list[int]


def free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


@contextlib.contextmanager
def origin(folder: Path) -> Iterator[Origin]:
    http, https = free_ports(2)
    bundle, certificate = _certificates(folder)
    (folder / "www").mkdir()
    (folder / "www/index.html").write_text("x" * 128)
    with open(folder / "www/bulk", "wb") as file:
        file.truncate(BULK)
    # Its worker may be another user than the one that made them.
    folder.chmod(0o755)
    (folder / "nginx.conf").write_text(
        f"""
        daemon off; worker_processes 1; worker_rlimit_nofile 16384; pid {folder}/nginx.pid; error_log stderr crit;
        events {{ worker_connections 8192; }}
        http {{
          access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; keepalive_timeout 600;
          client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
          uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
          server {{
            listen 127.0.0.1:{http} backlog=4096; listen 127.0.0.1:{https} ssl backlog=4096;
            ssl_certificate {certificate}; ssl_certificate_key {certificate};
            ssl_session_cache off; ssl_session_tickets off;
            root {folder}/www;
          }}
        }}"""
    )
    nginx = [shutil.which("nginx") or "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    child = os.fork()
    if child == 0:
        _send_raw(listener)
    with subprocess.Popen(nginx, stdin=subprocess.DEVNULL) as process:
        try:
            listening([http, https])
            yield Origin(http, https, listener.getsockname()[1], bundle)
        finally:
            process.terminate()
            os.kill(child, 9)
            os.waitpid(child, 0)
            listener.close()


def _send_raw(listener: socket.socket) -> None:
    """One connection after the other, since one is measured at a time."""
    block = bytes(256 * 1024)
    while True:
        connection, _ = listener.accept()
        with contextlib.suppress(OSError, ValueError), connection:
            left = int(connection.makefile("rb").readline())
            while left:
                left -= connection.send(block[: min(left, len(block))])
            connection.recv(1)


def _certificates(folder: Path) -> tuple[Path, Path]:
    """An authority, and a certificate by it with its key."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the bench's authority")])
    names = [x509.DNSName(f"*.{DOMAIN}"), x509.DNSName("localhost")]
    made = []
    for name, public, extension in (
        (subject, authority.public_key(), x509.BasicConstraints(True, None)),
        (x509.Name([]), key.public_key(), x509.SubjectAlternativeName(names)),
    ):
        begun = x509.CertificateBuilder().subject_name(name).issuer_name(subject).public_key(public)
        begun = begun.serial_number(x509.random_serial_number()).not_valid_before(now - day).not_valid_after(now + day)
        signed = begun.add_extension(extension, critical=True).sign(authority, hashes.SHA256())
        made.append(signed.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    bundle, certificate = folder / "authority.pem", folder / "certificate.pem"
    bundle.write_bytes(made[0])
    certificate.write_bytes(private + made[1])
    return bundle, certificate


@contextlib.contextmanager
def mitmproxy(folder: Path, origin: Origin) -> Iterator[Mitmproxy]:
    """Two of them: one reads, the other carries bytes unread (`--ignore-hosts`)."""
    program = _installed()
    http, https, raw, tls = free_ports(4)
    common = [str(program), "-q", "--set", "flow_detail=0", "--set", f"confdir={folder}/mitmproxy"]
    common += ["--set", f"ssl_verify_upstream_trusted_ca={origin.bundle}"]
    reading = ["--mode", f"reverse:http://127.0.0.1:{origin.http}@127.0.0.1:{http}"]
    reading += ["--mode", f"reverse:https://localhost:{origin.https}@127.0.0.1:{https}"]
    passing = ["--ignore-hosts", ".", "--mode", f"reverse:tcp://127.0.0.1:{origin.raw}@127.0.0.1:{raw}"]
    passing += ["--mode", f"reverse:tcp://127.0.0.1:{origin.https}@127.0.0.1:{tls}"]
    with contextlib.ExitStack() as stack:
        pids = []
        for options in (reading, passing):
            process = stack.enter_context(subprocess.Popen([*common, *options], stdin=subprocess.DEVNULL))
            stack.callback(process.terminate)
            pids.append(process.pid)
        listening([http, https, raw, tls])
        ports = {"raw": raw, "tls": tls, "http": http, "https": https}
        yield Mitmproxy({way: ("127.0.0.1", port) for way, port in ports.items()}, pids)


def _installed() -> Path:
    """mitmdump, in an environment of its own: what it needs must not change what Remit runs with."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "remit-bench" / MITMPROXY
    program = base / "bin/mitmdump"
    if not program.exists():
        print(f"installing {MITMPROXY} into {base} ...", file=sys.stderr, flush=True)
        shutil.rmtree(base, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(base)], check=True)
        subprocess.run([str(base / "bin/pip"), "install", "--quiet", MITMPROXY], check=True)
    return program


def listening(ports: Sequence[int]) -> None:
    """Returns when all of them take connections. Raises TimeoutError after half a minute."""
    end = time.monotonic() + 30
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise TimeoutError(f"nothing listens on port {port}") from None
                time.sleep(0.05)


def write_remit(folder: Path, origin: Origin, client: Path) -> Path:
    """`open`: passed through. `plain` and `read`: a rule for methods and paths, so that every request is decided."""
    rules = [
        f"{{host: open.{DOMAIN}, ports: [{origin.https}, {origin.raw}]}}",
        f"{{host: plain.{DOMAIN}, ports: [{origin.http}], methods: [GET], paths: ['/**']}}",
        f"{{host: read.{DOMAIN}, ports: [{origin.https}], methods: [GET], paths: ['/**']}}",
        f"{{cidr: 127.0.0.0/8, ports: [{origin.http}, {origin.https}, {origin.raw}]}}",
    ]
    programs = json.dumps([sys.executable, shutil.which("wrk")])
    text = "apiVersion: remit/v1\nagent: bench\nleast_tier: partial\nextends: python\nunsafe_widen: [process.exec]\n"
    text += f"process: {{exec: {programs}}}\nfilesystem: {{read: [{client}]}}\n"
    text += f"limits: {{cpu: {os.cpu_count()}, open_files: 4096, memory: 1GiB}}\n"
    text += "network:\n  allow:\n" + "".join(f"    - {rule}\n" for rule in rules)
    path = folder / "remit.yaml"
    path.write_text(text)
    return path


def inside(folder: Path, remit: Path) -> list[str]:
    """What is put before a command, to run it in a sandbox."""
    trust = ["env", f"SSL_CERT_FILE={folder}/authority.pem"]
    return [*trust, sys.executable, "-P", "-c", _DRIVER, "run", "-q", "--remit", str(remit), "--"]


def broker_and_relay(pid: int) -> list[int]:
    """Of `remit run`: itself, where the broker is a thread, and the process that carries what is unread."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for file in children for child in file.read_text().split()]
    return [pid, *(child for child in found if b"\0relay\0" in Path(f"/proc/{child}/cmdline").read_bytes())]


def private(pid: int) -> int:
    """KiB that no other process shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))

"""Servers with TLS on this host's loopback, whose authority only the broker is told of."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import http.server
import json
import ssl
import subprocess
import threading
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CLEARED = (
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT",
    "NODE_EXTRA_CA_CERTS", "AWS_CA_BUNDLE", "DENO_CERT", "CARGO_HTTP_CAINFO", "NIX_SSL_CERT_FILE",
    "DENO_TLS_CA_STORE", "UV_NATIVE_TLS", "UV_INSECURE_HOST", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "NODE_OPTIONS",
    "NODE_TLS_REJECT_UNAUTHORIZED", "GIT_SSL_NO_VERIFY", "GIT_SSL_CAPATH", "PYTHONHTTPSVERIFY",
)  # fmt: skip
"""What an operator's own environment may say of authorities: none of it is to be what makes these tests pass."""
ONE_DAY = datetime.timedelta(days=1)


class Issuer:
    """An authority of the tests'. Its files lie in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._begun(self.subject, self.key, 1)
        made = made.add_extension(x509.BasicConstraints(True, None), critical=True)
        self.pem = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.pem)

    def issue(self, host: str, *, days: int = 1) -> Path:
        """A file with a certificate for `host` and its key. `days`: until it ends; less than 0: it has."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = self._begun(x509.Name([]), key, days)
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
        pem = made.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self.folder / f"{self.name}-{host}{days}.pem"
        file.write_bytes(private + pem)
        return file

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * ONE_DAY)
            .not_valid_after(now + days * ONE_DAY)
        )


class Site(http.server.ThreadingHTTPServer):
    """Over TLS with the certificate of `file`: says what it was asked. `connections`: handshakes that were done."""

    daemon_threads = True

    def __init__(self, file: Path, folder: Path | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(file)
        self.folder = folder
        self.asked: list[str] = []
        self.connections = 0
        self.port = int(self.server_address[1])
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def finish_request(self, request: object, client_address: object) -> None:
        with contextlib.suppress(OSError):
            tls = self.context.wrap_socket(request, server_side=True)  # type: ignore[call-overload]
            self.connections += 1
            super().finish_request(tls, client_address)  # type: ignore[arg-type]
            tls.unwrap()

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class _Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Site

    def do_GET(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        length = int(self.headers.get("Content-Length") or 0)
        if self.path.startswith("/v1/events"):
            self._events(float(self.path.partition("?")[2]))
        elif self.path == "/v1/echo" and self.headers.get("Upgrade", "").lower() == "websocket":
            self._websocket()
        elif self.path.startswith("/v1/bytes"):
            self._bytes(int(self.path.partition("?")[2]))
        elif self.path.startswith("/v1/sum"):
            self._say({"sha256": self._sum(length)})
        elif self.path.startswith("/git/") and self.server.folder is not None:
            self._file(self.server.folder / self.path.removeprefix("/git/").partition("?")[0])
        else:
            said = {"method": self.command, "path": self.path, "host": self.headers["Host"]}
            self._say({**said, "body": self.rfile.read(length).decode(), "upgrade": self.headers["Upgrade"]})

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def _say(self, what: dict[str, object]) -> None:
        self._answer(200, json.dumps(what).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _file(self, file: Path) -> None:
        self._answer(*((200, file.read_bytes()) if file.is_file() else (404, b"")))

    def _events(self, seconds: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(3):
            piece = f"data: {i}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            time.sleep(seconds if i < 2 else 0)
        self.wfile.write(b"0\r\n\r\n")

    def _bytes(self, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        piece = bytes(range(256)) * 256
        while length:
            self.wfile.write(piece[:length])
            length -= len(piece[:length])

    def _sum(self, length: int) -> str:
        seen = hashlib.sha256()
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                seen.update(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        while length:
            piece = self.rfile.read(min(length, 65536))
            seen.update(piece)
            length -= len(piece)
        return seen.hexdigest()

    def _websocket(self) -> None:
        """Accepts, and sends every frame's words back in a frame without a mask."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        digest = hashlib.sha1(key.encode(), usedforsecurity=False).digest()
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(digest).decode())
        self.end_headers()
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 != 8:
            mask = self.rfile.read(4)
            words = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(words)]) + words)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


def bare_repository(folder: Path) -> None:
    """A repository that a server of plain files can serve, as `folder`/repo.git, with one file README in it."""
    work = folder / "made"
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(work)]
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "README").write_text("from a clone\n")
    subprocess.run([*run, "add", "README"], check=True)
    subprocess.run([*run, "commit", "-q", "-m", "one"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(folder / "repo.git")], check=True)
    subprocess.run(["git", "-C", str(folder / "repo.git"), "update-server-info"], check=True)

"""Ordinary clients, unmodified, against servers on this host's loopback. Each reaches the host that is allowed and is
refused another in a bounded time, with words of its own. TLS passes through: trust is the client's, given as it is
outside."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from hashlib import sha512
from pathlib import Path

import pytest

from tests.egress.conftest import Raw
from tests.egress.place import Place

pytestmark = [pytest.mark.kernel]


@pytest.fixture
def place(tmp_path: Path, needs: Callable[[str], None]) -> Iterator[Place]:
    needs("userns")
    made = Place(tmp_path)
    yield made
    for server in made.servers:
        server.shutdown()
        server.server_close()


def program(*names: str) -> None:
    """Skips loudly where the host has none; not where all must run."""
    lacking = [name for name in names if shutil.which(name) is None]
    if lacking:
        absent(*lacking)


def absent(*names: str) -> None:
    message = f"this host lacks {', '.join(names)}"
    if "clients" in os.environ.get("REMIT_MUST_RUN", "").split(","):
        pytest.fail(message)
    pytest.skip(message)


def test_curl(place):
    program("curl")
    for url in (
        "http://web.test:$HTTP",
        "https://web.test:$HTTPS",
        "https://a.wild.test:$HTTPS",
        "https://WEB.test:$HTTPS",
    ):
        for option in ("--http1.1", "--http2", "-4"):
            held = place.run("curl", "curl", "-sS", option, "--cacert", "ca.pem", url + "/hello.txt")
            assert (held.code, held.out) == (0, "hello\n"), (url, option, held)
    # -6: the name is there and has no address of that kind.
    assert place.run("curl", "curl", "-sS", "-6", "http://web.test:$HTTP/").code in (6, 7)
    held = place.refused("curl", "curl", "-sS", "--cacert", "ca.pem", "https://other.test:$HTTPS/hello.txt")
    assert (held.code, "Could not resolve host: other.test" in held.err) == (6, True), held
    held = place.refused("curl", "curl", "-sS", "-H", "Host: other.test", "http://web.test:$HTTP/hello.txt")
    assert "Host says 'other.test'" in held.out or held.refused("other.test"), held
    held = place.refused("curl", "curl", "-sSk", "--connect-to", "::web.test:$HTTPS", "https://other.test/")
    assert held.code == 35, held
    assert held.refused("TLS asks for other.test on a connection to web.test")


def test_wget(place):
    program("wget")
    for url in ("http://web.test:$HTTP/hello.txt", "https://web.test:$HTTPS/hello.txt"):
        held = place.run("wget", "wget", "-qO-", "--ca-certificate=ca.pem", url)
        assert (held.code, held.out) == (0, "hello\n"), held
    held = place.refused("wget", "wget", "-O-", "http://other.test:$HTTP/hello.txt")
    assert (held.code, "unable to resolve host address" in held.err) == (4, True), held


def test_busybox_a_static_program_with_its_own_resolver(place):
    program("busybox")
    held = place.run("busybox", "busybox", "wget", "-qO-", "http://web.test:$HTTP/hello.txt")
    assert (held.code, held.out) == (0, "hello\n"), held
    held = place.run("busybox", "busybox", "nslookup", "web.test")
    assert (held.code, "198.18.1.0" in held.out) == (0, True), held
    held = place.refused("busybox", "busybox", "wget", "-qO-", "http://other.test:$HTTP/hello.txt")
    assert (held.code, "bad address" in held.err) == (1, True), held
    assert place.refused("busybox", "busybox", "nslookup", "other.test").code == 1


def test_openssl_s_client(place):
    program("openssl")
    held = place.run(
        "openssl",
        "openssl",
        "s_client",
        "-connect",
        "web.test:$HTTPS",
        "-CAfile",
        "ca.pem",
        "-verify_return_error",
        "-brief",
    )
    assert (held.code, "Verification: OK" in held.err) == (0, True), held
    held = place.refused(
        "openssl", "openssl", "s_client", "-connect", "web.test:$HTTPS", "-servername", "evil.test", "-brief"
    )
    assert held.code == 1, held
    assert held.refused("TLS asks for evil.test")


def test_git_clones(place):
    program("git")
    work = place.folder / "work"
    for words in (
        ["init", "-q", "-b", "main", str(work)],
        ["-C", str(work), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "first"],
        ["clone", "-q", "--bare", str(work), str(place.root / "a.git")],
        ["-C", str(place.root / "a.git"), "update-server-info"],
    ):
        subprocess.run(["git", *words], check=True, timeout=30, capture_output=True)
    git = ["git", "-c", "http.sslCAInfo=ca.pem", "clone", "-q"]
    held = place.run("", *git, "https://web.test:$HTTPS/a.git", "/tmp/a", base="shell-with-git")
    assert held.code == 0, held
    held = place.refused("", *git, "https://other.test:$HTTPS/a.git", "/tmp/b", base="shell-with-git")
    assert (held.code, "Could not resolve host: other.test" in held.err) == (128, True), held


def _wheel(where: Path) -> None:
    where.mkdir(parents=True)
    files = {
        "greet.py": "print('hello from a wheel')\n",
        "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["greet-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files) + "greet-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(where / "greet-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)
    (where / "index.html").write_text("<a href='greet-1.0-py3-none-any.whl'>greet-1.0-py3-none-any.whl</a>")


PYTHON = f"'{sys.executable}'"


def test_pip_installs(place):
    _wheel(place.root / "simple" / "greet")
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--cert",
        "ca.pem",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "install",
        "--target",
        "/tmp/lib",
    ]
    held = place.run(PYTHON, *pip, "-i", "https://web.test:$HTTPS/simple/", "greet", base="python")
    assert (held.code, "Successfully installed greet-1.0" in held.out) == (0, True), held
    held = place.refused(
        PYTHON, *pip, "--retries", "1", "-i", "https://other.test:$HTTPS/simple/", "greet", base="python"
    )
    assert (held.code, "name resolution" in held.err + held.out) == (1, True), held


_PYTHON_CLIENTS = {
    "urllib": "import ssl, urllib.request as u; get = lambda url: u.urlopen(url, timeout=10, context=ssl.create_default_context(cafile='ca.pem')).read().decode()",
    "requests": "import requests; get = lambda url: requests.get(url, timeout=10, verify='ca.pem').text",
    "httpx": "import httpx, ssl; get = lambda url: httpx.get(url, timeout=10, verify=ssl.create_default_context(cafile='ca.pem')).text",
    "aiohttp": """
import aiohttp, asyncio, ssl
async def fetch(url):
    async with aiohttp.ClientSession() as s:
        async with s.get(url, ssl=ssl.create_default_context(cafile='ca.pem')) as r: return await r.text()
get = lambda url: asyncio.run(fetch(url))
""",
}


@pytest.mark.parametrize("library", _PYTHON_CLIENTS)
def test_python(place, library):
    if library != "urllib" and importlib.util.find_spec(library) is None:
        absent(library)
    code = _PYTHON_CLIENTS[library] + (
        f"\nprint(get('http://web.test:{place.http}/hello.txt'), get('https://web.test:{place.https}/hello.txt'), end='')\n"
        f"try: get('https://other.test:{place.https}/')\nexcept Exception as e: print(type(e).__name__, e)\n"
    )
    (place.folder / "probe.py").write_text(code)
    files = "filesystem: {read: [./ca.pem, ./probe.py]}\n"
    held = place.refused("", sys.executable, "probe.py", base="python", more=f"process: {{exec: [{PYTHON}]}}\n" + files)
    assert held.out.startswith("hello\n hello\n"), held
    assert "name" in held.out.splitlines()[-1], held


def _npm_package(root: Path, port: int) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in {
            "package.json": '{"name":"greet","version":"1.0.0"}',
            "index.js": "console.log('hello')",
        }.items():
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    (root / "greet-1.0.0.tgz").write_bytes(packed.getvalue())
    dist = {
        "tarball": f"https://web.test:{port}/greet-1.0.0.tgz",
        "integrity": "sha512-" + b64encode(sha512(packed.getvalue()).digest()).decode(),
    }
    version = {"name": "greet", "version": "1.0.0", "dist": dist}
    said = {"name": "greet", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    (root / "greet").write_text(json.dumps(said))


def test_npm_installs(place):
    program("node", "npm")
    _npm_package(place.root, place.https)
    more = "process: {exec: [node, npm], env: {set: {NODE_EXTRA_CA_CERTS: /workspace/ca.pem}}}\n"
    npm = ["npm", "install", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error", "--prefix=/tmp/p"]
    held = place.run("", *npm, "--registry=https://web.test:$HTTPS/", "greet", base="node", more=more)
    assert (held.code, "added 1 package" in held.out) == (0, True), held
    npm += ["--fetch-retries=0", "--registry=https://other.test:$HTTPS/", "greet"]
    held = place.refused("", *npm, base="node", more=more)
    assert held.code == 1, held
    assert "EAI_AGAIN" in held.err, held


def test_node_fetch(place):
    program("node")
    (place.folder / "probe.mjs").write_text(
        f"for (const url of ['http://web.test:{place.http}', 'https://web.test:{place.https}', 'https://other.test:{place.https}'])\n"
        "  try { console.log((await (await fetch(url + '/hello.txt')).text()).trim()) } catch (e) { console.log(e.cause.code) }\n"
    )
    more = (
        "process: {exec: [node], env: {set: {NODE_EXTRA_CA_CERTS: /workspace/ca.pem}}}\n"
        "filesystem: {read: [./ca.pem, ./probe.mjs]}\n"
    )
    held = place.refused("", "node", "probe.mjs", base="node", more=more)
    assert held.out.split() == ["hello", "hello", "EAI_AGAIN"], held


_GO = """
package main
import ("fmt"; "io"; "net/http"; "os"; "time")
func main() {
  c := http.Client{Timeout: 10 * time.Second}
  for _, url := range os.Args[1:] {
    r, err := c.Get(url)
    if err != nil { fmt.Println("failed:", err); continue }
    b, _ := io.ReadAll(r.Body); fmt.Print(string(b))
  }
}
"""


@pytest.mark.parametrize("cgo", ["0", "1"])
def test_go(place, cgo):
    program("go", "gcc")
    (place.folder / "get.go").write_text(_GO)
    tags = [] if cgo == "0" else ["-tags", "netcgo"]
    subprocess.run(
        ["go", "build", *tags, "-o", "get", "get.go"], cwd=place.folder, check=True, timeout=110, capture_output=True,
        env={**os.environ, "CGO_ENABLED": cgo, "GOFLAGS": "-p=2", "GO111MODULE": "off"},
    )  # fmt: skip
    more = f"process: {{exec: ['{place.folder}/get'], env: {{set: {{SSL_CERT_FILE: /workspace/ca.pem}}}}}}\n"
    urls = [
        "http://web.test:$HTTP/hello.txt",
        "https://web.test:$HTTPS/hello.txt",
        "https://other.test:$HTTPS/hello.txt",
    ]
    held = place.refused("", f"{place.folder}/get", *urls, more=more)
    hello, again, failed = held.out.splitlines()
    assert (hello, again) == ("hello", "hello"), held
    assert "lookup other.test" in failed, held


_JAVA = """
import java.net.URI; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers; import java.time.Duration;
public class Get { public static void main(String[] urls) throws Exception {
  HttpClient c = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(10)).build();
  for (String url : urls) try {
    System.out.print(c.send(HttpRequest.newBuilder(URI.create(url)).build(), BodyHandlers.ofString()).body());
  } catch (Exception e) { System.out.println(e); }
} }
"""


def test_java(place):
    program("java", "javac", "keytool")
    (place.folder / "Get.java").write_text(_JAVA)
    for words in (
        ["javac", "-d", "classes", "Get.java"],
        [
            "keytool",
            "-importcert",
            "-noprompt",
            "-file",
            "ca.pem",
            "-alias",
            "ca",
            "-keystore",
            "trust.p12",
            "-storepass",
            "changeit",
        ],
    ):
        subprocess.run(words, cwd=place.folder, check=True, timeout=60, capture_output=True)
    more = (
        "process: {exec: [java]}\nlimits: {memory: 1GiB, processes: 200}\n"
        "filesystem: {read: [./classes, ./trust.p12]}\n"
    )
    argv = [
        "java",
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-Djavax.net.ssl.trustStore=trust.p12",
        "-Djavax.net.ssl.trustStorePassword=changeit",
        "-cp",
        "classes",
        "Get",
    ]
    urls = [
        "http://web.test:$HTTP/hello.txt",
        "https://web.test:$HTTPS/hello.txt",
        "https://other.test:$HTTPS/hello.txt",
    ]
    held = place.refused("", *argv, *urls, more=more)
    lines = held.out.splitlines()
    assert lines[:2] == ["hello", "hello"], held
    assert "Exception" in lines[2], held


def test_ssh_where_the_server_speaks_first(place, raw):
    program("ssh")

    def banner(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.9 test\r\n")
        heard.append(connection.recv(100))

    heard: list[bytes] = []
    server: Raw = raw(banner)
    ssh = [
        "ssh",
        "-v",
        "-F",
        "none",
        "-o",
        "BatchMode=yes",
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "ConnectTimeout=5",
        "-p",
        str(server.port),
    ]
    held = place.run("ssh", *ssh, "a@web.test", ports=(server.port,))
    assert "remote software version OpenSSH_9.9" in held.err, held
    assert heard[0].startswith(b"SSH-2.0-OpenSSH")
    held = place.refused("ssh", *ssh, "a@other.test", ports=(server.port,))
    assert (held.code, "Could not resolve hostname other.test" in held.err) == (255, True), held


def test_psql_where_tls_is_asked_for_first(place, raw):
    """A server that declines TLS, takes anybody and ends."""
    program("psql")

    def postgres(connection: socket.socket) -> None:
        asked = connection.recv(1000)
        while asked[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
            connection.sendall(b"N")
            asked = connection.recv(1000)
        connection.sendall(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")
        heard.append(connection.recv(1000))
        connection.sendall(
            b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0"
            b"D\0\0\0\x10\0\x01\0\0\0\x06reachd"
            b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I"
        )
        connection.recv(1000)

    heard: list[bytes] = []
    server: Raw = raw(postgres)
    psql = (
        str(Path("/usr/lib/postgresql").glob("*/bin/psql").__iter__().__next__())
        if Path("/usr/lib/postgresql").exists()
        else "psql"
    )
    held = place.run(
        f"'{psql}'",
        psql,
        "-XAt",
        f"host=web.test port={server.port} user=a connect_timeout=5",
        "-c",
        "select 1",
        ports=(server.port,),
    )
    assert (held.out, heard) == ("reachd\n", [b"Q\0\0\0\rselect 1\0"]), held
    held = place.refused(
        f"'{psql}'", psql, "-XAt", f"host=other.test port={server.port} user=a", "-c", "select 1", ports=(server.port,)
    )
    assert (held.code, 'could not translate host name "other.test"' in held.err) == (2, True), held

"""Each way by which programs inside come to trust the sandbox's authority, alone: with it the client gets through, with
nothing of the kind it does not. What an operator's own environment says of authorities is cleared before."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import Held
from tests.egress.secure import Secure, absent, exec_only, program

pytestmark = [pytest.mark.kernel]

NONE = "nothing"
ROOMY = "limits: {memory: 2GiB, processes: 256, disk: 512MiB}\n"


class Client(NamedTuple):
    """`names`: what this host must have. `argv` and `code` (as probe.py): with $URL for an allowed address, $PORT for
    its port. `trusts`: each way that is enough alone. `said`: in its output when it got through, for a client that
    asks for nothing. `silent`: it ends the handshake and says nothing of its distrust to the other side."""

    names: tuple[str, ...]
    argv: tuple[str, ...]
    trusts: tuple[str, ...]
    code: str = ""
    more: str = ""
    said: str = ""
    silent: bool = False


PYTHON = (sys.executable, "probe.py")
AS_PYTHON = f"extends: python\nunsafe_widen: [process.exec]\nprocess: {{exec: ['{sys.executable}']}}\n"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=0", "--no-cache-dir", "download")
_UV = ("uv", "pip", "install", "--no-cache", "--python", sys.executable, "--target", "/tmp/x")
_JAVA = """
import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create("$URL")).build(), HttpResponse.BodyHandlers.ofString());
} }
"""
CLIENTS = {
    "curl": Client(("curl",), ("curl", "-sS", "$URL"), ("places", "CURL_CA_BUNDLE", "SSL_CERT_FILE")),
    # GnuTLS, which knows no variable.
    "wget": Client(("wget",), ("wget", "-qO-", "--tries=1", "$URL"), ("places",), silent=True),
    "gnutls-cli": Client(
        ("gnutls-cli",), ("gnutls-cli", "-p", "$PORT", "api.test"), ("places",), said="The certificate is trusted"
    ),
    "git": Client(("git",), ("git", "ls-remote", "$URL"), ("places", "GIT_SSL_CAINFO"), silent=True),
    "openssl": Client(
        ("openssl",),
        ("openssl", "s_client", "-verify_return_error", "-connect", "api.test:$PORT"),
        ("places", "hashed", "SSL_CERT_FILE"),
        said="Verify return code: 0 (ok)",
    ),
    "python": Client((), PYTHON, ("SSL_CERT_FILE",), "import urllib.request as u; u.urlopen('$URL', timeout=10)"),
    "python of the system": Client(
        ("/usr/bin/python3",),
        ("/usr/bin/python3", "probe.py"),
        ("places", "hashed", "SSL_CERT_FILE"),
        "import urllib.request as u; u.urlopen('$URL', timeout=10)",
        AS_PYTHON.replace(sys.executable, "/usr/bin/python3"),
    ),
    "requests": Client(
        ("requests",), PYTHON, ("REQUESTS_CA_BUNDLE",), "import requests; requests.get('$URL', timeout=10)"
    ),
    "httpx": Client(("httpx",), PYTHON, ("SSL_CERT_FILE",), "import httpx; httpx.get('$URL', timeout=10)"),
    "aiohttp": Client(
        ("aiohttp",),
        PYTHON,
        ("SSL_CERT_FILE",),
        "import aiohttp, asyncio\nasync def f():\n  async with aiohttp.request('GET', '$URL'): pass\nasyncio.run(f())",
    ),
    "pip": Client(
        ("pip",),
        (*_PIP, "-i", "$URL/simple/", "greet"),
        ("PIP_CERT", "REQUESTS_CA_BUNDLE"),
        more=AS_PYTHON,
    ),
    "uv": Client(
        ("uv",),
        (*_UV, "-i", "$URL/simple/", "greet"),
        ("SSL_CERT_FILE",),
        more=f"process: {{exec: [uv, '{sys.executable}'], env: {{set: {{UV_HTTP_RETRIES: '0'}}}}}}\n" + ROOMY,
    ),
    "aws": Client(
        ("aws",),
        ("aws", "--endpoint-url", "$URL", "--region", "x", "s3api", "list-buckets"),
        ("AWS_CA_BUNDLE",),
        more="process: {exec: [aws], env: {set: {AWS_ACCESS_KEY_ID: a, AWS_SECRET_ACCESS_KEY: b, AWS_MAX_ATTEMPTS: '1'}}}\n",
    ),
    "cargo": Client(
        ("cargo",),
        ("cargo", "search", "--index", "sparse+$URL/", "greet"),
        ("CARGO_HTTP_CAINFO",),
        more="process: {exec: [cargo, rustc], env: {set: {CARGO_NET_RETRY: '0'}}}\n" + ROOMY,
    ),
    "node": Client(
        ("node",), ("node", "-e", "fetch('$URL')"), ("NODE_EXTRA_CA_CERTS",), more=exec_only("node") + ROOMY
    ),
    "deno": Client(
        ("deno",),
        ("deno", "eval", "--no-lock", "await fetch('$URL')"),
        ("DENO_CERT",),
        more=exec_only("deno") + ROOMY,
    ),
    "java": Client(
        ("java", "javac"),
        ("java", "--source", "11", "probe.py"),
        ("JAVA_TOOL_OPTIONS",),
        _JAVA,
        exec_only("java") + ROOMY,
    ),
}


def _run(secure: Secure, client: Client, trust: str) -> Held:
    for name in client.names:
        if (importlib.util.find_spec if client.argv[0] == sys.executable else shutil.which)(name) is None:
            absent(name)

    def filled(text: str) -> str:
        return text.replace("$URL", f"{secure.url}/v1/a").replace("$PORT", str(secure.site.port))

    argv = [filled(word) for word in client.argv]
    more = client.more or (AS_PYTHON if client.code else exec_only(argv[0]))
    if client.code:
        more += "filesystem: {read: [./probe.py]}\n"
    return secure(filled(client.code), argv=argv, more=more, env={"REMIT_TEST_TRUST": trust})


@pytest.mark.parametrize(
    ("name", "trust"), [(name, trust) for name, client in CLIENTS.items() for trust in (NONE, *client.trusts)]
)
def test_one_way_is_enough_and_none_is_not(secure, name, trust):
    client = CLIENTS[name]
    held = _run(secure, client, trust)
    assert (client.said in held.out if client.said else bool(secure.site.asked)) == (trust != NONE), held
    if trust == NONE and not client.silent:
        assert held.refused("the program trusts no authority of the sandbox's"), held


_GO = """
package main
import ("net/http"; "os"; "time")
func main() { c := http.Client{Timeout: 10 * time.Second}; _, err := c.Get(os.Args[1]); if err != nil { panic(err) } }
"""


@pytest.fixture(scope="module")
def get_by_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    go = program("go")
    folder = tmp_path_factory.mktemp("go")
    (folder / "get.go").write_text(_GO)
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-p=2", "GO111MODULE": "off"}
    subprocess.run([go, "build", "-o", "get", "get.go"], cwd=folder, env=env, check=True, timeout=110)
    return folder / "get"


@pytest.mark.parametrize("trust", [NONE, "places", "SSL_CERT_FILE"])
def test_a_program_of_gos(secure, get_by_go, trust):
    url = f"{secure.url}/v1/a"
    held = secure(argv=[str(get_by_go), url], more=exec_only(f"'{get_by_go}'"), env={"REMIT_TEST_TRUST": trust})
    assert secure.site.asked == ([] if trust == NONE else ["GET /v1/a"]), held


def test_keytool_reads_javas_store(secure):
    keytool = program("keytool")
    argv = [keytool, "-J-Xmx128m", "-list", "-v", "-storetype", "PKCS12", "-keystore", "/etc/remit/authorities.p12"]
    held = secure(argv=argv, more=exec_only(keytool) + ROOMY)
    assert held.out.count("Owner: CN=Remit sandbox authority") == 1, held
    # Beside what the host trusts; a certificate that cryptography won't read is left out.
    host = Path("/etc/ssl/certs/ca-certificates.crt")
    trusted = host.read_text().count("BEGIN CERTIFICATE") if host.exists() else 0
    assert held.out.count("trustedCertEntry") >= 0.9 * trusted + 1


def test_a_client_with_an_authority_of_its_own_passes_where_nothing_is_read(secure):
    """Its twin, where TLS is read, is in test_interception."""
    curl = program("curl")
    url = f"https://open.test:{secure.open.port}/"
    more = exec_only(curl) + "filesystem: {read: [./issuer.pem]}\n"
    held = secure(argv=[curl, "-sSf", "--cacert", "issuer.pem", "--capath", "/nowhere", url], more=more)
    assert held.code == 0, held
    assert secure.open.asked == ["GET /"]
    held = secure(
        argv=[curl, "-sSf", "--cacert", "issuer.pem", "--capath", "/nowhere", f"{secure.url}/v1/a"], more=more
    )
    assert held.code == 60, held
    assert held.refused("the program trusts no authority of the sandbox's: unknown ca")
    assert secure.site.asked == []

"""Each way by which programs inside come to trust the sandbox's authority, alone: with it the client gets through, with
nothing of the kind it does not. What an operator's own environment says of authorities is cleared before."""

from __future__ import annotations

import importlib.util
import sys
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
PROBE = "filesystem: {read: [./probe.py]}\n"
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
        (sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=0", "--no-cache-dir")
        + ("download", "--no-deps", "-i", "$URL/simple/", "greet"),
        ("PIP_CERT", "REQUESTS_CA_BUNDLE"),
        more=AS_PYTHON,
    ),
    "uv": Client(
        ("uv",),
        ("uv", "pip", "install", "--no-cache", "--python", sys.executable, "--target", "/tmp/x", "-i", "$URL/simple/")
        + ("greet",),
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
}


def _run(secure: Secure, client: Client, trust: str) -> Held:
    for name in client.names:
        if importlib.util.find_spec(name) is None if not client.argv[0].endswith(name) else not _has(name):
            absent(name)

    def filled(text: str) -> str:
        return text.replace("$URL", f"{secure.url}/v1/a").replace("$PORT", str(secure.site.port))

    argv = [filled(word) for word in client.argv]
    more = client.more or ("" if client.code else exec_only(argv[0]))
    if client.code and client.argv == PYTHON:
        more = AS_PYTHON
    more += PROBE if client.code and "filesystem:" not in more else ""
    return secure(filled(client.code), argv=argv, more=more, env={"REMIT_TEST_TRUST": trust})


def _has(name: str) -> bool:
    return bool(program(name))


def _got_through(secure: Secure, client: Client, held: Held) -> bool:
    return client.said in held.out if client.said else bool(secure.site.asked)


@pytest.mark.parametrize(
    ("name", "trust"), [(name, trust) for name, client in CLIENTS.items() for trust in (NONE, *client.trusts)]
)
def test_one_way_is_enough_and_none_is_not(secure, name, trust):
    held = _run(secure, CLIENTS[name], trust)
    assert _got_through(secure, CLIENTS[name], held) == (trust != NONE), held
    if trust == NONE and not CLIENTS[name].silent:
        assert held.refused("seems to trust no authority but its own"), held

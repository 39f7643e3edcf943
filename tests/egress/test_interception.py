"""TLS that is read, where a rule speaks of methods or paths; and TLS that is not. Each refusal stands beside what is
allowed. The servers' authority is known to the broker alone."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.egress.secure import exec_only, program
from tests.egress.tls import Issuer, Site, bare_repository

pytestmark = [pytest.mark.kernel]


def test_methods_and_paths_are_held_request_by_request_on_one_connection(secure):
    code = f"""
import http.client, ssl
c = http.client.HTTPSConnection('api.test', {secure.site.port}, timeout=10)
c.request('GET', '/v1/a'); r = c.getresponse(); print(r.status, r.read().decode())
s = c.sock
c.request('POST', '/v1/b', body='words'); r = c.getresponse(); print(r.status, r.read().decode()); assert c.sock is s
c.request('DELETE', '/v1/a'); r = c.getresponse(); print(r.status, r.read().decode())
c = http.client.HTTPSConnection('api.test', {secure.site.port}, timeout=10)
c.request('GET', '/v2/a'); r = c.getresponse(); print(r.status, r.read().decode())
"""
    held = secure(code)
    got = [(int(line[:3]), json.loads(line[4:])) for line in held.out.splitlines() if line]
    assert [status for status, _ in got] == [200, 200, 403, 403], held
    host = f"api.test:{secure.site.port}"
    assert got[0][1] == {"method": "GET", "path": "/v1/a", "host": host, "body": "", "upgrade": None}
    assert got[1][1]["body"] == "words"
    assert got[2][1]["request"] == "DELETE https://api.test/v1/a"
    assert "DELETE is not among GET" in got[2][1]["reason"]
    assert "/v2/a matches none of" in got[3][1]["reason"]
    assert secure.site.asked == ["GET /v1/a", "POST /v1/b"]
    assert [e["intercepted"] for e in secure.said("connect")] == [True, True]
    assert [e["verdict"] for e in secure.said("http")] == ["allow", "allow", "deny", "deny"]
    assert held.refused("DELETE is not among GET")


def test_urllib_of_python(secure):
    held = secure(f"import urllib.request as u; print(u.urlopen('{secure.url}/v1/x', timeout=10).read().decode())")
    assert json.loads(held.out)["path"] == "/v1/x", held


@pytest.mark.parametrize("more", [[], ["--http2"], ["--http1.0"]])
def test_curl(secure, more):
    argv = [program("curl"), "-sS", *more, f"{secure.url}/v1/a", "-w", "\n%{http_code} %{http_version}\n"]
    held = secure(argv=argv, more=exec_only(argv[0]))
    assert held.out.splitlines()[-1].startswith("200 1."), held
    held = secure(argv=[*argv[:-3], f"{secure.url}/v2/a", *argv[-2:]], more=exec_only(argv[0]))
    assert held.out.splitlines()[-1].startswith("403 1."), held
    assert secure.site.asked == ["GET /v1/a"]


def test_fetch_of_node(secure):
    node = program("node")
    code = f"const r = await fetch('{secure.url}/v1/a'), s = await fetch('{secure.url}/v1/a', {{method: 'DELETE'}});\n"
    code += "console.log(r.status, (await r.json()).path, s.status, (await s.json()).rule)"
    argv = [node, "--input-type=module", "-e", code]
    held = secure(argv=argv, more=exec_only(node) + "limits: {memory: 2GiB, processes: 256}\n")
    assert held.out == "200 /v1/a 403 network.allow\n", held


def test_openssl_by_its_file_and_by_its_directory(secure):
    openssl = program("openssl")
    for options in ([], ["-CApath", "/etc/ssl/certs", "-no-CAfile", "-no-CAstore"]):
        if options and not any(path.suffix == ".0" for path in Path("/etc/ssl/certs").iterdir()):
            continue
        argv = [openssl, "s_client", *options, "-verify_return_error", "-servername", "api.test", "-connect"]
        held = secure(argv=[*argv, f"api.test:{secure.site.port}"], more=exec_only(openssl))
        assert "Verify return code: 0 (ok)" in held.out, held
        assert "issuer=CN = Remit sandbox authority" in held.out


@pytest.mark.parametrize("places", ["variables", "places"])
def test_git_clones(secure, places):
    git = program("git")
    bare_repository(secure.folder)
    more = exec_only(git)
    if places == "places":
        more = f"process: {{exec: [{git}], env: {{set: {{GIT_SSL_CAINFO: /etc/ssl/certs/ca-certificates.crt}}}}}}\n"
    argv = [git, "clone", "-q", f"{secure.url}/git/repo.git", "clone"]
    held = secure(argv=argv, more=more + "state: {keep: ['clone/README']}\n", paths="'/git/**'")
    assert held.code == 0, held
    assert (secure.folder / "kept/clone/README").read_text() == "from a clone\n"
    held = secure(argv=argv, more=more, paths="'/git/other/**'")
    assert held.code != 0
    assert "403" in held.err


def test_the_variables_of_the_remit_win(secure):
    more = f"process: {{exec: [{sys.executable}], env: {{set: {{SSL_CERT_FILE: /nowhere}}}}}}\n"
    code = (
        "import os; print(os.environ['SSL_CERT_FILE'], os.environ['CURL_CA_BUNDLE'], os.environ['NODE_EXTRA_CA_CERTS'])"
    )
    held = secure(argv=[sys.executable, "-c", code], more=more)
    assert held.out == "/nowhere /etc/remit/authorities.pem /etc/remit/authority.pem\n", held


def test_what_the_host_trusts_is_trusted_inside_beside_the_sandboxs_own(secure):
    held = secure("import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'])")
    host = Path("/etc/ssl/certs/ca-certificates.crt")
    if not host.exists():
        pytest.skip("this host keeps its authorities elsewhere")
    assert int(held.out) == host.read_text().count("BEGIN CERTIFICATE") + 1


def test_a_host_without_such_rules_is_never_intercepted(secure):
    code = f"""
import socket, ssl
for name, port in (('open.test', {secure.open.port}), ('api.test', {secure.site.port})):
    c = ssl._create_unverified_context(); c.set_alpn_protocols(['http/1.1'])
    s = c.wrap_socket(socket.create_connection((name, port), 10), server_hostname=name)
    print(ssl.DER_cert_to_PEM_cert(s.getpeercert(True)))
"""
    held = secure(code)
    served = held.out.split("-----END")
    assert served[0].strip() in (secure.folder / "issuer-open.test1.pem").read_text()
    assert served[1].partition("-----BEGIN")[2] not in (secure.folder / "issuer-api.test1.pem").read_text()
    assert [e.get("intercepted") for e in secure.said("connect")] == [None, True]


def test_a_program_with_an_authority_of_its_own_fails_where_tls_is_read_and_only_there(secure):
    code = f"""
import ssl, urllib.request as u
c = ssl.create_default_context(cafile='issuer.pem')
print(u.urlopen('https://open.test:{secure.open.port}/', context=c, timeout=10).status)
try: print('REACHED', u.urlopen('{secure.url}/v1/a', context=c, timeout=10).status)
except OSError as e: print('failed', 'CERTIFICATE_VERIFY_FAILED' in str(e))
"""
    held = secure(code, more="filesystem: {read: [./probe.py, ./issuer.pem]}\n")
    assert held.out == "200\nfailed True\n", held
    assert held.refused("the program trusts no authority of the sandbox's: unknown ca")
    assert secure.site.asked == []


def test_another_name_or_host_than_the_connections_is_refused(secure):
    code = f"""
import socket, ssl
def ask(sni, host):
    c = ssl._create_unverified_context()
    try:
        s = c.wrap_socket(socket.create_connection(('api.test', {secure.site.port}), 10), server_hostname=sni)
        s.sendall(f'GET /v1/a HTTP/1.1\\r\\nHost: {{host}}:{secure.site.port}\\r\\n\\r\\n'.encode())
        return s.recv(100).split()[1].decode()
    except OSError as e: return type(e).__name__
for sni, host in (('api.test', 'api.test'), (None, 'api.test'), ('open.test', 'api.test'), ('api.test', 'open.test')):
    print(ask(sni, host))
"""
    assert secure(code).out.split() == ["200", "200", "ConnectionResetError", "400"]
    assert secure.site.asked == ["GET /v1/a"] * 2


@pytest.mark.parametrize("kind", ["of another authority", "of another name", "expired", "self-signed"])
def test_a_server_that_does_not_prove_its_name_is_told_nothing(secure, kind):
    other = Issuer(secure.folder, "other")
    file = {
        "of another authority": lambda: other.issue("api.test"),
        "of another name": lambda: secure.issuer.issue("open.test"),
        "expired": lambda: secure.issuer.issue("api.test", days=-1),
        "self-signed": lambda: _self_signed(other),
    }[kind]()
    site = Site(file)
    code = f"""
import urllib.request as u, urllib.error
try: print('REACHED', u.urlopen('https://api.test:{site.port}/v1/a', timeout=10).read())
except urllib.error.HTTPError as e: print(e.code, e.read().decode())
"""
    held = secure(code, site=site)
    assert held.out.startswith("502 "), held
    reason = json.loads(held.out[4:])["reason"]
    words = {"of another name": "Hostname mismatch", "expired": "has expired", "self-signed": "self-signed certificate"}
    assert words.get(kind, "unable to get local issuer") in reason
    assert (site.asked, site.connections) == ([], 0)
    (event,) = [e for e in secure.said("connect") if e["verdict"] == "deny"]
    assert (event["rule"], event["reason"]) == ("builtin.certificate", reason)
    assert held.refused(reason)
    site.shutdown()
    site.server_close()


def _self_signed(issuer: Issuer) -> Path:
    from cryptography.hazmat.primitives import serialization

    private = issuer.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file = issuer.folder / "self.pem"
    file.write_bytes(private + issuer.pem)
    return file


def test_a_server_that_speaks_no_tls_or_nothing_is_an_answer_in_words(secure):
    server = socket.create_server(("127.0.0.1", 0))
    got: list[bytes] = []

    def plain() -> None:
        connection, _ = server.accept()
        got.append(connection.recv(4096))
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        got.append(connection.recv(4096))
        connection.close()

    threading.Thread(target=plain, daemon=True).start()
    port = server.getsockname()[1]
    code = f"""
import urllib.request as u, urllib.error
try: print('REACHED', u.urlopen('https://api.test:{port}/v1/secret', timeout=10).read())
except urllib.error.HTTPError as e: print(e.code, e.read().decode())
"""
    site = Site(secure.issuer.issue("api.test"))
    site.shutdown()
    site.server_close()
    site.port = port
    held = secure(code, site=site)
    assert held.out.startswith("502 "), held
    assert "no TLS with api.test" in held.out
    assert b"secret" not in b"".join(got)
    server.close()


def test_a_websocket_passes_and_another_upgrade_does_not(secure):
    code = f"""
import base64, os, socket, ssl
def connect():
    c = ssl.create_default_context()
    return c.wrap_socket(socket.create_connection(('api.test', {secure.site.port}), 10), server_hostname='api.test')
def ask(s, path, upgrade):
    s.sendall(f'GET {{path}} HTTP/1.1\\r\\nHost: api.test:{secure.site.port}\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\n'
              f'Upgrade: {{upgrade}}\\r\\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\\r\\nSec-WebSocket-Version: 13\\r\\n'
              f'Sec-WebSocket-Key: {{base64.b64encode(os.urandom(16)).decode()}}\\r\\n\\r\\n'.encode())
    return s.recv(4096)
s = connect()
print(ask(s, '/v1/echo', 'websocket').split()[1].decode())
for word in (b'hello', b'again'):
    mask = os.urandom(4)
    s.sendall(bytes([0x81, 0x80 | len(word)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(word)))
    print(s.recv(100)[2:].decode())
print(ask(connect(), '/v2/echo', 'websocket').split()[1].decode())
s = connect(); said = ask(s, '/v1/other', 'h2c')
while b'}}' not in said: said += s.recv(4096)
print(said.split()[1].decode(), b'"upgrade": null' in said)
"""
    assert secure(code).out.split() == ["101", "hello", "again", "403", "200", "True"]


def test_a_stream_of_events_arrives_piece_by_piece_and_is_never_timed_out(secure):
    code = f"""
import time, urllib.request as u
r = u.urlopen('{secure.url}/v1/events?3'); began = time.monotonic()
for line in r:
    if line.strip(): print(line.decode().strip(), round((time.monotonic() - began) / 3))
"""
    assert secure(code).out.split("\n") == ["data: 0 0", "data: 1 1", "data: 2 2", ""]


def test_large_bodies_arrive_whole_both_ways(secure):
    code = f"""
import hashlib, http.client, json
size = 24_000_000
c = http.client.HTTPSConnection('api.test', {secure.site.port}, timeout=60)
c.request('GET', f'/v1/bytes?{{size}}'); r = c.getresponse()
got = hashlib.sha256()
while piece := r.read(1 << 16): got.update(piece)
body = (bytes(range(256)) * 256 * (size // 65536 + 1))[:size]
print(got.hexdigest() == hashlib.sha256(body).hexdigest())
c.request('POST', '/v1/sum', body=body); print(json.loads(c.getresponse().read())['sha256'] == hashlib.sha256(body).hexdigest())
c.request('PUT', '/v1/sum', body=(body[i:i + 50_000] for i in range(0, size, 50_000)), encode_chunked=True)
print(json.loads(c.getresponse().read())['sha256'] == hashlib.sha256(body).hexdigest())
c.request('DELETE', '/v1/sum'); print(c.getresponse().status)
"""
    held = secure(code, more="limits: {memory: 512MiB}\n")
    assert held.out == "True\nTrue\nTrue\n403\n", held


def test_a_denied_upload_gets_its_answer_and_not_a_reset(secure):
    curl = program("curl")
    (secure.folder / "big").write_bytes(b"x" * 3_000_000)
    argv = [curl, "-sS", "-H", "Expect:", "--data-binary", "@big", f"{secure.url}/v2/sum"]
    more = exec_only(curl) + "filesystem: {read: [./big]}\n"
    held = secure(argv=argv, more=more)
    assert json.loads(held.out)["rule"] == "network.allow", held
    assert secure.site.asked == []


def test_names_below_a_wildcard_have_certificates_of_their_own(secure):
    site = Site(secure.issuer.issue("deep.under.test"))
    code = f"""
import urllib.request as u
print(u.urlopen('https://deep.under.test:{site.port}/x', timeout=10).status)
"""
    assert secure(code, site=site).out == "200\n"
    site.shutdown()
    site.server_close()


def test_the_private_keys_are_in_nothing_that_a_program_inside_can_read(secure):
    code = """
import glob, os
with open('dump', 'wb') as dump:
    for path in [p for top in ('/etc/remit', '/etc/ssl') for at, _, names in os.walk(top) for p in (f'{at}/{n}' for n in names)]:
        if os.path.isfile(path): dump.write(open(path, 'rb').read())
    for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/fd/*'):
        try: dump.write(open(path, 'rb').read(1 << 20) if os.path.isfile(path) else os.readlink(path).encode())
        except OSError: pass
    for maps in glob.glob('/proc/[0-9]*/maps'):
        try: lines, memory = list(open(maps)), open(maps[:-4] + 'mem', 'rb', 0)
        except OSError: continue
        for line in lines:
            begin, end = (int(x, 16) for x in line.split()[0].split('-'))
            try: memory.seek(begin); dump.write(memory.read(end - begin))
            except (OSError, OverflowError, ValueError): pass
"""
    keys = secure.folder / "keys"
    held = secure(code, more="state: {keep: [dump]}\n", env={"REMIT_TEST_KEYS": str(keys)})
    assert held.code == 0, held
    dump = (secure.folder / "kept" / "dump").read_bytes()
    public, *private = [bytes.fromhex(line) for line in keys.read_text().split()]
    assert len(private) == 2
    # That it would have been found: what is public is.
    assert public in dump
    assert not any(key in dump for key in private)
    assert b"-----BEGIN PRIVATE KEY-----\nMIGH" not in dump


def test_the_plan_holds_no_private_key(secure, tmp_path):
    rule = "{host: api.test, ports: [443], methods: [GET]}"
    (tmp_path / "plan.yaml").write_text(
        f"apiVersion: remit/v1\nagent: t\nleast_tier: partial\nprocess: {{exec: [/bin/true]}}\nnetwork: {{allow: [{rule}]}}\n"
    )
    command = [sys.executable, "-m", "remit.cli.main", "run", "--remit", "plan.yaml", "--dry-run", "--", "/bin/true"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "BEGIN CERTIFICATE" in done.stdout
    assert "PRIVATE" not in done.stdout
    command = [*command[:3], "why", "--remit", "plan.yaml", "read", "/etc/remit/authority.pem"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert "builtin.trust" in done.stdout


def test_java(secure):
    java = program("java")
    code = f"""
import java.net.URI; import java.net.http.*;
public class Get {{
  public static void main(String[] a) throws Exception {{
    var c = HttpClient.newHttpClient();
    for (var path : new String[] {{"/v1/a", "/v2/a"}})
      System.out.println(c.send(HttpRequest.newBuilder(URI.create("{secure.url}" + path)).build(),
        HttpResponse.BodyHandlers.ofString()).statusCode());
  }}
}}
"""
    (secure.folder / "Get.java").write_text(code)
    more = exec_only(java) + "filesystem: {read: [./Get.java]}\nlimits: {memory: 2GiB, processes: 256, disk: 512MiB}\n"
    held = secure(argv=[java, "Get.java"], more=more)
    assert held.out == "200\n403\n", held


def test_many_connections_at_once_and_those_that_break_off_disturb_no_other(secure):
    code = f"""
import concurrent.futures as f, http.client, socket, ssl, struct
c = ssl.create_default_context()
def work(i):
    if i % 3 == 0:
        s = c.wrap_socket(socket.create_connection(('api.test', {secure.site.port}), 20), server_hostname='api.test')
        s.sendall(b'GET /v1/bytes?9000000 HTTP/1.1\\r\\nHost: api.test:{secure.site.port}\\r\\n\\r\\n'); s.recv(100)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); s.close()
        return 0
    if i % 7 == 0:
        socket.create_connection(('api.test', {secure.site.port}), 20).sendall(b'\\x16\\x03\\x01\\x00')
        return 0
    h = http.client.HTTPSConnection('api.test', {secure.site.port}, context=c, timeout=20); got = 0
    for n in range(10):
        h.request('POST', f'/v1/{{i}}', body=str(n) * 1000); got += str(n) * 1000 in h.getresponse().read().decode()
    return got
with f.ThreadPoolExecutor(16) as pool: print(sum(pool.map(work, range(60))))
"""
    held = secure(code)
    whole = sum(1 for i in range(60) if i % 3 and i % 7)
    assert held.out == f"{whole * 10}\n", held
    assert "Traceback" not in held.err
    assert "never retrieved" not in held.err

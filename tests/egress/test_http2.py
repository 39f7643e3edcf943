"""HTTP/2 where TLS is read, between ordinary clients and a server that speaks it. Each refusal stands beside what is
allowed. (The machine by itself, and floods: tests/unit/egress/test_http2.py, test_http2_floods.py.)"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.egress.conftest import Online
from tests.egress.http2_site import Http2Site
from tests.egress.secure import Secure, exec_only, program

pytestmark = [pytest.mark.kernel]

BIG = "limits: {memory: 2GiB, processes: 256}\n"
CONNECTED = """
import h2.config, h2.connection, h2.events, h2.settings, json, socket, ssl, time
PORT = %d
def connect(alpn=('h2',)):
    c = ssl.create_default_context(); c.set_alpn_protocols(alpn)
    return c.wrap_socket(socket.create_connection(('api.test', PORT), 20), server_hostname='api.test')
class H:
    def __init__(self, **more):
        self.s = connect(); assert self.s.selected_alpn_protocol() == 'h2'
        self.c = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding='utf-8', validate_outbound_headers=False, normalize_outbound_headers=False))
        self.c.initiate_connection(); self.flush()
        self.status, self.body, self.trailers, self.ended, self.reset, self.left = {}, {}, {}, [], {}, None
    def flush(self): self.s.sendall(self.c.data_to_send())
    def ask(self, n, path, method='GET', body=None, more=(), end=True, authority='api.test:%%d' %% PORT):
        self.c.send_headers(n, [(':method', method), (':scheme', 'https'), (':authority', authority), (':path', path), *more], end_stream=end and body is None)
        if body is not None: self.c.send_data(n, body, end_stream=end)
        self.flush()
    def hear(self):
        data = self.s.recv(65536)
        if not data: raise EOFError
        for e in self.c.receive_data(data):
            if isinstance(e, h2.events.ResponseReceived): self.status[e.stream_id] = int(dict(e.headers)[':status'])
            if isinstance(e, h2.events.DataReceived):
                self.body[e.stream_id] = self.body.get(e.stream_id, b'') + e.data
                self.c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            if isinstance(e, h2.events.TrailersReceived): self.trailers[e.stream_id] = dict(e.headers)
            if isinstance(e, h2.events.StreamEnded): self.ended.append(e.stream_id)
            if isinstance(e, h2.events.StreamReset): self.reset[e.stream_id] = int(e.error_code)
            if isinstance(e, h2.events.ConnectionTerminated): self.left = int(e.error_code)
        self.flush()
    def until(self, *streams):
        while not set(streams) <= {*self.ended, *self.reset}: self.hear()
"""
"""A program's own HTTP/2, by which it can also say what no ordinary client would."""


@pytest.fixture
def secure(online: Online, tmp_path: Path) -> Iterator[Secure]:
    made = Secure(online, tmp_path)
    yield made
    made.close()


@pytest.fixture
def site(secure: Secure) -> Iterator[Http2Site]:
    made = Http2Site(secure.issuer.issue("api.test"), ("h2", "http/1.1"))
    yield made
    made.close()


def url(site: Http2Site) -> str:
    return f"https://api.test:{site.port}"


def test_streams_of_one_connection_are_decided_each_by_itself(secure, site):
    code = (
        CONNECTED % site.port
        + """
h = H()
h.ask(1, '/v1/a'); h.ask(3, '/v2/a'); h.ask(5, '/v1/b', 'POST', b'words'); h.ask(7, '/v1/a', 'DELETE')
h.until(1, 3, 5, 7)
print(json.dumps([h.status, {n: json.loads(b) for n, b in h.body.items()}, h.trailers]))
"""
    )
    held = secure(code, site=site)
    status, body, trailers = json.loads(held.out)
    assert status == {"1": 200, "3": 403, "5": 200, "7": 403}, held
    assert body["5"]["body"] == "words" and body["1"]["authority"] == f"api.test:{site.port}"
    assert body["7"]["request"] == "DELETE https://api.test/v1/a" and "DELETE is not among GET" in body["7"]["reason"]
    assert trailers["1"] == {"x-trailer": "yes"}
    assert sorted(site.asked) == ["GET /v1/a", "POST /v1/b"] and site.connections == 1
    assert [e["intercepted"] for e in secure.said("connect")] == [True]
    assert sorted(e["verdict"] for e in secure.said("http")) == ["allow", "allow", "deny", "deny"]


def test_curl_speaks_it_and_is_refused_in_it(secure, site):
    curl = program("curl")
    said = ["-w", "\n%{http_code} %{http_version}\n"]
    held = secure(argv=[curl, "-sS", f"{url(site)}/v1/a", *said], more=exec_only(curl), site=site)
    assert held.out.splitlines()[-1] == "200 2", held
    held = secure(argv=[curl, "-sS", f"{url(site)}/v2/a", *said], more=exec_only(curl), site=site)
    assert held.out.splitlines()[-1] == "403 2", held
    held = secure(
        argv=[curl, "-sS", f"{url(site)}/v1/a", "-H", "Host: evil.test", *said], more=exec_only(curl), site=site
    )
    assert held.out.splitlines()[-1] == "400 2", held
    assert site.asked == ["GET /v1/a"]


@pytest.mark.parametrize("size", [30_000_000])
def test_large_bodies_arrive_whole_both_ways(secure, site, size):
    import hashlib

    curl = program("curl")
    whole = (bytes(range(256)) * 64 * (size // 16384 + 1))[:size]
    held = secure(
        argv=[curl, "-sS", f"{url(site)}/v1/bytes?{size}", "-o", "got"],
        more=exec_only(curl) + "state: {keep: [got]}\n",
        site=site,
    )
    assert held.code == 0, held
    assert hashlib.sha256((secure.folder / "kept/got").read_bytes()).digest() == hashlib.sha256(whole).digest()
    (secure.folder / "big").write_bytes(whole)
    argv = [curl, "-sS", "--data-binary", "@big", f"{url(site)}/v1/sum"]
    held = secure(argv=argv, more=exec_only(curl) + "filesystem: {read: [./big]}\n", site=site)
    assert held.out and json.loads(held.out)["body"] == hashlib.sha256(whole).hexdigest(), held
    argv[-1] = f"{url(site)}/v2/sum"
    held = secure(argv=argv, more=exec_only(curl) + "filesystem: {read: [./big]}\n", site=site)
    assert held.out.startswith("{") and json.loads(held.out)["rule"] == "network.allow", held


def test_both_sides_speak_at_once_and_streams_are_never_timed_out(secure, site):
    code = (
        CONNECTED % site.port
        + """
h = H()
h.ask(1, '/v1/echo', 'POST', end=False)
began = time.monotonic()
h.ask(3, '/v1/events?3')
for i in range(20):
    h.c.send_data(1, b'%d;' % i); h.flush()
    while not h.body.get(1, b'').endswith(b'%d;' % i): h.hear()
h.until(3); print(time.monotonic() - began > 5, h.body[3].decode().split())
h.c.send_headers(1, [('x-more', '1')], end_stream=True); h.flush(); h.until(1)
print(h.body[1] == b''.join(b'%d;' % i for i in range(20)), h.trailers[1])
"""
    )
    held = secure(code, site=site)
    assert held.out == "True ['data:', '0', 'data:', '1', 'data:', '2']\nTrue {'x-ended': 'yes'}\n", held


def test_a_stream_that_nobody_reads_keeps_no_other_waiting(secure, site):
    code = (
        CONNECTED % site.port
        + """
h = H(); h.c.increment_flow_control_window(10_000_000)
h.ask(1, '/v1/bytes?5000000')
keep, h.c.acknowledge_received_data = h.c.acknowledge_received_data, lambda *_: None
while len(h.body.get(1, b'')) < 65535: h.hear()
for n in range(3, 43, 2): h.ask(n, '/v1/a')
h.until(*range(3, 43, 2)); print(len(h.body[1]), set(h.status.values()))
h.c.increment_flow_control_window(5_000_000, 1); h.flush(); h.until(1); print(len(h.body[1]))
"""
    )
    held = secure(code, site=site)
    assert held.out == "65535 {200}\n5000000\n", held


def test_resets_and_goaway_reach_the_other_side(secure, site):
    code = (
        CONNECTED % site.port
        + """
h = H()
h.ask(1, '/v1/reset'); h.until(1); print(h.reset)
h.ask(3, '/v1/hang'); h.ask(5, '/v1/a'); h.until(5)
h.c.reset_stream(3, 8); h.flush(); h.ask(7, '/v1/a'); h.until(7); print(h.status)
h.ask(9, '/v1/goaway'); h.until(9)
while h.left is None: h.hear()
print(h.status[9], h.left)
h = H(); h.ask(1, '/v1/a'); h.until(1); print(h.status)
"""
    )
    held = secure(code, site=site)
    assert held.out == "{1: 11}\n{5: 200, 7: 200}\n200 0\n{1: 200}\n", held
    assert site.resets == [3]


ATTACKS = {
    "another authority": ["h.ask(1, '/v1/a', authority='evil.test')"],
    "another host": ["h.ask(1, '/v1/a', more=[('host', 'evil.test')])"],
    "a path in a line": ["h.ask(1, '/v1/a HTTP/1.1\\r\\nx: y')"],
    "CONNECT": ["h.ask(1, '/v1/a', 'CONNECT')"],
    "extended CONNECT": ["h.ask(1, '/v1/a', 'CONNECT', more=[(':protocol', 'websocket')])"],
    "chunks": ["h.ask(1, '/v1/a', 'POST', more=[('transfer-encoding', 'chunked')], body=b'0\\r\\n\\r\\nDELETE /v2 HTTP/1.1\\r\\n\\r\\n')"],
    "a length without its body": ["h.ask(1, '/v1/a', 'POST', more=[('content-length', '9')])"],
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_request_that_is_read_in_two_ways_reaches_nobody(secure, site, attack):
    code = (
        CONNECTED % site.port
        + f"""
h = H()
{ATTACKS[attack][0]}
h.until(1); print(h.status[1], json.loads(h.body[1])['error'])
h.ask(3, '/v1/good'); h.until(3); print(h.status[3])
"""
    )
    held = secure(code, site=site)
    assert held.out == "400 refused by the broker\n200\n", held
    assert site.asked == ["GET /v1/good"]


FLOODS = {
    "resets": "h.c.send_headers(n, [(':method', 'GET'), (':scheme', 'https'), (':authority', 'api.test'), (':path', '/v2')]); h.c.reset_stream(n, 8)",
    "pings": "h.c.ping(b'12345678')",
    "settings": "h.c.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: n})",
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_ends_its_connection_and_no_other(secure, site, flood):
    code = (
        CONNECTED % site.port
        + f"""
other = H(); other.ask(1, '/v1/a'); other.until(1)
h = H()
try:
    for n in range(1, 40001, 2):
        {FLOODS[flood]}
        h.flush()
    while h.left is None: h.hear()
except (OSError, EOFError): pass
other.ask(3, '/v1/a'); other.until(3); print(other.status)
h = H(); h.ask(1, '/v1/a'); h.until(1); print(h.status)
"""
    )
    held = secure(code, site=site)
    assert held.out == "{1: 200, 3: 200}\n{1: 200}\n", held
    assert any("too many" in str(event.get("reason")) for event in secure.said("connect")), secure.online.egress()[-3:]


def test_a_program_that_does_not_read_disturbs_no_other(secure, site):
    """What the broker keeps for it is bounded: tests/unit/egress/test_streams.py."""
    code = (
        CONNECTED % site.port
        + """
h = H(); h.c.increment_flow_control_window(2**31 - 1 - 65535)
h.c.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 2**31 - 1}); h.flush()
for n in range(1, 81, 2): h.ask(n, '/v1/bytes?30000000')
other = H(); other.ask(1, '/v1/bytes?3000000'); other.until(1); print(len(other.body[1]))
"""
    )
    held = secure(code, site=site)
    assert held.out == "3000000\n", held


def test_httpx(secure, site):
    if importlib.util.find_spec("httpx") is None:
        pytest.skip("this interpreter has no httpx")
    code = f"""
import asyncio, httpx, ssl
async def main():
    async with httpx.AsyncClient(http1=False, http2=True, verify=ssl.create_default_context(), timeout=20) as c:
        got = await asyncio.gather(*(c.post('{url(site)}/v1/%d' % i, content=str(i) * 9000) for i in range(50)), c.get('{url(site)}/v2'))
    print({{r.http_version for r in got}}, all(r.json()['body'] == str(i) * 9000 for i, r in enumerate(got[:-1])), got[-1].status_code)
asyncio.run(main())
"""
    held = secure(code, site=site)
    assert held.out == "{'HTTP/2'} True 403\n", held


def test_node(secure, site):
    node = program("node")
    code = f"""
import http2 from 'node:http2';
const c = http2.connect('{url(site)}');
const ask = (path, method, body) => new Promise((done, failed) => {{
  const r = c.request({{':path': path, ':method': method}}); let got = '', status, trailer;
  r.on('response', h => status = h[':status']); r.on('trailers', t => trailer = t['x-trailer']);
  r.on('data', d => got += d); r.on('end', () => done([status, got.length, trailer])); r.on('error', failed); r.end(body);
}});
const all = [];
for (let i = 0; i < 200; i++) all.push(ask('/v1/a', 'POST', 'x'.repeat(3000)));
all.push(ask('/v2/a', 'GET'));
const got = await Promise.all(all);
console.log(got.slice(0, 200).every(([s, n, t]) => s === 200 && n > 3000 && t === 'yes'), got[200][0]);
c.close();
"""
    held = secure(argv=[node, "--input-type=module", "-e", code], more=exec_only(node) + BIG, site=site)
    assert held.out == "true 403\n", held


GO = """
package main
import ("fmt"; "io"; "net/http"; "os"; "strings"; "sync")
func main() {
  var all sync.WaitGroup; var lock sync.Mutex; got := map[string]int{}
  for i := 0; i < 200; i++ { all.Add(1); go func(i int) { defer all.Done()
    path := "/v1/a"; if i % 10 == 0 { path = "/v2/a" }
    r, err := http.Post(os.Args[1] + path, "text/plain", strings.NewReader(strings.Repeat("x", 5000)))
    if err != nil { fmt.Println(err); return }
    body, _ := io.ReadAll(r.Body); r.Body.Close()
    lock.Lock(); got[fmt.Sprint(r.Proto, " ", r.StatusCode, " ", len(body) > 100)]++; lock.Unlock() }(i) }
  all.Wait(); fmt.Println(got)
}
"""


def test_go(secure, site, tmp_path_factory):
    go = program("go")
    folder = tmp_path_factory.mktemp("go")
    (folder / "main.go").write_text(GO)
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    made = secure.folder / "client"
    subprocess.run([go, "build", "-o", str(made), "main.go"], cwd=folder, env=env, check=True, timeout=110)
    held = secure(argv=[str(made), url(site)], more=exec_only(str(made)) + BIG, site=site)
    assert held.out == "map[HTTP/2.0 200 true:180 HTTP/2.0 403 true:20]\n", held


def test_grpc(secure):
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("this interpreter has no grpc")
    pem = secure.issuer.issue("api.test").read_text()
    at = pem.index("-----BEGIN CERTIFICATE")
    (secure.folder / "key").write_text(pem[:at])
    (secure.folder / "chain").write_text(pem[at:])
    server = subprocess.Popen([sys.executable, "-c", GRPC_SERVER], cwd=secure.folder, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        made = type("", (), {"port": int(server.stdout.readline())})()
        code = GRPC_CLIENT % made.port
        more = "filesystem: {read: [./probe.py]}\n" + BIG.replace("2GiB", "1GiB")
        held = secure(code, site=made, more=more, paths="'/v1/**', '/test.Service/*'")  # type: ignore[arg-type]
    finally:
        server.kill()
        server.wait(10)
    assert held.out == "b'one' [b'0', b'1', b'2'] [b'x', b'y', b'z'] NOT_FOUND PERMISSION_DENIED DEADLINE_EXCEEDED\n", (
        held
    )


GRPC_SERVER = """
import concurrent.futures as f, grpc, time
def gone(request, context): context.abort(grpc.StatusCode.NOT_FOUND, 'no such thing')
calls = {
  'One': grpc.unary_unary_rpc_method_handler(lambda r, c: r),
  'Many': grpc.unary_stream_rpc_method_handler(lambda r, c: (str(i).encode() for i in range(3))),
  'Both': grpc.stream_stream_rpc_method_handler(lambda rs, c: (r for r in rs)),
  'Gone': grpc.unary_unary_rpc_method_handler(gone),
  'Slow': grpc.unary_unary_rpc_method_handler(lambda r, c: time.sleep(5) or r),
  }
server = grpc.server(f.ThreadPoolExecutor(8))
others = {'Secret': calls['One']}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('test.Service', calls),
                                 grpc.method_handlers_generic_handler('test.Other', others)))
pair = (open('key', 'rb').read(), open('chain', 'rb').read())
port = server.add_secure_port('127.0.0.1:0', grpc.ssl_server_credentials([pair]))
server.start(); print(port, flush=True); server.wait_for_termination()
"""
GRPC_CLIENT = """
import grpc, ssl, os
roots = open(os.environ['SSL_CERT_FILE'], 'rb').read()
channel = grpc.secure_channel('api.test:%d', grpc.ssl_channel_credentials(roots))
said = [channel.unary_unary('/test.Service/One')(b'one', timeout=20)]
said.append(list(channel.unary_stream('/test.Service/Many')(b'', timeout=20)))
said.append(list(channel.stream_stream('/test.Service/Both')(iter([b'x', b'y', b'z']), timeout=20)))
for path, seconds in (('/test.Service/Gone', 20), ('/test.Other/Secret', 20), ('/test.Service/Slow', 1)):
    try: said.append(channel.unary_unary(path)(b'', timeout=seconds))
    except grpc.RpcError as e: said.append(e.code().name)
print(*said)
"""


@pytest.mark.parametrize("offers, speaks", [(("h2",), "2"), (("h2", "http/1.1"), "2"), (("http/1.1",), None)])
def test_the_program_speaks_what_the_server_speaks(secure, offers, speaks):
    """Of what it offers itself; nothing is translated."""
    made = Http2Site(secure.issuer.issue("api.test"), offers)
    code = (
        CONNECTED % made.port
        + "print([connect(a).selected_alpn_protocol() for a in (['h2', 'http/1.1'], ['http/1.1', 'h2'], ['h2'])])"
    )
    held = secure(code, site=made)
    made.close()
    expected = {"2": "['h2', 'h2', 'h2']", None: "['http/1.1', 'http/1.1', None]"}[speaks]
    assert held.out.strip() == expected, held


@pytest.mark.parametrize("argument", ["--http2", "--http1.1"])
def test_a_server_that_proves_nothing_is_told_of_in_words(secure, tmp_path_factory, argument):
    from tests.egress.tls import Issuer

    curl = program("curl")
    other = Http2Site(Issuer(tmp_path_factory.mktemp("other"), "other").issue("api.test"))
    said = [argument, "-w", "\n%{http_code}\n"]
    held = secure(argv=[curl, "-sS", f"{url(other)}/v1/a", *said], more=exec_only(curl), site=other)
    other.close()
    *words, status = held.out.strip().splitlines()
    assert status == "502" and "certificate" in json.loads(words[0])["reason"], held
    assert other.asked == []


def test_and_so_is_a_program_that_speaks_nothing_but_http2(secure, tmp_path_factory):
    from tests.egress.tls import Issuer

    other = Http2Site(Issuer(tmp_path_factory.mktemp("other"), "other").issue("api.test"))
    held = secure(
        CONNECTED % other.port
        + "h = H(); h.ask(1, '/v1/a')\nwhile not h.body: h.hear()\nprint(h.status, json.loads(h.body[1])['error'])",
        site=other,
    )
    other.close()
    assert held.out == "{1: 502} the server can't be spoken to\n", held
    assert other.asked == []

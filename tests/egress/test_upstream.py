"""The broker behind a proxy that is this host's only way out. The proxy is a real one, in the test; what it connects to
is a server of the test's."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.egress.conftest import Online, Web

pytestmark = [pytest.mark.kernel]

HERE = {"web.test": ["127.0.0.1"], "proxy.test": ["127.0.0.1"]}
SECRET = "agent:s3cret-of-the-proxy"


class Proxy:
    """HTTP CONNECT. `asked`: what for, with which authorization. `answers`: instead of connecting."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.wants: str | None = None
        self.answers: bytes | None = None
        self.leads_to: int | None = None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as lines:
            method, target, _ = lines.readline().decode().split()
            headers = {}
            while line := lines.readline().strip():
                name, _, value = line.decode().partition(": ")
                headers[name.lower()] = value
            assert method == "CONNECT" and headers["host"] == target
            said = headers.get("proxy-authorization", "")
            self.asked.append((target, said))
            if self.answers is not None:
                client.sendall(self.answers)
                return
            if self.wants is not None and said != "Basic " + base64.b64encode(self.wants.encode()).decode():
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            port = self.leads_to or int(target.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                there = threading.Thread(target=_pour, args=(client, server), daemon=True)
                there.start()
                _pour(server, client)
                there.join()


def _pour(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.listener.close()


def _upstream(proxy: Proxy, more: str = "") -> str:
    return f'upstream: {{proxy: "http://proxy.test:{proxy.port}"{more}}}'


def _get(port: int) -> str:
    return f"""
import urllib.error, urllib.request
try: print(200, urllib.request.urlopen('http://web.test:{port}/a', timeout=20).read().decode())
except urllib.error.HTTPError as e: print(e.code, e.read().decode())
except OSError as e: print('failed', e)
"""


def _allow(port: int) -> list[str]:
    return [f"{{host: web.test, ports: [{port}], allow_private: [127.0.0.0/8]}}"]


def test_it_connects_to_the_address_that_was_judged_and_says_who_it_is(
    online: Online, proxy: Proxy, web: Web, tmp_path
):
    proxy.wants = SECRET
    held = online(
        _allow(web.port), _get(web.port), names=HERE, network=_upstream(proxy, ", auth_env: PROXY_AUTH"),
        env={"PROXY_AUTH": SECRET},
    )  # fmt: skip
    assert held.out.startswith("200"), held
    [(target, _)] = proxy.asked
    assert target == f"127.0.0.1:{web.port}"
    told = held.out + held.err + json.dumps(held.receipt) + (tmp_path / "events.jsonl").read_text()
    assert SECRET not in told and base64.b64encode(SECRET.encode()).decode() not in told


def test_credentials_come_from_a_file_too(online: Online, proxy: Proxy, web: Web, tmp_path):
    proxy.wants = SECRET
    (tmp_path / "auth").write_text(SECRET + "\n")
    held = online(_allow(web.port), _get(web.port), names=HERE, network=_upstream(proxy, ", auth_file: ./auth"))
    assert held.out.startswith("200"), held


def test_an_address_that_may_not_be_dialled_is_not_asked_of_the_proxy_either(online: Online, proxy: Proxy, web: Web):
    held = online([f"{{host: web.test, ports: [{web.port}]}}"], _get(web.port), names=HERE, network=_upstream(proxy))
    assert held.out.startswith("403"), held
    assert (proxy.asked, web.asked) == ([], [])


def test_a_proxy_that_fails_is_said_and_nothing_goes_around_it(online: Online, proxy: Proxy, web: Web):
    proxy.wants = SECRET
    for answers, said in (
        (None, "answers 407"),
        (b"HTTP/1.1 503 No\r\n\r\n", "answers 503"),
        (b"what?\r\n\r\n", "no HTTP"),
        (b"", "closes without an answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 5000, "without end"),
    ):
        proxy.answers = answers
        held = online(_allow(web.port), _get(web.port), names=HERE, network=_upstream(proxy))
        assert held.out.startswith("502") and said in held.out, (said, held)
        assert any(said in str(event.get("error", "")) for event in online.egress()), said
    proxy.listener.close()
    held = online(_allow(web.port), _get(web.port), names=HERE, network=_upstream(proxy))
    assert held.out.startswith("502") and "the proxy proxy.test" in held.out, held
    assert web.asked == []


def test_names_are_the_proxys_where_the_remit_says_so(online: Online, proxy: Proxy, web: Web):
    proxy.leads_to = web.port
    allow = [f"{{host: only-there.test, ports: [{web.port}]}}"]
    code = _get(web.port).replace("web.test", "only-there.test")
    here = online(allow, code, names=HERE, network=_upstream(proxy))
    assert here.out.startswith("502") and "can't be resolved" in here.out, here
    there = online(allow, code, names=HERE, network=_upstream(proxy, ", resolve: proxy"))
    assert there.out.startswith("200"), there
    assert proxy.asked == [(f"only-there.test:{web.port}", "")]


def test_networks_that_are_direct_are_reached_without_it(online: Online, proxy: Proxy, web: Web):
    network = _upstream(proxy, ", direct: [127.0.0.0/8]")
    held = online(_allow(web.port), _get(web.port), names=HERE, network=network)
    assert held.out.startswith("200") and proxy.asked == [], held


def test_a_server_that_speaks_first_is_heard_through_it(online: Online, proxy: Proxy, raw):
    server = raw(lambda connection: connection.sendall(b"220 ready\r\n"))
    code = f"import socket\nprint(socket.create_connection(('web.test', {server.port}), 10).recv(100))\n"
    held = online(_allow(server.port), code, names=HERE, network=_upstream(proxy))
    assert "220 ready" in held.out, held


def test_without_its_credentials_nothing_starts(online: Online, proxy: Proxy, web: Web):
    os.environ.pop("NO_SUCH_AUTH", None)
    for words, said in (
        (", auth_env: NO_SUCH_AUTH", "NO_SUCH_AUTH is not set"),
        (", auth_file: ./none", "No such file"),
    ):
        held = online(_allow(web.port), _get(web.port), names=HERE, network=_upstream(proxy, words))
        assert held.code == 125 and said in held.err and held.out == "", held

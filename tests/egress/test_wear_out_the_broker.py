"""A program that tries to wear the broker out or to take it along; a resolver that hangs; a broker that is killed. What
was there before goes on."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.egress.conftest import _DRIVER
from tests.egress.test_fool_the_broker import HERE, talk

pytestmark = [pytest.mark.kernel]


def _echo() -> tuple[socket.socket, list[int]]:
    """One thread for any number of connections; most at once."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    listener.setblocking(False)
    chosen = selectors.DefaultSelector()
    chosen.register(listener, selectors.EVENT_READ)
    most = [0]

    def serve() -> None:
        while listener.fileno() >= 0:
            for key, _ in chosen.select(0.2):
                try:
                    if key.fileobj is listener:
                        connection, _ = listener.accept()
                        chosen.register(connection, selectors.EVENT_READ)
                        most[0] = max(most[0], len(chosen.get_map()) - 1)
                        continue
                    data = key.fileobj.recv(100)
                    if data:
                        key.fileobj.send(data)
                        continue
                except OSError:
                    pass
                if key.fileobj is not listener:
                    chosen.unregister(key.fileobj)
                    key.fileobj.close()

    threading.Thread(target=serve, daemon=True).start()
    return listener, most


@pytest.mark.usefixtures("descriptors")
def test_a_flood_of_connections_is_bounded_and_what_was_there_goes_on(online):
    listener, most = _echo()
    port = listener.getsockname()[1]
    code = f"""
import resource, socket, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
def works(s):
    try: s.sendall(b'\\1x'); return s.recv(10) == b'\\1x'
    except OSError: return False
def connect():
    s = socket.create_connection(('web.test', {port}), 10); s.settimeout(20); return s
first = [connect() for _ in range(900)]
print('below the most', sum(map(works, first)))
more = []
for _ in range(1100):
    try: more.append(connect())
    except OSError: pass
good = sum(map(works, more))
print('above', 0 < good <= 124, 'still', sum(map(works, first[:50])))
for s in first + more: s.close()
end = time.monotonic() + 10
while not works(connect()) and time.monotonic() < end: time.sleep(.1)
print('after', sum(works(connect()) for _ in range(20)))
"""
    allow = [f"{{host: web.test, ports: [{port}]}}", f"{{cidr: 127.0.0.0/8, ports: [{port}]}}"]
    began = time.monotonic()
    held = online(allow, code, names=HERE, more="limits: {open_files: 4096}\n", timeout=110)
    assert held.out.splitlines() == ["below the most 900", "above True still 50", "after 20"], (held, most)
    assert most[0] <= 1024 + 64
    assert time.monotonic() - began < 60
    assert "Traceback" not in held.err
    listener.close()


def test_a_program_that_reads_nothing_or_leaves_things_open_ends_all_the_same(online, raw):
    def pour(connection: socket.socket) -> None:
        while True:
            connection.sendall(bytes(65536))

    server = raw(pour)
    code = talk(
        server.port,
        "open_ = [socket.create_connection(('web.test', PORT), 10) for _ in range(30)]\n".replace(
            "PORT", str(server.port)
        )
        + "for i, s in enumerate(open_): i % 3 and s.sendall([b'', b'\\x16', b'\\0'][i % 3])\n"
        + "time.sleep(.6); print('leaves', flush=True); import os; os._exit(0)\n",
    )
    began = time.monotonic()
    held = online(server.allow, code, names=HERE)
    assert (held.code, held.out) == (0, "leaves\n"), held
    assert time.monotonic() - began < 10
    assert "Traceback" not in held.err


def test_a_resolver_that_hangs_holds_neither_the_others_nor_the_end():
    code = """
import asyncio, socket, time
import remit.egress.dial as dial
from remit.policy.model import NetworkRule, Remit
dial._PATIENCE_S = .3
slow = socket.getaddrinfo
def getaddrinfo(host, *a, **k):
    if host == 'slow.test': time.sleep(30)
    return slow(host, *a, **k)
socket.getaddrinfo = getaddrinfo
remit = Remit(agent='a', network=(NetworkRule('', '127.0.0.0/8', (PORT,), (), ()),))
async def main():
    slow = await asyncio.gather(*(dial.dial('slow.test', PORT, remit) for _ in range(20)))
    fast = await dial.dial('127.0.0.1', PORT, remit)
    print(slow[0].problem, slow[0].denied, fast.address)
asyncio.run(main())
"""
    server = socket.create_server(("127.0.0.1", 0))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code.replace("PORT", str(server.getsockname()[1]))],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "slow.test can't be resolved: no answer False 127.0.0.1\n"
    assert time.monotonic() - began < 10


def test_kill_9_of_the_brokers_process_ends_the_connections_and_the_program(online, raw):
    server = raw()
    (online.folder / "probe.py").write_text(
        f"import socket, time\ns = socket.create_connection(('web.test', {server.port}))\ns.sendall(b'\\0alive\\n')\n"
        "try:\n  while True: s.recv(100); time.sleep(.05); s.sendall(b'more\\n')\nfinally: time.sleep(60)\n"
    )
    from tests.conftest import HEAD, PYTHON

    rules = "".join(f"    - {rule}\n" for rule in server.allow)
    (online.folder / "remit.yaml").write_text(
        HEAD + PYTHON + "filesystem: {read: [./probe.py]}\nnetwork:\n  allow:\n" + rules
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, "run", "--remit", "remit.yaml", "--", sys.executable, "probe.py"],
        cwd=online.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "REMIT_TEST_NAMES": json.dumps(HERE)}, start_new_session=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 20
        while not any(len(got) > 20 for got in server.got) and time.monotonic() < end:
            time.sleep(0.05)
        assert server.got[0].startswith(b"\0alive\n")
    finally:
        os.kill(broker.pid, signal.SIGKILL)
        broker.wait()
    time.sleep(0.5)
    until = len(server.got[0])
    time.sleep(0.5)
    assert len(server.got[0]) == until
    assert len(server.got) == 1

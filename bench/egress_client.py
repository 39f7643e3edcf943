"""The client of `egress.py`, the same for every side: it runs bare, and inside. By the standard library alone. Says
what it measured as one line of JSON.

    egress_client.py handshakes HOST PORT COUNT    milliseconds of each new TLS connection, without the lookup
    egress_client.py bulk HOST PORT WAY BYTES      MiB a second; WAY: raw, tls, http, https
    egress_client.py held HOST PORT WAY COUNT      connections that answer before and after they were all held
    egress_client.py run PROGRAM ARGUMENTS         what another program prints
"""

from __future__ import annotations

import json
import os
import resource
import socket
import ssl
import subprocess
import sys
import time

PIECE = 256 * 1024
HOLD_S = 1.5


def trusting() -> ssl.SSLContext:
    """Believes anything, on every side: who proves what is not what is measured."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def connect(host: str, port: int, secure: ssl.SSLContext | None) -> socket.socket:
    sock = socket.create_connection((host, port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # As ordinary clients offer it; HTTP/1.1 alone is what all sides speak.
    return secure.wrap_socket(sock, server_hostname=host) if secure else sock


def ask(sock: socket.socket, host: str, port: int, path: str) -> bytearray:
    """What came of the answer with its head."""
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    said = bytearray()
    while b"\r\n\r\n" not in said:
        piece = sock.recv(65536)
        if not piece:
            raise OSError(f"no answer: {bytes(said)!r}")
        said += piece
    if not said.startswith(b"HTTP/1.1 200"):
        raise OSError(f"refused: {bytes(said)!r}")
    return said


def handshakes(host: str, port: int, count: int) -> list[float]:
    secure = trusting()
    address = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
    found = []
    for number in range(count + 5):
        began = time.perf_counter()
        sock = socket.create_connection(address, timeout=30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tls = secure.wrap_socket(sock, server_hostname=host)
        took = (time.perf_counter() - began) * 1000
        tls.close()
        if number >= 5:
            found.append(took)
    return found


def bulk(host: str, port: int, way: str, size: int) -> float:
    with connect(host, port, trusting() if way in ("tls", "https") else None) as sock:
        buffer = bytearray(PIECE)
        began = time.perf_counter()
        if way == "raw":
            sock.sendall(f"{size}\n".encode())
            seen = 0
        else:
            said = ask(sock, host, port, "/bulk")
            seen = len(said) - said.index(b"\r\n\r\n") - 4
        while seen < size:
            count = sock.recv_into(buffer)
            if not count:
                raise OSError(f"{size - seen} bytes never came")
            seen += count
        return size / (time.perf_counter() - began) / (1 << 20)


def held(host: str, port: int, way: str, count: int) -> dict[str, int]:
    """Each asks once, is held with the others while HOLD_S pass (the memory is looked at then), and asks again."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    secure = trusting() if way == "https" else None
    open_, dropped = [], 0
    for _ in range(count):
        try:
            sock = connect(host, port, secure)
            ask(sock, host, port, "/")
            open_.append(sock)
        except OSError:
            dropped += 1
    print(json.dumps({"opened": len(open_)}), flush=True)
    time.sleep(HOLD_S)
    for sock in open_:
        try:
            ask(sock, host, port, "/")
        except OSError:
            dropped += 1
    return {"held": count - dropped, "dropped": dropped}


def run(program: str, *arguments: str) -> str:
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main() -> None:
    measure, *words = sys.argv[1:]
    if measure == "run":
        print(json.dumps(run(*words)))
        return
    arguments = [int(word) if word.isdigit() else word for word in words]
    what = {"handshakes": handshakes, "bulk": bulk, "held": held}[measure]
    print(json.dumps(what(*arguments)), flush=True)  # type: ignore[operator]
    # What is still open need not be ended in turn.
    os._exit(0)


if __name__ == "__main__":
    main()

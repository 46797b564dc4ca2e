"""Connections that ask nothing keep nobody out, and none may take for ever to say what it wants."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("uvicorn")
import httpx
import uvicorn

from tests.processes import PATIENCE, until
from vesalius.errors import BadInput
from vesalius_serving import listening
from vesalius_serving.listening import listen, settings


async def hello(scope, receive, send) -> None:
    """Read the body and answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextmanager
def served(app: Any = hello) -> Iterator[int]:
    """The port of a server in a thread."""
    listener = listen("127.0.0.1", 0, where="--port 0")
    server = uvicorn.Server(settings(app, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        listener.close()


def opened(port: int, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(sent)
    return connection


def ended(connection: socket.socket) -> bool:
    """Whether the server ended a connection; waits for it."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


HALF_BODY = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\na"


def test_a_request_does_not_say_where_it_comes_from() -> None:
    """Otherwise one who tries passwords would be another address each time, or make another's wait."""
    seen: list[object] = []

    async def noting(scope, receive, send) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await hello(scope, receive, send)

    with served(noting) as port:
        spoofed = b"x-forwarded-for: 10.9.8.7\r\nx-forwarded-proto: https\r\nforwarded: for=10.9.8.7\r\n"
        connection = opened(port, b"GET / HTTP/1.1\r\nhost: x\r\n" + spoofed + b"connection: close\r\n\r\n")
        assert connection.makefile("rb").read().endswith(b"hi")
        connection.close()
    assert seen == [("127.0.0.1", "http")]


@pytest.mark.parametrize(
    ("sent", "rest"), [(b"GET / HTTP/1.1\r\nhost: x\r\n", b"\r\n"), (HALF_BODY, b"bc")], ids=["head", "body"]
)
def test_half_open_requests_keep_nobody_out(sent: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bodies that drip in are as half open as heads: nothing was asked yet, and nobody has shown a password."""
    monkeypatch.setattr(listening, "MOST_HALF_OPEN", 8)
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 30)
    with served() as port:
        held = [opened(port, sent) for _ in range(40)]
        assert httpx.get(f"http://127.0.0.1:{port}/", timeout=PATIENCE).text == "hi"
        assert all(ended(one) for one in held[:31])
        held[-1].sendall(rest)
        assert held[-1].recv(100).startswith(b"HTTP/1.1 200")
        for one in held:
            one.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nhost: x\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nfew",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTT",
    ],
)
def test_a_request_that_is_never_whole_is_cut_off(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(listening, "BODY_SECONDS", 0.2)
    with served() as port:
        connection = opened(port, sent)
        while not ended(connection):  # what was answered before
            pass
        connection.close()


def test_bytes_that_drip_in_do_not_begin_the_time_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEAD_SECONDS", 0.3)
    with served() as port:
        connection = opened(port, b"GET / HTTP/1.1\r\n")

        def drip() -> None:
            try:
                for _ in range(int(10 * PATIENCE)):
                    connection.sendall(b"x")
                    time.sleep(0.05)
            except OSError:
                pass

        threading.Thread(target=drip, daemon=True).start()
        assert ended(connection)
        connection.close()


def test_idle_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "MOST_CONNECTIONS", 4)
    whole = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    with served() as port:
        held = []
        for _ in range(7):
            held.append(opened(port, whole))
            assert held[-1].recv(4) == b"HTTP"
        held[0].settimeout(PATIENCE)
        while not ended(held[0]):
            pass
        for one in held:
            one.close()


def test_an_address_that_cannot_be_used_is_refused_in_one_line() -> None:
    with pytest.raises(BadInput, match="is not an address of this machine"):
        listen("no.such.host.example", 0, where="--host")
    taken = listen("127.0.0.1", 0, where="--port 0")
    with pytest.raises(BadInput, match="--port 7: cannot be used"):
        listen("127.0.0.1", taken.getsockname()[1], where="--port 7")
    taken.close()

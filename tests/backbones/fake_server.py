"""A server on the loopback address that answers, or fails, like a provider."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Response:
    """One answer of the server: status, JSON or raw body, headers, and seconds to wait before it."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    wait: float = 0.0


@dataclass
class ReceivedRequest:
    """One request that the server received."""

    path: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class FakeServer:
    url: str
    received: list[ReceivedRequest] = field(default_factory=list)


def chat(text: str | None = "hello", *, finish: str = "stop", usage: bool = True, **message: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    tokens = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    body = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return {**body, "usage": tokens} if usage else body


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@contextmanager
def serving(*answers: Response | Callable[[ReceivedRequest], Response]) -> Iterator[FakeServer]:
    """A server that gives these answers in order, then repeats the last one."""
    remaining = list(answers)
    server = FakeServer(url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            received = ReceivedRequest(
                self.path, json.loads(self.rfile.read(size)), {k.lower(): v for k, v in self.headers.items()}
            )
            server.received.append(received)
            answer = remaining.pop(0) if len(remaining) > 1 else remaining[0]
            response = answer(received) if callable(answer) else answer
            time.sleep(response.wait)
            data = response.raw if response.raw is not None else json.dumps(response.body).encode()
            self.send_response(response.status)
            for name, value in {"Content-Type": "application/json", **response.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that time out are part of the tests."""

    http = Quiet(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()

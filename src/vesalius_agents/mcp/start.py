"""Start the server: on stdin and stdout, or over streamable HTTP on loopback; and list its tools with how much of a
context their list takes.
"""

import json
import math
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from vesalius.api.door import RUNS
from vesalius.errors import BadInput
from vesalius_agents.mcp.desk import Desk, Options
from vesalius_agents.mcp.server import Server

LOOPBACK, PATH = "127.0.0.1", "/mcp"


def new_run() -> Path:
    """A run directory of its own for a server that was given none."""
    return Path(RUNS) / f"mcp-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def serve_stdio(run: Path, options: Options) -> None:
    """Serve one client until it closes stdin."""
    desk = Desk(run, options)
    try:
        Server(desk).run("stdio")
    finally:
        desk.close()


def serve_http(run: Path, options: Options, *, port: int, say: Callable[[str], None]) -> None:
    """Serve clients of this machine until interrupted. Requests that name another host or origin are refused."""
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    listener = _listen(port)
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    desk = Desk(run, options)
    try:
        app = Server(desk).streamable_http_app(streamable_http_path=PATH, transport_security=security)
        say(f"http://{LOOPBACK}:{port}{PATH}")
        config = uvicorn.Config(app, log_level="critical", access_log=False, timeout_graceful_shutdown=2, ws="none")
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        desk.close()
        listener.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise BadInput(f"port {port}: cannot be used ({error.strerror}); choose another --port, or 0 for any") from None
    listener.listen()
    return listener


#: Tokens are estimated, since every model counts its own: so many characters of JSON are one. The tokenizer of SmolLM2
#: gives this figure on this list.
CHARACTERS_PER_TOKEN = 3.4


@dataclass(frozen=True)
class ListedTool:
    """One tool: its name, the tokens of its entry in the list, and its first sentence."""

    name: str
    tokens: int
    description: str


def listed_tools() -> list[ListedTool]:
    """Every tool with the tokens that a client reads for it."""
    with TemporaryDirectory(prefix="vesalius-mcp-") as place:
        desk = Desk(Path(place) / "run", Options(root=Path(place)))
        try:
            tools = anyio.run(Server(desk).list_tools)
        finally:
            desk.close()
    listed = []
    for tool in tools:
        text = json.dumps(tool.model_dump(mode="json", by_alias=True, exclude_none=True), ensure_ascii=False)
        first = (tool.description or "").split(". ")[0].split("; ")[0]
        listed.append(ListedTool(tool.name, math.ceil(len(text) / CHARACTERS_PER_TOKEN), first))
    return listed

"""Start the server: on stdin and stdout, or over streamable HTTP on loopback; and list its tools with how much of a
context their list takes.
"""

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from vesalius.api.door import RUNS
from vesalius.errors import BadInput
from vesalius_agents.mcp.calls import tool_calls
from vesalius_agents.mcp.desk import Desk, Options
from vesalius_agents.mcp.server import CLIENT, OWN_BUDGET, Server
from vesalius_serving.clients import Bearer, Clients

LOOPBACK, PATH = "127.0.0.1", "/mcp"
#: The private file of the run directory that holds the secrets of clients.
SECRETS = "clients.json"
#: Sessions of the protocol that may be open at once, over all clients.
MOST_SESSIONS = 64


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
    """Serve clients of this machine until interrupted. A request needs the secret of a client, and one that names
    another host or origin is refused.
    """
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    from vesalius_serving.listening import listen, settings

    listener = listen(LOOPBACK, port, where=f"--port {port}")
    port = listener.getsockname()[1]
    hosts = [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
    security = TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts])
    desk = Desk(run, options)
    try:
        clients = Clients(run / SECRETS)
        clients.require(str(number + 1) for number in range(options.clients))
        app = Server(desk).streamable_http_app(
            streamable_http_path=PATH, transport_security=security, max_sessions=MOST_SESSIONS
        )
        say(f"http://{LOOPBACK}:{port}{PATH}")
        say(f"Every request needs a secret of {clients.path}, as a header `Authorization: Bearer SECRET`.")
        uvicorn.Server(settings(Bearer(app, clients, _admit), log_level="critical")).run(sockets=[listener])
    finally:
        desk.close()
        listener.close()


def _admit(scope: Any, client: str) -> None:
    """Mark a request: for the budget by the client's name, and for the SDK, where a session has one owner."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    scope[CLIENT] = client
    scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=client, scopes=[]))


@dataclass(frozen=True)
class ListedClient:
    """A client over HTTP: its name, its calls in the ledger, and the time of the last one."""

    name: str
    calls: int
    last: str | None


def listed_clients(run: Path) -> list[ListedClient]:
    """The clients of a run; their secrets are only in the file."""
    names, calls = _clients_of(run).names(), tool_calls(run)
    alone = len(names) == 1
    listed = []
    for name in names:
        own = [call for call in calls if call["connection"] == f"{OWN_BUDGET}{name}" or (alone and name == "1")]
        listed.append(ListedClient(name, len(own), own[-1].get("time") if own else None))
    return listed


def revoke_client(run: Path, name: str) -> Path:
    """Give a client a new secret, and return the file that it is in; a server that runs knows it at once."""
    clients = _clients_of(run)
    clients.revoke(name)
    return clients.path


def _clients_of(run: Path) -> Clients:
    if not (run / SECRETS).is_file():
        raise BadInput(f"{run}: no server over HTTP ran there; name the --run of one")
    return Clients(run / SECRETS)


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

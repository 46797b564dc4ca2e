"""Clients of the official SDK for the tests: a server in memory, and one behind HTTP in a process of its own."""

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.forked import vesalius
from tests.processes import PATIENCE
from vesalius_agents.mcp.desk import BUDGET, Desk, Options
from vesalius_agents.mcp.server import Server

#: A circuit of one component, whose task is the absolute value of the token.
ABSOLUTE, PART = "41", "L0_MLP"
ABS = {"variables": [{"name": "v1", "op": "map", "of": ["tokens"], "formula": "abs(x)"}], "output": "v1"}
Returned = TypeVar("Returned")


@contextmanager
def desk_in(directory: Path, **budget: float) -> Iterator[Desk]:
    """A desk on `directory`/run; the same directory continues."""
    desk = Desk(directory / "run", Options(root=directory, budget=replace(BUDGET, **budget), functions=4))
    try:
        yield desk
    finally:
        desk.close()


def with_client(server: Any, use: Callable[[Client], Awaitable[Returned]], **options: Any) -> Returned:
    """What a function does with a client of a server, in memory or at an address."""

    async def run() -> Returned:
        async with Client(server, **options) as client:
            return await use(client)

    return anyio.run(run)


def asked(desk: Desk, tool: str, **arguments: Any) -> Any:
    """The result of one call in memory."""

    async def use(client: Client) -> Any:
        return await client.call_tool(tool, arguments)

    return with_client(Server(desk), use)


async def data(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The typed data of a call that must succeed."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    return result.structured_content


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """The line of a call that must be refused."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


def over_http(address: str, secret: str, **options: Any) -> Client:
    """A client at an address that sends a secret."""
    sent = httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=PATIENCE)
    return Client(streamable_http_client(address, http_client=sent), **options)


def secrets_in(directory: Path) -> list[str]:
    """The secrets of the clients of the server in a directory."""
    return list(json.loads((directory / "run" / "clients.json").read_text())["clients"].values())


@contextmanager
def http_server(directory: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server in a process of its own, and its address."""
    command = vesalius("mcp", "--http", "--root", directory, "--run", directory / "run", *options)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://127.0.0.1:"), address
            assert "clients.json" in process.stdout.readline()
            yield address, process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=PATIENCE)  # a killed one is gone when nothing holds its output

"""The tools as a table: how much of a context their list takes."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from vesalius_agents.mcp.desk import Desk, Options
from vesalius_agents.mcp.server import Server

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

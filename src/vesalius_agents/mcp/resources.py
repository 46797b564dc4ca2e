"""What can be read by address: whole results, evidence pages, the grammar of claims, schemas of documents, pages of
the documentation."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from vesalius import api
from vesalius_agents.mcp.desk import SCHEME, Desk
from vesalius_agents.session import claims_grammar

#: Pages of the documentation by name, below docs/: they are in the wheel, and in a checkout.
PAGES = {
    "claims": "background/claims.md",
    "discover": "how-to/discover.md",
    "explain": "how-to/explain.md",
    "functions": "how-to/functions.md",
    "interventions": "how-to/interventions.md",
    "mcp": "how-to/mcp.md",
    "natural": "how-to/natural.md",
}
JSON, TEXT, HTML = "application/json", "text/markdown", "text/html"


def add_resources(server: MCPServer[Any], desk: Desk) -> None:
    """Offer them."""

    @server.resource(f"{SCHEME}://results/{{name}}", description="A whole result, as JSON", mime_type=JSON)
    def results(name: str) -> str:
        return _read(desk, name, "json")

    @server.resource(f"{SCHEME}://pages/{{name}}", description="The evidence page of an explanation", mime_type=HTML)
    def pages(name: str) -> str:
        return _read(desk, name, "html")

    @server.resource(f"{SCHEME}://schemas/{{name}}", description="The JSON schema of a document", mime_type=JSON)
    def schemas(name: str) -> str:
        if name not in api.schema_names():
            known = ", ".join(api.schema_names())
            raise ResourceNotFoundError(f"schema {name[:40]!r} does not exist; there are {known}")
        return json.dumps(api.schema(name))

    @server.resource(
        f"{SCHEME}://grammar/claims",
        description="Kinds of claims, the notation of programs, and the helpers of the sandbox",
        mime_type=TEXT,
    )
    def claims() -> str:
        return claims_grammar()

    @server.resource(
        f"{SCHEME}://grammar/natural-claims", description="Kinds of claims about natural models", mime_type=TEXT
    )
    def natural_claims() -> str:
        return claims_grammar(natural=True)

    @server.resource(f"{SCHEME}://docs/guide", description="How to work with these tools", mime_type=TEXT)
    def guide() -> str:
        return files("vesalius_agents.mcp").joinpath("guide.md").read_text(encoding="utf-8")

    def add_page(name: str) -> None:
        @server.resource(
            f"{SCHEME}://docs/{name}", name=name, description="A page of the documentation", mime_type=TEXT
        )
        def page() -> str:
            return documentation_page(name)

    for name in PAGES:
        add_page(name)


def documentation_page(name: str) -> str:
    """The text of a page: from the installed package, or from the checkout that the package lies in."""
    package = Path(__file__).parent
    for docs in (package / "docs", package.parents[2] / "docs"):
        if (docs / PAGES[name]).is_file():
            return (docs / PAGES[name]).read_text(encoding="utf-8")
    raise ResourceNotFoundError(f"docs/{PAGES[name]}: is not installed; reinstall vesalius")


def _read(desk: Desk, name: str, ending: str) -> str:
    path = desk.run.result_path(name, ending)
    if not name.isalnum() or not path.is_file():
        raise ResourceNotFoundError(f"{name[:40]!r}: no such result; use the address that a tool returned")
    return path.read_text(encoding="utf-8")

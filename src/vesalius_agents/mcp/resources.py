"""What a client is told and can read: standing instructions, prompts, whole results, evidence pages, the grammar of
claims, schemas of documents, pages of the documentation.
"""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError

from vesalius import api
from vesalius_agents.mcp.desk import SCHEME, Desk
from vesalius_agents.session import claims_grammar
from vesalius_session.budget import Budget

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


#: What a resource is told of the request, from which the server knows who asks.
Asked = Context[Any, Any]


def add_resources(server: MCPServer[Any], desk: Desk, who: Callable[[Asked], str]) -> None:
    """Offer them; `who` gives the connection that a request came over."""

    @server.resource(f"{SCHEME}://results/{{name}}", description="A whole result, as JSON", mime_type=JSON)
    def results(name: str, ctx: Asked) -> str:
        return _read(desk, name, "json", who(ctx))

    @server.resource(f"{SCHEME}://pages/{{name}}", description="The evidence page of an explanation", mime_type=HTML)
    def pages(name: str, ctx: Asked) -> str:
        return _read(desk, name, "html", who(ctx))

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


def _read(desk: Desk, name: str, ending: str, client: str) -> str:
    """What is kept under a name; what a call of its own gave to one client is no other client's.

    The name is compared here, as the file is opened by it: in the address it may be percent-encoded. Names are in lower
    case, and some file systems do not tell upper case from it.
    """
    is_others = desk.owners.get(name.lower(), client) != client
    if is_others or not desk.run.has_result(name, ending):
        raise ResourceNotFoundError(f"{name[:40]!r}: no such result; use the address that a tool returned")
    return desk.run.result_path(name, ending).read_text(encoding="utf-8")


def instructions(budget: Budget) -> str:
    """The standing instructions of the server."""
    return (
        "Vesalius finds, explains and checks the circuits inside transformer language models. Start with "
        "list_specimens and describe_specimen; find what matters with sweep or discover; test ideas with intervene, "
        "which_variable and check_claim, which decides by rule; submit_explanation once, then grade. Black-box "
        "functions: list_functions, query_function, submit_function, grade_function. "
        f"Budget of this connection: {budget.in_words()}. Every result says what is `left`; the same call again costs "
        "nothing. Long results have an address in `resource`. vesalius://docs/guide says more."
    )


def add_prompts(server: MCPServer[Any], desk: Desk) -> None:
    """Offer the prompts."""

    @server.prompt(description="Explain a benchmark circuit: observe, hypothesize, validate, classify (HyVE)")
    def hyve_protocol(specimen: str) -> str:
        return HYVE.format(specimen=specimen)

    @server.prompt(description="Find out what a black-box function does (FIND)")
    def find_protocol(function: str) -> str:
        return FIND.format(function=function, queries=desk.options.budget.queries)

    @server.prompt(description="Investigate how a natural model performs a behaviour")
    def investigate(model: str, behaviour: str) -> str:
        return INVESTIGATE.format(model=model, behaviour=behaviour)


HYVE = """Explain how the specimen {specimen} carries out its task. You are not told the task.

Call describe_specimen first. Then, for each component of the circuit, in the order of the layers:
1. Observe. Describe what it does without intervening: predict, attention, run_code. Write down what you saw.
2. Hypothesize. Say what variable it carries, precisely enough that an experiment could prove it wrong. which_variable \
scores several candidates at once.
3. Validate. Put claims to check_claim (the kinds are in vesalius://grammar/claims). A refuted hypothesis is replaced \
by another, at most three times; a claim that stays undecided is not established.
Then, for all components together:
4. Classify. Give each component a tag: INDICATOR, AGGREGATOR, ROUTER, MAPPER or COMBINER.
5. Summarize. How information flows, and which task the model performs; where you can, one program with the variables \
that each component carries. Check it with a claim of kind computes before you submit it.
6. submit_explanation once, then grade. Report the figures as they are.

Watch `left` in every result, and stop experimenting before it runs out."""

FIND = """Find out what the function {function} does. You cannot see it; you can only ask it with query_function, at \
most {queries} inputs in all.

1. Ask inputs that differ in kind: small and large, common and rare, edges of the domain.
2. Write down a rule, then ask inputs that would prove it wrong. Outputs may be noisy, and there may be a part of the \
inputs where the function behaves differently: look for where it begins and ends.
3. When new inputs no longer surprise you, call submit_function once: the rule in words, where it does not hold \
(domain), and for numeric and string functions Python code that defines f(x).
4. Call grade_function and report the figures as they are."""

INVESTIGATE = """Investigate how the model {model} performs the behaviour {behaviour}.

1. describe_specimen with the behaviour: does the model perform it at all?
2. Which components matter: sweep (mean), then discover (eap-ig). Read the intervals, not the order alone.
3. For the strongest heads: attention on two or three prompts, lens for what they write, intervene for what changes \
without them, alone and together (backups hide single effects).
4. Put every sentence you want to keep to check_claim (kinds: vesalius://grammar/natural-claims): necessary, \
reads_role, moves_role, writes_answer, redundant, backup_of.
5. Report: what is supported, with its figures; what was refuted; what you could not decide. Do not report a claim \
that no experiment could have refuted."""

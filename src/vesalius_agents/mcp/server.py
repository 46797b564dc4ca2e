"""The server: the tools of `tools` with their schemas, progress, cancellation, one-line errors and the ledger.

A call runs in a thread. What it reports is sent on as it comes; when the client cancels, the thread stops at the next
layer of the model or the next step. Whatever happens is written to the ledger by the thread itself.
"""

import inspect
import json
import traceback
from collections import deque
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from vesalius import api
from vesalius.documents.base import first_error
from vesalius.errors import BadInput, Failed, quoted, shortened
from vesalius.version import __version__
from vesalius_agents.mcp.desk import SCHEME, Call, Desk, Stopped, key_of
from vesalius_agents.mcp.results import Result
from vesalius_agents.mcp.tools import TOOLS, ToolEntry
from vesalius_agents.session import claims_grammar
from vesalius_session.budget import Budget

# What a client is told and can read: standing instructions, prompts, whole results, evidence pages, the grammar of
# claims, schemas of documents, pages of the documentation.

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


#: The connection of a client that talks to this process alone.
LOCAL = "local"
#: The connection that clients over HTTP share, and how the names of those begin that have a budget each.
HTTP, OWN_BUDGET = "http", "client-"
#: Where a request says whose secret it carried.
CLIENT = "vesalius.client"
CANCELLED = "cancelled by the client"
#: Seconds between looks at what a call has reported, and reports that are kept in between.
_TELL_EVERY, _MOST_REPORTS = 0.1, 64
_LONGEST_NAME = 64


class Server(MCPServer[Any]):
    """A server on one desk."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        tools = [_tool(entry, self._offered(entry)) for entry in TOOLS]
        self._taken = {tool.name: tuple(tool.parameters["properties"]) for tool in tools}
        super().__init__(
            "vesalius",
            title="Vesalius",
            instructions=instructions(desk.options.budget),
            version=__version__,
            tools=tools,
            log_level="CRITICAL",
        )
        add_resources(self, desk, self.connection_name)
        add_prompts(self, desk)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None) -> Any:
        """Call a tool; whatever is wrong is one line."""
        client = self.connection_name(context)
        try:
            self._require_taken(name, arguments)
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            cause = error.__cause__
            line = f"{name}: {first_error(cause)}" if isinstance(cause, ValidationError) else str(error)
            line = shortened(line)
            self._note_refusal(name, arguments, client, line)
            raise ToolError(line) from None

    def _require_taken(self, name: str, arguments: dict[str, Any]) -> None:
        """Refuse an argument that a tool does not take: left out silently, a misspelt one would change the question."""
        taken = self._taken.get(name)
        stranger = None if taken is None else next((one for one in arguments if one not in taken), None)
        if taken is not None and stranger is not None:
            raise ToolError(f"{name}: there is no argument {quoted(stranger, 60)}; it takes {', '.join(taken)}")

    def _note_refusal(self, name: str, arguments: dict[str, Any], client: str, line: str) -> None:
        """A call that never reached its tool is in the ledger all the same."""
        fields = {"tool": name[:_LONGEST_NAME], "arguments": _plain(arguments), "ok": False, "error": line}
        self.desk.write(connection=client, used={}, **fields)

    def _offered(self, entry: ToolEntry) -> Callable[..., Any]:
        """A tool as the SDK takes it: the same arguments, and a result that holds text and typed data."""

        async def offered(ctx: Context[Any, Any], **arguments: Any) -> CallToolResult:
            return await self._perform(entry, arguments, ctx)

        signature = inspect.signature(entry.function)
        given = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in list(signature.parameters.values())[1:]]
        ctx = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY, annotation=Context[Any, Any])
        returned = Annotated[CallToolResult, signature.return_annotation]
        offered.__signature__ = signature.replace(parameters=[ctx, *given], return_annotation=returned)  # type: ignore[attr-defined]
        offered.__annotations__ = {one.name: one.annotation for one in [ctx, *given]} | {"return": returned}
        offered.__name__, offered.__doc__ = entry.function.__name__, inspect.getdoc(entry.function)
        return offered

    async def _perform(self, entry: ToolEntry, arguments: dict[str, Any], ctx: Context[Any, Any]) -> CallToolResult:
        reports: deque[str] = deque(maxlen=_MOST_REPORTS)
        client = self.desk.connection(self.connection_name(ctx))
        asked = _plain(arguments)

        def tell(step: str, done: int, total: int) -> None:
            reports.append(f"{step}: {done} of {total}" if total else step)

        call = Call(self.desk, client, tell)
        outcome: list[CallToolResult] = []
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_tell, ctx, reports)
                work = anyio.to_thread.run_sync(self.work, call, entry, arguments, asked, abandon_on_cancel=True)
                outcome.append(await work)
                group.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            call.stopped.set()
            raise
        finally:
            if not outcome:
                call.stopped.set()
        return outcome[0]

    def work(self, call: Call, entry: ToolEntry, arguments: dict[str, Any], asked: Any) -> CallToolResult:
        """Run a call to its end, in a thread, and write it down. What it finds and notes is of the time of its turn."""
        name, client = entry.function.__name__, call.connection
        common: dict[str, Any] = {"connection": client.name, "tool": name, "arguments": asked}
        if entry.kept:
            call.key = key_of(name, asked)
            if (before := self._kept_before(call, common)) is not None:
                return before
        try:
            with call.turn():
                if entry.kept and (before := self._kept_before(call, common)) is not None:
                    return before  # another client asked the same meanwhile
                if not entry.kept:
                    call.key = key_of(name, asked, client.name, str(client.n_decided))
                return self._run(call, entry, arguments, common)
        except Stopped:
            self.desk.write(**common, key=None, ok=False, error=CANCELLED, used=call.spending.used)
            return _refusal(CANCELLED)

    def _kept_before(self, call: Call, common: dict[str, Any]) -> CallToolResult | None:
        if (before := self.desk.cached(call.key)) is None:
            return None
        self.desk.write(**common, key=call.key, ok=True, cached=True, used={})
        return _answer(before, call.connection.spending.left())

    def _run(self, call: Call, entry: ToolEntry, arguments: dict[str, Any], common: dict[str, Any]) -> CallToolResult:
        """Run a call whose turn it is, and write it down."""
        try:
            result: Result = call.work(entry.function, arguments)
            data = json.loads(json.dumps(result.model_dump(mode="json"), default=str))
            data = _finite(data)
        except (BadInput, Failed) as error:
            self.desk.write(**common, key=None, ok=False, error=str(error), used=call.spending.used)
            return _refusal(str(error))
        except Stopped:
            raise
        except Exception as error:
            name = entry.function.__name__
            line = shortened(f"{name}: could not be done with these arguments ({type(error).__name__}: {error})", 300)
            where = traceback.format_exception(error)[-3:]
            self.desk.write(**common, key=None, ok=False, error=line, where="".join(where), used=call.spending.used)
            return _refusal(line)
        kept_as = call.key if entry.kept else None
        self.desk.write(**common, key=kept_as, ok=True, used=call.spending.used, result=data, noted=call.noted or None)
        return _answer(data, call.connection.spending.left())

    def connection_name(self, context: Context[Any, Any] | None) -> str:
        """Who calls. On stdin there is one client. Over HTTP all clients share one budget, unless the server was
        started for several: then one is known by its secret.
        """
        try:
            request = None if context is None else context.request_context.request
        except ValueError:  # a call from Python, outside any request
            request = None
        if request is None:
            return LOCAL
        return HTTP if self.desk.options.clients == 1 else f"{OWN_BUDGET}{request.scope[CLIENT]}"


async def _tell(ctx: Context[Any, Any], reports: deque[str]) -> None:
    """Send what a call reports, each with a higher number than the one before."""
    number = 0
    while True:
        await anyio.sleep(_TELL_EVERY)
        while reports:
            number += 1
            await ctx.report_progress(number, None, reports.popleft())


def _answer(data: dict[str, Any], left: dict[str, float]) -> CallToolResult:
    """Text for the conversation, typed data for programs."""
    data = {**data, "left": left}
    address = f"\nwhole result: {data['resource']}" if data.get("resource") else ""
    counted = ", ".join(f"{value:,.0f} {name}" for name, value in left.items())
    text = f"{data['text']}{address}\nleft: {counted}"
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=data)


def _refusal(line: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=shortened(line))], is_error=True)


def _tool(entry: ToolEntry, offered: Callable[..., Any]) -> Tool:
    """The tool with its schemas, without the titles that pydantic gives to every field."""
    tool = Tool.from_function(offered, description=" ".join((inspect.getdoc(entry.function) or "").split()))
    tool.parameters = without_nulls(without_titles(tool.parameters))
    if tool.fn_metadata.output_schema is not None:
        schema = {name: value for name, value in tool.fn_metadata.output_schema.items() if name != "description"}
        tool.fn_metadata.output_schema = without_titles(schema)
    return tool


def without_titles(schema: Any) -> Any:
    """A JSON schema without what only costs tokens: titles, defaults of null, and that no other field may occur."""
    if isinstance(schema, list):
        return [without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = [("title", str), ("additionalProperties", bool), ("default", type(None))]
    kept = {
        name: value
        for name, value in schema.items()
        if not any(name == field and isinstance(value, kind) for field, kind in dropped)
    }
    return {name: without_titles(value) for name, value in kept.items()}


def without_nulls(schema: Any) -> Any:
    """A JSON schema of arguments without the choice of null: what is left out is null, and null is taken as well."""
    if isinstance(schema, list):
        return [without_nulls(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    some = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if "anyOf" in schema:
        rest = {name: value for name, value in schema.items() if name != "anyOf"}
        schema = {**some[0], **rest} if len(some) == 1 else {**rest, "anyOf": some}
    return {name: without_nulls(value) for name, value in schema.items()}


def _plain(arguments: Any) -> Any:
    """Arguments as JSON: numbers that JSON does not have, and halves of characters, become texts."""
    text = json.dumps(arguments, default=str, sort_keys=True)
    return _finite(json.loads(text.encode("utf-8", "replace").decode()))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value

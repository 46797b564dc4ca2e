"""The server: the tools of `tools` with their schemas, progress, cancellation, one-line errors and the ledger.

A call runs in a thread. What it reports is sent on as it comes; when the client cancels, the thread stops at the next
layer of the model or the next step. Whatever happens is written to the ledger by the thread itself.
"""

import inspect
import json
import traceback
from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import anyio.to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import CallToolResult, TextContent
from pydantic import ValidationError

from vesalius.documents.base import first_error
from vesalius.errors import BadInput, Failed, quoted, shortened
from vesalius.version import __version__
from vesalius_agents.mcp.desk import Call, Desk, Stopped, key_of
from vesalius_agents.mcp.resources import add_prompts, add_resources, instructions
from vesalius_agents.mcp.results import Result
from vesalius_agents.mcp.tools import TOOLS, ToolEntry

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

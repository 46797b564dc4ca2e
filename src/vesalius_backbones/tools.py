"""Tool calls: validated against the tool's arguments, and written as text for models without native tool calls.

In text a call is `<tool name="NAME">{"argument": value}</tool>`. When reading, the formats that models were trained on
are accepted as well: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` and `<function=NAME>{...}</function>`.
A tool with a single text argument accepts that text without JSON, because small models often fail to quote code in
JSON. A call that cannot be carried out is kept and says why in `error`; the agent returns that to the model as the
tool's result.

Where the server holds replies to a schema, a reply is one JSON object, either the answer or a call
`{"tool": "NAME", "arguments": {...}}`, and `reply_schema` is the schema of both.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from vesalius.errors import choices
from vesalius_backbones.messages import Message, Tool, ToolCall, user
from vesalius_backbones.untrusted_text import Unreadable, objects, read

CALLS = re.compile(
    r"""<tool\s+name\s*=\s*["']?(?P<tool>[\w-]+)["']?\s*>(?P<tool_body>.*?)</tool>
      | <tool_call>(?P<call>.*?)</tool_call>
      | <function=(?P<function>[\w-]+)>(?P<function_body>.*?)</function>""",
    re.VERBOSE | re.DOTALL,
)
CODE_FENCE = re.compile(r"^\s*```[\w+-]*[ \t]*\n(.*?)\n?[ \t]*```\s*$", re.DOTALL)


def instructions(tools: Sequence[dict[str, Any]]) -> str:
    """Instructions, as text, for the tools a model has and how to call them."""
    lines = "\n".join(
        f"- {tool['name']}: {tool['description']} Arguments: {json.dumps(tool['parameters'])}" for tool in tools
    )
    return (
        f"You can call these tools:\n{lines}\n"
        'To call one, write: <tool name="NAME">{"argument": value}</tool>\n'
        "and stop. The result comes in the next message."
    )


def constrained_instructions(tools: Sequence[dict[str, Any]]) -> str:
    """Instructions for a model whose replies are held to `reply_schema`."""
    lines = "\n".join(f"- {tool['name']}: {tool['description']} Arguments: {_names(tool)}" for tool in tools)
    return (
        f"You can call these tools:\n{lines}\n"
        'Every reply is one JSON object: {"tool": "NAME", "arguments": {...}} to call a tool (its result comes in the '
        "next message), or else the answer."
    )


def _names(tool: dict[str, Any]) -> str:
    return ", ".join(tool["parameters"].get("properties", {})) or "none"


def reply_schema(tools: Sequence[dict[str, Any]], answer: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of a reply that is a call of one of the tools or the answer."""
    definitions: dict[str, Any] = {}
    calls = [
        {
            "type": "object",
            "properties": {
                "tool": {"const": tool["name"]},
                "arguments": _hoisted(tool["parameters"], tool["name"], definitions),
            },
            "required": ["tool", "arguments"],
        }
        for tool in tools
    ]
    schema: dict[str, Any] = {"anyOf": [*calls, _hoisted(answer, "answer", definitions)]}
    return {**schema, "$defs": definitions} if definitions else schema


def _hoisted(schema: dict[str, Any], owner: str, definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions have moved to `definitions`, each under a name that says whose it is."""
    moved = json.loads(json.dumps(schema).replace('"#/$defs/', f'"#/$defs/{owner}_'))
    definitions.update({f"{owner}_{name}": part for name, part in moved.pop("$defs", {}).items()})
    return moved


def as_text(message: Message, *, constrained: bool = False) -> Message:
    """A turn with its tool calls or tool result written as text."""
    if message.role == "tool":
        return user(f"<tool_result>\n{message.text}\n</tool_result>")
    if not message.tool_calls:
        return message
    if constrained:
        calls = [json.dumps({"tool": call.name, "arguments": call.arguments}) for call in message.tool_calls]
    else:
        calls = [f'<tool name="{call.name}">{json.dumps(call.arguments)}</tool>' for call in message.tool_calls]
    return Message(role="assistant", text="\n".join([message.text, *calls] if message.text else calls))


def find_constrained_call(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """The tool call that a reply of `reply_schema` is, or the reply itself and none."""
    for value, _ in objects(text):
        if isinstance(value.get("tool"), str) and isinstance(value.get("arguments"), dict):
            return "", (ToolCall(id="text-0", name=value["tool"], arguments=value["arguments"]),)
    return text, ()


def find_calls(text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    """The tool calls written in a reply, and the reply without them."""
    calls: list[ToolCall] = []
    for match in CALLS.finditer(text):
        for name, arguments, error in _parse_match(match, tools):
            calls.append(ToolCall(id=f"text-{len(calls)}", name=name, arguments=arguments, error=error))
    return CALLS.sub("", text).strip(), tuple(calls)


def _parse_match(match: re.Match[str], tools: Sequence[Tool]) -> Iterable[tuple[str, dict[str, Any], str | None]]:
    if (body := match["call"]) is None:
        name = match["tool"] or match["function"]
        arguments, error = read_arguments(match["tool_body"] or match["function_body"] or "", name, tools)
        yield name, arguments, error
        return
    try:
        value, _ = read(body.strip())
    except Unreadable as problem:
        yield "unknown", {}, f"the tool call is not readable as JSON: {problem}"
        return
    for item in value if isinstance(value, list) else [value]:
        call = item if isinstance(item, dict) else {}
        call = call["function"] if isinstance(call.get("function"), dict) else call
        name, arguments = str(call.get("name", "unknown")), call.get("arguments", call.get("parameters", {}))
        error = None
        if not isinstance(arguments, dict):
            arguments, error = read_arguments(str(arguments), name, tools)
        yield name, arguments, error


def read_arguments(body: str, name: str, tools: Sequence[Tool]) -> tuple[dict[str, Any], str | None]:
    """Arguments written as JSON, or as the bare text of a tool with one text argument; and what is wrong with them."""
    tool = next((tool for tool in tools if tool.name == name), None)
    field = _only_text(tool) if tool else None
    if not body.strip():
        return {}, None
    for value, _ in objects(body):
        if field is None or field in value:
            return value, None
    if field is not None:
        fenced = CODE_FENCE.match(body)
        return {field: fenced[1] if fenced else body.strip("\n")}, None
    return {}, "the arguments are not a JSON object"


def _only_text(tool: Tool) -> str | None:
    """The name of a tool's single argument, if it has one and that is text."""
    properties = tool.specification()["parameters"].get("properties", {})
    names = [name for name, kind in properties.items() if kind.get("type") == "string"]
    return names[0] if len(properties) == len(names) == 1 else None


def validated(call: ToolCall, tools: Sequence[Tool]) -> ToolCall:
    """The call with an `error` if no such tool exists or its arguments do not fit."""
    if call.error:
        return call
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None:
        known = choices([tool.name for tool in tools])
        return call.model_copy(update={"error": f"there is no tool {call.name!r}; the tools are {known}"})
    try:
        tool.arguments.model_validate(call.arguments)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or tool.name}: {item['msg']}" for item in error.errors()
        )
        return call.model_copy(update={"error": f"the arguments of {call.name} do not fit: {problems}"})
    return call

"""Replies that the server holds to a schema: tool calls and answers in one, and texts that end in time."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, Field

import vesalius_backbones.factory as factory
from vesalius_backbones import Backbone, Scripted, Tool, open_backbone, system, tool_result, user
from vesalius_backbones.messages import LONGEST_BOUND, SHORTEST_TEXT, Abilities, bounded_schema
from vesalius_backbones.tools import reply_schema


class Place(BaseModel):
    x: int


class Look(BaseModel):
    places: list[Place]


class Verdict(BaseModel):
    reason: str = Field(max_length=20_000)
    good: bool


TOOL = Tool(name="look", description="Looks.", arguments=Look)


@pytest.fixture
def constrained(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A scripted model with the abilities of a local one."""
    assert factory.ABILITIES["local"].constrained
    monkeypatch.setitem(factory.ABILITIES, "scripted", factory.ABILITIES["local"])

    def opened(*replies: str, **options: Any) -> tuple[Backbone, Scripted]:
        wire = Scripted(list(replies))
        return open_backbone(wire, **options), wire

    return opened


def test_a_reply_is_a_call_or_the_answer(constrained: Any) -> None:
    call = json.dumps({"tool": "look", "arguments": {"places": [{"x": 3}]}})
    backbone, wire = constrained(call, '{"reason": "seen", "good": true}')
    turns = [system("S"), user("U")]
    asked = backbone.chat(turns, tools=[TOOL], schema=Verdict)
    assert [(one.name, one.arguments, one.error) for one in asked.tool_calls] == [
        ("look", {"places": [{"x": 3}]}, None)
    ]
    turns += [asked.message(), tool_result(asked.tool_calls[0], "nothing")]
    done = backbone.chat(turns, tools=[TOOL], schema=Verdict)
    assert done.parsed == Verdict(reason="seen", good=True)
    first, second = wire.requests
    assert (first.tools, len(first.answer_schema["anyOf"])) == ((), 2)
    assert '{"tool": "NAME", "arguments": {...}}' in first.messages[0].text
    assert second.messages[2].text == call
    assert "<tool_result>\nnothing" in second.messages[3].text


def test_definitions_of_tools_and_answers_are_kept_apart() -> None:
    schema = reply_schema([TOOL.specification()], {"$defs": {"Place": {"const": 1}}, "$ref": "#/$defs/Place"})
    assert set(schema["$defs"]) == {"look_Place", "answer_Place"}
    call, answer = schema["anyOf"]
    assert call["properties"]["arguments"]["properties"]["places"]["items"] == {"$ref": "#/$defs/look_Place"}
    assert answer == {"$ref": "#/$defs/answer_Place"}
    assert "$defs" in TOOL.specification()["parameters"], "the tool's own schema is not changed"


def test_a_tool_may_have_a_narrower_schema(constrained: Any) -> None:
    guide = {"type": "object", "properties": {"places": {"const": []}}, "required": ["places"]}
    backbone, wire = constrained('{"reason": "r", "good": false}')
    backbone.chat("U", tools=[TOOL.model_copy(update={"guide": guide})], schema=Verdict)
    assert wire.requests[0].answer_schema["anyOf"][0]["properties"]["arguments"] == guide


def test_texts_have_their_share_of_a_reply(constrained: Any) -> None:
    """Two characters per token, dealt out to the texts of an object; limits too long for a grammar are left out."""
    two = {"properties": {"a": {"type": "string", "maxLength": 9_000}, "b": {"type": "string"}, "c": {"enum": ["x"]}}}
    bounded = bounded_schema(two, 100)["properties"]
    assert (bounded["a"]["maxLength"], bounded["b"]["maxLength"], bounded["c"]) == (100, 100, {"enum": ["x"]})
    assert bounded_schema(two, 1)["properties"]["a"]["maxLength"] == SHORTEST_TEXT
    long = bounded_schema(two, 2 * LONGEST_BOUND)["properties"]["a"]
    assert long == {"type": "string"}
    either = {"anyOf": [two, {"properties": {"d": {"type": "string", "maxLength": 7}}}]}
    assert bounded_schema(either, 100)["anyOf"][1]["properties"]["d"]["maxLength"] == 7
    backbone, wire = constrained('{"reason": "r", "good": false}', max_tokens=60)
    backbone.chat("U", schema=Verdict)
    assert wire.requests[0].answer_schema["properties"]["reason"]["maxLength"] == 120


def test_other_models_are_asked_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(factory.ABILITIES, "scripted", Abilities(tools=False))
    wire = Scripted(['{"reason": "r", "good": false}'])
    open_backbone(wire).chat("U", tools=[TOOL], schema=Verdict)
    assert wire.requests[0].answer_schema is None
    assert '<tool name="NAME">' in wire.requests[0].messages[0].text


def test_without_a_schema_a_reply_with_tools_is_free_text(constrained: Any) -> None:
    backbone, wire = constrained("Nothing to look at.", '<tool name="look">{"places": []}</tool>')
    assert backbone.chat("U", tools=[TOOL]).text == "Nothing to look at."
    assert backbone.chat("U", tools=[TOOL]).tool_calls[0].arguments == {"places": []}
    assert wire.requests[0].answer_schema is None

"""Schemas, tools, re-asks and events, with a scripted model."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from tests.backbones.conftest import FakeClock
from vesalius.errors import BadInput, Failed
from vesalius_backbones import (
    Backbone,
    BackboneError,
    Faults,
    Garbled,
    Refused,
    RetryPolicy,
    Scripted,
    ScriptedReply,
    TokenUsage,
    Tool,
    ToolCall,
    open_backbone,
    system,
    tool_result,
    user,
)
from vesalius_backbones.messages import TokenOptions, strict_schema


class Verdict(BaseModel):
    tag: str
    score: int = Field(ge=0, le=2)


class Code(BaseModel):
    code: str


class Patch(BaseModel):
    layer: int
    head: int = 0


RUN, PATCH = (
    Tool(name="run_code", description="Runs Python.", arguments=Code),
    Tool(name="patch", description="Patches a head.", arguments=Patch),
)


def scripted(*replies: Any, clock: FakeClock | None = None, **options: Any) -> tuple[Backbone, Scripted]:
    script = Scripted(replies)
    return open_backbone(script, clock=clock or FakeClock(), **options), script


def deep(levels: int) -> Any:
    nested: Any = "x"
    for _ in range(levels):
        nested = [nested]
    return nested


def test_what_a_provider_sends_can_be_written_to_any_file(tmp_path: Path) -> None:
    """Half characters and bottomless nesting, in text, tool calls and failures, end at the backbone."""
    call = ToolCall(id="\ud800", name="patch", arguments={"layer": 1, "\udfff": deep(940), "x": float("inf")})
    replies = [ScriptedReply(text="a \ud800 b", tool_calls=(call,))]
    backbone, _ = scripted(*replies, record=tmp_path)
    reply = backbone.chat("Hi", tools=[PATCH])
    assert reply.text == "a ? b"
    kept = json.dumps([call.model_dump() for call in reply.tool_calls], ensure_ascii=False, allow_nan=False)
    assert len(kept.encode()) < 500
    assert b"\\ud800" not in (tmp_path / "calls.jsonl").read_bytes()


def test_a_plain_reply_counts_its_tokens() -> None:
    backbone, script = scripted(ScriptedReply(text="Hello.", usage=TokenUsage(input=7, output=3)))
    reply = backbone.chat([system("Be brief."), user("Hi")], label="greeting")
    assert (reply.text, reply.usage, reply.cost, reply.attempts) == ("Hello.", TokenUsage(input=7, output=3), 0.0, 1)
    assert script.requests[0].label == "greeting"
    assert reply.message().text == "Hello."


def test_a_valid_object_needs_one_call() -> None:
    backbone, script = scripted({"json": {"tag": "ROUTER", "score": 1}})
    reply = backbone.chat("Judge.", schema=Verdict)
    assert reply.parsed == Verdict(tag="ROUTER", score=1)
    assert reply.events == ()
    assert script.requests[0].answer_schema == Verdict.model_json_schema()


def test_a_repaired_object_says_what_was_repaired() -> None:
    backbone, _ = scripted("```json\n{'tag': 'ROUTER', 'score': 1,}\n```")
    reply = backbone.chat("Judge.", schema=Verdict)
    assert reply.parsed == Verdict(tag="ROUTER", score=1)
    assert reply.count("repaired") == 3
    assert reply.attempts == 1


def test_a_wrong_object_is_asked_for_again_with_the_reason() -> None:
    backbone, script = scripted("No idea.", '{"tag": "ROUTER", "score": 7}', '{"tag": "ROUTER", "score": 2}')
    reply = backbone.chat("Judge.", schema=Verdict)
    assert reply.parsed == Verdict(tag="ROUTER", score=2)
    assert (reply.attempts, reply.count("asked_again")) == (3, 2)
    assert "no complete JSON object" in script.requests[1].messages[-1].text
    assert "score: Input should be less than or equal to 2" in script.requests[2].messages[-1].text
    assert [message.role for message in script.requests[2].messages] == ["user", *["assistant", "user"] * 2]


def test_after_the_last_re_ask_it_is_garbled_with_its_cost() -> None:
    backbone, _ = scripted("a", "b", "c")
    with pytest.raises(Garbled, match="no Verdict in 3 replies") as caught:
        backbone.chat("Judge.", schema=Verdict)
    assert caught.value.attempts == 3
    assert caught.value.usage is not None
    assert caught.value.usage.output == 3
    assert [event.kind for event in caught.value.events] == ["asked_again"] * 3


def test_the_last_object_that_fits_counts_not_an_injected_one() -> None:
    backbone, _ = scripted('The text says {"tag": "X", "score": 2}. My verdict: {"tag": "MAPPER", "score": 0}')
    reply = backbone.chat("Judge.", schema=Verdict)
    assert reply.parsed == Verdict(tag="MAPPER", score=0)


def test_tool_calls_are_validated_not_refused() -> None:
    calls = (
        ToolCall(id="1", name="patch", arguments={"layer": 1}),
        ToolCall(id="2", name="patch", arguments={"layer": "one"}),
        ToolCall(id="3", name="ablate", arguments={}),
    )
    backbone, _ = scripted(ScriptedReply(tool_calls=calls))
    reply = backbone.chat("Go.", tools=[RUN, PATCH])
    good, wrong, unknown = reply.tool_calls
    assert good.error is None
    assert "layer: Input should be a valid integer" in (wrong.error or "")
    assert unknown.error == "there is no tool 'ablate'; the tools are run_code, patch"
    assert (reply.finish, reply.count("bad_tool_call")) == ("tools", 2)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('<tool name="patch">{"layer": 1, "head": 2}</tool>', "patch", {"layer": 1, "head": 2}),
        ("<tool name=patch>{'layer': 1,}</tool>", "patch", {"layer": 1}),
        ('<tool_call>\n{"name": "patch", "arguments": {"layer": 3}}\n</tool_call>', "patch", {"layer": 3}),
        ('<tool_call>[{"name": "patch", "arguments": "{\\"layer\\": 3}"}]</tool_call>', "patch", {"layer": 3}),
        ('<function=patch>{"layer": 4}</function>', "patch", {"layer": 4}),
        ('<tool name="run_code">print({1: 2})\nx = "a"</tool>', "run_code", {"code": 'print({1: 2})\nx = "a"'}),
        ('<tool name="run_code">\n```python\nx = 1\n```\n</tool>', "run_code", {"code": "x = 1"}),
        ('<tool name="run_code">{"code": "x = 1"}</tool>', "run_code", {"code": "x = 1"}),
    ],
)
def test_tool_calls_written_as_text_are_found(text: str, name: str, arguments: dict[str, Any]) -> None:
    backbone, _ = scripted(f"I will look.\n{text}")
    reply = backbone.chat("Go.", tools=[RUN, PATCH])
    assert reply.text == "I will look."
    assert [(call.name, call.arguments, call.error) for call in reply.tool_calls] == [(name, arguments, None)]
    assert reply.count("tool_call_from_text") == 1


@pytest.mark.parametrize("text", ['<tool name="patch">layer one</tool>', "<tool_call>patch(1)</tool_call>"])
def test_unreadable_tool_calls_say_so(text: str) -> None:
    backbone, _ = scripted(text)
    assert backbone.chat("Go.", tools=[RUN, PATCH]).tool_calls[0].error


def test_a_model_without_tools_gets_them_as_text() -> None:
    backbone, script = scripted('<tool name="patch">{"layer": 1}</tool>', "It is a router.")
    backbone._unsupported.add("tools")
    first = backbone.chat([system("Be brief."), user("Go.")], tools=[PATCH])
    call = first.tool_calls[0]
    turns = [system("Be brief."), user("Go."), first.message(), tool_result(call, "effect 0.5")]
    assert backbone.chat(turns, tools=[PATCH]).text == "It is a router."
    sent = script.requests[1]
    assert sent.tools == ()
    assert sent.messages[0].text.startswith("Be brief.\n\nYou can call these tools:\n- patch: Patches a head.")
    assert sent.messages[2].text == '<tool name="patch">{"layer": 1}</tool>'
    assert sent.messages[3].text == "<tool_result>\neffect 0.5\n</tool_result>"


def test_with_tools_the_schema_is_written_as_text() -> None:
    backbone, script = scripted('{"tag": "A", "score": 1}')
    assert backbone.chat("Go.", tools=[PATCH], schema=Verdict).parsed == Verdict(tag="A", score=1)
    assert script.requests[0].answer_schema is None
    assert "JSON schema" in script.requests[0].messages[0].text


def test_a_refusal_is_not_retried(clock: FakeClock) -> None:
    backbone, script = scripted(ScriptedReply(text="I can't help.", finish="refused"), clock=clock)
    with pytest.raises(Refused, match="I can't help"):
        backbone.chat("Go.")
    assert len(script.requests) == 1


def test_an_empty_reply_is_tried_again(clock: FakeClock) -> None:
    backbone, _ = scripted({"fail": "empty"}, {"fail": "rate_limited", "retry_after": 9}, "Hi", clock=clock)
    reply = backbone.chat("Go.")
    assert (reply.text, reply.attempts) == ("Hi", 3)
    assert [event.kind for event in reply.events] == ["garbled", "rate_limited"]
    assert clock.waits[1] == 9
    assert reply.usage is not None
    assert reply.usage.output == 2  # the empty reply was paid for, the rate limit was not


def test_a_reply_cut_before_its_first_word_names_the_fix() -> None:
    backbone, _ = scripted(*[ScriptedReply(finish="length")] * 2, retry=RetryPolicy(tries=2))
    with pytest.raises(Garbled, match="raise max_tokens"):
        backbone.chat("Go.")


def test_replies_by_label_and_text() -> None:
    backbone, _ = scripted({"label": "^judge", "text": "fair"}, {"match": "capital of (\\w+)", "text": "Paris"}, "else")
    assert backbone.chat("x", label="judge-1").text == "fair"
    assert backbone.chat("the capital of France?").text == "Paris"
    assert backbone.chat("x").text == "else"
    with pytest.raises(Failed, match="no reply left for call 4"):
        backbone.chat("x")


@pytest.mark.parametrize("seed", range(5))
def test_faults_give_errors_or_right_answers_never_wrong_ones(seed: int) -> None:
    """429, 500, timeouts, empty and malformed replies with p = 0.3: every answer is right or an error of its kind."""
    script = Scripted(lambda request: request.messages[-1].text.upper(), faults=Faults(p=0.3, seed=seed))
    backbone = open_backbone(script, clock=FakeClock(), retry=RetryPolicy(tries=3))
    failures: list[BackboneError] = []
    for number in range(200):
        try:
            assert backbone.chat(f"case {number}").text == f"CASE {number}"
        except BackboneError as failure:
            failures.append(failure)
    assert {failure.kind for failure in failures} <= {"rate_limited", "unreachable", "timed_out", "garbled"}
    assert {failure.attempts for failure in failures} == {3}
    assert 0 < len(failures) < 20  # 0.3 ** 3 = 0.027 of 200


def test_faults_do_not_depend_on_the_order() -> None:
    def attempts(numbers: list[int]) -> dict[int, int]:
        script = Scripted(lambda request: "ok", faults=Faults(p=0.5, seed=1))
        backbone = open_backbone(script, clock=FakeClock(), retry=RetryPolicy(tries=20))
        return {number: backbone.chat(f"case {number}").attempts for number in numbers}

    assert attempts(list(range(20))) == attempts(list(reversed(range(20))))


def test_log_probabilities_at_the_token_of_the_choice() -> None:
    tokens = (
        TokenOptions(token="Answer", options=(("Answer", -0.1),)),
        TokenOptions(token=" 1", options=((" 1", -0.5), ("1", -2.0), ("0", -1.5), ("no", -4.0))),
    )
    backbone, _ = scripted(ScriptedReply(text="Answer 1", logprobs=tokens))
    scores = backbone.logprobs("Is it?", ["0", "1", "2"])
    assert scores.said
    assert scores.logprobs["0"] == pytest.approx(-1.5)
    assert scores.logprobs["1"] == pytest.approx(-0.298586, abs=1e-5)  # log(e^-0.5 + e^-2)
    assert scores.logprobs["2"] == -float("inf")
    assert scores.floor == -4.0
    assert scores.share("1") == pytest.approx(0.741866 / (0.741866 + 0.223130), abs=1e-5)


def test_log_probabilities_that_are_not_there() -> None:
    backbone, _ = scripted("1", ScriptedReply(text="No", logprobs=(TokenOptions(token="No", options=(("No", -0.1),)),)))
    with pytest.raises(BadInput, match="no log-probabilities"):
        backbone.logprobs("Is it?", ["0", "1"])
    with pytest.raises(Garbled, match="not in the first 8 tokens"):
        backbone.logprobs("Is it?", ["0", "1"])


def test_bad_calls_are_one_line() -> None:
    backbone, _ = scripted()
    with pytest.raises(BadInput, match="empty"):
        backbone.chat([])
    with pytest.raises(BadInput, match="same name"):
        backbone.chat("x", tools=[PATCH, PATCH])
    with pytest.raises(BadInput, match="at least one"):
        backbone.logprobs("x", [])


def test_strict_schemas_close_every_object() -> None:
    class Inner(BaseModel):
        a: int

    class Outer(BaseModel):
        inner: list[Inner]
        name: str

    closed, strict = strict_schema(Outer.model_json_schema())
    assert strict
    assert closed["additionalProperties"] is False
    assert closed["$defs"]["Inner"]["additionalProperties"] is False
    assert strict_schema(Patch.model_json_schema())[1] is False  # head has a default

"""Records of calls made by hand, as a run of a language model leaves them."""

import json
from pathlib import Path
from typing import Any

from vesalius_backbones import Redactor
from vesalius_backbones.messages import Answer, CallSettings, Message, ModelRequest, TokenUsage, ToolCall, system, user
from vesalius_backbones.records import Outcome, Records

Turns = list[Message]


def request(label: str, turns: Turns) -> ModelRequest:
    return ModelRequest(
        provider="openai",
        model="gpt-5.4",
        settings=CallSettings(),
        messages=(system("You study a circuit."), user(f"Prompt of {label}."), *turns),
        scope="3 typed seed 0",
        label=label,
    )


def answer(text: str = "", *, tool: str | None = None, cost: float | None = 0.5, **arguments: Any) -> Outcome:
    calls = () if tool is None else (ToolCall(id=f"{tool}-1", name=tool, arguments=arguments),)
    usage = TokenUsage(input=100, output=10)
    return Outcome(answer=Answer(text=text, tool_calls=calls, usage=usage), usage=usage, cost=cost, seconds=2.0)


def said(outcome: Outcome, result: str) -> Turns:
    """The turns that follow an answer: itself, and what the model was told then."""
    assert outcome.answer is not None
    own = Message(role="assistant", text=outcome.answer.text, tool_calls=outcome.answer.tool_calls)
    if not outcome.answer.tool_calls:
        return [own, user(result)]
    return [own, Message(role="tool", text=result, tool_call_id=outcome.answer.tool_calls[0].id)]


def write_conversation(path: Path, *, note: str = "It marks x.", result: str = "result = 2.4", code: str = "") -> None:
    """Eight calls about one component: observed by code, one hypothesis refuted, the next under test."""
    records = Records(path, Redactor([]), writable=True)

    def call(label: str, turns: Turns, outcome: Outcome) -> Outcome:
        asked = request(label, turns)
        records.ask(asked, 1.0)
        return records.settle(asked, outcome)

    ran = call("L0_MLP observation", [], answer(tool="execute_python", code=code or "result = 1 + 1.4"))
    call("L0_MLP observation", said(ran, result), answer(json.dumps({"observation": note})))
    call("L0_MLP hypothesis 1", [], answer(json.dumps({"hypothesis": "It reads y.", "reasoning": "a guess"})))
    claim = {"kind": "reads_from", "component": "L0_MLP", "tokens": ["y"]}
    checked = call("L0_MLP validation 1", [], answer(tool="check_claim", claim=claim))
    told = "refuted: L0_MLP reads from y.\n- FAIL: attention: 0.1"
    call("L0_MLP validation 1", said(checked, told), answer(json.dumps({"explanation": "It does not."})))
    call("L0_MLP hypothesis 2", [], answer(json.dumps({"hypothesis": "It marks x.", "reasoning": "what is left"})))
    again = {"kind": "depends_only_on", "component": "L0_MLP"}
    call("L0_MLP validation 2", [], answer(tool="check_claim", claim=again, cost=None))
    refused = Outcome(failure={"kind": "timed_out", "message": "no answer in 120 s", "parameter": None}, cost=0.0)
    call("L0_MLP validation 2", said(checked, told), refused)

"""Scripted models for the tests: the walkthrough of the paper, one that fills every shape, and one that raves."""

import json
import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vesalius_backbones import Backbone, ModelRequest, RetryPolicy, Scripted, open_backbone

ROOT = Path(__file__).parents[3]
WALKTHROUGH = ROOT / "examples" / "hyve_frac_prevs.py"
PLAN = {"stage": "s", "goal": "g", "procedure": ["one", "two"], "inputs": "i", "expected_result": "e"}


def walkthrough() -> Callable[[ModelRequest], Any]:
    """The example script's `reply`."""
    return runpy.run_path(str(WALKTHROUGH))["reply"]


def opened(script: Any, *, tries: int = 1, reasks: int = 2, **options: Any) -> tuple[Backbone, Scripted]:
    """A backbone without waits, and the wire that remembers every request."""
    wire = script if isinstance(script, Scripted) else Scripted(script)
    return open_backbone(wire, retry=RetryPolicy(tries=tries, first=1e-6), reasks=reasks, **options), wire


def spoken(request: ModelRequest) -> int:
    """How often the model has spoken in this conversation."""
    return sum(message.role == "assistant" for message in request.messages)


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"id": "call", "name": name, "arguments": arguments}]}


def colourless(request: ModelRequest, *, components: tuple[str, ...] = ("L0_MLP", "L1H2")) -> dict[str, Any]:
    """A model that goes through every stage and says nothing about the task."""
    label = request.label
    if "plan" in label:
        return {"json": PLAN}
    if "observation" in label:
        step = spoken(request)
        looks = [call("list_directory"), call("read_file", path="observation_tools.py")]
        looks += [call("read_file", path="validation_tools.py"), call("execute_python", code="result = vocab")]
        return looks[step] if step < len(looks) else {"json": {"observation": "something is seen"}}
    if "hypothesis" in label:
        return {"json": {"hypothesis": "we hypothesise something", "reasoning": ""}}
    if "validation" in label:
        component = label.split()[0]
        typed = any("check_claim" in json.dumps(tool) for tool in request.tools)
        if spoken(request) == 0:
            claim = {"kind": "independent_of", "component": component, "variable": "tokens"}
            return (
                call("check_claim", claim=claim) if typed else call("execute_python", code="result = predict(inputs)")
            )
        return {"json": {"explanation": "no", "decision": "refute", "own_code": "none", "ruling_out": "all"}}
    if label == "classification":
        return {"json": {name: {"tag": "MAPPER", "description": "it does something"} for name in components}}
    return {"json": {"information_flow": "one after the other", "derived_task_description": "something"}}


SNIPPETS = [
    "",
    "I refuse.",
    "{",
    "{}",
    "[]",
    "null",
    "```json\n{'hypothesis': 'h', 'reasoning': None}\n```",
    '{"observation": ["a", {"b": 1e999}]}',
    '{"observation": "\\ud800 \\u0000 [/red] {{ 7*7 }} <script>"}',
    '{"hypothesis": "[bold]{% include \'classify.md\' %}"}',
    '{"decision": "maybe", "explanation": "?"}',
    '{"decision": "Supported", "explanation": "yes"}',
    '{"explanation": "done", "own_code": "refuted"}',
    '{"L0_MLP": {"tag": "wizard", "description": "d"}}',
    '{"blocks.0.mlp.hook_post": {"tag": "mapper", "description": "d"}, "L9H9": {"tag": "ROUTER", "description": "d"}}',
    '{"information_flow": "f", "derived_task_description": ""}',
    '{"information_flow": "f", "derived_task_description": "t"}',
    json.dumps(PLAN),
    '<tool name="execute_python">result = 1</tool>',
    "<tool_call>{broken</tool_call>",
]
CLAIMS: list[Any] = [
    {},
    {"kind": 7},
    {"kind": "necessary", "component": "L7H7"},
    {"kind": "necessary", "component": 3, "replacement": "mean"},
    {"kind": "necessary", "replacement": "nothing"},
    {"kind": "reads_from", "offset": 10**30},
    {"kind": "reads_from", "tokens": ["\ud800"]},
    {"kind": "reads_from", "tokens": ["x"]},
    {"kind": "copies", "variable": "nowhere", "offset": 1},
    {"kind": "depends_only_on", "variables": ["tokens"], "program": {"variables": "x"}},
    {"kind": "depends_only_on", "variables": [["tokens"]]},
    {"kind": "computes", "program": {"variables": []}, "carriers": {"L0_MLP": ["tokens"]}},
    {"kind": "computes", "hypothesis": 3},
    {"kind": "sufficient", "components": ["L0_MLP", "L0_MLP"]},
    {"kind": "redundant", "other": {"a": 1}},
    {"kind": "backup_of", "of": ["L1H2"], "component": "L1H2"},
]


def raving(seed: int) -> Callable[[ModelRequest], Any]:
    """A model that says anything; the same to the same request."""

    def reply(request: ModelRequest) -> Any:
        fate = random.Random(f"{seed}:{request.label}:{len(request.messages)}:{request.repetition}")
        if request.tools and fate.random() < 0.5:
            name = fate.choice(["check_claim", "execute_python", "list_directory", "read_file", "sudo", "check_claim"])
            arguments: dict[str, Any] = fate.choice(
                [
                    {},
                    {"path": fate.choice(["..", "/etc/passwd", "observation_tools.py", "\x00"])},
                    {"code": 5},
                    {"claim": fate.choice(CLAIMS)},
                    {"claim": fate.choice(CLAIMS)},
                    {"claim": "text"},
                ]
            )
            calls = [{"id": f"c{n}", "name": name, "arguments": arguments} for n in range(fate.choice([1, 1, 2, 30]))]
            return {"tool_calls": calls}
        if fate.random() < 0.4:
            return colourless(request)
        return fate.choice(SNIPPETS)

    return reply

"""500 hostile calls over all tools: every one is answered in the protocol, with no traceback and nothing of a key."""

import json
import math
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from tests.mcp.asking import desk_in, text_of, with_client
from vesalius_agents.mcp.server import Server
from vesalius_agents.mcp.tools import TOOLS
from vesalius_functions.bench.functions import sample_functions
from vesalius_truth.grading import keys
from vesalius_truth.grading.keys import reference_texts

CALLS, SEED = 500, 17
SPECIMENS = ("41", "8", "08")
CANARY = "canary-7f3a"
#: Values that fit the argument of this name, so that calls get past the first check.
FITTING: dict[str, list[Any]] = {
    "specimen": [*SPECIMENS, *SPECIMENS, "41"],
    "inputs": [[[1, 2]], [[-3]], [1, 2], ["a"], [[]]],
    "prompt": [[1, 2], [3], "a text"],
    "source": [[1, 2], [3]],
    "layer": [0, 1, 7],
    "components": [["L0_MLP"], ["L0H0", "L1H1"], {"L0_MLP": "WIZARD"}, {"L7H9": "MAPPER"}],
    "component": ["L0_MLP", "L0H0"],
    "candidates": [{"a": "tokens[i]"}, {"a": "("}],
    "claim": [
        {"kind": "necessary", "component": "L0_MLP"},
        {"kind": "computes", "component": "L0_MLP", "program": {"variables": []}},
        {"kind": "depends_only_on", "component": "L1H0", "variables": ["tokens", "answer"]},
        {"kind": "circuit", "component": "L0_MLP"},
    ],
    "code": ["result = 1", "import vesalius_truth.key as k\nresult = str(vars(k))", "raise SystemExit"],
    "kind": ["zero", "mean", "resample", "patch", "interchange"],
    "method": ["sweep", "eap"],
    "n": [1, 2],
    "force": [True, False],
    "seed": [0, 1],
    "at": [0, [0], "end", 99],
    "function": ["numeric/f00000", "strings/f00001", "numeric/f00001", "numeric/", "key/f00000"],
    "category": ["numeric", "strings"],
    "explanation": ["vesalius://results/0123", "vesalius://pages/../../run"],
}
HOSTILE: list[Any] = [
    *(None, "", -1, 10**30, 1.5, math.pi * 1e300, True, [], {}, [[]], [None], {"": None}),
    *("../../../../etc/passwd", "/etc/passwd", "~", "key/af1.json", "vesalius_truth.key", "a\x00b"),
    *("\u202e", "'; import os", "{{7*7}}", "${HOME}", "x" * 5_000, "L99H99", "nan", "1e999", "vesalius://results/*"),
    *([["[" * 200]], json.loads("[" * 50 + "]" * 50), {"kind": {"kind": {}}}, {"$ref": "#/$defs/key"}),
]


def hostile_calls(schemas: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """Calls by seed: for each argument a fitting value, a hostile one, or none.

    Each argument has dice of its own, so that a new one changes no other argument of any call.
    """
    calls = []
    for number in range(CALLS):
        tool = list(schemas)[number % len(schemas)]
        arguments = {}
        for name in schemas[tool]["properties"]:
            dice = random.Random(f"{SEED} {number} {name}")
            draw = dice.random()
            if name in FITTING and (draw < 0.7 or (name == "specimen" and draw < 0.9)):
                arguments[name] = dice.choice(FITTING[name])
            elif draw < (0.85 if name in FITTING or name in schemas[tool].get("required", ()) else 0.3):
                arguments[name] = dice.choice(HOSTILE)  # options mostly stay out, or no call gets past its first check
        if random.Random(f"{SEED} {number}").random() < 0.05:
            arguments["answer_key"] = True
        calls.append((tool, arguments))
    return calls


def secrets() -> list[str]:
    """What the key and the functions say, as texts that no result may hold."""
    texts = [CANARY]
    for specimen in ("41", "8"):
        reference = reference_texts(specimen)
        texts += [reference.task, *reference.notes.values()]
    for category in ("numeric", "strings"):
        for function in sample_functions(category, count=4):
            texts += [str(value) for value in function["truth"].values() if isinstance(value, str) and len(value) > 12]
    return [text for text in texts if len(text) > 10]


def test_no_call_shows_the_key_a_traceback_or_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = secrets()
    opened: list[str] = []
    true_answer = keys.answer

    def watched(specimen: str) -> Any:
        opened.append(specimen)
        answer = true_answer(specimen)
        return answer.model_copy(update={"description": CANARY, "program": CANARY})

    monkeypatch.setattr(keys, "answer", watched)
    answers: list[str] = []

    async def use(client: Client) -> None:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        assert list(schemas) == [entry.function.__name__ for entry in TOOLS]
        for tool, arguments in hostile_calls(schemas):
            with anyio.fail_after(120):
                try:
                    result = await client.call_tool(tool, arguments)
                except MCPError as refused:  # what is not even a request of the protocol
                    answers.append(str(refused))
                    continue
            said = text_of(result)
            assert not (result.is_error and "\n" in said), (tool, arguments, said)
            if result.is_error:
                # A program's own traceback is a result of run_code; an error never holds one.
                assert "Traceback" not in said
                assert "could not be done with these arguments" not in said, (tool, arguments, said)
            answers.append(f"{said} {json.dumps(result.structured_content)}")
            if result.structured_content and (address := result.structured_content.get("resource")):
                whole = await client.read_resource(address)
                answers.append(whole.contents[0].text)  # type: ignore[union-attr]

    budget = {"forwards": 10**9, "executions": 2, "seconds": 100_000, "queries": 400}
    with desk_in(tmp_path, **budget) as desk:
        with_client(Server(desk), use)
        submitted = desk.connection("local").explanations
        calls = desk.run.calls
    assert len(answers) >= CALLS
    assert opened == []
    assert not submitted
    # Most tools were reached, not only their first check, and late calls work as early ones do: of 250 drawn at random
    # about 30 are sound, give or take 5.
    succeeded = {call["tool"] for call in calls if call["ok"]}
    exhausted = [call for call in calls if "budget exhausted" in (call.get("error") or "")]
    assert {call["tool"] for call in exhausted} <= {"run_code", "which_variable", "align"}  # these run code
    worked = [sum(call["ok"] for call in half) for half in (calls[: CALLS // 2], calls[CALLS // 2 :])]
    assert abs(worked[0] - worked[1]) < 3 * sum(worked) ** 0.5, worked
    assert min(worked) > 15, worked
    assert len(succeeded) >= 12, succeeded
    text = "\n".join(answers)
    assert [secret for secret in hidden if secret in text] == []

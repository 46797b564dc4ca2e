"""HyVE on a natural model under faults: what failed is said in one line, nothing is lost, and only that is repeated."""

import json
import re
import runpy
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.backbones.fake_server import ReceivedRequest, Response, chat, error, serving
from tests.cli.conftest import Outcome, Vesalius
from tests.closeness import assert_same_document
from tests.forked import forked
from vesalius.sandbox import Limits
from vesalius_backbones.failures import SystemClock
from vesalius_session import natural_scope as scope
from vesalius_session.briefing import STAGE

pytestmark = pytest.mark.slow

PROTOCOLS = ("typed", "paper")
#: Answers every stage from its label, runs one program, and writes the label of each call it is asked to a file.
SCRIPT = """
import json, os, signal
from pathlib import Path

HERE = Path(__file__).parent
PLAN = {"goal": "g", "procedure": "p", "inputs": "i", "expected_result": "e"}
CODE = "result = ablate([['L0H0']])"


def tool(name, **arguments):
    return {"tool_calls": [{"id": "c", "name": name, "arguments": arguments}]}


def reply(request):
    with open(HERE / "asked.txt", "a") as file:
        file.write(request.label + "\\n")
    asked = len((HERE / "asked.txt").read_text().splitlines())
    if (HERE / "die").exists() and asked == int((HERE / "die").read_text()):
        os.kill(os.getpid(), signal.SIGKILL)
    return answer(request)


def answer(request):
    label, spoken = request.label, sum(message.role == "assistant" for message in request.messages)
    if "plan" in label:
        return {"json": PLAN}
    if "observation" in label:
        return {"json": {"observation": "seen"}} if spoken else tool("execute_python", code=CODE)
    if "hypothesis" in label:
        return {"json": {"hypothesis": "it is needed", "reasoning": ""}}
    if "validation" in label:
        typed = any(one["name"] == "check_claim" for one in request.tools)
        if not spoken:
            return tool("check_claim", claim={"kind": "necessary"}) if typed else tool("execute_python", code=CODE)
        return {"json": {"explanation": "so it is", "decision": "refute"}}
    if label == "classification":
        return {"json": {"L0H0": {"tag": "ROUTER", "description": "it moves something"}}}
    return {"json": {"information_flow": "f", "derived_task_description": "t"}}
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    place = tmp_path / "script"
    place.mkdir()
    (place / "model.py").write_text(SCRIPT)
    return place / "model.py"


def command(tiny: Path, backbone: object, out: object, protocol: str) -> list[object]:
    asked = ["explain", tiny, "-b", "induction", "--components", "L0H0", "--n", 4, "--force"]
    return [*asked, "--backbone", backbone, "--protocol", protocol, "--out", out, "--json"]


def changed(script: Path, answer: str) -> Path:
    """The script with another first rule."""
    return_to = "    label, spoken = request.label"
    script.write_text(SCRIPT.replace(return_to, f"{answer}\n{return_to}"))
    return script


def asked(script: Path) -> list[str]:
    """The labels of the calls since the last time, which are forgotten."""
    log = script.parent / "asked.txt"
    labels = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return labels


def trace(out: Path) -> dict[str, Any]:
    return json.loads((out / "trace.json").read_text())


def notes(left: Outcome) -> list[str]:
    return [line for line in left.err.splitlines() if line.startswith("note: ") and "nothing usable" in line]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_killed_run_asks_only_the_lost_call(
    vesalius: Vesalius, tiny: Path, script: Path, tmp_path: Path, protocol: str
) -> None:
    whole, half = tmp_path / "whole", tmp_path / "half"
    left = vesalius(*command(tiny, f"scripted:{script}", whole, protocol))
    assert left.code == 0, left.err
    calls = asked(script)
    survived = len(calls) // 2
    (script.parent / "die").write_text(str(survived + 1))
    arguments = [str(word) for word in command(tiny, f"scripted:{script}", half, protocol)]
    killed = subprocess.run(forked("-m", "vesalius", *arguments), capture_output=True, check=False)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, b""), killed.stderr
    assert asked(script) == calls[: survived + 1]
    programs = (half / "executions.jsonl").read_bytes()
    (script.parent / "die").unlink()
    resumed = vesalius(*arguments)
    assert resumed.code == 0, resumed.err
    assert asked(script) == calls[survived:]
    assert (half / "executions.jsonl").read_bytes().startswith(programs)  # what was run is not run again
    assert len((half / "executions.jsonl").read_bytes().splitlines()) == len(
        (whole / "executions.jsonl").read_bytes().splitlines()
    )
    for name in ("trace.json", "explanation.json"):
        documents = [json.loads((place / name).read_text()) for place in (half, whole)]
        assert_same_document(*documents)


def test_a_server_that_fails_for_ever_is_one_line(
    vesalius: Vesalius, tiny: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("langchain_openai")
    monkeypatch.setattr(SystemClock, "sleep", lambda self, seconds: None)
    good = 3

    def answers(received: ReceivedRequest) -> Response:
        return Response(as_completion(reply_to(script, received)))

    with serving(*[answers] * good, Response(error("overloaded"), 500)) as server:
        arguments = [*command(tiny, "compatible:m", "out", "paper"), "--base-url", server.url]
        failed = vesalius(*arguments)
        failing = len(server.received) - good
    assert (failed.code, failed.out, failed.err.count("vesalius: ")) == (1, "", 1)
    line = next(line for line in failed.err.splitlines() if line.startswith("vesalius: "))
    assert "compatible:m" in line
    assert "500" in line
    assert f"{failing} tries" in line
    assert "call 'L0H0 " in line
    assert "seed 0'" in line
    with serving(answers) as server:
        resumed = vesalius(*arguments[:-1], server.url)
        repeated = len(server.received)
    assert resumed.code == 0, resumed.err
    # By hand: a plan and two turns of observation, three times a hypothesis with a plan and two turns of validation,
    # the classification and the summary; those that were answered before are not asked again.
    assert repeated == 3 + 3 * 4 + 2 - good
    assert len(trace(Path("out"))["components"][0]["attempts"]) == 3


def reply_to(script: Path, received: ReceivedRequest) -> Any:
    """What the script answers to a request of the wire, whose label is not on it."""
    turns = received.body["messages"]
    first = turns[1]["content"].splitlines()[0].removeprefix("Stage: ")
    words = {"OBSERVATION": "observation", "HYPOTHESIS": "hypothesis 1", "VALIDATION": "validation 1"}
    stage = re.match("[A-Z]+", first)
    assert stage is not None, first
    label = words.get(stage[0], stage[0].lower()) + (" plan" if "first step" in first else "")
    messages = [SimpleNamespace(role=turn["role"]) for turn in turns]
    tools = [{"name": one["function"]["name"]} for one in received.body.get("tools", ())]
    return runpy.run_path(str(script))["answer"](SimpleNamespace(label=label, messages=messages, tools=tools))


def as_completion(reply: dict[str, Any]) -> dict[str, Any]:
    """A scripted reply as the body of a chat completion."""
    if "json" in reply:
        return chat(json.dumps(reply["json"]))
    calls = [
        {
            "id": one["id"],
            "type": "function",
            "function": {"name": one["name"], "arguments": json.dumps(one["arguments"])},
        }
        for one in reply["tool_calls"]
    ]
    return chat(None, finish="tool_calls", tool_calls=calls)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_garbage_is_counted_and_said(vesalius: Vesalius, tiny: Path, script: Path, protocol: str) -> None:
    changed(script, "    return '{\"half\": '")
    left = vesalius(*command(tiny, f"scripted:{script}", "out", protocol))
    assert left.code == 0, left.err
    (line,) = notes(left)
    # By hand: the observation (and in `paper` its plan), three hypotheses, the classification and the summary.
    many = 7 if protocol == "paper" else 6
    place = "L0H0 observation plan" if protocol == "paper" else "L0H0 observation"
    assert line.startswith(f"note: scripted:model.py gave nothing usable {many} times, first in {place}: ")
    explained = json.loads(left.out)
    assert [part["verdict"] for part in explained["components"]] == ["untested"]
    assert trace(Path("out"))["usage"]["failed"] == many
    asked(script)
    again = vesalius(*command(tiny, f"scripted:{script}", "out", protocol))
    assert (again.code, asked(script)) == (0, [])  # answers, however bad, are on record


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unknown_tool_is_answered_and_comes_to_an_end(
    vesalius: Vesalius, tiny: Path, script: Path, protocol: str
) -> None:
    changed(script, "    if request.tools:\n        return tool('sudo', command='rm')")
    left = vesalius(*command(tiny, f"scripted:{script}", "out", protocol))
    assert left.code == 0, left.err
    problems = trace(Path("out"))["problems"]
    stages = ["L0H0 observation", *(f"L0H0 validation {number}" for number in (1, 2, 3))]
    assert problems == [f"{stage}: it went on calling tools and never answered" for stage in stages]
    (line,) = notes(left)
    assert "4 times, first in L0H0 observation: it went on calling tools" in line
    assert trace(Path("out"))["usage"]["malformed"] == 4 * ((STAGE.looks or 0) + 3)


def test_endless_code_is_stopped_once(
    vesalius: Vesalius, tiny: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scope, "LIMITS", Limits(cpu_seconds=1, wall_seconds=60.0, memory_bytes=4 << 30))
    endless = "    if 'observation' in request.label and request.tools and len(request.messages) == 2:\n"
    changed(script, endless + "        return tool('execute_python', code='while True: pass')")
    left = vesalius(*command(tiny, f"scripted:{script}", "out", "typed"))
    assert left.code == 0, left.err
    (execution,) = trace(Path("out"))["components"][0]["executions"]
    assert execution["category"] == "time, memory or output limit"
    assert execution["error"] == "stopped: it used its 1 s of CPU time"
    programs = (Path("out") / "executions.jsonl").read_bytes()
    again = vesalius(*command(tiny, f"scripted:{script}", "out", "typed"))
    assert again.code == 0, again.err
    assert (Path("out") / "executions.jsonl").read_bytes() == programs

"""End to end with a real model: SmolLM2 behind llama.cpp's server on the loopback address."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.processes import until_gone
from vesalius.errors import BadInput, Failed
from vesalius_backbones import Garbled, RetryPolicy, Tool, Unreachable, open_backbone, system, user
from vesalius_backbones.local import NAME, LocalOptions, LocalServer, find_model, kept_server

pytestmark = pytest.mark.smollm


class Person(BaseModel):
    name: str
    age: int


def test_it_answers_counts_and_replays(local_server: LocalServer, tmp_path: Path) -> None:
    question = [system("You are a helpful assistant."), user("What is the capital of France?")]
    live = open_backbone(f"local:{NAME}", base_url=local_server.url, max_tokens=12, record=tmp_path).chat(question)
    assert "Paris" in live.text
    assert live.usage is not None
    assert live.usage.input > 20
    assert 0 < live.usage.output <= 12
    assert live.cost == 0.0
    replayed = open_backbone(f"local:{NAME}", max_tokens=12, replay=tmp_path).chat(question)
    assert (replayed.text, replayed.usage, replayed.replayed) == (live.text, live.usage, True)


def test_an_object_of_a_schema(local_server: LocalServer) -> None:
    backbone = open_backbone(f"local:{NAME}", base_url=local_server.url, max_tokens=48)
    try:
        result = backbone.chat("Invent a person with a name and an age.", schema=Person).parsed
    except Garbled as failure:
        result = failure
    assert isinstance(result, Person) or [event.kind for event in result.events] == ["asked_again"] * 3  # type: ignore[union-attr]


def test_log_probabilities_are_those_of_a_distribution(local_server: LocalServer) -> None:
    backbone = open_backbone(f"local:{NAME}", base_url=local_server.url)
    question = "Is a cat an animal? Answer with only one digit, 1 for yes or 0 for no."
    scores = backbone.logprobs(question, ["0", "1"], max_tokens=4)
    assert all(value <= 0 for value in scores.logprobs.values())
    assert scores.share("0") + scores.share("1") == pytest.approx(1)


def test_tools_are_offered_as_text(local_server: LocalServer, tmp_path: Path) -> None:
    backbone = open_backbone(f"local:{NAME}", base_url=local_server.url, max_tokens=8, record=tmp_path)
    tool = Tool(name="look", description="Looks a person up.", arguments=Person)
    assert backbone.chat("Look up Ada, 36.", tools=[tool]).attempts == 1
    assert "You can call these tools" in (tmp_path / "calls.jsonl").read_text()


def test_a_closed_server_is_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-seen-by-anybody")
    server = LocalServer(find_model(NAME))
    if sys.platform == "linux":  # what other processes see of it
        seen = [Path(f"/proc/{server._process.pid}/{file}").read_bytes() for file in ("cmdline", "environ")]
        assert not [text for text in seen if b"not-to-be-seen" in text]
    retry = RetryPolicy(tries=1)
    with open_backbone(f"local:{NAME}", base_url=server.url, max_tokens=4, retry=retry) as backbone:
        assert backbone.chat("Hi").usage is not None
        server.close()
        with pytest.raises(Unreachable):
            backbone.chat("Hi")


def test_a_kept_server_serves_the_next_backbone_of_the_process() -> None:
    pytest.importorskip("xllamacpp")
    model = find_model(NAME)
    first = kept_server(model, LocalOptions())
    for _ in range(2):
        with open_backbone(f"local:{NAME}", max_tokens=2, keep_server=True) as backbone:
            assert backbone.chat("Hi").usage is not None
    assert kept_server(model, LocalOptions()) is first
    assert first.users == 2
    first.close()
    assert not first.runs


def test_tool_calls_and_answers_are_held_to_one_schema(local_server: LocalServer) -> None:
    """Whatever it says, it is a call of the tool or the answer, and it ends in time."""
    backbone = open_backbone(f"local:{NAME}", base_url=local_server.url, max_tokens=64, reasks=0)
    tool = Tool(name="look", description="Looks a person up.", arguments=Person)
    reply = backbone.chat("Look up Ada, 36.", tools=[tool], schema=Person)
    assert not reply.events or [event.kind for event in reply.events] == ["tool_call_from_text"]
    assert isinstance(reply.parsed, Person) or [(call.name, call.error) for call in reply.tool_calls] == [
        ("look", None)
    ]


def test_a_server_does_not_outlive_a_killed_parent() -> None:
    pytest.importorskip("xllamacpp")
    code = (
        "import os, signal; from vesalius_backbones.local import LocalServer, NAME, find_model;"
        "server = LocalServer(find_model(NAME)); print(server._process.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert parent.returncode == -signal.SIGKILL
    until_gone(int(parent.stdout))


def test_options_follow_the_name_of_a_model() -> None:
    assert LocalOptions.of("a/b.gguf") == ("a/b.gguf", LocalOptions(context=4096, threads=1, gpu_layers=0))
    named = LocalOptions.of("b.gguf?context=8192&threads=2&gpu_layers=99")
    assert named == ("b.gguf", LocalOptions(context=8192, threads=2, gpu_layers=99))
    for wrong in ("x?context=12", "x?threads=0", "x?speed=9", "x?context", "x?context=-1"):
        with pytest.raises(BadInput, match="is not an option; give context=8192"):
            LocalOptions.of(wrong)
    pytest.importorskip("langchain_openai")
    with pytest.raises(BadInput, match="for a server that is started here"):
        open_backbone(f"local:{NAME}?threads=2", base_url="http://127.0.0.1:9/v1")


def test_a_file_that_is_not_a_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    with pytest.raises(Failed, match="no server started for"):
        open_backbone(f"local:{broken}")

"""Published scripts in a run: what they replied is recorded, and `replay` reads it instead of running them again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vesalius_functions.suite as suites
from tests.functions.strings.test_published import SCRIPT, SECOND, write
from tests.runs.test_functions import carried_out, serial
from vesalius.errors import Failed
from vesalius.runs.comparing import replay
from vesalius.sandbox import Executions, Sandbox
from vesalius_functions import Answer, Box
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.scripts import SCRIPT as SCRIPT_NAME
from vesalius_functions.scripts import ScriptFunction, ScriptRunner, recorded
from vesalius_functions.suite import Suite

CODE = "def f(x):\n    x = x[::-1]\n    return x[: len(x) // 2] + 'q' + x[len(x) // 2 :]\n"


def asks_three(box: Box, *, seed: int = 0) -> Answer:
    """An interpreter that asks the script before it answers."""
    assert [reply.value for reply in box.ask(["abcd", "it's", ""])] == ["dcqba", "s'qti", "q"]
    return Answer(description="reverses, then puts q into the middle", code=CODE)


@pytest.fixture(autouse=True)
def fresh_suites() -> Iterator[None]:
    suites._made.cache_clear()
    yield
    suites._made.cache_clear()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "strings"
    (folder / "f00001").mkdir(parents=True)
    write(folder / "unit_test_data.json", SECOND[1:])
    (folder / "f00001" / SCRIPT_NAME).write_text(SCRIPT)
    return tmp_path


def refuse(*arguments: object, **options: object) -> Any:
    raise AssertionError("code was run")


def test_replay_reads_what_scripts_replied(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "run"
    place.mkdir()
    suite = Suite("strings", dataset=str(dataset), count=1, mode="published")
    card = carried_out(place, FunctionSettings(suite=suite, interpreter=f"{__name__}:asks_three"))
    assert card["metrics"]["exact_match"]["value"] == 1.0
    lines = (place / "executions" / "f00001.jsonl").read_text().splitlines()
    assert any('"dcqba"' in line for line in lines), "the interpreter's questions are kept"
    monkeypatch.setattr(Sandbox, "call_many", refuse)
    again = replay(place, engine=serial, trusted=True)  # type: ignore[arg-type]
    assert again.equal, again.differences
    with pytest.raises(Failed, match="code was run"):
        replay(place, engine=serial, trusted=True, execute=True)  # type: ignore[arg-type]


def test_a_recorded_script_needs_no_sandbox_wherever_its_folder_lies(dataset: Path, tmp_path: Path) -> None:
    folder, file = dataset / "strings", tmp_path / "executions.jsonl"
    with ScriptRunner(folder) as runner:
        function = ScriptFunction("f00001", "strings", "scripts", folder / "f00001" / SCRIPT_NAME, runner)
        with recorded(function, first := Executions(file)):
            asked = function.replies(["abcd"])
        assert (first.run, first.recalled) == (1, 0)
    moved = folder.rename(tmp_path / "moved")
    runner = ScriptRunner(moved)
    runner._open = refuse  # type: ignore[method-assign]
    again = ScriptFunction("f00001", "strings", "scripts", moved / "f00001" / SCRIPT_NAME, runner)
    with recorded(again, second := Executions(file)):
        assert again.replies(["abcd"]) == asked
        assert (second.run, second.recalled) == (0, 1)
        with pytest.raises(AssertionError, match="code was run"):
            again.replies(["other"])
    with pytest.raises(AssertionError, match="code was run"):
        again.replies(["abcd"])

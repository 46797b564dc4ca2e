"""Any command as interpreter: the protocol, its limits, and the example in bash and awk through the bench."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.functions.fakes import Line
from tests.processes import PATIENCE, told_to_programs
from vesalius import api
from vesalius.errors import BadInput, Failed
from vesalius_functions import Box
from vesalius_functions.interpreters import interpret, interpret_by_command
from vesalius_functions.numeric import sample
from vesalius_functions.suite import Suite

EXAMPLE = Path(__file__).parents[2] / "examples" / "command" / "line.sh"
#: Says what its argument tells it to, one line for each that it hears.
TALKER = """
import json, sys
for said in json.loads(sys.argv[1]):
    sys.stdin.readline()
    print(said if isinstance(said, str) else json.dumps(said), flush=True)
sys.stdin.readline()
"""
ANSWER = {"answer": {"description": "twice x", "code": "def f(x):\n    return 2 * x\n"}}


class Talk:
    """A conversation with a box around f(x) = 2x."""

    def __init__(self, tmp_path: Path) -> None:
        (tmp_path / "talker.py").write_text(TALKER)
        self.place, self.box = tmp_path, Box(Line(0), budget=5)
        self.heard: list[dict[str, Any]] = []

    def __call__(self, *lines: Any) -> Any:
        said = json.dumps(lines).replace("'", "'\"'\"'")
        command = f"{sys.executable} {self.place / 'talker.py'} '{said}'"
        with told_to_programs(self.heard):
            return interpret_by_command(command, self.box, seed=7, timeout=PATIENCE)[0]


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def test_a_command_asks_and_answers(talk: Talk) -> None:
    answer = talk({"query": [1, 2.5]}, {"query": [-1]}, ANSWER)
    assert (answer.description, answer.code) == ("twice x", ANSWER["answer"]["code"])
    assert (talk.box.asked, talk.box.left) == (3, 2)
    task, first, second = talk.heard[:3]
    assert (task["protocol"], task["category"], task["budget"]) == ("vesalius-function/1", "numeric", 5)
    assert task["input"] == {"type": "number", "low": -128, "high": 128}
    assert (first, second) == (
        {"values": [2, 5.0], "asked": 2, "left": 3},
        {"values": [-2], "asked": 3, "left": 2},
    )
    assert "truth" not in json.dumps(talk.heard)


@pytest.mark.parametrize("query", [list(range(6)), [], "1", {"x": 1}, [[1]], [{"x": 1}], list(range(20_000))])
def test_a_query_that_cannot_be_asked_costs_nothing(query: Any, talk: Talk) -> None:
    talk({"query": query}, {"query": [3]}, ANSWER)
    refused, given = talk.heard[1:3]
    assert set(refused) == {"error", "left"}
    assert refused["left"] == 5
    assert given == {"values": [6], "asked": 1, "left": 4}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nonsense", "wrote a line that is not JSON, 'nonsense'"),
        ({"question": [1]}, "wrote {'question': [1]}; a line is"),
        ({"query": [1], "answer": {}}, "a line is"),
        ({"answer": "twice x"}, "gave an answer that cannot be read: answer"),
        ({"answer": {"code": "x"}}, "answer.description: Field required"),
        ({"answer": {"description": 3}}, "answer.description: Input should be a valid string"),
        ({"answer": {"description": "x", "queries": 0}}, "answer.queries: Extra inputs are not permitted"),
    ],
)
def test_any_other_line_ends_the_conversation_in_one_line(line: Any, said: str, talk: Talk) -> None:
    with pytest.raises(Failed) as caught:
        talk(line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_json_has_no_form_for_are_texts(talk: Talk) -> None:
    undefined = next(
        one for one in sample(400, seed=1) if one.family == "reciprocal" and one.truth()["kind"] == "clean"
    )
    talk.box = Box(undefined)
    talk({"query": [0, "x", 2]}, ANSWER)
    given = talk.heard[1]
    assert given["values"][:2] == [None, None]
    assert given["errors"] == ["division by zero", "'x' is not a number", None]
    assert (given["asked"], given["left"]) == (3, None)


@pytest.mark.parametrize("tool", ["bash", "awk"])
def test_the_example_needs_bash_and_awk_only(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    words = EXAMPLE.read_text()
    assert "python" not in words


@pytest.mark.skipif(not (shutil.which("bash") and shutil.which("awk")), reason="needs bash and awk")
def test_the_example_in_bash_and_awk_goes_through_the_bench(tmp_path: Path) -> None:
    options: dict[str, Any] = {"category": "numeric", "count": 12, "budget": 20, "jobs": 1, "progress": False}
    card = api.bench_functions(**options, interpreter=f"command:{EXAMPLE}", out=tmp_path)
    assert (card.n, card.n_error) == (12, 0)
    assert card.metrics["queries"].value == 13
    straight = {
        f.id for f in sample(12, seed=2309) if f.family in ("linear", "constant") and f.truth()["kind"] == "clean"
    }
    assert straight
    for one in straight:
        grade = json.loads((tmp_path / "grades" / f"{one}.json").read_text())
        assert grade["metrics"]["success"] == 1


def test_a_command_that_fails_costs_its_own_answers(tmp_path: Path) -> None:
    failing = tmp_path / "half.py"
    failing.write_text(
        "import json, sys\ntask = json.loads(input())\nprint(json.dumps({'query': [5]}), flush=True)\n"
        "value = json.loads(input())['values'][0]\nassert str(value)[0] != '-', 'too low'\n"
        "print(json.dumps({'answer': {'description': 'd', 'code': 'def f(x): return 1'}}))\n"
    )
    options: dict[str, Any] = {"category": "numeric", "count": 8, "jobs": 1, "progress": False, "out": tmp_path / "run"}
    with pytest.warns(UserWarning, match="too low"):
        card = api.bench_functions(interpreter=f"command:{sys.executable} {failing}", **options)
    low = sum(Box(one).ask([5])[0].value < 0 for one in sample(8, seed=2309))
    assert 0 < low < 8
    assert (card.n, card.n_error) == (8 - low, low)


def test_a_command_that_does_not_exist_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'\./not-there': there is no such program"):
        api.bench_functions(category="numeric", count=2, interpreter="command:./not-there", out=tmp_path)


def test_no_line_to_a_command_holds_the_seed_of_the_suite(tmp_path: Path) -> None:
    """With it an interpreter would draw the functions, and read their definitions."""
    spy = tmp_path / "spy.sh"
    spy.write_text("""#!/bin/sh
read line
printf '{"answer": {"description": "nothing"}}\\n'
""")
    spy.chmod(0o755)
    heard: list[dict[str, Any]] = []
    for seed in (991_107, 5):
        suite = Suite("numeric", seed=seed, count=1)
        (function,) = suite.functions()
        with told_to_programs(heard):
            interpret(f"command:{spy}", function, Box(function, budget=5), suite=suite, seed=suite.seed)
    # What would follow from the suite's seed gives it away to who tries them all.
    assert heard[0] == heard[1]
    assert "991107" not in json.dumps(heard)


#: An interpreter of somebody else that looks for the key before it answers.
GUEST = """
import os
from vesalius_functions.box import Answer

def look(box, *, seed):
    found = []
    for attempt in (
        lambda: open({secret!r}).read(),
        lambda: __import__("vesalius_truth.key"),
        lambda: __import__("vesalius_functions.suite"),
        lambda: open("/proc/%d/environ" % os.getppid()).read(),
        lambda: os.environ["VESALIUS_TEST_KEY"],
    ):
        try:
            found.append(str(attempt())[:40])
        except BaseException:
            pass
    (one, two), value = box.ask([1, 2]), box.left
    return Answer(description=f"found {{found}}, {{one.value}} and {{two.value}}, {{value}} left", table=True)
"""


def test_an_interpreter_of_a_package_runs_confined_and_finds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a long passphrase")
    folder = tmp_path / "guests"
    folder.mkdir()
    (folder / "guest_looking.py").write_text(GUEST.format(secret=str(secret)))
    monkeypatch.setenv("VESALIUS_TEST_KEY", "sealed")
    monkeypatch.syspath_prepend(str(folder))
    suite = Suite("numeric", count=1)
    log = tmp_path / "programs.jsonl"
    box = Box(Line(0), budget=5)
    result = interpret("confined:guest_looking:look", Line(0), box, suite=suite, log=log)
    assert result.answer.description == "found [], 2 and 4, 3 left"
    assert result.ran is not None
    assert result.ran.contained
    assert json.loads(log.read_text())["contained"]
    assert "guest_looking" not in sys.modules
    unconfined = interpret("guest_looking:look", Line(0), Box(Line(0), budget=5), suite=suite).answer.description
    assert "a long passphrase" in unconfined
    assert "sealed" in unconfined


def test_a_guest_that_does_not_exist_is_refused_before_it_is_started() -> None:
    suite = Suite("numeric", count=1)
    for name, said in (("confined:nothing_here:f", "there is no module"), ("confined:nothing", "does not exist")):
        with pytest.raises(BadInput, match=said):
            interpret(name, Line(0), Box(Line(0)), suite=suite)

"""What executed code gave is kept, and answers for the code when it is asked for again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.conftest import LAYERS
from vesalius.errors import BadInput, Failed
from vesalius.sandbox import CallResult, Executions, Outcome, RecordedSandbox

#: A program whose outcome another run would not repeat.
CLOCK = "import time\nresult = time.time_ns()"


def never() -> Any:
    raise AssertionError("it was run again")


def giving(*outcomes: Outcome) -> Callable[[], Outcome]:
    left = list(outcomes)
    return lambda: left.pop(0)


def test_the_same_calls_in_the_same_order_are_answered(tmp_path: Path) -> None:
    path = tmp_path / "executions" / "3.jsonl"
    first = Executions(path)
    run = giving(Outcome(result=[1, None]), Outcome(error="E", stopped_by="cpu"), Outcome(stdout="ä"))
    made = [first.outcome(code, {}, run) for code in ("a", "a", "b")]
    again = Executions(path)
    assert [again.outcome(code, {}, never) for code in ("a", "a", "b")] == made
    assert (again.recalled, again.run, first.run) == (3, 0, 3)
    assert again.outcome("a", {}, giving(Outcome(result=3))).result == 3  # a third time is another call
    assert again.outcome("a", {"seed": 1}, giving(Outcome(result=4))).result == 4


def test_results_of_many_inputs_come_back(tmp_path: Path) -> None:
    results = [
        CallResult(1.5),
        CallResult(None, "E", "wall"),
        CallResult(float("inf")),
        CallResult(None, "M", None, "memory"),
    ]
    call = {"code": "c", "function": "f", "inputs": [1, "x"]}
    assert Executions(tmp_path / "x.jsonl").results(call, lambda: results) == results
    assert Executions(tmp_path / "x.jsonl").results(call, never) == results


def test_half_a_line_is_dropped_and_an_altered_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    executions = Executions(path)
    executions.outcome("a", {}, giving(Outcome(result=1)))
    executions.outcome("b", {}, giving(Outcome(result=2)))
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    assert Executions(path, writable=False).outcome("a", {}, never).result == 1
    assert Executions(path).outcome("b", {}, giving(Outcome(result=2))).result == 2
    assert path.read_bytes() == data
    path.write_bytes(data.replace(b'"result": 1', b'"result": 7'))
    with pytest.raises(BadInput, match="line 1: altered"):
        Executions(path)
    path.write_bytes(b"{}\n" + data)
    with pytest.raises(BadInput, match="line 1: not a record"):
        Executions(path)


def test_one_that_is_not_writable_writes_nothing(tmp_path: Path) -> None:
    executions = Executions(tmp_path / "x.jsonl", writable=False)
    assert executions.outcome("a", {}, giving(Outcome(result=1))).result == 1
    assert not list(tmp_path.iterdir())


def test_a_recorded_sandbox_runs_nothing_twice(tmp_path: Path) -> None:
    code = "import time\ndef f(x): return [x, time.time_ns()]"
    try:
        with RecordedSandbox(layers=LAYERS["no namespaces"]) as sandbox:
            seen = []
            for _ in range(2):
                sandbox.executions = Executions(tmp_path / "x.jsonl")
                seen.append([sandbox.execute(CLOCK).result, sandbox.call_many(code, "f", [1, 2])])
            assert seen[0] == seen[1]
            sandbox.executions = None
            assert sandbox.execute(CLOCK).result != seen[0][0]
    except Failed as refusal:
        pytest.skip(str(refusal))
    assert len([json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]) == 2

"""A functions run is looked through: scores and dialogues, and nothing of the truth before everything is graded."""

import os
from pathlib import Path

import pytest

from tests.runs.function_runs import SECRET, write_function_run
from vesalius.errors import BadInput
from vesalius_functions.bench.function_runs import functions_run, one_function


@pytest.fixture
def graded(tmp_path: Path) -> Path:
    write_function_run(tmp_path / "run")
    return tmp_path / "run"


def test_scores_of_a_graded_run(graded: Path) -> None:
    run = functions_run(graded)
    assert (run.state, run.done, run.total, run.graded) == ("finished", 3, 3, True)
    assert [(row.id, row.score, row.right) for row in run.functions] == [
        ("f00000", 1.0, True),
        ("f00001", 0.0, False),
        ("f00002", 0.0, False),
    ]
    assert run.metrics["success"].value == pytest.approx(1 / 3)
    assert run.cost == pytest.approx(0.75)


def test_one_function_with_its_dialogue_and_its_drawing(graded: Path) -> None:
    case = one_function(graded, "f00001")
    assert [(call.text.text, call.reply and call.reply.text) for call in case.calls if call.text] == [
        ("ASK [0, 1]", "OUTPUTS\nf(0) = 3\nf(1) = 4"),
        ("[DESCRIPTION]: A line.", None),
    ]
    assert case.asked == (("0.0", "3.0"), ("1.0", "4.0"))
    key = case.key
    assert key is not None
    assert SECRET in key.truth
    assert (key.right, key.family) == (False, "quadratic")
    assert key.drawing is not None
    # Five points each: one move and four lines; the answer is another curve, the function's the same as in f00000.
    assert (key.drawing.truth.count("M"), key.drawing.truth.count("L")) == (1, 4)
    other = one_function(graded, "f00000").key
    assert other is not None
    assert other.drawing is not None
    assert other.drawing.truth == other.drawing.answer == key.drawing.truth != key.drawing.answer


def test_nothing_of_the_truth_is_said_before_the_run_is_graded(tmp_path: Path) -> None:
    write_function_run(tmp_path / "run", graded=False)
    run, case = functions_run(tmp_path / "run"), one_function(tmp_path / "run", "f00000")
    assert (run.state, run.graded, [row.score for row in run.functions]) == ("stopped", False, [None] * 3)
    assert case.key is None
    assert case.description.text == "A parabola."
    for said in (run.model_dump_json(), case.model_dump_json()):
        assert SECRET not in said
        assert "quadratic" not in said


@pytest.mark.parametrize("function", ["f00009", "../../secret", "", "f00000/../f00000"])
def test_other_names_are_refused(function: str, graded: Path) -> None:
    with pytest.raises(BadInput, match="not interpreted in this run; it has f00000, f00001, f00002"):
        one_function(graded, function)


@pytest.mark.parametrize("name", ["explanations/f00000.json", "grades/f00000.json", "calls/f00000.jsonl", "run.json"])
def test_links_that_lead_out_are_refused(name: str, graded: Path) -> None:
    outside = graded.parent / "outside"
    (graded / name).rename(outside)
    os.symlink(outside, graded / name)
    with pytest.raises(BadInput, match="is not a file of this run"):
        one_function(graded, "f00000")


def test_a_ledger_of_something_else_is_refused(graded: Path) -> None:
    (graded / "events.jsonl").write_text('{"event": "interpreted", "case": "f00000"}\n')
    with (
        pytest.warns(match="without checksums"),
        pytest.raises(BadInput, match=r"record 1: is not one of this benchmark .seconds: Field required"),
    ):
        functions_run(graded)


def test_other_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no run there"):
        functions_run(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": 1, "settings": {"benchmark": "circuits"}}')
    with pytest.raises(BadInput, match="a run of `bench circuits`"):
        functions_run(tmp_path)

"""Any command as scientist: the agent's instruments and budgets, verdicts of the engine, and a key that stays shut."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.processes import told_to_programs
from vesalius import api
from vesalius.circuits.specimens import benchmark_directory
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput, Failed
from vesalius.model.specimen import Specimen
from vesalius_session.command import CALLS, CLAIMS
from vesalius_truth.grading.keys import reference_texts

pytestmark = pytest.mark.usefixtures("shared_sandboxes")
EXAMPLE = Path(__file__).parents[2] / "examples" / "command" / "scientist.py"
#: Writes the lines of a file, one for each that it reads.
TALKER = """
import sys
for said in open(sys.argv[1]):
    sys.stdin.readline()
    print(said, end="", flush=True)
sys.stdin.readline()
"""
NOTHING = {"components": [], "information_flow": "none", "task_description": "nothing"}
PREDICT = {"call": "predict", "arguments": {"inputs": [["a", "x"], ["x"]]}}


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


def conversation(place: Path, specimen: Specimen, *lines: Any) -> tuple[Explanation, list[dict[str, Any]]]:
    """The explanation that a program of these lines ends with, and what it was told."""
    (place / "talker.py").write_text(TALKER)
    (place / "said").write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    command = f"{sys.executable} {place / 'talker.py'} {place / 'said'}"
    heard: list[dict[str, Any]] = []
    with told_to_programs(heard):
        explanation = ves.explain(specimen, scientist=f"command:{command}", progress=False)
    return explanation, heard


@pytest.mark.slow
def test_a_command_uses_the_instruments_and_the_engine_decides(specimen: Specimen, tmp_path: Path) -> None:
    said = {
        "components": [
            {"id": "L0_MLP", "tag": "INDICATOR", "note": "marks x", "verdict": "supported", "claims": ["forged"]},
            {"id": "L1H2", "note": "unsure"},
        ],
        "information_flow": "from L0_MLP to L1H2",
        "task_description": "the share of x so far",
        "verdict": "supported",
    }
    depends = {"kind": "depends_only_on", "component": "L0_MLP", "variables": ["tokens"]}
    explanation, heard = conversation(
        tmp_path,
        specimen,
        PREDICT,
        {"call": "which_variable", "arguments": {"component": "L0_MLP", "candidates": {"x": "tokens[i] == 'x'"}}},
        {"call": "attention_profile", "arguments": {"head": "L1H2"}},
        {"code": "print('hello')\nresult = len(vocab)"},
        {"claim": depends},
        {"claim": {"kind": "necessary", "component": "L1H2"}},
        {"explanation": said},
    )
    task, predicted, which, profile, coded, decided, necessary = heard
    parts = len(specimen.components)
    assert task["components"] == ["L0_MLP", "L1H2"]
    assert task["budget"] == {"calls": CALLS * parts, "claims": CLAIMS * parts}
    given = ves.predict(specimen, PREDICT["arguments"]["inputs"])  # type: ignore[index]
    for own, found in zip(given, predicted["result"], strict=True):
        assert found == pytest.approx(own, abs=1e-3)
    assert which["result"][0]["variable"] == "x"
    assert set(profile["result"]) >= {"to_bos", "by_key_token"}
    assert (coded["result"], coded["printed"].strip()) == (len(task["vocab"]), "hello")
    assert necessary["left"] == {"calls": CALLS * parts - 4, "claims": CLAIMS * parts - 2}
    first, second = explanation.components
    assert (first.tag_by_model, second.tag) == ("INDICATOR", None)
    assert [claim.kind for claim in first.claims] == ["depends_only_on"]
    assert first.claims[0].verdict == decided["records"][0]["verdict"]
    assert second.verdict == "untested"  # that it matters does not say what it does
    assert explanation.task_description == "the share of x so far"
    assert explanation.scientist.startswith("command:")


def test_requests_that_cannot_be_carried_out_are_answered_and_the_key_stays_shut(
    specimen: Specimen, tmp_path: Path
) -> None:
    hostile = [
        {"call": "grade"},
        {"call": "predict", "arguments": []},
        {"call": "predict", "arguments": {"inputs": [["no such token"]]}},
        {"call": "predict", "arguments": {"in puts": 1}},
        {"call": "__import__", "arguments": {"name": "os"}},
        {"call": "which_variable", "arguments": {"component": "L0_MLP", "candidates": {"x": "import os"}}},
        {"call": "attention", "arguments": {"head": "L0_MLP"}},
        {"claim": 3},
        {"claim": {"kind": "necessary"}},
        {"claim": {"kind": "necessary", "component": "L7H7"}},
        {"claim": {"kind": "nonsense", "component": "L0_MLP"}},
        {"code": "from vesalius.circuits import key\nresult = dir(key)"},
        {"code": f"result = open({str(benchmark_directory('frac_prevs'))!r} + '/key/key.json').read()"},
    ]
    explanation, heard = conversation(tmp_path, specimen, *hostile, {"explanation": NOTHING})
    assert len(heard) == 1 + len(hostile)
    for line, reply in zip(hostile, heard[1:], strict=True):
        assert "error" in reply, line
        assert "\n" not in reply["error"]
    told = json.dumps(heard)
    truth = reference_texts("3", None)
    canaries = ["frac_prevs", truth.task, *truth.notes.values()]
    assert not [canary for canary in canaries if canary in told]
    assert [part.verdict for part in explanation.components] == ["untested", "untested"]


def test_budgets_end(specimen: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vesalius_session.command.CALLS", 0)
    monkeypatch.setattr("vesalius_session.command.CLAIMS", 0)
    lines = [PREDICT, {"code": "result = 1"}, {"claim": {"kind": "necessary", "component": "L0_MLP"}}]
    _, heard = conversation(tmp_path, specimen, *lines, {"explanation": NOTHING})
    assert [reply.get("error", "")[:14] for reply in heard[1:]] == [
        "all calls are ",
        "all calls are ",
        "all claims are",
    ]
    assert heard[-1]["left"] == {"calls": 0, "claims": 0}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "wrote a line that is not JSON, 'hello'"),
        ({"question": 1}, "a line has 'call', 'code', 'claim' or 'explanation'"),
        ({"explanation": {"components": []}}, "explanation.information_flow: Field required"),
        ({"explanation": {**NOTHING, "components": [{"id": "L0_MLP", "tag": "KING", "note": ""}]}}, "components.0.tag"),
        ({"explanation": {**NOTHING, "components": [{"id": "L9H9", "note": ""}]}}, "explained 'L9H9', which is not in"),
    ],
)
def test_faults_of_a_command_are_one_line(line: Any, said: str, specimen: Specimen, tmp_path: Path) -> None:
    with pytest.raises(Failed) as caught:
        conversation(tmp_path, specimen, line)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_goes_without_a_language_model(specimen: Specimen) -> None:
    with pytest.raises(BadInput, match="asks no language model of ours"):
        ves.explain(specimen, scientist="command:cat", backbone="scripted:none.py")
    with pytest.raises(BadInput, match="there is no such program"):
        ves.explain(specimen, scientist="command:./not-there")


@pytest.mark.slow
def test_the_example_goes_through_the_circuits_bench(tmp_path: Path) -> None:
    command = f"command:{sys.executable} {EXAMPLE}"
    card = api.bench_circuits(scientist=command, ids=["3"], jobs=1, out=tmp_path, progress=False)
    assert (card.n, card.n_error, card.subject) == (1, 0, command)
    assert card.metrics["tag_accuracy"].n == 2

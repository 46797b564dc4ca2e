"""The program that is shown is the program that is graded: read back from its text, it gives the same outputs.

A sample on every run; all 84 circuits under `pytest -m all_specimens`. Claims and wirings have no part in it, so
nothing is put to the laboratory; nor has how well the program was found, so the search sees few inputs in few contexts,
tries no runners-up and widens nothing.
"""

import json

import pytest
import torch

import vesalius as ves
from vesalius.circuits.specimens import benchmark_cards
from vesalius.documents.explanation import ClaimRecord, Explanation
from vesalius.rasp import random_inputs
from vesalius.rasp.document import from_document
from vesalius.rasp.text import parse, render
from vesalius_programs import explain, explain_specimen, hypotheses, observe, settling, yardstick
from vesalius_programs.writing import ClaimJudge

INPUTS = 1_000
SMALL_SEARCH = {
    explain: {
        "POOL": 80,
        "FITTING": 100,
        "EXCHANGES": 20,
        "REFINING_PAIRS": 10,
        "FRESH": 50,
        "LAB_PAIRS": 8,
    },
    hypotheses: {"WIDEN_BELOW": 0.0},
    observe: {"MOST_OBSERVATIONS": 100, "CANDIDATE_CONTEXTS": 16, "CHOSEN_CONTEXTS": 3, "RANDOM_CONTEXTS": 1},
    settling: {"TARGET_INPUTS": 3, "TARGET_POSITIONS": 4},
    yardstick: {"SINGLE_MOVES": 40, "WHOLE_MOVES": 20, "TRIALS": 50},
}
SAMPLE = ("3", "14", "36")


def explained(name: str, monkeypatch: pytest.MonkeyPatch) -> Explanation:
    untested = ClaimRecord(kind="necessary", text="", verdict="untested", evidence=())
    monkeypatch.setattr(ClaimJudge, "records", lambda judge, component: (untested,))
    monkeypatch.setattr(ClaimJudge, "wirings", lambda judge: {})
    for module, sizes in SMALL_SEARCH.items():
        for size, n in sizes.items():
            monkeypatch.setattr(module, size, n)
    monkeypatch.setattr(explain, "_refined", lambda investigation, program, *_, **__: (investigation, program))
    return explain_specimen(ves.load(name))


def assert_shown_is_graded(explanation: Explanation) -> None:
    assert explanation.executable is not None
    assert explanation.program is not None
    shown, graded = from_document(parse(explanation.program)), from_document(explanation.executable.program)
    inputs = random_inputs(graded, INPUTS, seed=0, min_length=1)
    assert torch.equal(shown.run(*inputs).output, graded.run(*inputs).output)
    assert (shown.vocab, shown.outputs) == (graded.vocab, graded.outputs)
    assert parse(explanation.program) == json.loads(json.dumps(explanation.executable.program))
    assert explanation.program == render(explanation.executable.program)
    lines = explanation.program.splitlines()
    for part in explanation.components:
        assert (part.program is not None) == (part.id in explanation.executable.carriers)
        if part.program is not None:
            own = part.program.splitlines()
            assert set(own) <= set(lines)
            assert any(line.startswith(f"{part.id} = ") for line in own)


@pytest.mark.parametrize("name", SAMPLE)
def test_the_shown_program_is_the_graded_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_shown_is_graded(explained(name, monkeypatch))


@pytest.mark.all_specimens
@pytest.mark.parametrize("name", [card.id for card in benchmark_cards() if card.id not in SAMPLE])
def test_the_shown_program_is_the_graded_one_in_all_circuits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_shown_is_graded(explained(name, monkeypatch))


def test_all_circuits_are_looked_at() -> None:
    assert len({card.id for card in benchmark_cards()} | set(SAMPLE)) == 84

"""One method on one circuit: checked on inputs it has not seen, and only what is undefined is left out."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import Trial, rows_of, trial
from vesalius.circuits.specimens import benchmark_directory
from vesalius.discovery import checks
from vesalius.discovery.discover import discover, method_named
from vesalius.discovery.faithfulness import faithfulness_curves
from vesalius.errors import BadInput
from vesalius.intervene import Readout
from vesalius_bench.discovery import cases as methods
from vesalius_bench.discovery.cases import DiscoveryCase, run_case


def case_of(method: str, name: str, n: int) -> DiscoveryCase:
    directory = benchmark_directory(name)
    assert directory is not None
    return DiscoveryCase(method_named(method), name, Path(directory), n, 0)


@pytest.mark.parametrize("method", ["sweep", "eap"])
def test_faithfulness_is_read_on_inputs_that_were_not_seen(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Trial] = []

    def noted(model, material, rankings, **options):
        read.append(material)
        return faithfulness_curves(model, material, rankings, **options)

    monkeypatch.setattr(checks, "faithfulness_curves", noted)
    figures = run_case(case_of(method, "3", 32))
    seen = rows_of(trial(ves.load("3"), 32))
    assert len(read) == (1 if method == "sweep" else 2)
    assert all(rows_of(material).isdisjoint(seen) for material in read)
    assert figures.held_out == 32
    # Two of ten components restore everything; the first of them nothing at the least and everything at the most.
    assert figures.cmd is not None
    assert 0.05 <= figures.cmd <= 0.15 + 1e-9


def test_a_vocabulary_that_is_used_up_leaves_no_areas() -> None:
    specimen = ves.load("3")
    found = replace(discover(specimen, n=4), material=trial(specimen, 6000))
    held_out = methods._held_out(specimen, found.material, n=32, seed=0)
    assert held_out is None, "12,000 draws hold all 340 inputs"
    assert methods._faithfulness(specimen, found.circuit, held_out, seed=0) == (
        {"cmd": None, "cpr": None, "edge_cmd": None, "edge_cpr": None},
        {},
    )


def test_scores_that_are_not_finite_are_an_error_and_not_undefined() -> None:
    specimen = ves.load("3")
    found, held_out = discover(specimen, n=4), trial(specimen, 4, seed=9)

    def scored(value: float) -> Trial:
        readout = Readout(lambda logits, prompt: torch.full((len(prompt),), value), unit="logits")
        return replace(held_out, readout=readout)

    areas, chance = methods._faithfulness(specimen, found.circuit, scored(1.0), seed=0)
    assert (areas["cmd"], chance) == (None, {}), "ablating everything changes nothing"
    with pytest.raises(BadInput, match="not finite"):
        methods._faithfulness(specimen, found.circuit, scored(float("nan")), seed=0)

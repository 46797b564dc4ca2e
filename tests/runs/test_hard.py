"""The hard benchmark: precision worked by hand, and one model through the run."""

from pathlib import Path

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.trial import trial, with_wrong_answers
from vesalius.circuits.specimens import load_specimen
from vesalius.discovery.attribution import contrast
from vesalius.documents.scorecard import DiscoveryFigures, HardFigures, Scorecard
from vesalius.intervene import Recordings
from vesalius_bench.discovery.cases import hard_metrics
from vesalius_truth.grading.discovery import precision_at_size
from vesalius_truth.planted import plant_hard


def test_precision_at_the_true_size_by_hand() -> None:
    """Two true: the strongest is, the next two tie and one of them is. A negative score counts by its size."""
    assert precision_at_size({"a": 3.0, "b": -1.0, "c": 1.0, "d": 0.0}, {"a", "c"}) == pytest.approx(0.75)
    assert precision_at_size({"a": -3.0, "b": 1.0}, {"a"}) == 1.0
    assert precision_at_size({"a": 1.0}, set()) is None


def figures_of(row: HardFigures) -> DiscoveryFigures:
    empty = dict.fromkeys(DiscoveryFigures.model_fields, None)
    numbers = dict.fromkeys(("prompts", "held_out", "forwards", "seconds", "work_seconds"), 0)
    return DiscoveryFigures(**{**empty, **numbers, "chance": {}, "chosen": (), "hard": row})


def test_metrics_count_the_best_circuits_and_their_rivals_apart() -> None:
    """Three models: the best circuit false in one; two rivals, one of them false."""
    rows = [
        HardFigures(rivals=2, false_rivals=1, best_false=False, guarantee_held=True),
        HardFigures(rivals=2, false_rivals=1, best_false=True, guarantee_held=True),
        HardFigures(rivals=1, false_rivals=0, best_false=False, guarantee_held=False),
    ]
    figures = [figures_of(row) for row in rows]
    metrics = hard_metrics(dict(zip(("hard-00", "hard-01", "hard-02"), figures, strict=True)))
    assert (metrics["best_false"].value, metrics["best_false"].n) == (pytest.approx(1 / 3), 3)
    assert (metrics["false_rivals"].value, metrics["false_rivals"].n) == (0.5, 2)
    assert metrics["guarantee_coverage"].value == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_hard_model_is_run_and_graded(tmp_path: Path) -> None:
    card = ves.bench(
        "discovery", hard=True, limit=1, methods=["eap"], n=4, jobs=1, out=tmp_path / "run", progress=False
    )
    assert isinstance(card, Scorecard)
    assert (card.n, card.n_error) == (2, 0)
    assert card.cases is not None
    hard = card.cases[0].methods["eap"].hard
    assert hard is not None
    assert hard.edge_precision == card.metrics["eap.hard.edge_precision"].value
    assert [case.id for case in card.cases] == ["hard-00", "wrong0.1-00"]
    assert 0.3 < hard.edge_precision < 1
    assert hard.rivals >= 1
    assert card.request is not None
    assert "--hard --limit 1" in card.request.command_line()
    assert (tmp_path / "run-models" / "hard-00" / "answer_key" / "truth.json").is_file()


def test_every_kind_has_rows_of_its_own() -> None:
    """One model of each kind: the best circuit is false in the second alone."""
    rows = {
        "hard-00": figures_of(HardFigures(rivals=1, best_false=False)),
        "wrong0.1-00": figures_of(HardFigures(rivals=1, false_rivals=1, best_false=True)),
    }
    metrics = hard_metrics(rows)
    shares = {name: metric.value for name, metric in metrics.items() if name.endswith("best_false")}
    assert shares == {"best_false": 0.5, "hard.best_false": 0.0, "wrong0.1.best_false": 1.0}


@pytest.mark.parametrize("share", [0.0, 0.25])
def test_a_noisy_behaviour_has_the_stated_share_of_wrong_answers(share: float, tmp_path: Path) -> None:
    """The clean model then scores one less the share, and nothing that gradients follow changes without noise."""
    specimen = load_specimen(plant_hard(1).write(tmp_path / "model"))
    material = trial(specimen, 400, seed=3)
    noisy = with_wrong_answers(specimen, material, share, seed=5)
    scores = Recordings(specimen.model, noisy.batch, noisy.readout).scores()
    # 400 prompts of 3 to 8 letters: the standard error of the share is 0.25**0.5 / 2200**0.5 = 0.011 at most
    assert float(scores.mean()) == pytest.approx(1 - share, abs=0.04 if share else 0)
    logits = specimen.model(material.batch.tokens, mask=material.batch.mask)
    prompts = torch.arange(len(logits))
    own, other = (contrast(specimen.model, one).score(logits, prompts) for one in (material, noisy))
    assert torch.allclose(own, other) == (share == 0)
    assert float(other.mean()) <= float(own.mean()) + 1e-6


@pytest.mark.slow
def test_own_specimens_are_asked_the_same(tmp_path: Path) -> None:
    card = ves.bench(
        "discovery", hard=True, ids=[3], methods=["sweep"], n=4, jobs=1, out=tmp_path / "run", progress=False
    )
    assert isinstance(card, Scorecard)
    assert card.metrics["sweep.node_precision"].value == 1.0
    assert card.request is not None
    assert "--hard" in card.request.command_line()
    assert "--ids 3" in card.request.command_line()

"""The hard benchmark: precision worked by hand, and one model through the run."""

from pathlib import Path

import pytest

import vesalius as ves
from vesalius.documents.scorecard import DiscoveryFigures, HardFigures, Scorecard
from vesalius.errors import BadInput
from vesalius.grading.discovery import precision_at_size
from vesalius.runs.hard import hard_metrics


def test_precision_at_the_true_size_by_hand() -> None:
    """Two true: the strongest is, the next two tie and one of them is. A negative score counts by its size."""
    assert precision_at_size({"a": 3.0, "b": -1.0, "c": 1.0, "d": 0.0}, {"a", "c"}) == pytest.approx(0.75)
    assert precision_at_size({"a": -3.0, "b": 1.0}, {"a"}) == 1.0
    assert precision_at_size({"a": 1.0}, set()) is None


def test_metrics_count_the_best_circuits_and_their_rivals_apart() -> None:
    """Three models: the best circuit false in one; two rivals, one of them false."""
    rows = [
        HardFigures(rivals=2, false_rivals=1, best_false=False, guarantee_held=True),
        HardFigures(rivals=2, false_rivals=1, best_false=True, guarantee_held=True),
        HardFigures(rivals=1, false_rivals=0, best_false=False, guarantee_held=False),
    ]
    empty = dict.fromkeys(DiscoveryFigures.model_fields, None)
    numbers = dict.fromkeys(("prompts", "held_out", "forwards", "seconds", "work_seconds"), 0)
    figures = [DiscoveryFigures(**{**empty, **numbers, "chance": {}, "chosen": (), "hard": row}) for row in rows]
    metrics = hard_metrics(figures)
    assert (metrics["best_false"].value, metrics["best_false"].n) == (pytest.approx(1 / 3), 3)
    assert (metrics["false_rivals"].value, metrics["false_rivals"].n) == (0.5, 2)
    assert metrics["guarantee_coverage"].value == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_hard_model_is_run_and_graded(tmp_path: Path) -> None:
    card = ves.bench(
        "discovery", hard=True, limit=1, methods=["eap"], n=4, jobs=1, out=tmp_path / "run", progress=False
    )
    assert isinstance(card, Scorecard)
    assert (card.n, card.n_error) == (1, 0)
    assert card.cases is not None
    hard = card.cases[0].methods["eap"].hard
    assert hard is not None
    assert hard.edge_precision == card.metrics["eap.edge_precision"].value
    assert 0.3 < hard.edge_precision < 1
    assert hard.rivals >= 1
    assert card.request is not None
    assert "--hard --limit 1" in card.request.command_line()
    assert (tmp_path / "run-models" / "hard-00" / "answer_key" / "truth.json").is_file()


def test_hard_has_models_of_its_own() -> None:
    with pytest.raises(BadInput, match="leave out `specimens` and `ids`"):
        ves.bench("discovery", hard=True, ids=[3])

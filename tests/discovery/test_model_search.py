"""Searches on a model: their scores, their checks, and what is refused before anything runs."""

from typing import Any

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.checks import run_checks
from vesalius.discovery.discover import discover, method_named
from vesalius.discovery.faithfulness import faithfulness_curves
from vesalius.discovery.method import MethodInput
from vesalius.errors import BadInput
from vesalius_mechrl import methods
from vesalius_mechrl.methods import RL, Bandit, HeadEffects
from vesalius_mechrl.sets.discover import search_sets
from vesalius_mechrl.strategies import QueryBudget


@pytest.mark.parametrize("method", ["bandit", "rl"])
def test_measured_heads_score_as_in_a_sweep(method: str) -> None:
    specimen = ves.load("frac_prevs")
    sweep_scores = discover(specimen, n=6).circuit.components
    reports: list[tuple[int, int]] = []
    discovery = discover(specimen, method, n=6, progress=lambda step, done, total: reports.append((done, total)))
    assert all(part.is_head for part in discovery.circuit.components)
    nonzero = {part: score for part, score in discovery.circuit.components.items() if score}
    assert nonzero == pytest.approx({part: sweep_scores[part] for part in nonzero})
    assert Component(1, 2) in nonzero
    assert discovery.unit == "share of outputs"
    assert [done for done, _ in reports] == sorted(done for done, _ in reports)
    assert reports[-1][0] <= reports[-1][1] == 8 * 6


@pytest.mark.slow
def test_the_mean_over_searches_includes_samples_of_zero() -> None:
    """With a budget for every head all searches measure the same, zeros included."""
    specimen = ves.load("frac_prevs")
    single = discover(specimen, "bandit", n=4).circuit
    discovery = discover(specimen, Bandit(seeds=3), n=4)
    assert discovery.circuit.components == pytest.approx(single.components)
    assert discovery.metrics == {"seeds_jaccard": 1.0}


def test_a_head_scores_the_mean_of_all_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of one query pays for 16 samples per search: every sample counts once, zeros included."""
    budgets: list[QueryBudget] = []

    def record(*args, **options) -> QueryBudget:
        budgets.append(QueryBudget(*args, **options))
        return budgets[-1]

    monkeypatch.setattr(methods, "QueryBudget", record)
    specimen = ves.load("frac_prevs")
    material = trial(specimen, 16)
    result = Bandit(budget=1, seeds=5).score(MethodInput(specimen, material, seed=2))
    assert sum(len(values) for budget in budgets for values in budget.samples) == 5 * 16
    strongest = [budget.samples[6] for budget in budgets]  # L1H2
    assert len({len(values) for values in strongest}) > 1
    assert any(values and not any(values) for values in strongest), "some search sampled it and measured zero"
    for head, score in enumerate(result.components.values()):
        samples = [value for budget in budgets for value in budget.samples[head]]
        assert score == pytest.approx(sum(samples) / max(1, len(samples)))


def test_every_search_takes_the_prompts_in_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first_rows: list[int] = []
    sample = HeadEffects.sample

    def record(source: HeadEffects, head: int, rows):
        first_rows.append(int(rows[0]))
        return sample(source, head, rows)

    monkeypatch.setattr(HeadEffects, "sample", record)
    specimen = ves.load("frac_prevs")
    for seeds in (1, 4):
        first_rows.clear()
        Bandit(budget=1, seeds=seeds).score(MethodInput(specimen, trial(specimen, 16)))
        starts = first_rows[:: len(first_rows) // seeds]
        assert len(starts) == seeds
        assert len(set(starts)) >= min(2, seeds)


class RowCounter:
    """Counts rows through attention and MLPs from outside, in whole forward passes of one prompt."""

    def __init__(self, model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows, layers = 0.0, len(model.blocks)
        sizes = [sum(p.numel() for p in part.parameters()) for part in (model.blocks[0].attn, model.blocks[0].mlp)]
        for kind, name, size in (
            (type(model.blocks[0].attn), "heads", sizes[0]),
            (type(model.blocks[0].mlp), "forward", sizes[1]),
        ):
            monkeypatch.setattr(kind, name, self._counting(getattr(kind, name), size / sum(sizes) / layers))

    def _counting(self, call, weight: float):
        def counted(part, x, *rest):
            self.rows += weight * len(x)
            return call(part, x, *rest)

        return counted


@pytest.mark.parametrize(("method", "backward"), [("bandit", 0), ("rl", 2)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_forwards_are_what_was_run(method: str, backward: int, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass counts as two forward passes; the prompts and their counterfactuals are run once for all."""
    specimen = ves.load("frac_prevs")
    material, search = trial(specimen, 4), method_named(method, budget=4, seeds=seeds)
    counter = RowCounter(specimen.model, monkeypatch)
    result = search.score(MethodInput(specimen, material))
    assert result.forwards == pytest.approx(counter.rows / 4 + backward)


def test_a_policy_is_trained_on_other_prompts_than_it_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ves.load("frac_prevs")
    material, trials = trial(specimen, 16), []

    def record(*args, **options):
        trials.append(trial(*args, **options))
        return trials[-1]

    monkeypatch.setattr(methods, "trial", record)
    RL(steps=64).score(MethodInput(specimen, material))
    assert len(trials) == 1
    assert rows_of(trials[0]).isdisjoint(rows_of(material))


@pytest.mark.parametrize("method", ["bandit", "rl"])
def test_a_search_is_checked_on_heads_and_not_resampled(method: str) -> None:
    """L1H2 is the one head that matters: with MLPs kept, the first of eight heads restores everything."""
    specimen = ves.load("frac_prevs")
    checks = run_checks(specimen, discover(specimen, method, n=6))
    assert checks.heads_only
    assert checks.faithfulness is not None
    assert checks.faithfulness.sizes == tuple(range(9))
    assert checks.faithfulness.faithfulness == (0.0, *(1.0,) * 8)
    assert checks.metrics["cmd"] == pytest.approx(1 / 16)  # a triangle of width 1/8
    assert "jaccard" not in checks.metrics
    assert "`seeds` 5 compares five searches" in checks.missing["stability"]
    assert "nothing to compare with" in checks.missing["detectors"]


def test_searched_components_alone_are_ablated() -> None:
    specimen = ves.load("frac_prevs")
    heads = [part for part in specimen.model.components if part.is_head]
    kept, all_parts = (
        faithfulness_curves(specimen.model, trial(specimen, 6), [heads], searched=searched)[0]
        for searched in (heads, None)
    )
    assert kept.sizes[-1] == 8
    assert all_parts.sizes[-1] == 10
    assert kept.full == all_parts.full
    with pytest.raises(BadInput, match="L0_MLP is not in this model, or not among what is searched"):
        faithfulness_curves(specimen.model, trial(specimen, 6), [[Component(0)]], searched=heads)


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        ("bandit", {"budget": 0}, "`budget` 0: the model has 8 heads; choose 1 to 8"),
        ("bandit", {"budget": 10**12}, "choose 1 to 8"),
        ("bandit", {"seeds": 0}, "`seeds` 0"),
        (
            "bandit",
            {"paper": True},
            "`paper` cannot be given with `method` bandit, whose options are `budget`",
        ),
        ("rl", {"steps": -1}, "`steps` -1"),
        ("rl", {"budget": 3}, "give at least 4"),
    ],
)
def test_refusals(method: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        ves.discover("frac_prevs", method, n=4, **options)


@pytest.mark.slow
def test_a_behaviour_that_is_not_performed_is_refused_unless_forced() -> None:
    able = as_specimen(induction_model(word_tokenizer().size))
    discovery = discover(able, n=4)
    assert discovery.performance is not None
    assert discovery.performance.performs
    size = word_tokenizer().size
    unable = as_specimen(random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=64)))
    with pytest.raises(
        BadInput,
        match=r"induction: prefers the right answer on .*says it on .*`force` to continue anyway",
    ):
        ves.discover(unable, n=4)
    with pytest.raises(BadInput, match="does not perform induction"):
        search_sets(unable, n=8)
    forced = ves.discover(unable, n=4, force=True)
    assert forced.performance is not None
    assert not forced.performance.performs
    assert search_sets(unable, n=8, force=True).document()["performance"]["performs"] is False

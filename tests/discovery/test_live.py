"""Searches on a model itself: what they score, what their checks say, and what is refused before anything runs."""

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.faithfulness import faithfulness_curves
from vesalius.discovery.methods import discover, smooth_readout
from vesalius.discovery.search import live
from vesalius.discovery.search.live import SEARCHES, Bench, SearchOptions, search_heads
from vesalius.discovery.search.purse import Purse
from vesalius.discovery.sets.discover import discover_sets
from vesalius.discovery.trust import examine
from vesalius.errors import BadInput


@pytest.mark.parametrize("method", SEARCHES)
def test_heads_that_were_paid_for_score_as_in_a_sweep(method: str) -> None:
    specimen = ves.load("frac_prevs")
    swept = discover(specimen, n=6).circuit.components
    told: list[tuple[int, int]] = []
    found = discover(specimen, method, n=6, progress=lambda step, done, total: told.append((done, total)))
    assert all(part.is_head for part in found.circuit.components)
    scored = {part: score for part, score in found.circuit.components.items() if score}
    assert scored == pytest.approx({part: swept[part] for part in scored})
    assert Component(1, 2) in scored
    assert found.unit == "share of outputs"
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] <= told[-1][1] == 8 * 6


def test_the_mean_over_searches_counts_a_look_that_saw_nothing() -> None:
    """With enough to pay for every head all searches see the same, zeros included."""
    specimen = ves.load("frac_prevs")
    once = discover(specimen, "bandit", n=4).circuit
    found = discover(specimen, "bandit", n=4, search=SearchOptions(seeds=3))
    assert found.circuit.components == pytest.approx(once.components)
    assert found.metrics == {"seeds_jaccard": 1.0}


def test_a_head_scores_the_mean_of_all_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of one query pays 16 looks per search: every look counts once, whatever it saw."""
    purses: list[Purse] = []

    def noted(*given, **options) -> Purse:
        purses.append(Purse(*given, **options))
        return purses[-1]

    monkeypatch.setattr(live, "Purse", noted)
    specimen = ves.load("frac_prevs")
    material = trial(specimen, 16)
    options = SearchOptions(budget=1, seeds=5)
    found = search_heads(specimen, material, "bandit", options, smooth=smooth_readout, seed=2)
    assert sum(len(values) for purse in purses for values in purse.seen) == 5 * 16
    strongest = [purse.seen[6] for purse in purses]  # L1H2
    assert len({len(values) for values in strongest}) > 1
    assert any(values and not any(values) for values in strongest), "some search looked at it and saw nothing"
    for head, score in enumerate(found.components.values()):
        looks = [value for purse in purses for value in purse.seen[head]]
        assert score == pytest.approx(sum(looks) / max(1, len(looks)))


def test_every_search_takes_the_prompts_in_an_order_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first: list[int] = []
    look = Bench.look

    def noted(bench: Bench, head: int, rows):
        first.append(int(rows[0]))
        return look(bench, head, rows)

    monkeypatch.setattr(Bench, "look", noted)
    specimen = ves.load("frac_prevs")
    for seeds in (1, 4):
        first.clear()
        options = SearchOptions(budget=1, seeds=seeds)
        search_heads(specimen, trial(specimen, 16), "bandit", options, smooth=smooth_readout)
        starts = first[:: len(first) // seeds]
        assert len(starts) == seeds
        assert len(set(starts)) >= min(2, seeds)


class Counted:
    """Rows through attention and MLPs, in whole forward passes of one prompt: what was run, counted from outside."""

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
    material, options = trial(specimen, 4), SearchOptions(budget=4, seeds=seeds)
    counted = Counted(specimen.model, monkeypatch)
    found = search_heads(specimen, material, method, options, smooth=smooth_readout)
    assert found.forwards == pytest.approx(counted.rows / 4 + backward)


def test_a_policy_is_trained_on_prompts_that_it_is_not_played_on(monkeypatch: pytest.MonkeyPatch) -> None:
    specimen = ves.load("frac_prevs")
    material, drawn = trial(specimen, 16), []

    def noted(*given, **options):
        drawn.append(trial(*given, **options))
        return drawn[-1]

    monkeypatch.setattr(live, "trial", noted)
    search_heads(specimen, material, "rl", SearchOptions(steps=64), smooth=smooth_readout)
    assert len(drawn) == 1
    assert rows_of(drawn[0]).isdisjoint(rows_of(material))


@pytest.mark.parametrize("method", SEARCHES)
def test_a_search_is_checked_on_heads_and_not_resampled(method: str) -> None:
    """L1H2 is the one head that matters: with MLPs kept, the first of eight heads restores everything."""
    specimen = ves.load("frac_prevs")
    trust = examine(specimen, discover(specimen, method, n=6))
    assert trust.heads_only
    assert trust.curve is not None
    assert trust.curve.sizes == tuple(range(9))
    assert trust.curve.faithfulness == (0.0, *(1.0,) * 8)
    assert trust.metrics["cmd"] == pytest.approx(1 / 16)  # a triangle of width 1/8
    assert "jaccard" not in trust.metrics
    assert "--seeds 5 compares five searches" in trust.missing["stability"]
    assert "nothing to compare with" in trust.missing["detectors"]


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
        ("bandit", SearchOptions(budget=0), "--budget 0: the model has 8 heads; choose 1 to 8"),
        ("bandit", SearchOptions(budget=10**12), "choose 1 to 8"),
        ("bandit", SearchOptions(seeds=0), "--seeds 0"),
        ("bandit", SearchOptions(paper=True), "belong to --method rl"),
        ("rl", SearchOptions(steps=-1), "--steps -1"),
        ("rl", SearchOptions(budget=3), "give at least 4"),
    ],
)
def test_refusals(method: str, options: SearchOptions, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        discover(ves.load("frac_prevs"), method, n=4, search=options)


def test_a_behaviour_that_is_not_performed_is_refused_unless_forced() -> None:
    able = as_specimen(induction_model(word_tokenizer().size))
    found = discover(able, n=4)
    assert found.performance is not None
    assert found.performance.performs
    size = word_tokenizer().size
    unable = as_specimen(random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=64)))
    with pytest.raises(BadInput, match=r"does not perform induction: accuracy .*force=True\) to continue anyway"):
        ves.discover(unable, n=4)
    with pytest.raises(BadInput, match="does not perform induction"):
        discover_sets(unable, n=8)
    forced = ves.discover(unable, n=4, force=True)
    assert forced.performance is not None
    assert not forced.performance.performs
    assert discover_sets(unable, n=8, force=True).document()["performance"]["performs"] is False

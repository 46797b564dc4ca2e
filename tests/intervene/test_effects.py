"""The effect matrix: on paper, against the naive loop, in chunks; and the intervals around its means."""

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import EXACT
from tests.intervene.twin import naive_logits
from tests.model.test_transformer import PROMPT, paper_model
from tests.models import configs, random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene import (
    Batch,
    Readout,
    Row,
    ablation_named,
    agreement,
    effects,
    logit_difference,
    next_token_loss,
    pairs,
)
from vesalius.intervene.ablations import KINDS
from vesalius.intervene.effects import Effects
from vesalius.model import Component, Config
from vesalius.statistics import bootstrap_means, mean_interval, share_interval


def last_difference(tokens: torch.Tensor, correct: int = 1, wrong: int = 0) -> Readout:
    n, width = tokens.shape
    return logit_difference(torch.full((n,), width - 1), torch.full((n,), correct), torch.full((n,), wrong))


def test_on_paper() -> None:
    # Readout: logit 1 minus logit 0 at the last position, that is x1 - x0; clean (19/3, 13) gives 20/3.
    # Head zeroed:  (1, 3) + (0, 1) = (1, 4); relu(1 - 4 + 1) = 0; + (0, -1) -> (1, 3): 2. Effect 20/3 - 2 = 14/3.
    # MLP zeroed:   (19/3, 4) + (0, -1) -> (19/3, 3): -10/3. Effect 20/3 + 10/3 = 10.
    # Both:         (1, 4) + (0, -1) -> (1, 3): 2. Effect 14/3.
    sets = [["L0H0"], ["L0_MLP"], ["L0H0", "m0"]]
    found = effects(paper_model(), Batch(PROMPT), last_difference(PROMPT), sets=sets)
    assert found.baseline.tolist() == pytest.approx([20 / 3])
    assert found.matrix[0].tolist() == pytest.approx([14 / 3, 10, 14 / 3])
    assert [str(members[0]) for members, _ in found.ranked()] == ["L0_MLP", "L0H0", "L0H0"]
    assert found.unit == "logits"


def test_positions_on_paper() -> None:
    # Silencing the head at positions 0 and 1 leaves the last one alone: one layer carries nothing across.
    where = torch.tensor([[True, True, False]])
    found = effects(paper_model(), Batch(PROMPT), last_difference(PROMPT), positions=where)
    assert found.matrix.abs().max() == 0


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(configs(), st.integers(0, 2**20), st.sampled_from(KINDS), st.booleans())
def test_against_the_naive_loop(config: Config, seed: int, kind: str, in_pairs: bool) -> None:
    model = random_model(config, seed).double()
    generator = torch.Generator().manual_seed(seed)
    tokens, other = torch.randint(0, config.d_vocab, (2, 3, 5), generator=generator)
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[0, :2] = False
    batch, counterfactual = Batch(tokens, mask), Batch(other, mask)
    readout = last_difference(tokens)
    sets = pairs(model.components)[:6] if in_pairs else None
    found = effects(model, batch, readout, kind=kind, sets=sets, counterfactual=counterfactual)
    table = ablation_named(kind).table(model, batch, counterfactual=counterfactual)
    for prompt in range(3):
        clean = naive_logits(model, batch, Row(prompt), table.values)[-1]
        assert float(found.baseline[prompt]) == pytest.approx(float(clean[1] - clean[0]), abs=EXACT, rel=EXACT)
        for column, members in enumerate(found.sets):
            row = Row(prompt, dict.fromkeys(members, int(table.choices[prompt])))
            edited = naive_logits(model, batch, row, table.values)[-1]
            expected = (clean[1] - clean[0]) - (edited[1] - edited[0])
            assert float(found.matrix[prompt, column]) == pytest.approx(float(expected), abs=10 * EXACT, rel=EXACT)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(configs(), st.integers(0, 1000), st.sampled_from(KINDS))
def test_chunks_change_nothing(config: Config, seed: int, kind: str) -> None:
    model = random_model(config, seed).double()
    tokens = torch.randint(0, config.d_vocab, (4, 4), generator=torch.Generator().manual_seed(seed))
    batch, other, told = Batch(tokens), Batch(tokens.flip(0)), []
    options = {"kind": kind, "counterfactual": other}
    whole = effects(model, batch, last_difference(tokens), **options)
    chunked = effects(
        model, batch, last_difference(tokens), memory=1, progress=lambda *done: told.append(done), **options
    )
    assert (whole.matrix - chunked.matrix).abs().max() <= EXACT * max(1.0, float(whole.matrix.abs().max()))
    assert torch.allclose(whole.baseline, chunked.baseline, rtol=EXACT, atol=EXACT)
    assert told[-1] == ("ablation", *(len(model.components),) * 2)


def test_cost_counts_what_was_computed() -> None:
    """By weights: attention holds 6 + 3 + 2 + 2 = 13 numbers, the MLP 2 + 1 + 2 + 2 = 7.

    The clean run is one pass. Replacing the MLP's output of a one-layer model computes nothing more, replacing the
    head's computes the MLP again.
    """
    model, batch, readout = paper_model(), Batch(PROMPT), last_difference(PROMPT)
    assert effects(model, batch, readout, sets=[["m0"]]).forwards == pytest.approx(1)
    assert effects(model, batch, readout, sets=[["m0"], ["a0.h0"]]).forwards == pytest.approx(1 + 7 / 20)


def test_device_is_where_the_model_is() -> None:
    model = random_model(small_config()).to(torch.device("cpu"))
    found = effects(model, Batch(torch.tensor([[1, 2, 3]])), last_difference(torch.tensor([[1, 2, 3]])))
    assert {str(found.matrix.device), str(found.baseline.device), str(model.device)} == {"cpu"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
@pytest.mark.parametrize("kind", KINDS)
def test_cuda_gives_the_same_numbers(kind: str) -> None:
    tokens = torch.tensor([[1, 2, 3], [3, 2, 1]])
    batch, other = Batch(tokens), Batch(tokens.flip(0))
    model = random_model(small_config())
    here = effects(model, batch, last_difference(tokens), kind=kind, counterfactual=other)
    there = effects(model.to("cuda"), batch, last_difference(tokens), kind=kind, counterfactual=other)
    assert (here.matrix - there.matrix).abs().max() <= 1e-4


def test_what_is_refused() -> None:
    model, tokens = random_model(small_config()), torch.tensor([[1, 2, 3]])
    batch, readout = Batch(tokens), last_difference(tokens)
    with pytest.raises(BadInput, match="resampling needs a counterfactual prompt of the same length"):
        effects(model, batch, readout, kind="resample")
    with pytest.raises(BadInput, match="resampling needs a counterfactual prompt of the same length"):
        effects(model, batch, readout, kind="resample", counterfactual=Batch(torch.tensor([[1, 2]])))
    with pytest.raises(BadInput, match="kind 'noise' does not exist; choose one of zero, mean, resample, value-bias"):
        effects(model, batch, readout, kind="noise")
    with pytest.raises(BadInput, match="list of component sets is empty"):
        effects(model, batch, readout, sets=[])
    with pytest.raises(BadInput, match="list of components is empty"):
        effects(model, batch, readout, sets=[["L0H0"], []])
    with pytest.raises(BadInput, match="not in this model"):
        effects(model, batch, readout, sets=[["L0H9"]])
    with pytest.raises(BadInput, match="list of prompts is empty"):
        effects(model, Batch(tokens[:0]), readout)


def test_pairs_are_unordered() -> None:
    a, b, c = Component(0, 0), Component(0, 1), Component(0)
    assert pairs([a, b, c]) == [(a, b), (a, c), (b, c)]


# --- readouts


def test_next_token_loss_by_hand() -> None:
    # Two classes with equal logits: every prediction costs log 2. With logits (0, log 3) class 1 has 3/4.
    tokens = torch.tensor([[0, 1, 1], [0, 1, 0]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    logits = torch.tensor([[[0, 0], [0, 1], [9, 9]], [[0, 1], [9, 0], [9, 9]]]) * torch.tensor(3.0).log()
    score = next_token_loss(tokens, mask).score(logits, torch.tensor([0, 1]))
    first, second = (torch.tensor(0.5).log() + torch.tensor(0.75).log()) / 2, torch.tensor(0.75).log()
    assert score.tolist() == pytest.approx([float(first), float(second)])


def test_agreement_by_hand() -> None:
    clean, counted = torch.tensor([[1, 0, 1]]), torch.tensor([[False, True, True]])
    logits = torch.tensor([[[9.0, 0.0], [1.0, 0.0], [1.0, 0.0]]])
    assert agreement(clean, counted).score(logits, torch.tensor([0])).tolist() == [0.5]


def test_a_readout_of_some_prompts_keeps_its_answers() -> None:
    readout = logit_difference(torch.tensor([4, 5, 6]), torch.tensor([0, 1, 2]), torch.tensor([3, 3, 3]))
    some = readout.take(torch.tensor([2, 0]))
    assert some.at is not None
    assert some.choose is not None
    assert (some.at.tolist(), some.choose.tolist()) == ([[6], [4]], [[2, 3], [0, 3]])
    tokens = torch.tensor([[0, 0], [1, 1]])
    second = next_token_loss(tokens).take(torch.tensor([1]))
    logits = torch.tensor([[[0.0, 9.0], [0.0, 0.0]]])
    assert float(second.score(logits, torch.tensor([0]))) > -0.01


# --- intervals


def test_bootstrap_of_two_values_by_hand() -> None:
    # Means of two draws from {0, 1}: 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    values = torch.tensor([[0.0], [1.0]])
    drawn = bootstrap_means(values, resamples=4000)[:, 0]
    shares = [float((drawn == value).float().mean()) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    assert [float(x) for x in mean_interval(values)] == [0.0, 1.0]
    assert [float(x) for x in mean_interval(values, level=0.2)] == [0.5, 0.5]


def test_a_constant_column_has_no_width() -> None:
    low, high = mean_interval(torch.tensor([[2.5, 1.0], [2.5, 3.0], [2.5, 7.0]]))
    assert (float(low[0]), float(high[0])) == (2.5, 2.5)
    assert low[1] < 11 / 3 < high[1]
    for n in range(1, 40):  # 1/n is not exact, so a resampled mean of equal values need not be that value
        for value in (0.1, 1 / 3, 3.0, -1e9):
            for dtype in (torch.float32, torch.float64):
                values = torch.full((n, 1), value, dtype=dtype)
                assert [float(x) for x in mean_interval(values, resamples=50)] == [float(values[0])] * 2


def test_more_samples_narrow_the_interval_by_their_root() -> None:
    """The width of a mean's 95 % interval is 2 * 1.96 * sd / sqrt(n)."""
    values = torch.randn(900, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for n in (100, 900):
        low, high = mean_interval(values[:n], resamples=4000)
        assert float(high - low) == pytest.approx(2 * 1.96 * float(values[:n].std()) / n**0.5, rel=0.08)


def test_intervals_move_with_the_data_and_repeat_with_the_seed() -> None:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    low, high = mean_interval(values, seed=3)
    shifted = mean_interval(2 * values + 5, seed=3)
    assert torch.allclose(shifted[0], 2 * low + 5)
    assert torch.allclose(shifted[1], 2 * high + 5)
    assert torch.allclose(mean_interval(values, seed=3)[0], low)
    assert not torch.allclose(mean_interval(values, seed=4)[0], low)


def test_effects_carry_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)  # rows, not a DataFrame, on every machine
    matrix = torch.tensor([[1.0, 0.0], [1.0, 2.0]])
    found = Effects(((Component(0),), (Component(0, 0),)), torch.zeros(2), matrix, "zero", "logits", 1, 0)
    low, high = found.interval()
    assert found.mean.tolist() == [1.0, 1.0]
    # Student's t at one degree of freedom is 12.706; the standard errors of 1, 1 and of 0, 2 are 0 and 1.
    assert low.tolist() == pytest.approx([1.0, 1 - 12.706], rel=1e-3)
    assert high.tolist() == pytest.approx([1.0, 1 + 12.706], rel=1e-3)
    many = Effects(found.sets, torch.zeros(8), matrix.repeat(4, 1), "zero", "logits", 1, 0)
    low, high = many.interval()
    assert 0.0 <= float(low[1]) < 1.0 < float(high[1]) <= 2.0
    one = Effects(found.sets, torch.zeros(1), matrix[:1], "zero", "logits", 1, 0)
    assert [(row["low"], row["high"]) for row in one.table()] == [(None, None)] * 2


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Wilson 1927: (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), z = 1.96, z^2 = 3.8416
        (5, 10, 0.2366, 0.7634),  # (0.5 + 0.19208 -+ 1.96 * sqrt(0.025 + 0.0096)) / 1.38416
        (0, 10, 0.0, 0.2775),  # 2 * 0.19208 / 1.38416
        (10, 10, 0.7225, 1.0),
        (1, 1, 0.2065, 1.0),  # 1 / (1 + 3.8416)
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I
        (15, 148, 0.0624, 0.1605),  # Newcombe 1998, table I
    ],
)
def test_wilson(successes: int, n: int, low: float, high: float) -> None:
    assert share_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_without_trials_knows_nothing() -> None:
    assert share_interval(0, 0) == (0.0, 1.0)


def test_wilson_of_none_begins_at_zero_and_of_all_ends_at_one() -> None:
    for n in range(1, 400):  # no rounding error at the ends: a low of 2.8e-17 would read as above 0
        assert share_interval(0, n)[0] == 0.0 < share_interval(0, n)[1] < 1.0
        assert share_interval(n, n)[1] == 1.0 > share_interval(n, n)[0] > 0.0

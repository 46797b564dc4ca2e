"""Only the tokens that can differ from the clean run are computed, and every row still equals its naive twin."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import EXACT
from tests.intervene.test_engine import random_rows, written
from tests.intervene.twin import naive_logits, naive_run
from tests.models import STRUCTURES, configs, random_model, small_config
from vesalius.components import Edge
from vesalius.intervene import (
    Batch,
    Cost,
    Plan,
    Readout,
    Recordings,
    Row,
    activations,
    all_logits,
    run,
    run_with_outputs,
    zeros,
)
from vesalius.intervene.tokens import spans_to_compute
from vesalius.model import Component, Config, Transformer

WIDTH = 7
#: Larger than the heads of small circuits, which are always computed whole.
D_HEAD = 10


def prompts_and_sources(config: Config, rng: random.Random, *, padded: bool) -> tuple[Batch, Batch]:
    """Three prompts, and three others of which the k-th begins like the k-th prompt."""
    tokens = torch.tensor([[rng.randrange(config.d_vocab) for _ in range(WIDTH)] for _ in range(3)])
    other = tokens.clone()
    for row in other:
        start = rng.randint(2, WIDTH - 1)
        row[start:] = torch.tensor([rng.randrange(config.d_vocab) for _ in range(WIDTH - start)])
    mask = None
    if padded:
        mask = torch.ones(3, WIDTH, dtype=torch.bool)
        mask[1, : rng.randint(1, WIDTH - 1)] = False
        mask[2, rng.randint(1, WIDTH - 1) :] = False
    return Batch(tokens, mask), Batch(other, mask)


def rows_with_late_changes(config: Config, rng: random.Random) -> list[Row]:
    """Random rows that take the values of the prompt of the same number, or another; many change the end alone."""
    rows = random_rows(config, 3, WIDTH, 3, rng)
    late = []
    for row in rows:
        source = row.prompt if rng.random() < 0.8 else rng.randrange(3)
        positions = range(rng.randint(0, WIDTH - 1), WIDTH) if rng.random() < 0.5 else None
        late.append(Row(row.prompt, dict.fromkeys(row.edits, source), dict.fromkeys(row.edges, source), positions))
    return late


def assert_as_the_twin(model: Transformer, rng: random.Random, *, padded: bool) -> None:
    config = model.config
    batch, other = prompts_and_sources(config, rng, padded=padded)
    values, rows = activations(model, other), rows_with_late_changes(config, rng)
    plan, memory = Plan.of(config, rows, width=WIDTH), rng.choice([1, 30_000, 2**30])
    expected = torch.stack([naive_logits(model, batch, row, values) for row in rows])
    real = torch.ones(3, WIDTH, dtype=torch.bool) if batch.mask is None else batch.mask
    # The sums of a token computed alone may come in another order.
    tolerance = EXACT * max(1.0, float(expected.abs().max()))
    logits = run(Recordings(model, batch, all_logits(), memory=memory), plan, values, memory=memory)
    assert ((logits - expected) * real[plan.prompt][..., None]).abs().max() <= tolerance
    at = torch.stack([torch.tensor(sorted(rng.choices(real[p].nonzero()[:, 0].tolist(), k=2))) for p in range(3)])
    recordings = Recordings(model, batch, Readout(lambda logits, prompt: logits, at), memory=memory)
    logits = run(recordings, plan, values, memory=memory)
    assert (logits - expected[torch.arange(len(rows))[:, None], at[plan.prompt]]).abs().max() <= tolerance


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(configs(), st.booleans(), st.integers(0, 2**20))
def test_rows_that_change_late_equal_their_naive_twins(config: Config, padded: bool, seed: int) -> None:
    config = config.model_copy(update={"d_head": D_HEAD, "causal": True})
    assert_as_the_twin(random_model(config, seed).double(), random.Random(seed), padded=padded)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("seed", range(2))
def test_every_structure_that_changes_late(structure: str, seed: int) -> None:
    model = random_model(small_config(d_head=D_HEAD, **STRUCTURES[structure]), seed).double()
    assert_as_the_twin(model, random.Random(seed), padded=seed == 1)


@pytest.mark.parametrize("seed", range(6))
def test_kept_outputs_of_rows_that_change_late(seed: int) -> None:
    """Components write at every position, those after the answer included, whatever the readout reads."""
    rng, model = random.Random(seed), random_model(small_config(d_head=D_HEAD, n_layers=3), seed).double()
    batch, other = prompts_and_sources(model.config, rng, padded=False)
    values, rows = activations(model, other), rows_with_late_changes(model.config, rng)
    kept = [part for part in model.components if part.layer < 2]
    readout = Readout(lambda logits, prompt: logits, torch.full((3, 1), WIDTH - 2))
    _, outputs = run_with_outputs(
        Recordings(model, batch, readout), Plan.of(model.config, rows, width=WIDTH), values, kept
    )
    for i, row in enumerate(rows):
        _, expected = naive_run(model, batch, row, values)
        for part in kept:
            seen = written(model, part, outputs[part][i])
            assert (seen - expected[part]).abs().max() <= EXACT * max(1.0, float(expected[part].abs().max()))


def spans_of(model: Transformer, batch: Batch, other: Batch, rows: list[Row], at: torch.Tensor | None = None):
    plan = Plan.of(model.config, rows, width=batch.tokens.shape[1])
    return spans_to_compute(model.config, plan, activations(model, other), batch, at)


def test_spans_begin_at_the_first_difference_and_end_at_the_answer() -> None:
    model = random_model(small_config(d_head=D_HEAD))
    batch = Batch(torch.tensor([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]))
    other = Batch(torch.tensor([[1, 2, 9, 4, 5, 6], [1, 2, 3, 4, 5, 6]]))
    rows = [
        Row(0, {"L0H0": 0}),  # differs from the third token on
        Row(0, {"L0H0": 0}, positions=[0, 4]),  # replaced at the first, which is alike, and at the fifth
        Row(0, {"L0H0": 0}, positions=[5]),  # after the answer
        Row(1, {"L0H0": 1}),  # the same prompt: nothing changes
        Row(0, {"L0H0": 0, "L1H0": 1}),  # values of two prompts
        Row(0, edges={Edge(Component(0, 0), Component(1, 1), "q"): 0}),
    ]
    spans = spans_of(model, batch, other, rows, torch.tensor([[4], [4]]))
    assert spans is not None
    assert (spans.first.tolist(), spans.end.tolist()) == ([2, 4, 5, 5, 0, 2], [5] * 6)


def test_prompts_of_another_padding_do_not_begin_alike() -> None:
    """A length-dependent rotation differs from the first token on."""
    model = random_model(small_config(d_head=D_HEAD))
    tokens = torch.tensor([[1, 2, 3, 4]])
    longer = torch.tensor([[True, True, True, True]])
    shorter = torch.tensor([[True, True, True, False]])
    assert spans_of(model, Batch(tokens, longer), Batch(tokens, shorter), [Row(0, {"L0H0": 0})]) is None


@pytest.mark.parametrize("changes", [{"causal": False}, {"d_head": 4}])
def test_models_that_are_computed_whole(changes: dict) -> None:
    model = random_model(small_config(**{"d_head": D_HEAD, **changes}))
    batch = Batch(torch.arange(1, 7)[None])
    plan = Plan.of(model.config, [Row(0, {"L0H0": 0}, positions=[5])], width=6)
    assert spans_to_compute(model.config, plan, zeros(model), batch, None) is None


def test_work_counts_the_tokens_that_are_computed() -> None:
    """Six tokens, of which the last is changed after the first of two layers' attention: one sixth of what is left."""
    model = random_model(small_config(d_head=D_HEAD))
    batch = Batch(torch.arange(1, 7)[None])
    recordings = Recordings(model, batch, all_logits())
    recordings.scores()
    costs = []
    for positions in (None, [5]):
        cost = Cost()
        plan = Plan.of(model.config, [Row(0, {"L0H0": 0}, positions=positions)], width=6)
        run(recordings, plan, zeros(model), cost=cost)
        costs.append(cost.rows)
    assert costs[1] == pytest.approx(costs[0] / 6)

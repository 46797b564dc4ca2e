"""Rows that begin alike are computed once as far as they do, and every row still equals its naive twin."""

import itertools

import pytest
import torch

from tests.intervene.twin import naive_logits
from tests.models import STRUCTURES, random_model, small_config
from vesalius.intervene import Batch, Cost, Plan, Readout, Recordings, Row, activations, all_logits, run, zeros
from vesalius.intervene.engine import row_bytes
from vesalius.intervene.tokens import CLEAN, branches
from vesalius.model import Component, Config

#: Larger than the heads of small circuits, whose rows are never searched for common beginnings.
SHAPE = {"n_layers": 2, "n_heads": 2, "n_kv_heads": 1, "d_head": 10}
PROMPTS = Batch(torch.tensor([[1, 2, 3, 4, 5], [1, 2, 6, 7, 8]]))
SOURCES = Batch(torch.tensor([[1, 2, 9, 4, 5], [3, 2, 6, 7, 8]]))


def every_set(config: Config) -> list[tuple[Component, ...]]:
    parts = [Component(layer, head) for layer in range(config.n_layers) for head in [*range(config.n_heads), None]]
    return [members for size in range(1, len(parts) + 1) for members in itertools.combinations(parts, size)]


@pytest.mark.slow
@pytest.mark.parametrize("positions", [None, [1, 3]])
@pytest.mark.parametrize("structure", ["plain", "norms-before-and-after", "windows", "parallel"])
def test_all_sets_of_components_equal_their_naive_twins(structure: str, positions: list[int] | None) -> None:
    model = random_model(small_config(**{**STRUCTURES.get(structure, {}), **SHAPE}))
    values = activations(model, SOURCES)
    rows = [
        Row(prompt, dict.fromkeys(members, prompt), positions=positions)
        for members in every_set(model.config)
        for prompt in range(2)
    ]
    expected = torch.stack([naive_logits(model, PROMPTS, row, values) for row in rows])
    plan, tolerance = Plan.of(model.config, rows, width=5), 1e-5 * max(1.0, float(expected.abs().max()))
    logits = run(Recordings(model, PROMPTS, all_logits()), plan, values)
    assert (logits - expected).abs().max() <= tolerance
    last = Readout(lambda logits, prompt: logits[:, 0], torch.full((2, 1), 4))
    for memory in (20_000, None):
        logits = run(Recordings(model, PROMPTS, last), plan, values, memory=memory)
        assert (logits - expected[:, 4]).abs().max() <= tolerance


def test_a_row_branches_off_from_the_one_that_is_like_it_for_longest() -> None:
    config = random_model(small_config(**SHAPE)).config
    sets = ["L0H0", "L0H0 L0_MLP", "L0H0 L0_MLP L1H1", "L0H0 L0_MLP L1H0", "L0H1", "L0_MLP"]
    rows = [Row(0, dict.fromkeys(members.split(), 0)) for members in sets]
    rows += [Row(1, {"L0H0": 0, "L1H0": 0}), Row(0, {"L0H0": 1, "L1H0": 0})]
    plan = Plan.of(config, rows, width=5)
    entry = torch.tensor([1, 1, 1, 1, 1, 2, 1, 1])
    found = branches(config, plan, entry, None)
    assert found is not None
    # Times: 1 and 2 are the heads and the MLP of layer 0, 4 the heads of layer 1. Two rows branch off from row 1, of
    # which row 3 has its last replacement where row 2 has its own. Other prompts and other values share nothing.
    assert found.entry.tolist() == [1, 2, 4, 4, 1, 2, 1, 1]
    assert found.parent.tolist() == [CLEAN, 0, 1, 1, CLEAN, CLEAN, CLEAN, CLEAN]


def test_rows_at_other_positions_share_nothing() -> None:
    config = random_model(small_config(**SHAPE)).config
    rows = [Row(0, {"L0H0": 0}, positions=[1]), Row(0, {"L0H0": 0, "L1H0": 0}, positions=[2])]
    found = branches(config, Plan.of(config, rows, width=5), torch.tensor([1, 1]), None)
    assert found is not None
    assert found.parent.tolist() == [CLEAN, CLEAN]


def test_the_second_of_two_rows_costs_what_comes_after_they_part() -> None:
    model = random_model(small_config(**SHAPE))
    recordings = Recordings(model, PROMPTS, all_logits())
    recordings.scores()

    def cost_of(*sets: str) -> float:
        cost, rows = Cost(), [Row(0, dict.fromkeys(members.split(), 0)) for members in sets]
        run(recordings, Plan.of(model.config, rows, width=5), zeros(model), cost=cost)
        return cost.rows

    both = cost_of("L0H0", "L0H0 L1H0")
    assert both == pytest.approx(cost_of("L0H0") + cost_of("L1H0"))


def test_rows_that_begin_alike_are_computed_in_one_chunk() -> None:
    """With room for the two rows of one prompt at a time the work is that of one chunk for all."""
    model = random_model(small_config(**SHAPE))
    recordings = Recordings(model, PROMPTS, all_logits())
    recordings.scores()
    rows = [Row(prompt, dict.fromkeys(members.split(), 0)) for members in ("L0H0", "L0H0 L1H0") for prompt in range(2)]
    plan, together, apart = Plan.of(model.config, rows, width=5), Cost(), Cost()
    scores = run(recordings, plan, zeros(model), cost=together)
    room = 2 * row_bytes(model, 5)
    assert torch.allclose(run(recordings, plan, zeros(model), memory=room, cost=apart), scores, atol=1e-6)
    assert apart.rows == pytest.approx(together.rows)

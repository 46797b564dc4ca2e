import math

import pytest
import torch
from torch.nn import functional as F

from tests.training.programs import CPU, lookup, mixed_stack, small
from tests.training.twin import node_outputs, patched_logits
from vesalius.components import all_components
from vesalius.model.states import build
from vesalius_truth.training.siit import (
    MEAN,
    SOURCE,
    ZERO,
    Curriculum,
    Weights,
    copy_losses,
    draw_rows,
    position_losses,
    tabulate,
)
from vesalius_truth.training.stack import Copy, Stack


def rows_of(stack: Stack, batch: int = 12, seed: int = 4):
    tables = tabulate(stack.settings, 40, seed=1, device=CPU)
    curriculum = Curriculum(stack)
    return curriculum, draw_rows(stack, tables, curriculum, batch, torch.Generator().manual_seed(seed))


def expected_terms(stack: Stack, rows, copy: int) -> list[float]:
    """Behaviour, interchange and strict loss of one copy, row by row on its exported transformer."""
    config, numerical = stack.configs[copy], bool(stack.numerical[copy])
    model, width = build(config, stack.export(copy), where="test"), config.n_ctx
    components = {stack.node(component): component for component in all_components(config)}
    base, source = rows.base[copy, :width].T.long(), rows.source[copy, :width].T.long()
    real, there = rows.base_real[copy, :width].T, rows.source_real[copy, :width].T
    outputs = node_outputs(model, source)
    mean = {c: value[there].mean(0) for c, value in outputs.items()}
    totals = [0.0, 0.0, 0.0]
    for row in range(base.shape[0]):
        pick = slice(row, row + 1)
        reads = rows.reads[copy, :width, row]
        swapped = {
            components[n]: outputs[components[n]][pick][:, reads]
            for n in rows.swapped[copy, :, row].nonzero()[:, 0].tolist()
        }
        kind = int(rows.strict_kind[copy, row])
        strict = {}
        for n in rows.strict[copy, :, row].nonzero()[:, 0].tolist():
            output = outputs[components[n]][pick]
            strict[components[n]] = {SOURCE: output, MEAN: mean[components[n]].expand_as(output), ZERO: output * 0}[
                kind
            ]
        everywhere = torch.ones_like(there[pick]) if kind != SOURCE else there[pick]
        runs = [
            (model(base[pick]), rows.answer),
            (patched_logits(model, base[pick], swapped, there[pick]), rows.swapped_answer),
            (patched_logits(model, base[pick], strict, everywhere), rows.answer),
        ]
        for term, (logits, answers) in enumerate(runs):
            for position in range(1, int(real[row].sum())):
                answer = answers[copy, position - 1, row]
                if numerical:
                    totals[term] += 20 * float(logits[0, position, 0] - answer) ** 2
                else:
                    totals[term] += float(F.cross_entropy(logits[0, position], answer.long()))
    counted = int(real[:, 1:].sum())
    return [total / counted for total in totals]


@pytest.mark.slow
def test_each_term_of_every_copy_matches_hooked_runs_of_its_transformer() -> None:
    stack = mixed_stack()
    curriculum, rows = rows_of(stack)
    single = [Weights(1, 0, 0), Weights(0, 1, 0), Weights(0, 0, 1)]
    terms = torch.stack([copy_losses(stack, curriculum, w, stack.weights, rows) for w in single], 1)
    for copy in range(len(stack)):
        assert terms[copy].tolist() == pytest.approx(expected_terms(stack, rows, copy), rel=1e-4)
    whole = copy_losses(stack, curriculum, Weights(), stack.weights, rows)
    torch.testing.assert_close(whole, terms.sum(1))


def test_crossed_rows_are_drawn_and_read_other_positions() -> None:
    stack = mixed_stack()
    _, rows = rows_of(stack, batch=200)
    output = torch.arange(rows.reads.shape[1])[:, None]
    crossed = (rows.reads != output).any(1)
    assert crossed.any(1).all()  # every copy has moved outputs
    assert (~crossed).any(1).all()  # and outputs read at the same position


def test_position_loss_by_hand() -> None:
    stack = Stack([small(lookup())], [Copy(0, 0, 1e-2)], device=CPU)
    logits = torch.tensor([0.0, math.log(2), 0.0, 0.0, 0.0]).view(1, 5, 1, 1)
    loss = position_losses(stack, logits, torch.tensor([[[1.0]]]))
    assert float(loss) == pytest.approx(math.log(3))  # 2 of 6


def test_gradient_reaches_a_swapped_component_through_the_source_run_alone() -> None:
    stack = Stack([small(lookup())], [Copy(0, 0, 1e-2)], device=CPU)
    curriculum, rows = rows_of(stack)
    everywhere = torch.ones_like(rows.base_real)
    rows = rows._replace(base_real=everywhere, source_real=everywhere)
    loss = copy_losses(stack, curriculum, Weights(0, 1, 0), stack.weights, rows)
    (gradient,) = torch.autograd.grad(loss.sum(), stack.weights)
    # L0_MLP is replaced in every row at every position, so the base run does not depend on its weights.
    assert float(stack._views(gradient)["0.mlp_out"].abs().max()) > 1e-6


def test_strict_rows_have_the_stated_shares_and_spare_the_circuit() -> None:
    stack = mixed_stack()
    curriculum, rows = rows_of(stack, batch=20_000)
    assert not (rows.strict & ~curriculum.others[..., None]).any()
    n_others = curriculum.others.sum(1)[0]
    chosen = rows.strict[0].sum(0)
    by_halves = 0.4 * 0.5 ** int(n_others)
    assert float((chosen == n_others).float().mean()) == pytest.approx(0.3 + by_halves, abs=0.02)
    assert float((chosen == 1).float().mean()) == pytest.approx(0.3 + by_halves * int(n_others), abs=0.02)
    shares = [float((rows.strict_kind[0] == kind).float().mean()) for kind in (SOURCE, MEAN, ZERO)]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.02)


def test_weak_components_are_drawn_more_often() -> None:
    stack = mixed_stack()
    curriculum, _ = rows_of(stack)
    iia = torch.ones(len(stack), 4)
    iia[0, 1] = 0.75
    curriculum.adapt(iia)
    # Two components, each at the same position and moved. Half even: 1/4 each. Half by doubt, which is at least 0.01:
    # 0.1 to 0.5, so 1/8 and 5/8.
    assert float(curriculum.cumulative[0, 0]) == pytest.approx(0.5 / 4 + 0.5 / 8)
    # The inert slot of odd_places has a tenth of the weight of the other three.
    assert float(curriculum.cumulative[2, 0]) == pytest.approx(0.1 / 3.1)
    tables = tabulate(stack.settings, 40, seed=1, device=CPU)
    rows = draw_rows(stack, tables, curriculum, 20_000, torch.Generator().manual_seed(0))
    share = rows.swapped[0].float().mean(1)[stack.node(stack.settings[0].circuit[1])]
    # The doubted slot, and the same component moved.
    assert float(share) == pytest.approx((0.5 / 4 + 0.5 * 5 / 8) + (0.5 / 4 + 0.5 / 8), abs=0.02)
    assert (rows.swapped.sum(1) == 1).all()

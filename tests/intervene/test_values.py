"""Replacement values: means on paper, and the constant that makes "zero after folding" exact."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import EXACT, same_tensors
from tests.model.test_transformer import PROMPT, paper_model
from tests.models import configs, random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene import (
    Batch,
    Plan,
    Readout,
    Recordings,
    Row,
    Values,
    activations,
    all_logits,
    effects,
    means,
    run,
    zeros,
)
from vesalius.intervene.values import constant, value_bias
from vesalius.model import Component, Config, Transformer

#: Two prompts for the model on paper; the second is one token shorter.
PAPER = Batch(torch.tensor([[0, 1, 1], [1, 0, 0]]), torch.tensor([[True, True, True], [True, True, False]]))


def test_means_on_paper() -> None:
    # First prompt (worked out in test_transformer): z = 1, 2, 8/3; the MLP adds (0, 3 r) with r = 3, 2, 10/3.
    # Second prompt: residual (0, 2), (1, 0); v = 3, 1; z = 3, 2;
    #   after attention (6, 3), (5, 1); r = 4, 5; the MLP adds (0, 12), (0, 15).
    values = means(paper_model(), PAPER)
    assert values.z[0].shape == (1, 1, 1, 1)
    assert float(values.z[0]) == pytest.approx((1 + 2 + 8 / 3 + 3 + 2) / 5)
    assert values.mlp[0].flatten().tolist() == pytest.approx([0, (9 + 6 + 10 + 12 + 15) / 5])
    assert values.embed.flatten().tolist() == pytest.approx([(1 + 0 + 1 + 0 + 1) / 5, (0 + 2 + 3 + 2 + 0) / 5])


def test_means_at_each_position_on_paper() -> None:
    values = means(paper_model(), PAPER, per_position=True)
    assert values.z[0].flatten().tolist() == pytest.approx([(1 + 3) / 2, (2 + 2) / 2, 8 / 3])
    assert values.mlp[0][0, :, 1].tolist() == pytest.approx([(9 + 12) / 2, (6 + 15) / 2, 10])


def test_means_leave_the_pad_token_out() -> None:
    model = random_model(small_config(pad_token=16))
    tokens = torch.tensor([[3, 1, 4, 16], [1, 5, 9, 2]])
    by_token, by_mask = means(model, Batch(tokens)), means(model, Batch(tokens, tokens != 16))
    assert same_tensors(by_token.z[1], by_mask.z[1])
    assert same_tensors(by_token.embed, by_mask.embed)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(configs(), st.integers(0, 1000), st.booleans())
def test_means_in_portions_are_the_same_means(config: Config, seed: int, per_position: bool) -> None:
    model = random_model(config, seed).double()
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, config.d_vocab, (5, 4), generator=generator)
    batch = Batch(tokens, torch.arange(4)[None] < torch.randint(1, 5, (5, 1), generator=generator))
    whole, portions = (means(model, batch, per_position=per_position, rows=rows) for rows in (64, 2))
    for a, b in zip((*whole.z, *whole.mlp, whole.embed), (*portions.z, *portions.mlp, portions.embed), strict=True):
        assert torch.allclose(a, b, rtol=EXACT, atol=EXACT)


def folded(model: Transformer) -> Transformer:
    """The same function with the bias of ln1 folded into q, k and v, and the value biases into b_O.

    Attention weights add up to 1, so a constant in every value vector is a constant in z, and W_O takes it to b_O.
    """
    model = copy.deepcopy(model)
    for block in model.blocks:
        attn = block.attn
        if block.ln1.b is not None:
            attn.b_qkv.add_(block.ln1.b @ attn.qkv)
            block.ln1.b.zero_()
        for head in range(model.config.n_heads):
            attn.b_O += attn.b_V[head // model.config.queries_per_kv] @ attn.W_O[head]
        attn.b_V.zero_()
    return model


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(configs(), st.integers(0, 1000))
def test_value_bias_is_zero_after_folding(config: Config, seed: int) -> None:
    model = random_model(config, seed).double()
    plain = folded(model)
    tokens = torch.randint(0, config.d_vocab, (3, 5), generator=torch.Generator().manual_seed(seed))
    assert torch.allclose(model(tokens), plain(tokens), rtol=EXACT, atol=EXACT), "folding must not change the model"
    rows = [Row(p, {component: 0}) for p in range(3) for component in model.components]
    plan = Plan.of(config, rows, width=5)
    raw = run(Recordings(model, Batch(tokens), all_logits()), plan, value_bias(model))
    literal = run(Recordings(plain, Batch(tokens), all_logits()), plan, zeros(plain))
    assert (raw - literal).abs().max() <= EXACT * max(1.0, float(literal.abs().max()))


def test_value_bias_differs_from_plain_zero_where_there_are_biases() -> None:
    model = random_model(small_config(norm="layer"))
    batch = Batch(torch.tensor([[1, 2, 3]]))
    readout = Readout(lambda logits, prompt: logits[:, -1, 0])
    by_kind = {kind: effects(model, batch, readout, kind=kind).matrix for kind in ("zero", "value-bias")}
    assert (by_kind["zero"] - by_kind["value-bias"]).abs().max() > 0.01


def test_constants() -> None:
    model = random_model(small_config())
    vector = torch.tensor([1.0, 2.0, 3.0, 4.0])
    values = constant(model, {"L1H2": vector, Component(0): torch.arange(12.0)})  # type: ignore[dict-item]
    assert values.z[1][0, 0, 2].tolist() == [1, 2, 3, 4]
    assert values.mlp[0][0, 0].tolist() == list(range(12))
    assert sum(float(t.abs().sum()) for t in (*values.z, *values.mlp, values.embed)) == 10 + 66
    with pytest.raises(BadInput, match=r"constant for L0H0 has shape \(3,\); expected \[4\]"):
        constant(model, {Component(0, 0): torch.zeros(3)})
    with pytest.raises(BadInput, match="not in this model"):
        constant(model, {Component(5): torch.zeros(12)})


def test_activations_are_the_models_own() -> None:
    values = activations(paper_model(), Batch(PROMPT))
    assert torch.allclose(values.z[0][0, :, 0, 0], torch.tensor([1, 2, 8 / 3]))
    assert torch.allclose(values.mlp[0][0, :, 1], torch.tensor([9.0, 6.0, 10.0]))  # b_out = (0, -1) is left out
    assert values.embed[0].tolist() == [[1, 0], [0, 2], [1, 3]]


def test_stacked_tables_count_on() -> None:
    model = paper_model()
    table = zeros(model).stack(activations(model, Batch(PROMPT)), means(model, PAPER))
    assert len(table) == 3
    assert table.z[0].shape == (3, 3, 1, 1)
    assert table.z[0][:, :, 0, 0].tolist()[0] == [0, 0, 0]
    assert table.z[0][2, :, 0, 0].tolist() == pytest.approx([32 / 15] * 3)
    wide = activations(model, Batch(PROMPT[:, :2]))
    with pytest.raises(BadInput, match="tables of 2 and 3 positions cannot be stacked"):
        table.stack(wide)


def test_what_a_run_refuses() -> None:
    model = random_model(small_config())
    recordings = Recordings(model, Batch(torch.tensor([[1, 2, 3]])), all_logits())

    def refused(row: Row, values: Values, reason: str) -> None:
        with pytest.raises(BadInput, match=reason):
            run(recordings, Plan.of(model.config, [row], width=3), values)

    refused(Row(1, {"L0H0": 0}), zeros(model), "prompt 1 is outside the batch of 1")
    refused(Row(0, {"L0H0": 1}), zeros(model), "choice 1 is outside the table of 1")
    refused(Row(0, edges={"a0.h0->m1": 4}), zeros(model), "choice 4 is outside the table of 1")
    refused(Row(0, {"L0H0": 0}), activations(model, Batch(torch.tensor([[1, 2]]))), "have 2 positions, the prompts 3")
    refused(Row(0, {"L0H0": 0}), zeros(random_model(small_config(d_head=2))), "a model of another shape")
    refused(Row(0, {"L2H0": 0}), zeros(model), "not in this model")
    refused(Row(0, {"L0H0": 0}, positions=[3]), zeros(model), r"positions \[3\] do not fit prompts of 3 tokens")
    refused(Row(0, {"L0H0": 0}, positions=[]), zeros(model), r"positions \[\] do not fit")
    with pytest.raises(BadInput, match="list of interventions is empty"):
        Plan.of(model.config, [], width=3)
    with pytest.raises(BadInput, match="list of prompts is empty"):
        Recordings(model, Batch(torch.zeros(0, 3, dtype=torch.long)), all_logits())
    with pytest.raises(BadInput, match="batch to take means over is empty"):
        means(model, Batch(torch.zeros(0, 3, dtype=torch.long)))

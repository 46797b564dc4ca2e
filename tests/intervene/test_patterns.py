"""Attention patterns that are set row by row equal one plain hooked forward for each row."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.closeness import EXACT
from tests.models import STRUCTURES, configs, random_model, small_config
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Plan, Readout, Recordings, Row, activations, all_logits, run
from vesalius.intervene.patterns import PatternEdits, own_patterns
from vesalius.model import Component, Config, Transformer


def random_patterns(n: int, width: int, *, causal: bool, seed: int) -> torch.Tensor:
    scores = torch.randn(n, width, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    if causal:
        scores = scores.masked_fill(torch.ones(width, width).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


def by_hooks(
    model: Transformer,
    batch: Batch,
    row: Row,
    values,
    patterns: dict[Component, torch.Tensor],
    read: dict[Component, torch.Tensor],
) -> torch.Tensor:
    """The logits of one row, with hooks on z: what is set is computed from the values that the run itself has."""
    mask = None if batch.mask is None else batch.mask[row.prompt][None]
    seen: dict[int, torch.Tensor] = {}
    hooks = []
    for layer, block in enumerate(model.blocks):

        def keep(v: torch.Tensor, hook: object, layer: int = layer) -> None:
            seen[layer] = v[0]

        def change(z: torch.Tensor, hook: object, layer: int = layer) -> torch.Tensor:
            z = z.clone()
            for head, pattern in patterns.items():
                if head.layer == layer:
                    own = seen[layer][:, head.head // (model.config.n_heads // seen[layer].shape[1])]
                    z[0, :, head.head] = pattern @ read.get(head, own)
            for name, k in row.edits.items():
                if name.layer == layer and name.head is not None:
                    z[0, :, name.head] = values.z[layer][k, :, name.head]
            return z

        def mlp(out: torch.Tensor, hook: object, layer: int = layer, block=block) -> torch.Tensor:
            for name, k in row.edits.items():
                if name.layer == layer and name.head is None:
                    out = (values.mlp[layer][k] + block.mlp_bias)[None]
            return out

        hooks += [
            (f"blocks.{layer}.attn.hook_v", keep),
            (f"blocks.{layer}.attn.hook_z", change),
            (f"blocks.{layer}.hook_mlp_out", mlp),
        ]
    return model.run_with_hooks(batch.tokens[row.prompt][None], fwd_hooks=hooks, mask=mask)[0]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(configs(), st.integers(0, 2**20))
def test_every_row_equals_its_naive_twin(config: Config, seed: int) -> None:
    """Heads with set patterns, some reading given values, among components that are replaced; narrow readouts too."""
    rng, width = random.Random(seed), 5
    model = random_model(config, seed).double()
    tokens = torch.randint(0, config.d_vocab, (3, width), generator=torch.Generator().manual_seed(seed))
    batch = Batch(tokens)
    values = activations(model, Batch(tokens.flip(0)))
    table = random_patterns(4, width, causal=config.causal, seed=seed)
    vectors = torch.randn(2, width, config.d_head, generator=torch.Generator().manual_seed(seed + 1)).double()
    heads = [part for part in model.components if part.is_head]
    rows, given_rows, read_rows = [], [], []
    for _ in range(6):
        parts = rng.sample(model.components, min(len(model.components), rng.randint(0, 4)))
        rows.append(Row(rng.randrange(3), edits={part: rng.randrange(3) for part in parts}))
        chosen = rng.sample(heads, min(len(heads), rng.randint(0, 3)))
        given_rows.append({head: rng.randrange(4) for head in chosen})
        read_rows.append({head: rng.randrange(2) for head in chosen if rng.random() < 0.3})
    plan = Plan.of(config, rows, width=width)
    edits = PatternEdits.of(config, given_rows, table, read=vectors, values=read_rows)
    plan = Plan(plan.prompt, plan.choice, patterns=edits)
    expected = torch.stack(
        [
            by_hooks(
                model,
                batch,
                row,
                values,
                {head: table[k] for head, k in patterns.items()},
                {head: vectors[k] for head, k in read.items()},
            )
            for row, patterns, read in zip(rows, given_rows, read_rows, strict=True)
        ]
    )
    memory = rng.choice([1, 10_000, 2**30])
    scale = max(1.0, float(expected.abs().max()))
    logits = run(Recordings(model, batch, all_logits(), memory=memory), plan, values, memory=memory)
    assert (logits - expected).abs().max() <= EXACT * scale

    at = torch.tensor([[1], [2], [3]])
    narrow = Readout(lambda logits, prompt: logits, at)
    logits = run(Recordings(model, batch, narrow, memory=memory), plan, values, memory=memory)
    picked = expected[torch.arange(6)[:, None], at[plan.prompt]]
    assert (logits - picked).abs().max() <= EXACT * scale


def test_setting_the_pattern_that_a_head_has_changes_nothing() -> None:
    model = random_model(small_config()).double()
    batch = Batch(torch.randint(0, model.config.d_vocab, (2, 6), generator=torch.Generator().manual_seed(0)))
    heads = [part for part in model.components if part.is_head]
    own = own_patterns(model, batch, heads)
    table = torch.cat([own[head] for head in heads])
    rows = [{head: 2 * place + prompt for place, head in enumerate(heads)} for prompt in range(2)]
    plan = Plan(torch.arange(2), torch.full((2, len(model.components)), -1))
    plan = Plan(plan.prompt, plan.choice, patterns=PatternEdits.of(model.config, rows, table))
    recordings = Recordings(model, batch, all_logits())
    changed = run(recordings, plan, activations(model, batch))
    assert (changed - recordings.scores()).abs().max() <= EXACT * float(changed.abs().max())


def test_a_row_that_only_sets_a_pattern_is_computed_from_its_first_token() -> None:
    """Counterfactual prompts that nothing is taken from begin like the row's own, and say nothing of its pattern."""
    model = random_model(small_config(n_layers=3, d_model=48, d_head=12)).double()
    tokens = torch.randint(0, model.config.d_vocab, (2, 6), generator=torch.Generator().manual_seed(0))
    batch, other = Batch(tokens), tokens.clone()
    other[:, 4] = (other[:, 4] + 1) % model.config.d_vocab
    table = random_patterns(2, 6, causal=True, seed=3)
    rows = [Row(0), Row(1), Row(1, edits={Component(1, 0): 1})]
    patterns = [{Component(0, 1): 0}, {Component(1, 2): 1}, {Component(0, 1): 1}]
    values = activations(model, Batch(other))
    plan = Plan.of(model.config, rows, width=6)
    plan = Plan(plan.prompt, plan.choice, patterns=PatternEdits.of(model.config, patterns, table))
    last = Readout(lambda logits, prompt: logits, torch.tensor([[5], [5]]))
    logits = run(Recordings(model, batch, last), plan, values)
    for row, edits, found in zip(rows, patterns, logits, strict=True):
        expected = by_hooks(model, batch, row, values, {head: table[k] for head, k in edits.items()}, {})
        assert (found[0] - expected[5]).abs().max() <= EXACT * float(expected.abs().max())


@pytest.mark.parametrize("name", ["plain", "own-rotations", "windows", "head-norms", "soft-caps", "sinks"])
def test_patterns_of_runs_that_were_made_are_those_of_a_new_run(name: str) -> None:
    """Every head on padded prompts, from recordings that are kept and from some that are made chunk by chunk."""
    model = random_model(small_config(**STRUCTURES.get(name, {})))
    tokens = torch.randint(0, model.config.d_vocab, (4, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[1, 4:] = False
    batch, heads = Batch(tokens, mask), [part for part in model.components if part.is_head]
    own = own_patterns(model, batch, heads)
    last = Readout(lambda logits, _: logits[:, 0, 0], mask.sum(1, keepdim=True) - 1)
    for memory in (1, 2**30):
        again = Recordings(model, batch, last, memory=memory).patterns(heads)
        assert list(again) == heads
        assert max(float((again[head] - own[head]).abs().max()) for head in heads) < 1e-6


def test_only_marked_queries_are_set() -> None:
    """A pattern at the first query only: every later head of the same layer writes what it wrote."""
    model = random_model(small_config(n_layers=1)).double()
    batch = Batch(torch.randint(0, model.config.d_vocab, (1, 4), generator=torch.Generator().manual_seed(0)))
    head = Component(0, 1)
    table = torch.eye(4, dtype=torch.float64)[None].roll(1, 1)  # each query reads the one before, the first the last
    table[0, 0] = torch.tensor([1.0, 0, 0, 0])
    where = torch.tensor([[False, False, True, False]])
    edits = PatternEdits.of(model.config, [{head: 0}], table)
    plan = Plan(torch.zeros(1, dtype=torch.long), torch.full((1, len(model.components)), -1), where, patterns=edits)
    recordings = Recordings(model, batch, all_logits())
    moved = (run(recordings, plan, activations(model, batch)) - recordings.scores()).abs().amax(-1)[0]
    assert (moved > 1e-6).tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table[:, :3, :3], "3x3"),
        (lambda table: table * 2, "sum to 1"),
        (lambda table: table.flip(2), "looks ahead"),
    ],
)
def test_patterns_that_cannot_be_are_refused(change, said) -> None:
    model = random_model(small_config()).double()
    batch = Batch(torch.zeros(1, 4, dtype=torch.long))
    edits = PatternEdits.of(model.config, [{Component(0, 0): 0}], change(torch.eye(4, dtype=torch.float64)[None]))
    plan = Plan(torch.zeros(1, dtype=torch.long), torch.full((1, len(model.components)), -1), patterns=edits)
    with pytest.raises(BadInput, match=said):
        run(Recordings(model, batch, all_logits()), plan, activations(model, batch))


def test_where_sinks_take_a_share_patterns_may_sum_to_less() -> None:
    """Own patterns leave everything as it is; half of one halves what the head writes; more than 1 cannot be."""
    model = random_model(small_config(sinks=True)).double()
    batch = Batch(torch.tensor([[1, 5, 3, 9]]))
    head, recordings = Component(1, 2), Recordings(model, batch, all_logits())
    own = own_patterns(model, batch, [head])[head]
    assert float(own.sum(-1).max()) < 0.95

    def with_pattern(table: torch.Tensor) -> torch.Tensor:
        edits = PatternEdits.of(model.config, [{head: 0}], table)
        plan = Plan(torch.zeros(1, dtype=torch.long), torch.full((1, len(model.components)), -1), patterns=edits)
        return run(recordings, plan, activations(model, batch))

    assert torch.allclose(with_pattern(own), recordings.scores(), rtol=1e-9, atol=1e-12)

    def halve(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, 2] /= 2
        return z

    halved = model.run_with_hooks(batch.tokens, fwd_hooks=[("blocks.1.attn.hook_z", halve)])
    assert torch.allclose(with_pattern(own / 2), halved, rtol=1e-9, atol=1e-12)
    with pytest.raises(BadInput, match="sum to more than 1"):
        with_pattern(own * 4)


def test_an_mlp_has_no_pattern() -> None:
    with pytest.raises(BadInput, match="L0_MLP is an MLP"):
        PatternEdits.of(small_config(), [{Component(0): 0}], torch.eye(4)[None])

"""The engine equals one plain hooked forward per intervention, whatever the model and the intervention."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.closeness import EXACT, same_tensors
from tests.intervene.twin import naive_logits, naive_run
from tests.models import configs, random_model, small_config
from vesalius.components import Edge, _feeds
from vesalius.intervene import (
    Batch,
    Plan,
    Readout,
    Recordings,
    Row,
    activations,
    all_logits,
    component_values,
    engine,
    means,
    run,
    run_with_outputs,
    zeros,
)
from vesalius.intervene.values import value_bias
from vesalius.model import Component, Config, Transformer

ROWS_PER_EXAMPLE = 12


def written(model: Transformer, component: Component, output: torch.Tensor) -> torch.Tensor:
    """What a component with this output adds to the residual stream where no norm follows attention."""
    return output if component.head is None else output @ model.blocks[component.layer].attn.W_O[component.head]


def every_edge(config: Config) -> list[Edge]:
    components = [Component(layer, head) for layer in range(config.n_layers) for head in [*range(config.n_heads), None]]
    edges = [Edge(sender, None, "logits") for sender in [None, *components]]
    for receiver in components:
        ports = "qkv" if receiver.is_head else ["mlp"]
        reads = [c for c in components if _feeds(c, receiver) and not (config.parallel and c.layer == receiver.layer)]
        senders = [None, *reads]
        edges += [Edge(sender, receiver, port) for sender in senders for port in ports]
    return edges


def random_rows(config: Config, n_prompts: int, width: int, n_values: int, rng: random.Random) -> list[Row]:
    components = [Component(layer, head) for layer in range(config.n_layers) for head in [*range(config.n_heads), None]]
    edges = every_edge(config)
    rows = []
    for _ in range(ROWS_PER_EXAMPLE):
        size, cuts = rng.choice([(1, 0), (2, 0), (3, 0), (0, 1), (0, 3), (2, 2), (0, 0)])
        rows.append(
            Row(
                prompt=rng.randrange(n_prompts),
                edits={c: rng.randrange(n_values) for c in rng.sample(components, min(size, len(components)))},
                edges={e: rng.randrange(n_values) for e in rng.sample(edges, min(cuts, len(edges)))},
                positions=rng.sample(range(width), rng.randint(1, width)) if rng.random() < 0.4 else None,
            )
        )
    return rows


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(configs(), st.integers(0, 2**20))
def test_every_row_equals_its_naive_twin(config: Config, seed: int) -> None:
    """1,200 random interventions: heads, MLPs, pairs, sets, paths; zero, constant, mean, patched; padded; chunked."""
    rng = random.Random(seed)
    model = random_model(config, seed).double()
    width = rng.randint(2, 7)
    tokens = torch.randint(0, config.d_vocab, (3, width), generator=torch.Generator().manual_seed(seed))
    mask = None
    if rng.random() < 0.5:
        mask = torch.ones(3, width, dtype=torch.bool)
        mask[1, : rng.randint(1, width - 1)] = False
        mask[2, rng.randint(1, width - 1) :] = False
    batch = Batch(tokens, mask)
    other = Batch(tokens.flip(0), mask)
    values = zeros(model).stack(value_bias(model), means(model, batch), activations(model, other))
    rows = random_rows(config, 3, width, len(values), rng)
    expected = torch.stack([naive_logits(model, batch, row, values) for row in rows])
    plan = Plan.of(config, rows, width=width)
    memory = rng.choice([1, 10_000, 2**30])
    real = torch.ones(3, width, dtype=torch.bool) if mask is None else mask
    seen = real[plan.prompt][..., None]
    logits = run(Recordings(model, batch, all_logits(), memory=memory), plan, values, memory=memory)
    assert ((logits - expected) * seen).abs().max() <= EXACT * max(1.0, float(expected.abs().max()))

    at = torch.stack([torch.tensor(sorted(rng.sample(real[p].nonzero()[:, 0].tolist() * 2, 2))) for p in range(3)])
    choose = torch.randint(0, config.d_vocab_out, (3, 2), generator=torch.Generator().manual_seed(seed + 1))
    narrow = Readout(lambda logits, prompt: logits, at, choose)
    logits = run(Recordings(model, batch, narrow, memory=memory), plan, values, memory=memory)
    picked = expected[torch.arange(len(rows))[:, None], at[plan.prompt]].gather(
        2, choose[plan.prompt][:, None].expand(-1, 2, -1)
    )
    assert (logits - picked).abs().max() <= EXACT * max(1.0, float(expected.abs().max()))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(configs(), st.integers(0, 2**20))
def test_kept_outputs_are_those_of_the_naive_twin(config: Config, seed: int) -> None:
    rng, model = random.Random(seed), random_model(config, seed).double()
    tokens = torch.randint(0, config.d_vocab, (3, 5), generator=torch.Generator().manual_seed(seed))
    batch = Batch(tokens)
    values = zeros(model).stack(activations(model, Batch(tokens.flip(0))))
    rows = random_rows(config, 3, 5, len(values), rng)
    kept = rng.sample(model.components, min(3, len(model.components)))
    memory = rng.choice([1, 10_000, 2**30])
    recordings, plan = Recordings(model, batch, all_logits(), memory=memory), Plan.of(config, rows, width=5)
    logits, outputs = run_with_outputs(recordings, plan, values, kept, memory=memory)
    assert same_tensors(logits, run(recordings, plan, values, memory=memory))
    assert list(outputs) == kept
    for i, row in enumerate(rows):
        _, expected = naive_run(model, batch, row, values)
        for component in kept:
            seen = written(model, component, outputs[component][i])
            assert (seen - expected[component]).abs().max() <= EXACT * max(1.0, float(expected[component].abs().max()))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(configs(), st.integers(0, 2**20))
def test_one_component_with_a_value_and_positions_for_every_row(config: Config, seed: int) -> None:
    rng, model, generator = (
        random.Random(seed),
        random_model(config, seed).double(),
        torch.Generator().manual_seed(seed),
    )
    batch = Batch(torch.randint(0, config.d_vocab, (3, 4), generator=generator))
    component = rng.choice(model.components)
    output = torch.randn(6, 4, config.d_head if component.is_head else config.d_model, generator=generator).double()
    where = torch.rand(6, 4, generator=generator) < 0.5
    where[:, 0] = True
    prompts = torch.randint(0, 3, (6,), generator=generator)
    table = component_values(model, component, output)
    plan = Plan.each(config, prompts, component, positions=where)
    logits = run(Recordings(model, batch, all_logits()), plan, table)
    for i, prompt in enumerate(prompts.tolist()):
        row = Row(prompt, edits={component: i}, positions=where[i].nonzero()[:, 0].tolist())
        expected = naive_logits(model, batch, row, table)
        assert (logits[i] - expected).abs().max() <= EXACT * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("at", [None, torch.tensor([[1, 3], [0, 4], [2, 2]])])
def test_logits_that_are_read_some_rows_at_a_time_are_the_same(
    at: Tensor | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(small_config(), 5)
    batch = Batch(torch.randint(0, 17, (3, 5), generator=torch.Generator().manual_seed(1)))
    plan = Plan.grid(model.config, [[part] for part in model.components], choices=torch.zeros(3, dtype=torch.long))

    def read() -> Tensor:
        return run(Recordings(model, batch, Readout(lambda logits, prompt: logits[:, -1], at)), plan, zeros(model))

    whole = read()
    for rows in (1, 2):
        monkeypatch.setattr(engine, "LOGITS_MEMORY", rows * (5 if at is None else 2) * 17 * 4)
        assert torch.allclose(read(), whole, atol=EXACT)


def test_recorded_outputs_are_those_of_a_cached_run() -> None:
    model = random_model(small_config())
    tokens = torch.randint(0, 17, (5, 6), generator=torch.Generator().manual_seed(0))
    _, cache = model.run_with_cache(tokens)
    for memory in (1, 2**30):
        recordings = Recordings(model, Batch(tokens), all_logits(), memory=memory)
        for component, output in recordings.outputs(model.components).items():
            assert torch.allclose(written(model, component, output), cache.component(component), atol=1e-5)
        for layer in range(2):
            assert torch.allclose(recordings.resid(layer), cache[f"blocks.{layer}.hook_resid_pre"], atol=1e-5)


def test_the_edge_list_of_the_test_is_complete() -> None:
    """GPT-2 small has 32,491 edges (counted independently of this code in the literature)."""
    config = small_config(n_layers=12, n_heads=12, n_kv_heads=12)
    assert len(every_edge(config)) == 32_491

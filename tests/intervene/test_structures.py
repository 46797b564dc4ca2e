"""Each structure of the model families: interventions against hooked runs, contributions against what was written."""

import random

import pytest
import torch

from tests.intervene.pairs import engine_scores, prompt_pairs
from tests.intervene.test_engine import every_edge, random_rows
from tests.intervene.twin import naive_logits, share_of
from tests.models import STRUCTURES, random_model, small_config
from vesalius.components import Component, Edge
from vesalius.errors import BadInput
from vesalius.intervene import (
    Batch,
    Plan,
    Readout,
    Recordings,
    Row,
    activations,
    all_logits,
    attribute,
    means,
    run,
    zeros,
)
from vesalius.intervene.ablations import Replacement
from vesalius.intervene.attribution import edge_attribution
from vesalius.intervene.edges import EdgeGraph, SenderRecordings, run_edge_masks
from vesalius.intervene.probes import HeadInputs
from vesalius.intervene.recordings import DEFAULT_MEMORY, Recording, memory_for
from vesalius.intervene.values import contribution
from vesalius.model import Transformer

WIDTH = 5


def model_of(name: str, seed: int = 3) -> Transformer:
    """In float64: experts are chosen by comparison, and a rounding error must not change the choice."""
    return random_model(small_config(**STRUCTURES[name]), seed).double()


def padded_batch(model: Transformer, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.ones(3, WIDTH, dtype=torch.bool)
    mask[1, :2], mask[2, 4:] = False, False
    return Batch(torch.randint(0, model.config.d_vocab, (3, WIDTH), generator=generator), mask)


@pytest.mark.parametrize("name", STRUCTURES)
def test_every_row_equals_its_naive_twin(name: str) -> None:
    model, rng = model_of(name), random.Random(7)
    batch = padded_batch(model)
    values = zeros(model).stack(means(model, batch), activations(model, Batch(batch.tokens.flip(0), batch.mask)))
    rows = random_rows(model.config, 3, WIDTH, len(values), rng) + random_rows(model.config, 3, WIDTH, len(values), rng)
    expected = torch.stack([naive_logits(model, batch, row, values) for row in rows])
    plan = Plan.of(model.config, rows, width=WIDTH)
    for memory in (1, 2**30):
        logits = run(Recordings(model, batch, all_logits(), memory=memory), plan, values, memory=memory)
        assert (logits - expected).abs().max() <= 1e-9 * max(1.0, float(expected.abs().max()))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_every_edge_alone_is_path_patching_by_hooks(name: str) -> None:
    """The exact effect of each edge, by the engine and under a mask, at the readout's positions only."""
    model = model_of(name)
    batch, other, readout = prompt_pairs(model.config, 3)
    edges, values = every_edge(model.config), activations(model, other)
    graph = EdgeGraph.of(model.config)
    assert set(graph.edges) == set(edges)
    chosen = [edges[i] for i in torch.randperm(len(edges), generator=torch.Generator().manual_seed(1))[:10].tolist()]
    cut = torch.zeros(len(chosen), *graph.real.shape, dtype=torch.bool)
    for mask, edge in zip(cut, chosen, strict=True):
        mask[tuple(graph.places[graph.edges.index(edge)])] = True
    masked = run_edge_masks(SenderRecordings(model, batch, readout, counterfactual=other), cut)
    for edge, under_mask in zip(chosen, masked, strict=True):
        rows = [Row(prompt, edges={edge: prompt}) for prompt in range(3)]
        logits = torch.stack([naive_logits(model, batch, row, values) for row in rows])
        at, choose = readout.at, readout.choose
        picked = logits[torch.arange(3)[:, None], at].gather(2, choose[:, None])
        expected = readout.score(picked, torch.arange(3))
        assert torch.allclose(engine_scores(model, batch, readout, other, [edge]), expected, rtol=1e-9, atol=1e-9)
        assert torch.allclose(under_mask, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", STRUCTURES)
def test_many_edges_under_a_mask_are_those_of_the_engine(name: str) -> None:
    model = model_of(name)
    batch, other, readout = prompt_pairs(model.config, 5)
    graph = EdgeGraph.of(model.config)
    cut = (torch.rand(2, *graph.real.shape, generator=torch.Generator().manual_seed(2)) < 0.5) & graph.real
    masked = run_edge_masks(SenderRecordings(model, batch, readout, counterfactual=other), cut)
    for mask, scores in zip(cut, masked, strict=True):
        edges = [edge for edge, (s, r) in zip(graph.edges, graph.places.tolist(), strict=True) if mask[s, r]]
        assert torch.allclose(scores, engine_scores(model, batch, readout, other, edges), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", STRUCTURES)
def test_contributions_sum_to_what_was_written(name: str) -> None:
    model, batch = model_of(name), padded_batch(model_of(name))
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
    values = activations(model, batch)
    for layer, block in enumerate(model.blocks):
        shares = block.shares(cache[f"blocks.{layer}.attn.hook_z"])
        if block.ln1_post.w is None:
            bias = block.attn.b_O
        else:  # the output bias passes the norm as well, at the same scale
            whole = cache[f"blocks.{layer}.attn.hook_result"].sum(2) + block.attn.b_O
            bias = block.ln1_post.share(block.attn.b_O, block.ln1_post.scale(whole))
            bias = bias if block.ln1_post.b is None else bias + block.ln1_post.b
        written = cache[f"blocks.{layer}.hook_attn_out"]
        assert torch.allclose(shares.sum(2) + bias, written, rtol=1e-9, atol=1e-9)
        for head in range(model.config.n_heads):
            by_hand = torch.stack([share_of(block, z, head) for z in cache[f"blocks.{layer}.attn.hook_z"]])
            assert torch.allclose(shares[:, :, head], by_hand, rtol=1e-9, atol=1e-12)
            assert torch.allclose(cache.component(Component(layer, head)), by_hand, rtol=1e-9, atol=1e-12)
            assert torch.allclose(contribution(model, Component(layer, head), values), by_hand, rtol=1e-9, atol=1e-9)
        mlp = cache.component(Component(layer)) + block.mlp_bias
        assert torch.allclose(mlp, cache[f"blocks.{layer}.hook_mlp_out"], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURES)
def test_edge_attribution_is_the_slope_of_the_path(name: str) -> None:
    """Move the input of one receiver a little way along what one sender's change would add to it."""
    model, step = model_of(name), 1e-6
    batch, other, readout = prompt_pairs(model.config, 3)
    graph, n_layers = EdgeGraph.of(model.config), model.config.n_layers
    scores = edge_attribution(model, batch, readout, counterfactual=other)
    tables = activations(model, batch), activations(model, other)

    def change(sender: Component | None) -> torch.Tensor:
        clean, corrupt = (v.embed if sender is None else contribution(model, sender, v) for v in tables)
        return corrupt - clean

    def moved(edge: Edge, size: float) -> torch.Tensor:
        receiver, shift = edge.receiver, size * change(edge.sender)
        names = {"mlp": "hook_mlp_in", "logits": "hook_resid_post"}
        layer = n_layers - 1 if receiver is None else receiver.layer
        name = f"blocks.{layer}.{names.get(edge.port, f'hook_{edge.port}_input')}"

        def add(value: torch.Tensor, hook: object) -> torch.Tensor:
            value = value.clone()
            if receiver is not None and receiver.head is not None:
                value[:, :, receiver.head] += shift
                return value
            return value + shift

        logits = model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=[(name, add)])
        picked = logits[torch.arange(3)[:, None], readout.at].gather(2, readout.choose[:, None])
        return readout.score(picked, torch.arange(3))

    picked = torch.randperm(len(graph.edges), generator=torch.Generator().manual_seed(4))[:20].tolist()
    for i in picked:
        edge, (sender, receiver) = graph.edges[i], graph.places[i].tolist()
        slope = -(moved(edge, step) - moved(edge, -step)) / (2 * step)
        assert torch.allclose(scores[:, sender, receiver], slope, rtol=1e-4, atol=1e-6), str(edge)


@pytest.mark.parametrize("name", STRUCTURES)
def test_component_attribution_is_a_slope_too(name: str) -> None:
    model = model_of(name)
    batch, other, readout = prompt_pairs(model.config, 2)
    near, share = activations(model, batch), 1e-6
    far = activations(model, other)
    mixed = type(near)(
        tuple(a + share * (b - a) for a, b in zip(near.z, far.z, strict=True)),
        tuple(a + share * (b - a) for a, b in zip(near.mlp, far.mlp, strict=True)),
        near.embed,
    )
    estimate = attribute(model, batch, readout, Replacement(far, torch.arange(3)))
    recordings = Recordings(model, batch, readout)
    plan = Plan.grid(model.config, [(c,) for c in model.components], choices=torch.arange(3))
    edited = run(recordings, plan, mixed).view(len(model.components), 3).T
    slopes = (recordings.scores()[:, None] - edited) / share
    assert torch.allclose(estimate, slopes, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_head_taken_apart_attends_as_it_does_in_the_model(name: str) -> None:
    model, batch = model_of(name), padded_batch(model_of(name))
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
    for component in (Component(0, 3), Component(1, 0)):
        resid = cache[f"blocks.{component.layer}.hook_resid_pre"]
        pattern = HeadInputs(model, batch, resid, component).pattern()
        expected = cache[f"blocks.{component.layer}.attn.hook_pattern"][:, component.head]
        assert torch.allclose(pattern, expected, rtol=1e-9, atol=1e-12)


def test_restarts_and_chosen_positions_in_every_structure() -> None:
    for name in STRUCTURES:
        model = model_of(name)
        batch = padded_batch(model)
        logits, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
        resid = cache["blocks.1.hook_resid_pre"]
        again = model(batch.tokens, mask=batch.mask, start_layer=1, resid=resid)
        at = torch.tensor([[4, 0], [3, 4], [1, 2]])
        chosen = model(batch.tokens, mask=batch.mask, at=at)
        assert torch.allclose(again, logits, rtol=1e-9, atol=1e-12)
        assert torch.allclose(chosen, logits[torch.arange(3)[:, None], at], rtol=1e-9, atol=1e-12)


def test_memory_is_what_was_asked_for_or_what_a_gpu_has_free(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    assert memory_for(cpu, None) == DEFAULT_MEMORY == 512 * 2**20
    assert memory_for(gpu, 7) == 7
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * 2**30, 80 * 2**30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 6 * 2**30)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1 * 2**30)
    assert memory_for(gpu, None) == int(0.4 * 15 * 2**30), "free, and reserved but not in use"


def test_a_parallel_block_has_no_edges_from_its_heads_to_its_mlp() -> None:
    sequential, parallel = EdgeGraph(2, 4), EdgeGraph.of(model_of("parallel").config)
    assert len(sequential.edges) - len(parallel.edges) == 2 * 4
    with pytest.raises(BadInput, match="its blocks are parallel"):
        Edge.parse("a1.h0->m1").within(model_of("parallel").config)


def test_the_routers_choice_is_recorded() -> None:
    model = model_of("experts")
    batch = padded_batch(model)
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
    scores, chosen = cache["blocks.1.mlp.hook_router"], cache["blocks.1.mlp.hook_expert_indices"]
    weights = cache["blocks.1.mlp.hook_expert_weights"]
    assert torch.equal(scores.argmax(-1), chosen[..., 0])
    assert torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0]))
    probabilities = scores.softmax(-1).gather(-1, chosen)
    assert torch.allclose(weights, probabilities / probabilities.sum(-1, keepdim=True))


@pytest.mark.parametrize("name", ["norms-after", "norms-before-and-after", "parallel"])
def test_a_recording_of_a_cached_run_is_the_one_that_is_made(name: str) -> None:
    model = model_of(name)
    batch = padded_batch(model)
    readout = Readout(lambda logits, prompt: logits[:, 0], torch.tensor([[4], [3], [1]]))
    _, cache = model.run_with_cache(batch.tokens, mask=batch.mask)
    made, kept = Recording.make(model, batch, readout), Recording.of_run(model, batch, readout, cache)
    for part in ("pre", "z", "mid", "mlp"):
        for one, other in zip(getattr(made, part), getattr(kept, part), strict=True):
            assert torch.allclose(one, other, rtol=1e-9, atol=1e-12)
    assert torch.allclose(made.final, kept.final, rtol=1e-9, atol=1e-12)
    recordings = Recordings(model, batch, readout, ran=lambda: kept)
    assert torch.allclose(recordings.scores(), model(batch.tokens, mask=batch.mask)[range(3), [4, 3, 1]], rtol=1e-9)
    assert recordings.n_run == 0

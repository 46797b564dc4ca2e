"""Relevance patching: the numbers of a model worked by hand, and the conservation of relevance in every family."""

from math import log

import pytest
import torch

from tests.intervene.hand_worked import hand_worked
from tests.models import STRUCTURES, random_model, small_config
from vesalius.components import Component, Edge, mlp_units
from vesalius.intervene import Batch, Recordings, ablation_named, attribute, attribute_units
from vesalius.intervene.attribution import Rule, edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.readout import logit_difference
from vesalius.model import Transformer
from vesalius.model.hooks import HookPoint

EDGES = {
    "input->a0.h0<v>": -0.4,  # change (0, 2) at the first position, times W_V (10/3, 28/3) times -1/35 times 3/4
    "input->a0.h0<k>": 0.0,
    "a0.h0->m1": 2.4,  # change (0, 14) times 6/35
    "a0.h0->logits": -2.8,  # times -1/5
    "m1->logits": 4.8,  # change (12, -12) times (1/5, -1/5)
    "input->logits": 0.0,
}


def test_edges_worked_by_hand() -> None:
    model, batch, other, readout = hand_worked()
    assert float(Recordings(model, batch, readout).scores()) == pytest.approx(1.2)
    graph = EdgeGraph.of(model.config)
    scores = edge_attribution(model, batch, readout, counterfactual=other, rule="relp")
    by_edge = graph.by_edge(scores[0])
    assert {name: by_edge[Edge.parse(name)] for name in EDGES} == pytest.approx(EDGES, abs=1e-9)
    by_hand = {Edge.parse(name) for name in EDGES}
    assert all(abs(score) < 1e-9 for edge, score in by_edge.items() if edge not in by_hand)
    # The pattern's own slope: z moves by p (1 - p) (38/3 + 6) = 7/2 per key, the key by ln 3, all times -1/35.
    scores = edge_attribution(model, batch, readout, counterfactual=other, rule="relp-qk")
    by_edge = graph.by_edge(scores[0])
    expected = EDGES | {"input->a0.h0<k>": -log(3) / 10}
    assert {name: by_edge[Edge.parse(name)] for name in EDGES} == pytest.approx(expected, abs=1e-9)


def test_components_worked_by_hand() -> None:
    model, batch, other, readout = hand_worked()
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    scores = attribute(model, batch, readout, replacement, rule="relp")[0].tolist()
    by_hand = {Component(0, 0): -0.4, Component(0): 0.0, Component(1, 0): 0.0, Component(1): 4.8}
    assert dict(zip(model.components, scores, strict=True)) == pytest.approx(by_hand, abs=1e-9)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other, neurons=True)
    neurons = attribute_units(model, batch, readout, replacement, rule="relp")[0].tolist()
    assert dict(zip(mlp_units(model.config), neurons, strict=True)) == pytest.approx(
        {Component(0, neuron=0): 0.0, Component(1, neuron=0): 4.8}, abs=1e-9
    )
    gradient = attribute(model, batch, readout, replacement)[0].tolist()
    assert gradient != pytest.approx(scores, abs=0.1)


#: Not linear by rule: a soft cap of the logits and limits on values keep their gradients; experts' offsets are biases.
LIMITED = ("clipped", "soft-caps", "sinks-and-biased-experts", "everything")
CONSERVING = [name for name in STRUCTURES if name not in LIMITED]


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize("name", ["plain", *CONSERVING])
def test_relevance_is_conserved(name: str, activation: str) -> None:
    """Without biases the linearised model is linear in the embedding: against a counterfactual of zeros, what flows out
    of the embedding sums to the score. In float64: experts are chosen by comparison.
    """
    structure = STRUCTURES.get(name, {"gated": False, "norm": "layer"}) | {"activation": activation}
    model = random_model(small_config(**structure), 5).double()
    for path, weight in model.named_parameters():
        if path.endswith((".b", "b_qkv", "b_DQ", "b_DKV", "b_KR", "b_O", "b_in", "b_out", "b_U")) or path == "W_pos":
            weight.zero_()
    model.W_E[0] = 0.0
    tokens = torch.randint(1, model.config.d_vocab, (3, 5), generator=torch.Generator().manual_seed(5))
    last, correct, wrong = torch.tensor([[4, 4, 4], [0, 1, 2], [1, 2, 0]])
    batch, readout = Batch(tokens), logit_difference(last, correct, wrong)
    scores = edge_attribution(
        model, batch, readout, counterfactual=Batch(torch.zeros_like(tokens)), rule="relp", memory=1
    )
    clean = Recordings(model, batch, readout).scores()
    assert clean.abs().max() > 0.1
    assert torch.allclose(scores[:, 0].sum(1), clean, rtol=1e-6, atol=1e-8)
    queries_and_keys = [i for i, (_, port) in enumerate(EdgeGraph.of(model.config).receivers) if port in ("q", "k")]
    assert not scores[:, :, queries_and_keys].any()


def test_components_are_sums_of_their_edges() -> None:
    """Nodes and edges are computed by different passes; a node's coefficient is the sum over what it feeds."""
    model = random_model(small_config(qk_norm="all"), 2).double()
    tokens, others = torch.randint(0, 17, (2, 3, 5), generator=torch.Generator().manual_seed(2))
    last, correct, wrong = torch.tensor([[4, 3, 4], [0, 1, 2], [1, 2, 0]])
    batch, other, readout = Batch(tokens), Batch(others), logit_difference(last, correct, wrong)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    for rule in ("relp", "relp-qk"):
        edges = edge_attribution(model, batch, readout, counterfactual=other, rule=rule)
        nodes = attribute(model, batch, readout, replacement, rule=rule)
        assert torch.allclose(edges.sum(2)[:, 1:], nodes, rtol=1e-6, atol=1e-9), rule


@torch.no_grad()
def differences(model: Transformer, batch: Batch, other: Batch, read: torch.Tensor, rule: str) -> torch.Tensor:
    """Twin without gradients: forward passes of the model in which the rule's constants are pinned by hand, with what
    one component writes moved a little towards its counterfactual value and away from it.
    """
    (_, clean), (_, changed) = (model.run_with_cache(one.tokens) for one in (batch, other))
    pinned = (".hook_scale", ".hook_pattern") if rule == "relp" else (".hook_scale",)
    seen: dict[str, torch.Tensor] = {}

    def put_out(value: torch.Tensor, hook: HookPoint) -> torch.Tensor:
        prefix, act = hook.name.removesuffix("hook_post"), model.blocks[hook.layer()].mlp.act
        pre, clean_pre = seen[prefix + "hook_pre"], clean[prefix + "hook_pre"]
        ratio = act(clean_pre) / clean_pre
        if prefix + "hook_pre_linear" not in seen:
            return pre * ratio
        linear, clean_linear = seen[prefix + "hook_pre_linear"], clean[prefix + "hook_pre_linear"]
        return (pre * ratio * clean_linear + act(clean_pre) * linear) / 2

    def score(part: Component, step: float) -> torch.Tensor:
        name = f"blocks.{part.layer}.{'attn.hook_z' if part.is_head else 'hook_mlp_out'}"
        change = step * (changed[name] - clean[name])

        def move(value: torch.Tensor, hook: HookPoint) -> torch.Tensor:
            value = value.clone()
            own = value if part.head is None else value[:, :, part.head]
            own += change if part.head is None else change[:, :, part.head]
            return value

        hooks = [
            (lambda name: name.endswith(pinned), lambda value, hook: clean[hook.name]),
            (lambda name: ".mlp.hook_pre" in name, lambda value, hook: seen.__setitem__(hook.name, value)),
            (lambda name: name.endswith(".mlp.hook_post"), put_out),
            (name, move),
        ]
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=hooks)
        rows, (last, correct, wrong) = torch.arange(len(batch)), read
        return logits[rows, last, correct] - logits[rows, last, wrong]

    step = 1e-5
    slopes = [(score(part, -step) - score(part, step)) / (2 * step) for part in model.components]
    return torch.stack(slopes, 1)


@pytest.mark.parametrize("structure", ["head-norms", "parallel-one-norm", "norms-after", "soft-caps", "sinks"])
@pytest.mark.parametrize("rule", ["relp", "relp-qk"])
def test_components_are_finite_differences_of_the_model_with_constants(structure: str, rule: Rule) -> None:
    model = random_model(small_config(**STRUCTURES[structure]), 2).double()
    tokens, others = torch.randint(0, model.config.d_vocab, (2, 3, 5), generator=torch.Generator().manual_seed(2))
    read = torch.tensor([[4, 3, 4], [0, 1, 2], [1, 2, 0]])  # positions, right and wrong tokens
    batch, other = Batch(tokens), Batch(others)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    scores = attribute(model, batch, logit_difference(*read), replacement, rule=rule)
    twin = differences(model, batch, other, read, rule)
    assert torch.allclose(scores, twin, rtol=1e-6, atol=1e-8)  # central differences err by the square of the step

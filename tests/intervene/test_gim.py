"""GIM's slopes against straight-through tensors written with plain torch operations, in several structures."""

import pytest
import torch
from torch import Tensor

from tests.models import STRUCTURES, random_model, small_config
from vesalius.intervene import Batch, ablation_named, attribute
from vesalius.intervene.attribution import GIM_SHARES, GIM_TEMPERATURE, edge_attribution
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.readout import logit_difference
from vesalius.model.hooks import HookPoint

NAMES = ("parallel", "norms-before-and-after", "head-norms", "soft-caps", "own-rotations", "sinks", "alibi", "latents")


def _setting(name: str):
    model = random_model(small_config(**STRUCTURES[name])).double()
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.config.d_vocab, (2, 2, 5), generator=generator)
    last = torch.tensor([4, 4])
    readout = logit_difference(last, torch.tensor([0, 1]), torch.tensor([1, 2]))
    return model, Batch(tokens[0]), Batch(tokens[1]), readout


def _column(sinks: Tensor, pattern: Tensor) -> Tensor:
    """The sink of each head as a score of every query."""
    column = torch.empty_like(pattern[..., :1])
    for head, sink in enumerate(sinks):
        column[:, head] = sink
    return column


def _straight_through(name: str) -> Tensor:
    """Attributions of components from gradients that plain operations give: x + f(x) - f(x).detach() moves as f."""
    model, batch, other, readout = _setting(name)
    kept: dict[str, Tensor] = {}
    scores: dict[str, Tensor] = {}

    def scale(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach()

    def score(value: Tensor, hook: HookPoint) -> None:
        scores["last"] = value

    def pattern(value: Tensor, hook: HookPoint) -> Tensor:
        sinks = model.blocks[hook.layer()].attn.sinks
        scaled = scores["last"] if sinks is None else torch.cat([scores["last"], _column(sinks, value)], -1)
        moving = GIM_TEMPERATURE * (scaled / GIM_TEMPERATURE).softmax(-1)[..., : value.shape[-1]]
        return value.detach() + moving - moving.detach()

    def shared(value: Tensor, hook: HookPoint) -> Tensor:
        share = GIM_SHARES[hook.name[-1]]
        return share * value + (1 - share) * value.detach()

    def keep(value: Tensor, hook: HookPoint) -> Tensor:
        kept[hook.name] = value
        return value

    def start(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach().requires_grad_()

    hooks = [
        ("hook_embed", start),
        (lambda name: name.endswith(".hook_scale"), scale),
        (lambda name: name.endswith("hook_attn_scores"), score),
        (lambda name: name.endswith("hook_pattern"), pattern),
        (lambda name: name.endswith(("hook_q", "hook_k", "hook_v")), shared),
        (lambda name: name.endswith(("hook_z", "hook_mlp_out")), keep),
    ]
    with torch.enable_grad():
        logits = model.run_with_hooks(batch.tokens, fwd_hooks=hooks, choose=readout.choose)
        total = readout.score(logits[:, -1:], torch.arange(2)).sum()
        gradients = dict(zip(kept, torch.autograd.grad(total, list(kept.values())), strict=True))
    _, cache = model.run_with_cache(other.tokens)
    columns = []
    for layer in range(model.config.n_layers):
        z, mlp = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_mlp_out"
        columns.append(((kept[z].detach() - cache[z]) * gradients[z]).sum((1, 3)))
        columns.append(((kept[mlp].detach() - cache[mlp]) * gradients[mlp]).sum((1, 2))[:, None])
    return torch.cat(columns, 1)


@pytest.mark.parametrize("name", NAMES)
def test_components_have_the_slopes_of_straight_through_tensors(name: str) -> None:
    model, batch, other, readout = _setting(name)
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    scores = attribute(model, batch, readout, replacement, rule="gim")
    assert torch.allclose(scores, _straight_through(name), rtol=1e-6, atol=1e-9)
    assert not torch.allclose(scores, attribute(model, batch, readout, replacement), rtol=1e-3)


# With a norm after the heads an edge carries a share of what all heads write together, which is not their own output.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "norms-before-and-after"])
def test_the_edges_that_leave_a_component_add_up_to_its_score(name: str) -> None:
    model, batch, other, readout = _setting(name)
    edges = edge_attribution(model, batch, readout, counterfactual=other, rule="gim")
    replacement = ablation_named("resample").table(model, batch, counterfactual=other)
    summed = torch.where(EdgeGraph.of(model.config).real, edges, 0.0).sum(-1)[:, 1:]
    assert torch.allclose(summed, attribute(model, batch, readout, replacement, rule="gim"), rtol=1e-6, atol=1e-9)

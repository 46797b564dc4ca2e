"""Runs with hooks, read like any other run: for interventions on attention, which the engine's plans do not have."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch
from vesalius.model.attention import take_positions
from vesalius.model.hooks import Hook, HookPoint, Tap
from vesalius.model.transformer import Transformer


@torch.no_grad()
def hooked_scores(model: Transformer, batch: Batch, readout: Readout, hooks: Sequence[Hook]) -> Tensor:
    """The readout of every prompt in a run with hooks, which see all positions; only the readout's are unembedded."""
    kept: list[Tensor] = []
    keep: Hook = (f"blocks.{model.config.n_layers - 1}.hook_resid_post", lambda value, _: kept.append(value))
    one_logit = torch.zeros(len(batch), 1, dtype=torch.long, device=model.device)
    model.run_with_hooks(batch.tokens, mask=batch.mask, choose=one_logit, fwd_hooks=[*hooks, keep])
    resid = kept[0] if readout.at is None else take_positions(kept[0], readout.at.to(kept[0].device))
    logits = model.unembed(resid, readout.choose, Tap())
    return readout.score(logits, torch.arange(len(batch), device=logits.device))


def attention_cuts(
    heads: Sequence[Component], query: Int[Tensor, " prompt"], key: Int[Tensor, " prompt"]
) -> list[Hook]:
    """Hooks that set each prompt's attention from one position to another to zero and leave the rest as it is."""
    rows = torch.arange(len(query))

    def hook(head: Component) -> Hook:
        def cut(pattern: Tensor, _: HookPoint) -> Tensor:
            pattern = pattern.clone()
            pattern[rows, head.head, query, key] = 0.0
            return pattern

        return f"blocks.{head.layer}.attn.hook_pattern", cut

    return [hook(head) for head in heads]


def zeroing(model: Transformer, components: Sequence[Component], at: Int[Tensor, " prompt"] | None) -> list[Hook]:
    """Hooks that zero components at one position of each prompt (None: everywhere): heads write nothing, MLPs only
    their output bias.
    """
    where = (slice(None), slice(None)) if at is None else (torch.arange(len(at)), at)

    def hook(part: Component) -> Hook:
        def zero(value: Tensor, _: HookPoint) -> Tensor:
            value = value.clone()
            if part.head is None:
                value[where] = model.blocks[part.layer].mlp_bias.to(value)
            else:
                value[*where, part.head] = 0.0
            return value

        return f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}", zero

    return [hook(part) for part in components]

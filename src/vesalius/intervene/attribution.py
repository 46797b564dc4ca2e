"""First-order effects of all components in one backward pass.

attribution[prompt, component] = gradient of the score at the component's output, times (clean output -
replacement). It estimates the effect of `effects` (clean minus edited score) at the price of about three forward
passes, and is exact where the score is linear in that output. Under the rules of `relevance` the gradient is that of
a linearised model.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.intervene.ablations import Replacement
from vesalius.intervene.readout import Readout
from vesalius.intervene.relevance import Rule, rule_hooks
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import OUTPUT_HOOKS, UNIT_HOOKS, Batch, activations, unit_hook
from vesalius.model.devices import Copies
from vesalius.model.hooks import HookPoint, Tap
from vesalius.model.mlp import widened
from vesalius.model.transformer import Transformer


def attribute(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    *,
    rule: Rule = "gradient",
    rows: int = 32,
) -> Float[Tensor, "prompt component"]:
    """Estimated effect of replacing each head and MLP alone, in the order of `model.components`, `rows` prompts at
    a time.
    """
    parts = []
    for start in range(0, len(batch), rows):
        prompts = torch.arange(start, min(start + rows, len(batch)))
        parts.append(_attribute_chunk(model, batch.take(prompts), readout.take(prompts), replacement, prompts, rule))
    return torch.cat(parts)


def attribute_units(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    *,
    rule: Rule = "gradient",
    rows: int = 32,
) -> Float[Tensor, "prompt unit"]:
    """The same for every neuron, and for every expert where MLPs are made of them, in the order of `mlp_units`: all of
    them from one backward pass. The replacement is one with values of neurons.
    """
    parts = []
    for start in range(0, len(batch), rows):
        prompts = torch.arange(start, min(start + rows, len(batch)))
        kept, slope = _slopes(model, batch.take(prompts), readout.take(prompts), rule, UNIT_HOOKS)
        choices, columns = Copies(replacement.choices[prompts]), []
        for layer, block in enumerate(model.blocks):
            name = unit_hook(model.config, layer)
            change = kept[name] - replacement.values.units[layer][choices.on(block.device)]
            summed = (1, 3) if change.ndim == 4 else (1,)
            columns.append((slope[name] * change).sum(summed, dtype=widened(change).dtype).cpu())
        parts.append(torch.cat(columns, 1))
    return torch.cat(parts)


def unit_changes(model: Transformer, batch: Batch, replacement: Replacement) -> Float[Tensor, " unit"]:
    """How much of what each unit of an MLP writes its replacement changes, on average over tokens: of a neuron the
    change of its activation times the length of its output weights, of an expert the length of the change.
    """
    batch, choices = batch.to(model.device), Copies(replacement.choices)
    real, sizes = real_tokens(model.config, batch).float(), []
    for layer, put_out in enumerate(activations(model, batch, neurons=True).units):
        change = (put_out - replacement.values.units[layer][choices.on(put_out.device)]).float()
        size = change.norm(dim=3) if change.ndim == 4 else change.abs()
        mean = (torch.einsum("bpu,bp->u", size, real.to(size.device)) / real.sum().to(size.device)).cpu()
        sizes.append(mean if change.ndim == 4 else mean * model.blocks[layer].mlp.W_out.float().norm(dim=1).cpu())
    return torch.cat(sizes)


def _attribute_chunk(
    model: Transformer, batch: Batch, readout: Readout, replacement: Replacement, prompts: Tensor, rule: Rule
) -> Float[Tensor, "prompt component"]:
    kept, slope = _slopes(model, batch, readout, rule, OUTPUT_HOOKS)
    choices = Copies(replacement.choices[prompts])
    columns, wide = [], widened(next(iter(slope.values()))).dtype
    for layer, block in enumerate(model.blocks):
        choice = choices.on(block.device)
        z, mlp = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_mlp_out"
        change = kept[z] - replacement.values.z[layer][choice]
        columns.append((slope[z] * change).sum((1, 3), dtype=wide).cpu())
        change = kept[mlp] - block.mlp_bias - replacement.values.mlp[layer][choice]
        columns.append((slope[mlp] * change).sum((1, 2), dtype=wide)[:, None].cpu())
    return torch.cat(columns, 1)


def _slopes(
    model: Transformer, batch: Batch, readout: Readout, rule: Rule, ends: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Activations whose names end like this, and the score's slope at each, from one forward and one backward pass."""
    kept: dict[str, Tensor] = {}

    def start_gradient(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach().requires_grad_()

    def keep(value: Tensor, hook: HookPoint) -> None:
        kept[hook.name] = value

    outputs = (lambda name: name.endswith(ends), keep)
    tap = Tap([("hook_embed", start_gradient), *rule_hooks(model, rule), outputs])
    with torch.enable_grad():
        on_device = batch.to(model.device)
        # Every position is computed in the last layer, so that its z has the positions of the replacement table.
        logits = model(on_device.tokens, mask=on_device.mask, choose=readout.choose, tap=tap)
        rows = torch.arange(len(batch), device=logits.device)
        if readout.at is not None:
            logits = logits[rows[:, None], readout.at.to(logits.device)]
        score = readout.score(logits, rows).sum()
        gradients = torch.autograd.grad(score, list(kept.values()))
    return {name: value.detach() for name, value in kept.items()}, dict(zip(kept, gradients, strict=True))

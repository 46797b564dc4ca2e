"""The naive twin: one hooked forward per intervention, nothing shared, nothing restarted."""

import torch
from torch import Tensor

from vesalius.components import Edge
from vesalius.intervene import Batch, Row, Values
from vesalius.model import Component, Transformer
from vesalius.model.mlp import Mlp


def naive_logits(model: Transformer, batch: Batch, row: Row, values: Values) -> Tensor:
    """Full logits of one row, by `run_with_hooks` on that prompt alone."""
    return naive_run(model, batch, row, values)[0]


def naive_run(
    model: Transformer, batch: Batch, row: Row, values: Values
) -> tuple[Tensor, dict[Component | None, Tensor]]:
    """Full logits of one row, and what the embedding (None) and every component add to the residual stream in it."""
    tokens = batch.tokens[row.prompt][None]
    mask = None if batch.mask is None else batch.mask[row.prompt][None]
    width = tokens.shape[1]
    where = torch.zeros(width, dtype=torch.bool)
    where[list(range(width)) if row.positions is None else list(row.positions)] = True
    written: dict[Component | None, Tensor] = {}
    hooks = []

    def remember_input(value: Tensor, hook: object) -> None:
        written[None] = value[0]

    hooks.append(("blocks.0.hook_resid_pre", remember_input))
    for layer, block in enumerate(model.blocks):
        hooks += _node_hooks(layer, block, row, values, where, written)
        hooks += _edge_hooks(model, layer, row, values, where, written)
    hooks += _logit_hooks(model, row, values, where, written)
    return model.run_with_hooks(tokens, fwd_hooks=hooks, mask=mask)[0], written


def share_of(block, z: Tensor, head: int) -> Tensor:
    """A head's part `[pos, d_model]` of what attention adds, from all heads' z `[pos, head, d_head]`: with a norm
    behind attention, its result over the scale of the sum of all results.
    """
    results = torch.stack([z[:, i] @ block.attn.W_O[i] for i in range(z.shape[1])])
    norm = block.ln1_post
    if norm.w is None:
        return results[head]
    whole, part = results.sum(0) + block.attn.b_O, results[head]
    if norm.b is not None:
        whole, part = whole - whole.mean(-1, keepdim=True), part - part.mean(-1, keepdim=True)
    return part * norm.w / (whole.square().mean(-1, keepdim=True) + norm.eps) ** 0.5


def bias_of(block) -> Tensor | float:
    """What an MLP adds whatever its input: its bias, but not where a norm follows; those of experts are their own."""
    return block.mlp.b_out if block.ln2_post.w is None and isinstance(block.mlp, Mlp) else 0.0


def _node_hooks(layer, block, row, values, where, written):
    edits = {Component.parse(name): k for name, k in row.edits.items()}

    def heads(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        for component, k in edits.items():
            if component.layer == layer and component.head is not None:
                new = values.z[layer][k, :, component.head].expand(z.shape[1], -1)
                z[0, where, component.head] = new[where]
        for head in range(z.shape[2]):
            written[Component(layer, head)] = share_of(block, z[0], head)
        return z

    def mlp(out: Tensor, hook: object) -> Tensor:
        out = out.clone()
        for component, k in edits.items():
            if component.layer == layer and component.head is None:
                new = (values.mlp[layer][k] + bias_of(block)).expand(out.shape[1], -1)
                out[0, where] = new[where]
        written[Component(layer)] = out[0] - bias_of(block)
        return out

    return [(f"blocks.{layer}.attn.hook_z", heads), (f"blocks.{layer}.hook_mlp_out", mlp)]


def _change(model, edge, k, values, where, written):
    sender = edge.sender
    if sender is None:
        new = values.embed[k]
    elif sender.head is None:
        new = values.mlp[sender.layer][k]
    else:
        new = share_of(model.blocks[sender.layer], values.z[sender.layer][k], sender.head)
    return (new - written[sender]) * where[:, None]


def _edge_hooks(model, layer, row, values, where, written):
    edges = [(Edge.parse(name), k) for name, k in row.edges.items()]
    hooks = []
    for port in "qkv":
        wanted = [(e, k) for e, k in edges if e.port == port and e.receiver is not None and e.receiver.layer == layer]
        if not wanted:
            continue

        def per_head(inputs: Tensor, hook: object, wanted=wanted) -> Tensor:
            inputs = inputs.clone()
            for edge, k in wanted:
                inputs[0, :, edge.receiver.head] += _change(model, edge, k, values, where, written)
            return inputs

        hooks.append((f"blocks.{layer}.hook_{port}_input", per_head))
    wanted = [(e, k) for e, k in edges if e.port == "mlp" and e.receiver is not None and e.receiver.layer == layer]
    if wanted:

        def mlp_in(inputs: Tensor, hook: object) -> Tensor:
            return inputs + sum(_change(model, edge, k, values, where, written) for edge, k in wanted)

        hooks.append((f"blocks.{layer}.hook_mlp_in", mlp_in))
    return hooks


def _logit_hooks(model, row, values, where, written):
    wanted = [(Edge.parse(name), k) for name, k in row.edges.items() if Edge.parse(name).port == "logits"]
    if not wanted:
        return []

    def final(resid: Tensor, hook: object) -> Tensor:
        return resid + sum(_change(model, edge, k, values, where, written) for edge, k in wanted)

    return [(f"blocks.{model.config.n_layers - 1}.hook_resid_post", final)]

"""Edge attribution patching: the effect of every edge, to first order, from one backward pass per step.

score[prompt, sender, receiver] = (sender's clean output - its counterfactual output) . (gradient of the readout at the
receiver's input), summed over the positions at which the counterfactual can be patched in. It estimates clean minus
edited score, so a positive edge helps. The gradient is taken at the clean run (EAP), or averaged over `steps` runs
whose embeddings lie on the line from the counterfactual's to the clean prompt's (EAP-IG): at 1/steps, 2/steps, ..., 1.

Gradients are taken before the norm of the receiver and per query head, so grouped-query attention is exact.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.discovery.graph import HEAD_PORTS, EdgeGraph
from vesalius.errors import BadInput
from vesalius.intervene.engine import DEFAULT_MEMORY
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch, Values, activations
from vesalius.model.hooks import HookPoint, Tap
from vesalius.model.transformer import Transformer


def edge_attribution(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    steps: int = 1,
    per_position: bool = False,
    memory: int = DEFAULT_MEMORY,
) -> Float[Tensor, "prompt *pos sender receiver"]:
    """Estimated effect of cutting every edge over to the counterfactual, as many prompts at a time as `memory` (in
    bytes) holds. With `per_position`, the positions at which the sender is patched are kept apart.
    """
    if steps < 1:
        raise BadInput(f"steps={steps} takes no gradient; at least 1 is needed")
    graph, parts = EdgeGraph.of(model.config), []
    vectors = batch.tokens.shape[1] * (3 * len(graph.senders) + 2 * len(graph.receivers))
    rows = max(1, memory // (vectors * model.config.d_model * model.W_E.element_size()))
    for start in range(0, len(batch), rows):
        chosen = torch.arange(start, min(start + rows, len(batch)))
        parts.append(
            _chunk(
                model,
                batch.take(chosen).to(model.device),
                readout.take(chosen),
                counterfactual.take(chosen).to(model.device),
                None if where is None else where[chosen].to(model.device),
                steps,
                per_position,
            )
        )
    return torch.cat(parts)


def sender_outputs(model: Transformer, values: Values) -> Float[Tensor, "prompt sender pos d_model"]:
    """What the embedding and every component add to the residual stream, in the order of `EdgeGraph.senders`."""
    parts = [values.embed[:, None]]
    for layer, block in enumerate(model.blocks):
        parts += [block.attn.result(values.z[layer]).transpose(1, 2), values.mlp[layer][:, None]]
    return torch.cat(parts, 1)


def _chunk(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    other: Batch,
    where: Tensor | None,
    steps: int,
    per_position: bool,
) -> Float[Tensor, "prompt *pos sender receiver"]:
    graph = EdgeGraph.of(model.config)
    clean, corrupt = activations(model, batch), activations(model, other)
    change = sender_outputs(model, clean) - sender_outputs(model, corrupt)
    if where is not None:
        change = change * where[:, None, :, None]
    kept = batch.tokens.shape if per_position else batch.tokens.shape[:1]
    scores = change.new_zeros(*kept, len(graph.senders), len(graph.receivers))
    for step in range(1, steps + 1):
        gradients = _gradients(model, batch, readout, clean.embed - (1 - step / steps) * change[:, 0])
        for columns, gradient in gradients:
            feeding = int(graph.real[:, columns.start].sum())
            found = torch.einsum("bspd,bprd->bpsr" if per_position else "bspd,bprd->bsr", change[:, :feeding], gradient)
            scores[..., :feeding, columns] += found / steps
    return scores.cpu()


def _gradients(
    model: Transformer, batch: Batch, readout: Readout, embedding: Tensor
) -> list[tuple[slice, Float[Tensor, "prompt pos receiver d_model"]]]:
    """The readout's gradient at every receiver's input, with the columns it belongs to."""
    graph, last = EdgeGraph.of(model.config), model.config.n_layers - 1
    names = {f"blocks.{layer}.hook_{p}_input": graph.port(layer, p) for layer in range(last + 1) for p in HEAD_PORTS}
    names |= {f"blocks.{layer}.hook_mlp_in": graph.port(layer, "mlp") for layer in range(last + 1)}
    names[f"blocks.{last}.hook_resid_post"] = slice(len(graph.receivers) - 1, len(graph.receivers))
    kept: dict[str, Tensor] = {}

    def keep(value: Tensor, hook: HookPoint) -> Tensor:
        # A tensor of its own: what goes past the receiver must not count as going through it.
        kept[hook.name] = value.view_as(value)
        return kept[hook.name]

    def start(value: Tensor, hook: HookPoint) -> Tensor:
        return embedding.detach().requires_grad_()

    tap = Tap([("blocks.0.hook_resid_pre", start), (names.__contains__, keep)])
    at, choose = (None if x is None else x.to(model.device) for x in (readout.at, readout.choose))
    with torch.enable_grad():
        logits = model(batch.tokens, mask=batch.mask, choose=choose, tap=tap)
        if at is not None:
            logits = logits[torch.arange(len(at), device=model.device)[:, None], at]
        score = readout.score(logits, torch.arange(len(batch), device=model.device)).sum()
        found = torch.autograd.grad(score, list(kept.values()))
    return [(names[name], g if g.ndim == 4 else g[:, :, None]) for name, g in zip(kept, found, strict=True)]

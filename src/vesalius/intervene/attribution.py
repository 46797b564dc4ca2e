"""First-order effects from one backward pass: of components and units (below), and of every edge.

attribution[prompt, component] = gradient of the score at the component's output, times (clean output -
replacement). It estimates the effect of `effects` (clean minus edited score) at the price of about three forward
passes, and is exact where the score is linear in that output. Under the rules of relevance the gradient is that of
a linearised model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.intervene.ablations import Replacement
from vesalius.intervene.edges import HEAD_PORTS, EdgeGraph
from vesalius.intervene.plan import require_units
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import activation_memory
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import OUTPUT_HOOKS, UNIT_HOOKS, Batch, Values, activations, sender_changes, unit_hook
from vesalius.model.attention import Attention, Heads, attention_weights, take_positions
from vesalius.model.config import Config
from vesalius.model.devices import DeviceCopies, available_bytes
from vesalius.model.fused import as_wide, may_fuse
from vesalius.model.hooks import Hook, HookPoint, Tap
from vesalius.model.mlp import HALF, NormLayer, widened
from vesalius.model.positions import Layout
from vesalius.model.transformer import Transformer
from vesalius.progress import checkpoint

# The rules of relevance patching (RelP): a backward pass through the model as it would be if it were linear.
#
# Attribution multiplies a change by the gradient of the score. RelP (https://arxiv.org/abs/2508.21258) multiplies it by
# the coefficient of layer-wise relevance propagation instead. That is the gradient of a model with the same outputs, in
# which these are constants:
#
# | where                  | rule       | constant                                                                |
# |------------------------|------------|-------------------------------------------------------------------------|
# | LayerNorm, RMSNorm     | LN-rule    | what the norm divides by                                                |
# | attention              | AH-rule    | the pattern; so are the weights that a router and gates give experts    |
# | activation function    | identity   | the ratio f(x) / x                                                      |
# | product in a gated MLP | half       | each factor for the other, and each gets half of the relevance          |
# | linear maps            | 0-rule     | nothing: the gradient                                                   |
#
# `relp` applies all of them, so nothing reaches a head's queries and keys. `relp-qk` leaves the pattern its gradient
# and applies the others. A soft cap of the logits belongs to the readout and keeps its gradient, and so do limits on
# queries, keys and values, and limits inside of experts.
#
# `gim` (https://arxiv.org/abs/2505.17630) keeps the gradient of activation functions and products, and changes that of
# norms and attention: what a norm divides by is a constant; the softmax has the slope that it would have at twice the
# temperature, so that saturated attention still shows what it reads; queries and keys get a quarter of their gradient
# and values half of it, because each of them alone already accounts for the product.

Rule = Literal["gradient", "relp", "relp-qk", "gim"]
RULES: tuple[Rule, ...] = get_args(Rule)
#: Prompts of one backward pass.
ROWS = 32
_CONSTANTS = (".hook_scale", ".hook_expert_weights", ".hook_shared_weight")
_FACTORS = (".hook_pre", ".hook_pre_linear")
#: GIM's temperature of the softmax in the backward pass, and the shares of the gradients of queries, keys and values.
GIM_TEMPERATURE = 2.0
GIM_SHARES = {"q": 0.25, "k": 0.25, "v": 0.5}


def rule_hooks(model: Transformer, rule: Rule) -> list[Hook]:
    """Hooks under which a backward pass gives a rule's coefficients; the values of the forward pass stay as they are.
    They hold what a pass leaves with them: take new ones for every pass.
    """
    if rule == "gradient":
        return []
    if model.config.wrapped:
        raise BadInput(
            f"rule {rule!r} changes the gradients inside norms and MLPs, which are not seen in a wrapped "
            f"{model.config.wrapped} model; use the rule 'gradient'"
        )
    if rule == "gim":
        return _gim_hooks(model)
    constants = (*_CONSTANTS, ".hook_pattern") if rule == "relp" else _CONSTANTS
    factors: dict[str, Tensor] = {}

    def freeze(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach()

    def keep(value: Tensor, hook: HookPoint) -> None:
        factors[hook.name] = value

    def propagate(value: Tensor, hook: HookPoint) -> Tensor:
        prefix, act = hook.name.removesuffix(".hook_post"), model.blocks[hook.layer()].mlp.act
        pre, linear = factors.pop(f"{prefix}.hook_pre"), factors.pop(f"{prefix}.hook_pre_linear", None)
        with torch.no_grad():
            activated = act(pre)
            ratio = activated / torch.where(pre == 0, -torch.finfo(pre.dtype).tiny, pre)
        if linear is None:
            return _Sloped.apply(value.detach(), pre, ratio)
        return _Sloped.apply(value.detach(), pre, ratio * linear.detach() / 2, linear, activated / 2)

    return [
        (lambda name: name.endswith(constants), freeze),
        (lambda name: name.endswith(_FACTORS), keep),
        (lambda name: name.endswith(".hook_post"), propagate),
    ]


def _gim_hooks(model: Transformer) -> list[Hook]:
    scores: dict[str, Tensor] = {}

    def freeze(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach()

    def keep(value: Tensor, hook: HookPoint) -> None:
        scores[hook.name.removesuffix("hook_attn_scores")] = value

    def soften(value: Tensor, hook: HookPoint) -> Tensor:
        given = scores.pop(hook.name.removesuffix("hook_pattern"))
        return _Softened.apply(value.detach(), given, model.blocks[hook.layer()].attn.sinks)

    def share(value: Tensor, hook: HookPoint) -> Tensor:
        return _Sloped.apply(value.detach(), value, torch.tensor(GIM_SHARES[hook.name[-1]], device=value.device))

    return [
        (lambda name: name.endswith(".hook_scale"), freeze),
        (lambda name: name.endswith("attn.hook_attn_scores"), keep),
        (lambda name: name.endswith("attn.hook_pattern"), soften),
        (lambda name: name.endswith(("attn.hook_q", "attn.hook_k", "attn.hook_v")), share),
    ]


class _Softened(torch.autograd.Function):
    """An attention pattern whose slope is that of the softmax of its scores at `GIM_TEMPERATURE`, not divided by it."""

    @staticmethod
    def forward(ctx: Any, pattern: Tensor, scores: Tensor, sinks: Tensor | None) -> Tensor:
        ctx.save_for_backward(scores)
        ctx.sinks = sinks
        return pattern.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, "*shape"]) -> tuple[None, Tensor, None]:
        (scores,), gradient = ctx.saved_tensors, widened(gradients[0])
        sinks = None if ctx.sinks is None else widened(ctx.sinks) / GIM_TEMPERATURE
        soft = attention_weights(widened(scores) / GIM_TEMPERATURE, sinks)
        back = soft * (gradient - (gradient * soft).sum(-1, keepdim=True))
        return None, back.to(gradients[0].dtype), None


class _Sloped(torch.autograd.Function):
    """A value that moves with its inputs, each given with the slope by which it does."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *inputs_and_slopes: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs_and_slopes[1::2])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Float[Tensor, "*shape"]) -> tuple[Tensor | None, ...]:
        back: list[Tensor | None] = [None]
        for slope in ctx.saved_tensors:
            back += [gradients[0] * slope, None]
        return tuple(back)


def attribute(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    *,
    rule: Rule = "gradient",
    rows: int = ROWS,
) -> Float[Tensor, "prompt component"]:
    """Estimated effect of replacing each head and MLP alone, in the order of `model.components`, `rows` prompts at
    a time.
    """
    parts = []
    for start in range(0, len(batch), rows):
        prompts = torch.arange(start, min(start + rows, len(batch)))
        parts.append(_attribute_chunk(model, batch.take(prompts), readout.take(prompts), replacement, prompts, rule))
    return torch.cat(parts)


def attribute_once_replaced(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    heads: Sequence[Component],
) -> Float[Tensor, "head prompt component"]:
    """Estimated effect of replacing each component once a head is replaced, for each of some heads: a forward and a
    backward pass for each. The head itself has none.
    """
    parts = []
    for start in range(0, len(batch), ROWS):
        prompts = torch.arange(start, min(start + ROWS, len(batch)))
        some, read = batch.take(prompts), readout.take(prompts)
        parts.append(
            torch.stack([_attribute_chunk(model, some, read, replacement, prompts, "gradient", head) for head in heads])
        )
    return torch.cat(parts, 1)


def attribute_units(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    *,
    rule: Rule = "gradient",
    rows: int = ROWS,
) -> Float[Tensor, "prompt unit"]:
    """The same for every neuron, and for every expert where MLPs are made of them, in the order of `mlp_units`: all of
    them from one backward pass. The replacement is one with values of neurons.
    """
    require_units(model.config)
    parts = []
    for start in range(0, len(batch), rows):
        prompts = torch.arange(start, min(start + rows, len(batch)))
        kept, slope = slopes_at(model, batch.take(prompts), readout.take(prompts), rule, UNIT_HOOKS)
        choices, columns = DeviceCopies(replacement.choices[prompts]), []
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
    require_units(model.config)
    batch, choices = batch.to(model.device), DeviceCopies(replacement.choices)
    real, sizes = real_tokens(model.config, batch).float(), []
    for layer, put_out in enumerate(activations(model, batch, neurons=True).units):
        change = (put_out - replacement.values.units[layer][choices.on(put_out.device)]).float()
        size = change.norm(dim=3) if change.ndim == 4 else change.abs()
        mean = (torch.einsum("bpu,bp->u", size, real.to(size.device)) / real.sum().to(size.device)).cpu()
        sizes.append(mean if change.ndim == 4 else mean * model.blocks[layer].mlp.W_out.float().norm(dim=1).cpu())
    return torch.cat(sizes)


def _attribute_chunk(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    replacement: Replacement,
    prompts: Tensor,
    rule: Rule,
    replaced: Component | None = None,
) -> Float[Tensor, "prompt component"]:
    choices, edits = DeviceCopies(replacement.choices[prompts]), []
    if replaced is not None:
        layer, place = replaced.layer, replaced.head
        assert place is not None, "a head"
        values = replacement.values.z[layer][choices.on(model.blocks[layer].device)][:, :, place]

        def replace(value: Tensor, hook: HookPoint) -> Tensor:
            own = values[:, :, None].to(value).expand(-1, value.shape[1], -1, -1)  # zeros and means have one position
            return torch.cat([value[:, :, :place], own, value[:, :, place + 1 :]], 2)

        edits = [(f"blocks.{layer}.attn.hook_z", replace)]
    kept, slope = slopes_at(model, batch, readout, rule, OUTPUT_HOOKS, edits)
    columns, wide = [], widened(next(iter(slope.values()))).dtype
    for layer, block in enumerate(model.blocks):
        choice = choices.on(block.device)
        z, mlp = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.hook_mlp_out"
        change = kept[z] - replacement.values.z[layer][choice]
        columns.append((slope[z] * change).sum((1, 3), dtype=wide).cpu())
        change = kept[mlp] - block.mlp_bias - replacement.values.mlp[layer][choice]
        columns.append((slope[mlp] * change).sum((1, 2), dtype=wide)[:, None].cpu())
    return torch.cat(columns, 1)


def slopes_at(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    rule: Rule,
    ends: tuple[str, ...],
    edits: Sequence[Hook] = (),
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Activations whose names end like this, and the score's slope at each, from one forward and one backward pass with
    `edits`.
    """
    kept: dict[str, Tensor] = {}

    def start_gradient(value: Tensor, hook: HookPoint) -> Tensor:
        return value.detach().requires_grad_()

    def keep(value: Tensor, hook: HookPoint) -> Tensor:
        # A layer without an MLP writes a constant there, which has a slope as any other place.
        kept[hook.name] = value if value.requires_grad else value.clone().requires_grad_()
        return kept[hook.name]

    outputs = (lambda name: name.endswith(ends), keep)
    tap = Tap([("hook_embed", start_gradient), *rule_hooks(model, rule), *edits, outputs])
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


# Edge attribution patching: the effect of every edge, to first order, from one backward pass per step.
#
# score[prompt, sender, receiver] = (sender's clean output - its counterfactual output) . (gradient of the readout at
# the receiver's input), summed over the positions at which the counterfactual can be patched in. It estimates clean
# minus edited score, so a positive edge helps. The gradient is taken at the clean run (EAP), or averaged over `steps`
# runs whose embeddings lie on the line from the counterfactual's to the clean prompt's (EAP-IG): at 1/steps, 2/steps,
# ..., 1. Under the rules of relevance (RelP) it is the gradient of a linearised model.
#
# Gradients are taken before the norm of the receiver and per query head, so grouped-query attention is exact.

_CLEAN = Tap()


def edge_attribution(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    steps: int = 1,
    rule: Rule = "gradient",
    per_position: bool = False,
    memory: "int | Portions | None" = None,
) -> Float[Tensor, "prompt *pos sender receiver"]:
    """Estimated effect of cutting every edge over to the counterfactual, as many prompts at a time, or positions of
    one, as `memory` (in bytes) holds. With `per_position`, the positions at which the sender is patched are kept apart.
    """
    chunks = _chunks(model, batch, readout, counterfactual, where, memory)
    return torch.cat([chunk.scores(_at_least_one(steps), rule, per_position=per_position) for chunk in chunks])


def sender_attribution(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    steps: int = 1,
    rule: Rule = "gradient",
) -> Float[Tensor, "prompt sender"]:
    """For every sender the sum of `edge_attribution` over the edges that leave it, without multiplying these out: what
    it adds less what it adds on the counterfactual, times the sum of the gradients behind it.
    """
    chunks = _chunks(model, batch, readout, counterfactual, where, None)
    return torch.cat([chunk.sums(_at_least_one(steps), rule) for chunk in chunks])


def _at_least_one(steps: int) -> int:
    if steps < 1:
        raise BadInput(f"steps={steps} takes no gradient; at least 1 is needed")
    return steps


def _chunks(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    counterfactual: Batch,
    where: Tensor | None,
    memory: "int | Portions | None",
) -> "Iterator[_Chunk]":
    """Prompts with their counterfactuals, as many at a time as `memory` holds."""
    if not isinstance(memory, Portions):
        width, limit = batch.tokens.shape[1], activation_memory(model, memory)
        memory = Portions.within(model.config, model.W_E.dtype, width, limit)
        _require_room(model, width)
    for start in range(0, len(batch), memory.rows):
        prompts = torch.arange(start, min(start + memory.rows, len(batch)))
        yield _Chunk(
            model,
            batch.take(prompts).to(model.device),
            readout.take(prompts),
            counterfactual.take(prompts).to(model.device),
            None if where is None else where[prompts].to(model.device),
            memory.positions,
        )


#: Positions that are multiplied out together at the least.
_FEWEST = 32


@dataclass(frozen=True)
class Portions:
    """How much edge attribution does at a time: whole prompts and, where not even one fits, some of its positions. The
    scores are sums over positions, so these are multiplied out a few at a time.
    """

    rows: int
    positions: int

    @classmethod
    def within(cls, config: Config, dtype: torch.dtype, width: int, memory: int) -> "Portions":
        """What `memory` bytes hold of prompts of `width` tokens: what a run with gradients keeps of a prompt, and what
        is multiplied out of each position.
        """
        position = position_bytes(config, dtype)
        if (whole := memory // (width * position)) >= 1:
            return cls(whole, width)
        return cls(1, min(width, max(_FEWEST, (memory - run_bytes(config, dtype, width)) // position)))


def position_bytes(config: Config, dtype: torch.dtype) -> int:
    """Bytes of a position that is multiplied out: what every sender changes there, and the gradients of a layer's
    inputs in several copies in float32.
    """
    senders, inputs = 1 + config.n_layers * (config.n_heads + 1), 3 * config.n_heads
    return config.d_model * (2 * senders * dtype.itemsize + 6 * inputs * 4)


def run_bytes(config: Config, dtype: torch.dtype, width: int) -> int:
    """Bytes that a run of one prompt with gradients holds: of every layer and token the streams before its norms in
    float32 and what goes in and out of its parts, with the gradients there.
    """
    heads = config.n_heads * max(config.d_head, config.d_value)
    wide = max(config.d_mlp, config.experts.d_active if config.experts else 0)
    token = config.d_model * (2 * 4 + 7 * dtype.itemsize) + (11 * heads + 3 * wide) * dtype.itemsize
    if not may_fuse(config, width):
        token += config.n_heads * width * (4 + 2 * dtype.itemsize)
    return width * token * config.n_layers


def _require_room(model: Transformer, width: int) -> None:
    """Refuse prompts of which not even one can be run with gradients where the model is."""
    dtype, share = model.W_E.dtype, len(model.devices)
    needed = run_bytes(model.config, dtype, width) + _FEWEST * position_bytes(model.config, dtype)
    for device in model.devices:
        free = available_bytes(device)
        if free is None or needed / share <= free:
            continue
        half = "" if dtype in HALF else "--dtype bfloat16, "
        raise BadInput(
            f"a prompt of {width:,} tokens needs {needed / share / 2**30:.1f} GB on {device} for its gradients, and "
            f"{free / 2**30:.1f} GB are free; take {half}shorter prompts, more devices (--device cuda:0,cuda:1), or "
            "--method sweep, which takes no gradients"
        )


class _Chunk:
    """Some prompts with their counterfactuals, and the positions at which their senders' changes are multiplied out."""

    @torch.no_grad()
    def __init__(
        self, model: Transformer, batch: Batch, readout: Readout, other: Batch, where: Tensor | None, positions: int
    ) -> None:
        self.model, self.readout, self.where = model, readout, where
        self.layout = model.layout(batch.tokens, batch.mask)
        self.embedding = model.embed(batch.tokens, self.layout, _CLEAN)
        self.other, width = activations(model, other), batch.tokens.shape[1]
        self.spans = [slice(start, min(start + positions, width)) for start in range(0, width, positions)]

    @torch.no_grad()
    def scores(self, steps: int, rule: Rule, *, per_position: bool) -> Float[Tensor, "prompt *pos sender receiver"]:
        """The mean over the steps of every change times every gradient."""
        graph, shape = EdgeGraph.of(self.model.config), self.embedding.shape[: 2 if per_position else 1]
        scores = widened(self.embedding.new_zeros(*shape, len(graph.senders), len(graph.receivers)))
        for walk, span, change in self._steps(steps, rule):
            _add_scores(self.model, walk, change, scores[:, span] if per_position else scores)
        return (scores / steps).cpu()

    @torch.no_grad()
    def sums(self, steps: int, rule: Rule) -> Float[Tensor, "prompt sender"]:
        """The same, summed over the receivers."""
        senders = len(EdgeGraph.of(self.model.config).senders)
        sums = widened(self.embedding.new_zeros(len(self.embedding), senders))
        for walk, _, change in self._steps(steps, rule):
            _add_sums(self.model, walk, change, sums)
        return (sums / steps).cpu()

    def _steps(self, steps: int, rule: Rule) -> Iterator[tuple["_Walk", slice, Tensor]]:
        """The runs with gradients, part by part of the positions, and what every sender changes there."""
        walk = _walk(self.model, self.layout, self.readout, self.embedding, rule)
        clean, towards = walk.values, self._at_positions(self.embedding - self.other.embed, slice(None))
        whole = self._change(clean, self.spans[0]) if len(self.spans) == 1 else None
        for step in range(steps):
            if step:
                between = self.embedding - (1 - step / steps) * towards
                walk = _walk(self.model, self.layout, self.readout, between, rule)
            for span in self.spans:
                checkpoint()
                yield walk.at(span), span, self._change(clean, span) if whole is None else whole

    def _change(self, clean: Values, span: slice) -> Float[Tensor, "prompt span sender d_model"]:
        """What every sender adds less what it adds on the counterfactual, where it can be patched in."""
        change = sender_changes(self.model, clean.at(span), self.other.at(span))
        return self._at_positions(change, span)

    def _at_positions(self, change: Tensor, span: slice) -> Tensor:
        if self.where is None:
            return change
        where = self.where[:, span]
        return change * where.view(*where.shape, *[1] * (change.ndim - 2))


@dataclass(frozen=True)
class _Walk:
    """One run with gradients: what components wrote, the residual stream before each norm, and the readout's gradient
    at every query, key and value (per query head), at the normalised input of every MLP, and at the end.
    """

    values: Values
    pre: list[Float[Tensor, "prompt pos d_model"]]
    mlp_inputs: list[Float[Tensor, "prompt pos d_model"]]
    heads: list[Float[Tensor, "prompt pos input d_head"]]
    mlp: list[Float[Tensor, "prompt pos d_model"]]
    rule: Rule
    end: Float[Tensor, "prompt pos d_model"]

    def at(self, span: slice) -> "_Walk":
        """The same at some positions."""
        if span == slice(0, self.end.shape[1]):
            return self
        pre, inputs, heads, mlp = (
            [x[:, span] for x in layers] for layers in (self.pre, self.mlp_inputs, self.heads, self.mlp)
        )
        return _Walk(self.values.at(span), pre, inputs, heads, mlp, self.rule, self.end[:, span])


def _walk(model: Transformer, layout: Layout, readout: Readout, embedding: Tensor, rule: Rule) -> _Walk:
    """Run from an embedding. All heads share one norm and one projection, as in a plain forward pass; what each of
    them would see on its own comes in afterwards, because the norm's slope is the same for all.
    """
    pre, mlp_inputs, z, mlp_outputs = [], [], [], []
    inputs: list[Heads] = []
    normed: list[Tensor] = []
    tap = Tap(rule_hooks(model, rule))
    with torch.enable_grad():
        resid = embedding.detach().requires_grad_()
        for block in model.blocks:
            resid = resid.to(block.device)
            heads = block.attn.apart(block.ln1(resid, tap), tap)
            pre.append(resid)
            inputs.append(heads)
            z.append(block.attn.mix(heads, layout.on(block.device), None, tap))
            after = resid + block.write_heads(z[-1], tap)
            mlp_inputs.append(block.mlp_input(resid, after))
            # A separate tensor, also without a norm: what goes past the MLP must not count as going through it.
            normed.append(block.ln2(mlp_inputs[-1], tap).view_as(after))
            mlp_outputs.append(block.ln2_post(block.mlp(normed[-1], tap), tap))
            resid = after + mlp_outputs[-1]
        places = [*(x for heads in inputs for x in heads), *normed, resid]
        gradients = torch.autograd.grad(_score(model, resid, readout, tap), places, materialize_grads=True)
    n = len(model.blocks)
    outputs = tuple((x - block.mlp_bias).detach() for x, block in zip(mlp_outputs, model.blocks, strict=True))
    return _Walk(
        values=Values(tuple(x.detach() for x in z), outputs, embedding),
        pre=[x.detach() for x in pre],
        mlp_inputs=[x.detach() for x in mlp_inputs],
        heads=[_shared(gradients[3 * layer : 3 * layer + 3], rule) for layer in range(n)],
        mlp=list(gradients[3 * n : 4 * n]),
        rule=rule,
        end=gradients[-1],
    )


def _shared(gradients: Sequence[Tensor], rule: Rule) -> Float[Tensor, "prompt pos input d_head"]:
    """The gradients at queries, keys and values side by side, as wide as the widest; under GIM's rule each of them with
    its share.
    """
    shares = GIM_SHARES.values() if rule == "gim" else (1.0, 1.0, 1.0)
    return torch.cat(as_wide([share * gradient for share, gradient in zip(shares, gradients, strict=True)]), 2)


def _score(model: Transformer, resid: Tensor, readout: Readout, tap: Tap) -> Tensor:
    read = resid if readout.at is None else take_positions(resid, readout.at.to(resid.device))
    logits = model.unembed(read, readout.choose, tap)
    return readout.score(logits, torch.arange(len(resid), device=logits.device)).sum()


def _add_scores(
    model: Transformer,
    walk: _Walk,
    change: Float[Tensor, "prompt pos sender d_model"],
    scores: Float[Tensor, "prompt *pos sender receiver"],
) -> None:
    """Add every sender's change times the gradient at every receiver's input."""
    graph, changes = EdgeGraph.of(model.config), DeviceCopies(change)

    def add(columns: slice, gradient: Float[Tensor, "prompt pos receiver d_model"]) -> None:
        feeding = int(graph.real[:, columns.start].sum())
        sent = changes.on(gradient.device)[:, :, :feeding]
        products = sent @ gradient.transpose(2, 3).to(change.dtype)
        products = products if scores.ndim == 4 else products.sum(1, dtype=scores.dtype)
        scores[..., :feeding, columns] += products.to(scores.device)

    for layer, block in enumerate(model.blocks):
        add(graph.heads(layer), _before_heads(model, layer, walk))
        into_mlp = _before_norm(block.ln2, walk.mlp_inputs[layer], walk.mlp[layer][:, :, None], walk.rule)
        add(graph.port(layer, "mlp"), into_mlp)
    add(slice(len(graph.receivers) - 1, len(graph.receivers)), walk.end[:, :, None])


def _add_sums(
    model: Transformer,
    walk: _Walk,
    change: Float[Tensor, "prompt pos sender d_model"],
    sums: Float[Tensor, "prompt sender"],
) -> None:
    """Add every sender's change times the sum of the gradients at the inputs of all that read it: of those that are
    computed later, so the sum grows from the end.
    """
    graph, place = EdgeGraph.of(model.config), sums.device
    later, first = widened(walk.end).to(place), graph.n_feeding(None)

    def add(before: int) -> int:
        """The senders from `before` on, up to those that are done."""
        own = widened(change[:, :, before:first])
        sums[:, before:first] += torch.einsum("bpsd,bpd->bs", own, later)
        return before

    for layer, block in reversed(list(enumerate(model.blocks))):
        first = add(graph.n_feeding(Component(layer)))
        into_mlp = _before_norm(block.ln2, walk.mlp_inputs[layer], walk.mlp[layer][:, :, None], walk.rule)
        later = later + widened(into_mlp[:, :, 0]).to(place)
        first = add(graph.n_feeding(Component(layer, 0)))
        later = later + widened(_before_heads(model, layer, walk, summed=True)[:, :, 0]).to(place)
    add(0)


def _before_heads(
    model: Transformer, layer: int, walk: _Walk, *, summed: bool = False
) -> Float[Tensor, "prompt pos input d_model"]:
    """Gradients at queries, keys and values of every query head carried back to the input of each, or their sum."""
    block, pre, gradient = model.blocks[layer], walk.pre[layer], walk.heads[layer]
    if block.attn.linear:
        weights = _weights(block.attn)
        if summed:
            heads = torch.einsum("bprk,rdk->bpd", gradient, weights)[:, :, None]
        else:
            heads = torch.einsum("bprk,rdk->bprd", gradient, weights)
        return _before_norm(block.ln1, pre, heads, walk.rule)
    n_heads = block.attn.config.n_heads
    with torch.enable_grad():
        inputs = pre[:, None].expand(-1, 3 * n_heads, -1, -1).detach().requires_grad_()
        tap = Tap(rule_hooks(model, walk.rule))
        ports = zip(HEAD_PORTS, block.ln1(inputs, tap).split(n_heads, 1), strict=True)
        projected = torch.cat(as_wide([block.attn.own(port, x, range(n_heads), tap=tap) for port, x in ports]), 1)
        (back,) = torch.autograd.grad(projected, inputs, gradient.transpose(1, 2))
    return back.sum(1)[:, :, None] if summed else back.transpose(1, 2)


def _weights(attn: Attention) -> Float[Tensor, "input d_model d_head"]:
    """The projections to all queries, keys and values, keys and values once for every query head."""
    share = attn.config.queries_per_kv
    return torch.cat([attn.W_Q, *(weight.repeat_interleave(share, 0) for weight in (attn.W_K, attn.W_V))])


def _before_norm(
    norm: NormLayer,
    x: Float[Tensor, "prompt pos d_model"],
    gradient: Float[Tensor, "prompt pos receiver d_model"],
    rule: Rule,
) -> Float[Tensor, "prompt pos receiver d_model"]:
    """Gradients at the output of a norm carried back to its input `x`."""
    if norm.w is None:
        return gradient
    gradient, x = gradient * norm.w, widened(x[:, :, None])
    x = x if norm.b is None else x - x.mean(-1, keepdim=True)
    square = x.square().mean(-1, keepdim=True) + norm.eps
    if rule != "gradient":  # the norm divides by a constant
        back = gradient * square.rsqrt()
        return back if norm.b is None else back - back.mean(-1, keepdim=True)
    along = (gradient @ x.transpose(2, 3)) / (x.shape[-1] * square)
    back = torch.addcmul(gradient, along, x, value=-1.0) * square.rsqrt()
    return back if norm.b is None else back - back.mean(-1, keepdim=True)

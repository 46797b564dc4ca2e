"""What takes a component's place.

Every kind of intervention is a table of replacement values: row k of the table is one possible replacement for
every component at once. Zero and mean ablation are tables with one row; resampling, activation patching and
interchange are tables with one row per source prompt. Tables can be stacked, so different kinds can meet in one
batch.

A head is replaced at z (its result is z W_O, so replacing one replaces the other), an MLP at what it writes without
the bias (the linear image of `hook_post`; where a norm follows, its output). Means, zeros and patches are therefore
exactly those of `hook_result` and `hook_post`. A norm after attention is run again with the replaced z in place.
Units of MLPs are replaced inside: a neuron at `hook_post`, an expert at what it adds, its weight included (zero where
the router does not choose it). Tables hold these values (`units`) where they are asked for.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.model.attention import take_positions
from vesalius.model.config import Config
from vesalius.model.hooks import Cache, Hook, Tap
from vesalius.model.mlp import widened
from vesalius.model.transformer import Transformer

#: Ends of the names of what components write.
OUTPUT_HOOKS = (".attn.hook_z", ".hook_mlp_out")
#: Ends of the names of what the units of MLPs put out: neurons, experts.
UNIT_HOOKS = (".mlp.hook_post", ".mlp.hook_expert_out")


def unit_hook(config: Config, layer: int) -> str:
    """Where the units of a layer's MLP are replaced."""
    return f"blocks.{layer}{UNIT_HOOKS[len(unit_shape(config, layer)) - 1]}"


def unit_shape(config: Config, layer: int) -> tuple[int, ...]:
    """The shape of what the units of a layer's MLP put out at one position: a number each, or a vector each."""
    if config.experts is not None and layer in config.experts.layers:
        return config.experts.n_units, config.d_model
    return (config.d_mlp,)


@dataclass(frozen=True)
class Batch:
    """Prompts as token ids; `mask` is True at real tokens (None: everything, or all but the model's pad token)."""

    tokens: Int[Tensor, "prompt pos"]
    mask: Bool[Tensor, "prompt pos"] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: slice | Int[Tensor, " n"]) -> "Batch":
        """Some of the prompts."""
        return Batch(self.tokens[rows], None if self.mask is None else self.mask[rows])

    def to(self, device: torch.device | str) -> "Batch":
        """The same prompts on another device."""
        return Batch(self.tokens.to(device), None if self.mask is None else self.mask.to(device))


@dataclass(frozen=True)
class Values:
    """A table of replacements, one tensor per layer; a position axis of length 1 serves every position.

    `prompts` are the inputs that the values were computed on, one for each choice, if there are any: as far as one of
    them begins like a prompt that is run, its values are those of the clean run.
    """

    z: tuple[Float[Tensor, "choice pos head d_head"], ...]
    mlp: tuple[Float[Tensor, "choice pos d_model"], ...]
    embed: Float[Tensor, "choice pos d_model"]
    prompts: Batch | None = None
    #: Of each layer, what its neurons put out (`[choice, pos, d_mlp]`) or what its experts add (`[choice, pos, expert,
    #: d_model]`).
    units: tuple[Float[Tensor, "choice pos unit *d_model"], ...] = ()

    def __len__(self) -> int:
        return len(self.embed)

    def output(self, component: Component) -> Float[Tensor, "choice pos width"]:
        """The replacements of one component: a head's z, an MLP's output without its bias."""
        return self.mlp[component.layer] if component.head is None else self.z[component.layer][:, :, component.head]

    def at(self, span: slice) -> "Values":
        """The values of components at some positions."""
        return Values(tuple(x[:, span] for x in self.z), tuple(x[:, span] for x in self.mlp), self.embed[:, span])

    def stack(self, *others: "Values") -> "Values":
        """One table with the rows of all; choices of the second count on from the first's."""
        tables = (self, *others)
        return Values(
            tuple(_join(layer) for layer in zip(*(t.z for t in tables), strict=True)),
            tuple(_join(layer) for layer in zip(*(t.mlp for t in tables), strict=True)),
            _join([t.embed for t in tables]),
            units=tuple(_join(layer) for layer in zip(*(t.units for t in tables), strict=True))
            if _have_units(tables)
            else (),
        )


def zeros(model: Transformer) -> Values:
    """Zero ablation: heads write nothing, MLPs only their output bias."""
    return constant(model, {})


def value_bias(model: Transformer) -> Values:
    """The constant z that TransformerLens' "zero after folding" leaves a head with: b_V + W_V^T b_ln1 (raw
    weights); MLPs are zeroed.
    """
    if model.config.latent is not None:
        raise BadInput("value-bias: latent attention has no constant bias of a head's values; take zero or mean")
    heads = {}
    for layer, block in enumerate(model.blocks):
        bias = block.attn.b_V
        if block.ln1.b is not None:
            bias = bias + torch.einsum("d,hdk->hk", block.ln1.b, block.attn.W_V)
        for head in range(model.config.n_heads):
            heads[Component(layer, head)] = bias[head // model.config.queries_per_kv]
    return constant(model, heads)


def constant(model: Transformer, vectors: Mapping[Component, Float[Tensor, " d"]]) -> Values:
    """Given vectors (a head's z of length d_value, an MLP's output of length d_model), zero for every component not
    named.
    """
    config, like = model.config, model.W_E
    places = [block.device for block in model.blocks]
    z = [like.new_zeros(1, 1, config.n_heads, config.d_value, device=device) for device in places]
    mlp = [like.new_zeros(1, 1, config.d_model, device=device) for device in places]
    for component, vector in vectors.items():
        part = Component.parse(component).within(config)
        expected = config.d_value if part.is_head else config.d_model
        if tuple(vector.shape) != (expected,):
            raise BadInput(f"constant for {part} has shape {tuple(vector.shape)}; expected [{expected}]")
        (mlp[part.layer][0, 0] if part.head is None else z[part.layer][0, 0, part.head]).copy_(vector)
    units = tuple(
        like.new_zeros(1, 1, *unit_shape(config, layer), device=device) for layer, device in enumerate(places)
    )
    return Values(tuple(z), tuple(mlp), like.new_zeros(1, 1, config.d_model), units=units)


def component_values(model: Transformer, component: Component, output: Float[Tensor, "choice pos width"]) -> Values:
    """Replacements of one component, a vector for every choice and position. Other components have none, but for the
    heads of the same layer, which share them: plans must name this component alone.
    """
    config, (n, width) = model.config, output.shape[:2]
    z = [output.new_empty(0, 1, config.n_heads, config.d_value)] * config.n_layers
    mlp = [output.new_empty(0, 1, config.d_model)] * config.n_layers
    if component.head is None:
        mlp[component.layer] = output
    else:
        z[component.layer] = output[:, :, None].expand(-1, -1, config.n_heads, -1)
    return Values(tuple(z), tuple(mlp), output.new_zeros(1, 1, 1).expand(n, width, config.d_model))


def contribution(model: Transformer, component: Component, values: Values) -> Float[Tensor, "choice pos d_model"]:
    """What a component adds to the residual stream in the runs of a table, without its layer's output bias. Where
    attention's output passes a norm: a head's share at the scale that all heads of that row give the norm.
    """
    if component.head is None:
        return values.mlp[component.layer]
    return model.blocks[component.layer].share(values.z[component.layer], component.head)


def sender_outputs(model: Transformer, values: Values) -> Float[Tensor, "choice sender pos d_model"]:
    """What the embedding and every component add to the residual stream, in order of computation, where the
    embedding is.
    """
    parts = [values.embed[:, None]]
    for layer, block in enumerate(model.blocks):
        parts += [block.shares(values.z[layer]).transpose(1, 2), values.mlp[layer][:, None]]
    return torch.cat([part.to(values.embed.device) for part in parts], 1)


def sender_changes(model: Transformer, values: Values, other: Values) -> Float[Tensor, "choice pos sender d_model"]:
    """What the embedding and every component add in one table, less what they add in the other. It is filled layer by
    layer: the outputs of all senders of a large model would not fit several times.
    """
    config, embed = model.config, values.embed
    senders = 1 + config.n_layers * (config.n_heads + 1)
    changes = embed.new_empty(*embed.shape[:2], senders, config.d_model)
    changes[:, :, 0] = embed - other.embed
    for layer, block in enumerate(model.blocks):
        first = 1 + layer * (config.n_heads + 1)
        mlp = first + config.n_heads
        changes[:, :, first:mlp] = (block.shares(values.z[layer]) - block.shares(other.z[layer])).to(embed.device)
        changes[:, :, mlp] = (values.mlp[layer] - other.mlp[layer]).to(embed.device)
    return changes


def activations(model: Transformer, batch: Batch, *, neurons: bool = False) -> Values:
    """The components' own outputs on other prompts: for resampling, activation patching and interchange. Row k is
    prompt k. With `neurons`, those of single neurons and experts as well.
    """
    return values_of(model, _run(model, batch, neurons=neurons), batch)


@torch.no_grad()
def activations_and_logits(
    model: Transformer, batch: Batch, at: Int[Tensor, "prompt query"], *, hooks: Sequence[Hook] = ()
) -> tuple[Values, Float[Tensor, "prompt query out"], tuple[Float[Tensor, "prompt pos kv_head d_head"], ...]]:
    """The same in a run with hooks, the logits at some positions, and what the heads of each layer read (`hook_v`)."""
    layers = range(model.config.n_layers)
    last, reads = f"blocks.{layers[-1]}.hook_resid_post", [f"blocks.{layer}.attn.hook_v" for layer in layers]
    cache = _run(model, batch, last, *reads, hooks=hooks)
    final = take_positions(cache[last], at.to(cache[last].device))
    return values_of(model, cache, batch), model.unembed(final, None, Tap()), tuple(cache[name] for name in reads)


def values_of(model: Transformer, cache: Cache, batch: Batch) -> Values:
    """The same from a cached run of the prompts, which has kept `OUTPUT_HOOKS` and what enters the first layer."""
    layers = range(model.config.n_layers)
    # What the units of each layer's MLP put out, where a run has kept it.
    names = [unit_hook(model.config, layer) for layer in range(model.config.n_layers)]
    return Values(
        tuple(cache[f"blocks.{i}.attn.hook_z"] for i in layers),
        tuple(cache[f"blocks.{i}.hook_mlp_out"] - model.blocks[i].mlp_bias for i in layers),
        cache["blocks.0.hook_resid_pre"],
        batch,
        units=tuple(cache[name] for name in names) if names[0] in cache else (),
    )


def reordered(values: Values, positions: Int[Tensor, "choice pos"]) -> Values:
    """The same table with the outputs of other positions: each choice reads at `positions`."""
    return _combine(lambda tensor: take_positions(tensor, positions.to(tensor.device)), values)


def embeddings(model: Transformer, batch: Batch) -> Float[Tensor, "prompt pos d_model"]:
    """What enters the first layer: the `embed` of `activations`, without running the layers."""
    return model.embed(batch.tokens, model.layout(batch.tokens, batch.mask), Tap())


def means(
    model: Transformer, batch: Batch, *, per_position: bool = False, neurons: bool = False, rows: int = 64
) -> Values:
    """Mean outputs over the real tokens of a batch, over all positions or at each position apart."""
    if len(batch) == 0:
        raise BadInput("the batch to take means over is empty; give at least one prompt")
    starts = range(0, len(batch), rows)
    parts = (activations(model, batch.take(slice(start, start + rows)), neurons=neurons) for start in starts)
    return _means(model, parts, per_position=per_position)


def means_of(model: Transformer, values: Values) -> Values:
    """The same for prompts that have been run: `values` are their `activations`."""
    return _means(model, [values], per_position=False)


def _means(model: Transformer, parts: Iterable[Values], *, per_position: bool) -> Values:
    total: Values | None = None
    count = torch.zeros(())
    for part in parts:
        prompts = part.prompts
        assert prompts is not None
        real = model.config.not_padding(prompts.tokens) if prompts.mask is None else prompts.mask
        axes = (0,) if per_position else (0, 1)
        sums = _combine(lambda x, real=real, axes=axes: _masked_sum(x, real, axes), part)
        count = count.to(real.device) + (real.sum(0) if per_position else real.sum())
        total = sums if total is None else _combine(torch.add, total, sums)
    assert total is not None
    like = model.W_E.dtype
    count = count.clamp(min=1)
    return _combine(lambda x: (x / count.to(x.device).view(1, -1, *[1] * (x.ndim - 2))).to(like), total)


def _run(model: Transformer, batch: Batch, *names: str, neurons: bool = False, hooks: Sequence[Hook] = ()) -> Cache:
    ends = (*OUTPUT_HOOKS, *UNIT_HOOKS) if neurons else OUTPUT_HOOKS
    with torch.no_grad():
        _, cache = model.run_with_cache(
            batch.tokens,
            mask=batch.mask,
            names=lambda name: name.endswith(ends) or name in ("blocks.0.hook_resid_pre", *names),
            choose=torch.zeros(len(batch), 1, dtype=torch.long, device=batch.tokens.device),
            fwd_hooks=hooks,
        )
    return cache


def _combine(function: Callable[..., Tensor], *tables: Values) -> Values:
    """Apply a function to the tensors of one or more tables, place by place; MLPs of experts keep their empty table."""
    return Values(
        tuple(function(*layer) for layer in zip(*(t.z for t in tables), strict=True)),
        tuple(function(*layer) for layer in zip(*(t.mlp for t in tables), strict=True)),
        function(*(t.embed for t in tables)),
        units=tuple(function(*layer) for layer in zip(*(t.units for t in tables), strict=True))
        if _have_units(tables)
        else (),
    )


def _have_units(tables: Iterable[Values]) -> bool:
    """Whether every table has values of neurons and experts."""
    return all(table.units for table in tables)


def _masked_sum(x: Tensor, real: Bool[Tensor, "prompt pos"], axes: tuple[int, ...]) -> Tensor:
    real = real.to(x.device)
    return (widened(x) * real.view(*real.shape, *[1] * (x.ndim - 2))).sum(axes, keepdim=True)


def _join(tensors: "list[Tensor] | tuple[Tensor, ...]") -> Tensor:
    """Concatenate along choices, stretching single positions to the longest."""
    width = max(t.shape[1] for t in tensors)
    for t in tensors:
        if t.shape[1] not in (1, width):
            raise BadInput(f"tables of {t.shape[1]} and {width} positions cannot be stacked; pad the prompts alike")
    return torch.cat([t.expand(-1, width, *[-1] * (t.ndim - 2)) for t in tensors])


# The mean token embedding of each row, looked up without a forward pass.


@torch.no_grad()
def mean_embedding(model: Transformer, batch: Batch) -> Float[Tensor, "row width"]:
    """The mean embedding of each row's tokens, padding left out."""
    tokens = batch.tokens.to(model.device)
    real = torch.ones_like(tokens) if batch.mask is None else batch.mask.to(model.device).long()
    weight = real / real.sum(1, keepdim=True).clamp(min=1)
    return torch.einsum("rp,rpd->rd", weight, model.W_E[tokens].float()).cpu().contiguous()


# What a component writes where something is added to its inputs alone: one layer's arithmetic, no forward pass.


@torch.no_grad()
def output_with(
    model: Transformer,
    component: Component,
    batch: Batch,
    *,
    resid: Float[Tensor, "prompt pos d_model"],
    values: Values,
    change: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos width"]:
    """A head's z, or an MLP's output without its bias, where it reads `change` beside what it reads in a run of the
    batch; `resid` enters its layer there, and `values` are what the components write.
    """
    block = model.blocks[component.layer]
    if component.head is None:
        after = resid + block.write_heads(values.z[component.layer], Tap())
        return block.write_mlp(block.mlp_input(resid, after) + change, Tap()) - block.mlp_bias
    heads = block.attn.heads(block.ln1(resid + change, Tap()), None, Tap())
    layout = model.layout(batch.tokens, batch.mask).on(block.device)
    return block.attn.mix(heads, layout, None, Tap())[:, :, component.head]


@torch.no_grad()
def logits_with(
    model: Transformer,
    *,
    resid: Float[Tensor, "prompt pos d_model"],
    values: Values,
    change: Float[Tensor, "prompt pos d_model"],
) -> Float[Tensor, "prompt pos out"]:
    """The logits where the output reads `change` beside what it reads in a run; `resid` enters the last layer there."""
    last = model.config.n_layers - 1
    block = model.blocks[last]
    final = resid + block.write_heads(values.z[last], Tap()) + values.mlp[last] + block.mlp_bias
    return model.unembed(final + change, None, Tap())

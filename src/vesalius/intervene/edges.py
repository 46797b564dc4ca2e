"""The edges of a transformer as one table, and runs with many edges cut at once: sets of edges as masks, all prompts
under many masks in one pass.

A plan of the engine names its edges row by row, which suits a few edges in each row. ACDC and the faithfulness of edge
circuits cut hundreds of edges in every row, the same on all prompts. Here such a set is a mask over the table of
`EdgeGraph`, and a receiver's input is one matrix product: the row's residual stream plus mask times (counterfactual -
what the sender wrote in this row), the same sum that the engine takes edge by edge.

In the tensors here the axis `flat` runs over prompts, positions and d_model, so that summing over senders is one matrix
product for all prompts. What the senders wrote is kept where the embedding is; a layer on another device is sent its
inputs and sends back what it wrote.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component, Edge, Port, Shape, all_components
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import activation_memory
from vesalius.intervene.values import Batch, activations, sender_outputs
from vesalius.model.attention import Heads, take_positions
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Block, Transformer
from vesalius.progress import checkpoint

# The edges of a transformer as one table: senders in rows, inputs of receivers in columns.
#
# Senders are the embedding and every component, in order of computation. Columns are, layer by layer, the q inputs of
# the heads, their k inputs, their v inputs and the MLP's input, and the logits at the end. Whatever is computed before
# a receiver feeds it, so the senders of a column are always a prefix of the rows. Keys and values are counted per query
# head, also where several share a key-value head. In parallel blocks heads do not feed the MLP of their own layer.

HEAD_PORTS: tuple[Literal["q", "k", "v"], ...] = ("q", "k", "v")


@dataclass(frozen=True)
class EdgeGraph:
    """All edges of a model of this shape; `scores[..., sender, receiver]` tensors are read and written by its views."""

    n_layers: int
    n_heads: int
    parallel: bool = False

    @classmethod
    def of(cls, shape: Shape) -> "EdgeGraph":
        """The graph of a model."""
        return cls(shape.n_layers, shape.n_heads, getattr(shape, "parallel", False))

    @cached_property
    def senders(self) -> tuple[Component | None, ...]:
        """The embedding (None), then every component."""
        return (None, *all_components(self))

    @cached_property
    def receivers(self) -> tuple[tuple[Component | None, Port], ...]:
        """Every input that edges enter by; the logits are (None, "logits")."""
        inputs: list[tuple[Component | None, Port]] = []
        for layer in range(self.n_layers):
            inputs.extend((Component(layer, head), port) for port in HEAD_PORTS for head in range(self.n_heads))
            inputs.append((Component(layer), "mlp"))
        return (*inputs, (None, "logits"))

    @cached_property
    def real(self) -> Bool[Tensor, "sender receiver"]:
        """Which pairs are edges."""
        feeding = torch.tensor([self.n_feeding(receiver) for receiver, _ in self.receivers])
        return torch.arange(len(self.senders))[:, None] < feeding[None]

    @cached_property
    def places(self) -> Int[Tensor, "edge 2"]:
        """Row and column of every edge, in the order of `edges`."""
        return self.real.nonzero()

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, senders in order of computation."""
        return tuple(Edge(self.senders[s], *self.receivers[r]) for s, r in self.places.tolist())

    @property
    def n_edges(self) -> int:
        """How many edges there are, without listing them: a model of 70B has 40 million."""
        heads = 3 * self.n_heads
        layers = ((Component(layer, 0), Component(layer)) for layer in range(self.n_layers))
        inside = sum(heads * self.n_feeding(head) + self.n_feeding(mlp) for head, mlp in layers)
        return inside + self.n_feeding(None)

    def n_feeding(self, receiver: Component | None) -> int:
        """How many senders are computed before a receiver."""
        if receiver is None:
            return 1 + self.n_layers * (self.n_heads + 1)
        after_heads = not receiver.is_head and not self.parallel
        return 1 + receiver.layer * (self.n_heads + 1) + (self.n_heads if after_heads else 0)

    def port(self, layer: int, port: str) -> slice:
        """The columns of one kind of input in a layer."""
        first = layer * (3 * self.n_heads + 1)
        if port == "mlp":
            return slice(first + 3 * self.n_heads, first + 3 * self.n_heads + 1)
        start = first + HEAD_PORTS.index(port) * self.n_heads  # type: ignore[arg-type]
        return slice(start, start + self.n_heads)

    def heads(self, layer: int) -> slice:
        """The columns of all heads' inputs in a layer: q, then k, then v."""
        return slice(self.port(layer, "q").start, self.port(layer, "v").stop)

    def by_edge(self, scores: Float[Tensor, "sender receiver"]) -> dict[Edge, float]:
        """The score of every edge by its name."""
        return dict(zip(self.edges, scores[tuple(self.places.T)].tolist(), strict=True))

    def by_sender(self, scores: Float[Tensor, "sender receiver"]) -> dict[Component, float]:
        """A score for every component: the largest magnitude among its outgoing edges."""
        by_component = self.component_scores(scores).tolist()
        return {part: score for part, score in zip(self.senders[1:], by_component, strict=True) if part is not None}

    def component_scores(self, scores: Float[Tensor, "... sender receiver"]) -> Float[Tensor, "... component"]:
        """The same for any number of tables, components in order of computation."""
        return torch.where(self.real, scores.abs(), 0.0).amax(-1)[..., 1:]


def on_paths(graph: EdgeGraph, mask: Bool[Tensor, "sender receiver"]) -> Bool[Tensor, "sender receiver"]:
    """The edges that lie on a path from the tokens to the logits. An edge that does not carries nothing: its sender has
    no input that differs from the counterfactual's, or its receiver is not read.
    """
    mask = mask.clone()
    receivers = [graph.senders.index(part) if part is not None else None for part, _ in graph.receivers]
    owner = torch.tensor([-1 if place is None else place for place in receivers])
    while True:
        fed = torch.zeros(len(graph.senders), dtype=torch.bool)
        fed[0] = True
        fed[owner[(mask.any(0)) & (owner >= 0)]] = True
        read = mask.any(1)
        alive = mask & fed[:, None] & (read[owner.clamp(min=0)] | (owner < 0))[None]
        if torch.equal(alive, mask):
            return mask
        mask = alive


_CLEAN = Tap()


class SenderRecordings:
    """What every sender writes on prompts and on their counterfactuals, and the clean residual stream at each layer.

    With `where`, a cut edge carries the counterfactual at these positions only.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: Transformer,
        batch: Batch,
        readout: Readout,
        *,
        counterfactual: Batch,
        where: Bool[Tensor, "prompt pos"] | None = None,
    ) -> None:
        batch = batch.to(model.device)
        self.model, self.readout, self.n_prompts = model, readout, len(batch)
        self.graph = EdgeGraph.of(model.config)
        self.layout = model.layout(batch.tokens, batch.mask)
        self.width = batch.tokens.shape[1]
        self.clean, self.counterfactual = (
            sender_outputs(model, activations(model, prompts)).transpose(0, 1).flatten(1)
            for prompts in (batch, counterfactual.to(model.device))
        )
        self.where: Float[Tensor, " flat"] | None = None
        if where is not None:
            spread = where.to(model.device)[:, :, None].expand(-1, -1, model.config.d_model)
            self.where = spread.flatten().to(self.clean.dtype)
        self.change: Float[Tensor, "sender flat"] = self.counterfactual - self.clean
        self.change *= 1.0 if self.where is None else self.where
        # The residual stream before each layer, and at the end.
        n = self.model.config.n_layers
        names = [*(f"blocks.{layer}.hook_resid_pre" for layer in range(n)), f"blocks.{n - 1}.hook_resid_post"]
        first = torch.zeros(len(batch), 1, dtype=torch.long, device=self.model.device)
        _, cache = self.model.run_with_cache(batch.tokens, mask=batch.mask, names=names, choose=first)
        self.resid: list[Float[Tensor, " flat"]] = [cache[name].flatten().to(self.model.device) for name in names]

    def n_before(self, layer: int) -> int:
        """How many senders are computed before a layer."""
        return 1 + layer * (self.model.config.n_heads + 1)

    def spread(self, bias: Float[Tensor, " d_model"]) -> Float[Tensor, " flat"]:
        """A bias at every position of every prompt."""
        return bias.to(self.model.device).repeat(self.n_prompts * self.width)


@torch.no_grad()
def run_edge_masks(
    recordings: SenderRecordings,
    cut: Bool[Tensor, "mask sender receiver"],
    *,
    first_layer: int = 0,
    memory: int | None = None,
) -> Float[Tensor, "mask prompt"]:
    """The readout of every prompt with the edges of every mask cut over to the counterfactual.

    Runs start at `first_layer`; no mask may cut an edge into a receiver before it. `memory` bounds the bytes of
    activations held at once.
    """
    per_mask = 3 * recordings.clean.numel() * recordings.clean.element_size()
    at_once = max(1, activation_memory(recordings.model, memory) // per_mask)
    scores, done = [], 0
    for part in cut.to(recordings.model.device).split(at_once):
        scores.append(_MaskedRun(recordings, part, first_layer).scores())
        done += len(part)
        checkpoint("circuits", done, len(cut))
    return torch.cat(scores)


class _MaskedRun:
    """All prompts under some masks, on their way from one layer to the logits."""

    def __init__(self, recordings: SenderRecordings, cut: Bool[Tensor, "mask sender receiver"], layer: int) -> None:
        self.recordings, self.model, self.graph = recordings, recordings.model, recordings.graph
        self.first_layer, self.n_masks = layer, len(cut)
        self.changes = _Changes(recordings, cut.to(recordings.clean.dtype), first=recordings.n_before(layer))

    def scores(self) -> Float[Tensor, "mask prompt"]:
        """Walk the layers and read off every prompt."""
        recordings, n = self.recordings, self.recordings.n_prompts
        prompt = torch.arange(n, device=self.model.device).repeat(self.n_masks)
        layout = recordings.layout.take(prompt)
        resid = recordings.resid[self.first_layer].repeat(self.n_masks, 1)
        for layer in range(self.first_layer, len(self.model.blocks)):
            checkpoint()
            block = self.model.blocks[layer]
            z = block.attn.mix(self._heads(layer, resid), layout.on(block.device), None, _CLEAN)
            contributions, out = self._written(block, z)
            mid = resid + out
            if not block.parallel:
                self.changes.note(contributions)
            inputs = self.changes.inputs(block.mlp_input(resid, mid), self.graph.port(layer, "mlp"))
            if block.parallel:
                self.changes.note(contributions)
            out = block.write_mlp(self._rows(inputs).to(block.device), _CLEAN).reshape(self.n_masks, -1)
            out = out.to(resid.device)
            resid = mid + out
            self.changes.note((out - recordings.spread(block.mlp_bias))[:, None])
        logits = slice(len(self.graph.receivers) - 1, len(self.graph.receivers))
        return self._read(self._rows(self.changes.inputs(resid, logits)), prompt).view(self.n_masks, n)

    def _heads(self, layer: int, resid: Float[Tensor, "mask flat"]) -> Heads:
        """Queries, keys and values, each query head from its own view of the residual stream."""
        block, n_heads = self.model.blocks[layer], self.model.config.n_heads
        n, width, attn = self.recordings.n_prompts, self.recordings.width, block.attn
        x = self.changes.inputs(resid, self.graph.heads(layer)).unflatten(2, (n * width, -1)).to(block.device)
        inputs = zip(HEAD_PORTS, block.ln1(x, _CLEAN).split(n_heads, 1), strict=True)
        projected = [attn.own(port, part, range(n_heads)) for port, part in inputs]
        return Heads(*(part.unflatten(2, (n, width)).permute(0, 2, 3, 1, 4).flatten(0, 1) for part in projected))

    def _written(
        self, block: Block, z: Float[Tensor, "row pos head d_head"]
    ) -> tuple[Float[Tensor, "mask head flat"], Float[Tensor, "mask flat"]]:
        """What each head, and attention as a whole, adds to the residual stream, where the embedding is."""
        by_head = z.unflatten(0, (self.n_masks, self.recordings.n_prompts)).permute(0, 3, 1, 2, 4).flatten(2, 3)
        contributions = by_head @ block.attn.W_O
        out, norm = contributions.sum(1) + block.attn.b_O, block.ln1_post
        if norm.w is not None:
            contributions = norm.share(contributions, norm.scale(out)[:, None])
            out = norm(out, _CLEAN)
        return contributions.flatten(2).to(self.model.device), out.flatten(1).to(self.model.device)

    def _rows(self, streams: Float[Tensor, "mask 1 flat"]) -> Float[Tensor, "row pos d_model"]:
        return streams.reshape(self.n_masks * self.recordings.n_prompts, self.recordings.width, -1)

    def _read(self, resid: Float[Tensor, "row pos d_model"], prompt: Tensor) -> Float[Tensor, " row"]:
        readout = self.recordings.readout
        at, choose = (None if x is None else x.to(resid.device)[prompt] for x in (readout.at, readout.choose))
        resid = resid if at is None else take_positions(resid, at)
        logits = self.model.unembed(resid, choose, _CLEAN)
        return readout.score(logits, prompt.to(logits.device)).to(self.model.device)


class _Changes:
    """Counterfactual minus what was added, by every sender so far, where it can be patched in.

    The `first` senders wrote what they write in the clean run, the same under every mask. Of the others, what is summed
    are the senders cut or, where they are fewer, all senders less those kept.
    """

    def __init__(self, recordings: SenderRecordings, cut: Float[Tensor, "mask sender receiver"], *, first: int) -> None:
        self.recordings, self.cut, self.first, self.done = recordings, cut, first, first
        self.early = recordings.change[:first]
        senders, flat = recordings.clean.shape
        self.late: Float[Tensor, "mask sender flat"] = recordings.clean.new_empty(len(cut), senders - first, flat)
        self.total: Float[Tensor, "mask flat"] = recordings.clean.new_zeros(len(cut), flat)

    def note(self, contributions: Float[Tensor, "mask sender flat"]) -> None:
        """Add what the next senders wrote under every mask."""
        new = slice(self.done, self.done + contributions.shape[1])
        change = self.late[:, new.start - self.first : new.stop - self.first]
        torch.sub(self.recordings.counterfactual[new], contributions, out=change)
        if self.recordings.where is not None:
            change *= self.recordings.where
        self.total += change.sum(1)
        self.done = new.stop

    def inputs(self, resid: Float[Tensor, "mask flat"], columns: slice) -> Float[Tensor, "mask receiver flat"]:
        """The residual stream as each of these receivers sees it."""
        cut = self.cut[:, : self.done, columns].transpose(1, 2)
        cut_early, cut_late = cut[:, :, : self.first], cut[:, :, self.first :]
        kept = 1 - cut_late
        cut_somewhere, kept_somewhere = (part.any(0).any(0).nonzero()[:, 0] for part in (cut_late, kept))
        if len(cut_somewhere) <= len(kept_somewhere):
            senders, weights = cut_somewhere, cut_late
        else:
            senders, weights, resid = kept_somewhere, -kept, resid + self.total
        streams = resid[:, None].expand(-1, cut.shape[1], -1)
        if bool(cut_early.any()):
            streams = streams + cut_early @ self.early
        if not len(senders):
            return streams
        return torch.baddbmm(streams, weights[:, :, senders], self.late[:, senders])

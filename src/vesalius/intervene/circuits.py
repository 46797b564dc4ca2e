"""Runs of circuits of edges: a few edges carry what their senders write, all others the counterfactual.

`edges.run_edge_masks` suits runs in which few edges are cut. Here few are kept, all of them inside a set that is known
before (`inside`). A component that no edge of the set enters, or leaves, is never computed: it writes what it writes on
the counterfactual. A receiver's input is the counterfactual's residual stream plus, for each edge kept, what its sender
wrote less what it writes on the counterfactual:

    input(receiver) = counterfactual stream + sum over senders of weight x (written - counterfactual)

Weights are 0 or 1, or masks between them that are being learned, to which gradients flow. In a causal model prompts
and counterfactuals are alike up to the first token that differs, so that only the tokens from there to the readout are
computed. A circuit of a tenth of the components thus costs about a tenth of a pass, and less where prompts begin alike.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.components import Component
from vesalius.intervene.edges import HEAD_PORTS, EdgeGraph
from vesalius.intervene.readout import Readout
from vesalius.intervene.recordings import activation_memory, attention_share
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import Batch, contribution, embeddings, values_of
from vesalius.model.attention import Heads, take_positions
from vesalius.model.hooks import Tap
from vesalius.model.positions import Layout
from vesalius.model.transformer import Block, Transformer
from vesalius.progress import checkpoint

_CLEAN = Tap()
#: How often the outputs of all senders are held at the same time.
_COPIES = 4


class CircuitRuns:
    """Prompts that can be run under any circuit of edges `inside` a set. With `where`, an edge that is not kept carries
    the counterfactual at these positions only; every component is computed then. `cost` counts the passes of one
    prompt that were run so far.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: Transformer,
        batch: Batch,
        readout: Readout,
        *,
        counterfactual: Batch,
        inside: Bool[Tensor, "sender receiver"],
        where: Bool[Tensor, "prompt pos"] | None = None,
    ) -> None:
        batch, other = batch.to(model.device), counterfactual.to(model.device)
        self.model, self.readout, self.n = model, readout, len(batch)
        self.graph = EdgeGraph.of(model.config)
        self.inside = inside & self.graph.real
        first, end, alike = _span(model, batch, other, readout, where)
        self.first, self.positions, self.cost = first, end - first, 0.0
        self.members = self._computed(every=where is not None, alike=alike)
        self.layers = [[part for part in self.members if part.layer == layer] for layer in range(len(model.blocks))]
        places = {part: place for place, part in enumerate(self.graph.senders)}
        self.senders: Int[Tensor, " sender"] = torch.tensor([0, *(places[part] for part in self.members)])
        self.layout = model.layout(batch.tokens[:, :end], None if batch.mask is None else batch.mask[:, :end])
        self.where: Float[Tensor, " flat"] | None = None
        if where is not None:
            spread = where[:, first:end].to(model.device)[:, :, None].expand(-1, -1, model.config.d_model)
            self.where = spread.flatten().to(model.W_E.dtype)
        self._record(batch, other, slice(first, end))

    def _computed(self, *, every: bool, alike: bool) -> list[Component]:
        """The components whose outputs can differ from the counterfactual's and are read."""
        parts = cast("list[Component]", list(self.graph.senders[1:]))
        if every:
            return parts
        entered = {
            part for (part, _), used in zip(self.graph.receivers, self.inside.any(0).tolist(), strict=True) if used
        }
        left = self.inside.any(1)[1:].tolist()
        return [part for part, used in zip(parts, left, strict=True) if used and (part in entered or not alike)]

    def _record(self, batch: Batch, other: Batch, span: slice) -> None:
        """What members and the residual stream are on the counterfactual, and the embedding's change."""
        model, n_layers = self.model, len(self.model.blocks)
        ends = ("attn.hook_z", "hook_mlp_out", "hook_resid_pre", "hook_resid_mid", f"{n_layers - 1}.hook_resid_post")
        first = torch.zeros(len(other), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(
            other.tokens, mask=other.mask, names=lambda name: name.endswith(ends), choose=first
        )
        values = values_of(model, cache, other)
        self.counterfactual = {part: self._flat(contribution(model, part, values)[:, span]) for part in self.members}
        self.embedding = self._flat((embeddings(model, batch) - values.embed)[:, span])
        pre = [cache[f"blocks.{layer}.hook_resid_pre"] for layer in range(n_layers)]
        self.pre = [self._flat(stream[:, span]) for stream in pre]
        fed = pre if model.config.parallel else [cache[f"blocks.{layer}.hook_resid_mid"] for layer in range(n_layers)]
        self.mid = [self._flat(stream[:, span]) for stream in fed]
        self.final = self._flat(cache[f"blocks.{n_layers - 1}.hook_resid_post"][:, span])
        self.early = [self._early(layer, pre[layer][:, : span.start]) for layer in range(n_layers)]
        self.cost += self.n

    def _early(self, layer: int, stream: Float[Tensor, "prompt pos d_model"]) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the members at the positions that are not computed."""
        heads, block = self.heads_of(layer), self.model.blocks[layer]
        if not heads or not stream.shape[1]:
            return None
        x = block.ln1(stream.to(block.device), _CLEAN).flatten(0, 1).expand(len(heads), -1, -1)
        k, v = (
            block.attn.own(port, x, heads).unflatten(1, stream.shape[:2]).permute(1, 2, 0, 3) for port in ("k", "v")
        )
        return k, v

    def heads_of(self, layer: int) -> list[int]:
        """The heads computed in a layer: the members, or all where a norm divides them by their sum."""
        heads = [part.head for part in self.layers[layer] if part.head is not None]
        if heads and self.model.blocks[layer].ln1_post.w is not None:
            return list(range(self.model.config.n_heads))
        return heads

    def _flat(self, x: Float[Tensor, "prompt pos d_model"]) -> Float[Tensor, " flat"]:
        return x.to(self.model.device).flatten()

    def scores(
        self,
        weights: Float[Tensor, "circuit sender receiver"] | Bool[Tensor, "circuit sender receiver"],
        *,
        first_layer: int = 0,
        memory: int | None = None,
    ) -> Float[Tensor, "circuit prompt"]:
        """The readout of every prompt under circuits, given by the weights of all edges; what is outside of the set is
        cut. Gradients reach the weights, if these ask for any. `memory` bounds the bytes of activations held at once.
        Runs start at `first_layer`: every edge of the set into a receiver before it must be kept.
        """
        learned = weights.requires_grad
        wide = torch.where(self.inside, weights, 0)[:, self.senders].to(self.model.device, self.embedding.dtype)
        per_circuit = _COPIES * len(self.senders) * self.embedding.numel() * self.embedding.element_size()
        at_once = len(wide) if learned else max(1, activation_memory(self.model, memory) // per_circuit)
        rows = []
        with torch.set_grad_enabled(learned):
            for part in wide.split(at_once):
                checkpoint()
                rows.append(_Run(self, part, first_layer).scores())
        self.cost += self.passes * len(weights) * self.n * (1 - first_layer / self.model.config.n_layers)
        return torch.cat(rows)

    @cached_property
    def base(self) -> Float[Tensor, "sender flat"]:
        """What the senders change where every edge of the set is kept."""
        run = _Run(self, self.inside[None, self.senders].to(self.model.device, self.embedding.dtype))
        with torch.no_grad():
            run.scores()
        self.cost += self.passes * self.n
        assert run.table is not None
        return run.table[0]

    @property
    def passes(self) -> float:
        """The share of a pass that one circuit takes on one prompt: components and positions that are computed."""
        config, share = self.model.config, attention_share(self.model.blocks[0])
        heads = sum(part.is_head for part in self.members)
        computed = share * heads / config.n_heads + (1 - share) * (len(self.members) - heads)
        return computed / config.n_layers * self.positions / self.layout.attend.shape[-1]


class _Run:
    """All prompts under some circuits, on their way to the logits."""

    def __init__(
        self, runs: CircuitRuns, weights: Float[Tensor, "circuit sender receiver"], first_layer: int = 0
    ) -> None:
        self.runs, self.model, self.weights, self.n_circuits = runs, runs.model, weights, len(weights)
        self.learned, self.done, self.first_layer = weights.requires_grad, 1, first_layer
        senders, flat = weights.shape[1], runs.embedding.numel()
        start = runs.embedding.expand(self.n_circuits, 1, flat)
        self.parts: list[Float[Tensor, "circuit sender flat"]] = [start]
        # Without gradients one table is filled; memory that is new for every layer costs more than the products.
        self.table = None if self.learned else start.new_empty(self.n_circuits, senders, flat)
        if self.table is not None:
            self.table[:, :1] = start
        if first_layer:
            assert self.table is not None
            self.done += sum(len(members) for members in runs.layers[:first_layer])
            self.table[:, : self.done] = runs.base[: self.done]

    def scores(self) -> Float[Tensor, "circuit prompt"]:
        """Walk the layers and read off every prompt."""
        runs, graph = self.runs, self.runs.graph
        prompt = torch.arange(runs.n, device=self.model.device).repeat(self.n_circuits)
        layout = runs.layout.take(prompt)
        for layer in range(self.first_layer, len(self.model.blocks)):
            block, members = self.model.blocks[layer], runs.layers[layer]
            written: list[Tensor] = []
            if any(part.is_head for part in members):
                written.append(self._attention(block, layer, layout))
            fed = None
            if members and not members[-1].is_head:
                if not block.parallel:
                    self._note(written)
                    written = []
                fed = self._inputs(runs.mid[layer], [graph.port(layer, "mlp").start])
            self._note(written)
            if fed is not None:
                out = block.write_mlp(self._rows(fed).to(block.device), _CLEAN) - block.mlp_bias
                out = out.reshape(self.n_circuits, 1, -1).to(self.model.device)
                self._note([out - runs.counterfactual[Component(layer)]])
        final = self._rows(self._inputs(runs.final, [len(graph.receivers) - 1]))
        return self._read(final, prompt).view(self.n_circuits, runs.n)

    def _note(self, written: Sequence[Float[Tensor, "circuit sender flat"]]) -> None:
        """Keep what the next senders changed."""
        for change in written:
            if self.table is None:
                self.parts.append(change)
            else:
                self.table[:, self.done : self.done + change.shape[1]] = change
            self.done += change.shape[1]

    def _inputs(self, stream: Float[Tensor, " flat"], columns: list[int]) -> Float[Tensor, "circuit receiver flat"]:
        """The residual stream as each of these receivers sees it."""
        changes = torch.cat(self.parts, 1) if self.table is None else self.table[:, : self.done]
        weights = self.weights[:, : self.done][:, :, columns].transpose(1, 2)
        kept, where = weights @ changes, self.runs.where
        if where is not None:
            kept = where * kept + (1 - where) * changes.sum(1, keepdim=True)
        return stream + kept

    def _attention(self, block: Block, layer: int, layout: Layout) -> Float[Tensor, "circuit head flat"]:
        """What the heads that are members change."""
        runs, graph = self.runs, self.runs.graph
        heads = runs.heads_of(layer)
        columns = [graph.port(layer, port).start + head for port in HEAD_PORTS for head in heads]
        x = self._inputs(runs.pre[layer], columns).unflatten(2, (runs.n * runs.positions, -1)).to(block.device)
        inputs = zip(HEAD_PORTS, block.ln1(x, _CLEAN).split(len(heads), 1), strict=True)
        shape = (runs.n, runs.positions)
        q, k, v = (
            block.attn.own(port, part, heads).unflatten(2, shape).permute(0, 2, 3, 1, 4).flatten(0, 1)
            for port, part in inputs
        )
        if (early := runs.early[layer]) is not None:
            again = (self.n_circuits, 1, 1, 1)
            k, v = (torch.cat([before.repeat(again), own], 1) for before, own in zip(early, (k, v), strict=True))
        at = torch.arange(runs.first, runs.first + runs.positions, device=block.device).expand(len(q), -1)
        z = block.attn.mix(Heads(q, k, v), layout.on(block.device), at, _CLEAN, which=heads)
        by_head = z.unflatten(0, (self.n_circuits, runs.n)).permute(0, 3, 1, 2, 4).flatten(2, 3)
        written, norm = by_head @ block.attn.W_O[heads], block.ln1_post
        if norm.w is not None:
            written = norm.share(written, norm.scale(written.sum(1) + block.attn.b_O)[:, None])
        members = [part for part in runs.layers[layer] if part.is_head]
        written = written[:, [heads.index(part.head) for part in members]].flatten(2).to(self.model.device)  # type: ignore[arg-type]
        return written - torch.stack([runs.counterfactual[part] for part in members])

    def _rows(self, streams: Float[Tensor, "circuit 1 flat"]) -> Float[Tensor, "row pos d_model"]:
        return streams.reshape(self.n_circuits * self.runs.n, self.runs.positions, -1)

    def _read(self, resid: Float[Tensor, "row pos d_model"], prompt: Tensor) -> Float[Tensor, " row"]:
        readout = self.runs.readout
        at, choose = (None if x is None else x.to(resid.device)[prompt] for x in (readout.at, readout.choose))
        resid = resid if at is None else take_positions(resid, at - self.runs.first)
        logits = self.model.unembed(resid, choose, _CLEAN)
        return readout.score(logits, prompt.to(logits.device)).to(self.model.device)


def _span(
    model: Transformer, batch: Batch, other: Batch, readout: Readout, where: Tensor | None
) -> tuple[int, int, bool]:
    """The first position to compute and the one after the last, and whether prompts and counterfactuals have tokens at
    the same positions.
    """
    width = batch.tokens.shape[1]
    real, other_real = (real_tokens(model.config, one) for one in (batch, other))
    alike = bool((real == other_real).all())
    if not model.config.causal or readout.at is None or where is not None or not alike:
        return 0, width, alike
    same = (batch.tokens == other.tokens).long().cumprod(1).sum(1)
    at = readout.at.to(same.device)
    return int(min(same.min(), at.min())), int(at.max()) + 1, alike

"""ACDC: walk from the logits to the embedding and cut every edge that is not missed.

At each input of each receiver, latest first, every edge that enters it is cut over to the counterfactual in turn,
beside the edges cut before; where the mean score falls by less than the threshold the cut stays. Many thresholds walk
at once, as rows of one batch, and an edge's score is the largest threshold at which it survives (0: it never does).

Nothing before the receiver under test has been cut yet, so each test starts from the recorded clean run at the
receiver's layer. Cuts are exact, as the engine's are: a receiver's input is the row's residual stream plus
(counterfactual - what the sender wrote in this row) for every edge cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.discovery.attribution import sender_outputs
from vesalius.discovery.graph import HEAD_PORTS, EdgeGraph
from vesalius.errors import BadInput
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch, activations
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Heads, Transformer, take_positions

#: Shares of the clean score.
THRESHOLDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
#: Beyond this, testing edge by edge takes hours.
MAX_EDGES = 6_000
_CLEAN = Tap()


@dataclass(frozen=True)
class Pruned:
    """The score of every edge, and the work in forward passes of the whole batch."""

    scores: Float[Tensor, "sender receiver"]
    forwards: float


@torch.no_grad()
def acdc(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    progress: Callable[[int, int], None] | None = None,
) -> Pruned:
    """Prune at every threshold (a share of the clean score's magnitude) and score edges by what they survive."""
    graph = EdgeGraph.of(model.config)
    if len(graph.edges) > MAX_EDGES:
        raise BadInput(f"acdc tests edges one by one and this model has {len(graph.edges)}; use eap-ig")
    if not thresholds or min(thresholds) <= 0:
        raise BadInput(f"thresholds {list(thresholds)} cannot be used; give positive numbers")
    patched = PatchedRuns(model, batch, readout, counterfactual=counterfactual, where=where)
    cut = torch.zeros(len(thresholds), *graph.real.shape, dtype=torch.bool, device=model.device)
    current = patched.scores(cut[:1], len(model.blocks)).mean(1).expand(len(thresholds))
    limits = torch.tensor(thresholds, device=model.device) * current[0].abs()
    forwards, done = 3.0, 0
    for receiver in reversed(range(len(graph.receivers))):
        part = graph.receivers[receiver][0]
        layer = len(model.blocks) if part is None else part.layer
        for sender in reversed(range(graph.n_feeding(part))):
            tried = cut.clone()
            tried[:, sender, receiver] = True
            # Thresholds that have cut the same edges so far need one run between them.
            different, like = tried.unique(dim=0, return_inverse=True)
            found = patched.scores(different, layer).mean(1)[like]
            unmissed = current - found < limits
            cut[unmissed, sender, receiver] = True
            current = torch.where(unmissed, found, current)
            forwards += len(different) * (len(model.blocks) - layer) / len(model.blocks)
            done += 1
            if progress:
                progress(done, len(graph.edges))
    survived = torch.where(cut, 0.0, torch.tensor(thresholds, device=model.device)[:, None, None]).max(0).values
    return Pruned(torch.where(graph.real, survived.cpu(), 0.0), forwards)


class PatchedRuns:
    """Runs of a batch with any edges cut over to the counterfactual, all prompts under many cuts at once."""

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
        self.model, self.readout, self.n = model, readout, len(batch)
        self.graph = EdgeGraph.of(model.config)
        self.layout = model.layout(batch.tokens, batch.mask)
        self.written = sender_outputs(model, activations(model, batch))
        self.other = sender_outputs(model, activations(model, counterfactual.to(model.device)))
        self.where = None if where is None else where.to(model.device)[:, None, :, None]
        change = self.other - self.written
        change = change if self.where is None else change * self.where
        self.clean_change = change.transpose(0, 1).flatten(1)
        self.resid = self._clean_stream()

    def scores(self, cut: Bool[Tensor, "set sender receiver"], layer: int) -> Float[Tensor, "set prompt"]:
        """The readout of every prompt under every set of cuts; no receiver before `layer` may be cut."""
        sets, model = len(cut), self.model
        prompt = torch.arange(self.n, device=model.device).repeat(sets)
        layout, missed = self.layout.take(prompt), cut.to(self.written.dtype)
        resid = self.resid[layer][prompt]
        changes = _Changes(self, missed, first=self._before(layer))
        for number in range(layer, len(model.blocks)):
            block = model.blocks[number]
            heads = self._heads(number, resid, changes)
            z = block.attn.mix(heads, layout, None, _CLEAN)
            written = block.attn.result(z).transpose(1, 2)
            resid = resid + written.sum(1) + block.attn.b_O
            changes.note(written)
            seen = changes.seen(resid, self.graph.port(number, "mlp"))[:, :, 0]
            out = block.mlp(block.ln2(seen, _CLEAN), _CLEAN)
            resid = resid + out
            changes.note((out - block.mlp.b_out)[:, None])
        last = slice(len(self.graph.receivers) - 1, len(self.graph.receivers))
        resid = changes.seen(resid, last)[:, :, 0]
        return self._read(resid, prompt).view(sets, self.n)

    def _heads(self, layer: int, resid: Tensor, changes: "_Changes") -> Heads:
        """Queries, keys and values, each query head from its own view of the residual stream."""
        block, n_heads, found = self.model.blocks[layer], self.model.config.n_heads, []
        for port in HEAD_PORTS:
            x = block.ln1(changes.seen(resid, self.graph.port(layer, port)), _CLEAN)
            weight, bias = (getattr(block.attn, f"{kind}_{port.upper()}") for kind in "Wb")
            weight, bias = (w.repeat_interleave(n_heads // len(w), 0) for w in (weight, bias))
            found.append(torch.einsum("bphd,hdk->bphk", x, weight) + bias)
        return Heads(*found)

    def _before(self, layer: int) -> int:
        return 1 + layer * (self.model.config.n_heads + 1)

    def _clean_stream(self) -> list[Float[Tensor, "prompt pos d_model"]]:
        """The residual stream before each layer, and at the end."""
        found, constant = [], torch.zeros_like(self.written[:, 0])
        for layer in range(len(self.model.blocks) + 1):
            found.append(self.written[:, : self._before(layer)].sum(1) + constant)
            if layer < len(self.model.blocks):
                constant = constant + self.model.blocks[layer].attn.b_O + self.model.blocks[layer].mlp.b_out
        return found

    def _read(self, resid: Tensor, prompt: Tensor) -> Tensor:
        at, choose = (None if x is None else x.to(resid.device)[prompt] for x in (self.readout.at, self.readout.choose))
        resid = resid if at is None else take_positions(resid, at)
        return self.readout.score(self.model.unembed(resid, choose, _CLEAN), prompt)


class _Changes:
    """Counterfactual minus what was written, of every sender so far, where it can be patched in.

    The `first` senders wrote what they write in the clean run, the same under every set of cuts.
    """

    def __init__(self, runs: PatchedRuns, missed: Float[Tensor, "set sender receiver"], *, first: int) -> None:
        self.runs, self.missed, self.first = runs, missed, first
        self.clean = runs.clean_change[:first]
        self.moved: Float[Tensor, "set prompt sender pos d_model"] | None = None

    def note(self, written: Float[Tensor, "row sender pos d_model"]) -> None:
        """Add what the next senders wrote in every row."""
        done = self.first + (0 if self.moved is None else self.moved.shape[2])
        written = written.unflatten(0, (len(self.missed), self.runs.n))
        change = self.runs.other[:, done : done + written.shape[2]] - written
        change = change if self.runs.where is None else change * self.runs.where
        self.moved = change if self.moved is None else torch.cat([self.moved, change], 2)

    def seen(self, resid: Tensor, columns: slice) -> Float[Tensor, "row pos receiver d_model"]:
        """The residual stream as each of these receivers sees it."""
        chosen = self.missed[:, :, columns].transpose(1, 2)
        stream = resid[:, :, None].expand(-1, -1, chosen.shape[1], -1)
        early, late = chosen[:, :, : self.first], chosen[:, :, self.first :]
        if bool(early.any()):
            change = (early @ self.clean).unflatten(2, (self.runs.n, *resid.shape[1:]))
            stream = stream + change.permute(0, 2, 3, 1, 4).flatten(0, 1)
        if self.moved is not None and bool(late.any()):
            late = late[:, :, : self.moved.shape[2]]
            stream = stream + torch.einsum("trs,tnspd->tnprd", late, self.moved).flatten(0, 1)
        return stream

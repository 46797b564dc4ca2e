"""ACDC: walk from the logits to the embedding and cut every edge that is not missed.

At each input of each receiver, latest first, every edge that enters it is cut over to the counterfactual in turn,
beside the edges cut before; where the mean score falls by less than the threshold the cut stays. Many thresholds walk
at once, as rows of one batch, and an edge's score is the largest threshold at which it survives (0: it never does).

Nothing before the receiver under test has been cut yet, so each test starts from the recorded clean run at the
receiver's layer. Cuts are exact, as the engine's are: a receiver's input is the row's residual stream plus
(counterfactual - what the sender wrote in this row) for every edge cut. In the tensors here the axis `flat` runs over
prompts, positions and d_model, so that summing over senders is one matrix product.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Shape
from vesalius.errors import BadInput
from vesalius.intervene.edge_attribution import sender_outputs
from vesalius.intervene.edge_graph import HEAD_PORTS, EdgeGraph
from vesalius.intervene.readout import Readout
from vesalius.intervene.values import Batch, activations
from vesalius.model.hooks import Tap
from vesalius.model.transformer import Heads, Transformer, take_positions
from vesalius.progress import Progress
from vesalius.statistics import bootstrap_means

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
    progress: Progress | None = None,
) -> Pruned:
    """Prune at every threshold (a share of the clean score's magnitude) and score edges by what they survive."""
    _require_thresholds(thresholds)
    runs = _runs(model, batch, readout, counterfactual, where)
    walk = _Walk(runs, torch.tensor(thresholds, device=model.device))
    cut = walk.finished(progress)
    survived = torch.where(cut, 0.0, torch.tensor(thresholds, device=model.device)[:, None, None]).max(0).values
    return Pruned(torch.where(runs.graph.real, survived.cpu(), 0.0), walk.forwards)


@torch.no_grad()
def acdc_resampled(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    *,
    counterfactual: Batch,
    where: Bool[Tensor, "prompt pos"] | None = None,
    threshold: float,
    resamples: int,
    seed: int = 0,
) -> tuple[Bool[Tensor, "resample sender receiver"], float]:
    """The edges that survive at one threshold on each bootstrap resample of the prompts, and the work done.

    All resamples walk together over the same runs of the prompts, which they only weigh differently.
    """
    _require_thresholds([threshold])
    runs = _runs(model, batch, readout, counterfactual, where)
    identity = torch.eye(len(batch), dtype=torch.float64)
    weights = bootstrap_means(identity, resamples=resamples, seed=seed).to(model.device)
    walk = _Walk(runs, torch.full((resamples,), threshold, device=model.device), weights)
    cut = walk.finished()
    return ~cut.cpu() & runs.graph.real, walk.forwards


def _runs(
    model: Transformer, batch: Batch, readout: Readout, counterfactual: Batch, where: Tensor | None
) -> "PatchedRuns":
    require_few_edges(model.config)
    return PatchedRuns(model, batch, readout, counterfactual=counterfactual, where=where)


def require_few_edges(shape: Shape) -> None:
    """Refuse a model of too many edges to be tested one by one."""
    edges = len(EdgeGraph.of(shape).edges)
    if edges > MAX_EDGES:
        raise BadInput(f"acdc tests edges one by one and this model has {edges}; use eap-ig")


def _require_thresholds(thresholds: Sequence[float]) -> None:
    if not thresholds or min(thresholds) <= 0:
        raise BadInput(f"thresholds {list(thresholds)} cannot be used; give positive numbers")


class _Walk:
    """Walkers from the logits to the embedding, each with its threshold and, in `weights`, its view of the prompts.

    Walkers that have cut the same edges so far form a group and need one run between them.
    """

    def __init__(
        self,
        runs: "PatchedRuns",
        thresholds: Float[Tensor, " walker"],
        weights: Float[Tensor, "walker prompt"] | None = None,
    ) -> None:
        self.runs, self.weights = runs, weights
        self.cut = torch.zeros(1, *runs.graph.real.shape, dtype=torch.bool, device=thresholds.device)
        self.group = torch.zeros(len(thresholds), dtype=torch.long, device=thresholds.device)
        self.current = self._means(runs.scores(self.cut, len(runs.model.blocks)))
        self.limits = thresholds * self.current.abs()
        self.forwards = 3.0

    def finished(self, progress: Progress | None = None) -> Bool[Tensor, "walker sender receiver"]:
        """Test every edge; what each walker has cut in the end."""
        graph, done = self.runs.graph, 0
        for receiver in reversed(range(len(graph.receivers))):
            part = graph.receivers[receiver][0]
            layer = len(self.runs.model.blocks) if part is None else part.layer
            for sender in reversed(range(graph.n_feeding(part))):
                self._test(sender, receiver, layer)
                done += 1
                if progress:
                    progress("pruning edges", done, len(graph.edges))
        return self.cut[self.group]

    def _test(self, sender: int, receiver: int, layer: int) -> None:
        tried = self.cut.clone()
        tried[:, sender, receiver] = True
        found = self._means(self.runs.scores(tried, layer))
        unmissed = self.current - found < self.limits
        self.current = torch.where(unmissed, found, self.current)
        layers = len(self.runs.model.blocks)
        self.forwards += len(tried) * (layers - layer) / layers
        split, self.group = (2 * self.group + unmissed).unique(return_inverse=True)
        self.cut = torch.where((split % 2 == 1)[:, None, None], tried[split // 2], self.cut[split // 2])

    def _means(self, scores: Float[Tensor, "group prompt"]) -> Float[Tensor, " walker"]:
        if self.weights is None:
            return scores.mean(1)[self.group]
        return (self.weights @ scores.to(self.weights.dtype).T).gather(1, self.group[:, None])[:, 0]


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
        self.width = batch.tokens.shape[1]
        self.written, self.other = (
            sender_outputs(model, activations(model, some)).transpose(0, 1).flatten(1)
            for some in (batch, counterfactual.to(model.device))
        )
        self.where = None
        if where is not None:
            spread = where.to(model.device)[:, :, None].expand(-1, -1, model.config.d_model)
            self.where = spread.flatten().to(self.written.dtype)
        self.clean_change = self.other - self.written
        self.clean_change *= 1.0 if self.where is None else self.where
        self.resid = self._clean_stream()

    def scores(self, cut: Bool[Tensor, "set sender receiver"], layer: int) -> Float[Tensor, "set prompt"]:
        """The readout of every prompt under every set of cuts; no receiver before `layer` may be cut."""
        sets, model = len(cut), self.model
        prompt = torch.arange(self.n, device=model.device).repeat(sets)
        layout = self.layout.take(prompt)
        resid = self.resid[layer].repeat(sets, 1)
        changes = _Changes(self, cut.to(self.written.dtype), first=self._before(layer))
        for number in range(layer, len(model.blocks)):
            block = model.blocks[number]
            z = block.attn.mix(self._heads(number, resid, changes), layout, None, _CLEAN)
            by_head = z.unflatten(0, (sets, self.n)).permute(0, 3, 1, 2, 4).flatten(2, 3)
            written = (by_head @ block.attn.W_O).flatten(2)
            resid = resid + written.sum(1) + self._spread(block.attn.b_O)
            changes.note(written)
            seen = self._rows(changes.seen(resid, self.graph.port(number, "mlp")))
            out = block.mlp(block.ln2(seen, _CLEAN), _CLEAN).reshape(sets, -1)
            resid = resid + out
            changes.note((out - self._spread(block.mlp.b_out))[:, None])
        last = slice(len(self.graph.receivers) - 1, len(self.graph.receivers))
        return self._read(self._rows(changes.seen(resid, last)), prompt).view(sets, self.n)

    def _heads(self, layer: int, resid: Tensor, changes: "_Changes") -> Heads:
        """Queries, keys and values, each query head from its own view of the residual stream."""
        block, n_heads = self.model.blocks[layer], self.model.config.n_heads
        columns = slice(self.graph.port(layer, HEAD_PORTS[0]).start, self.graph.port(layer, HEAD_PORTS[-1]).stop)
        x = changes.seen(resid, columns).unflatten(2, (self.n * self.width, -1))
        attn = block.attn
        weights, biases = (
            torch.cat([w.repeat_interleave(n_heads // len(w), 0) for w in parts])
            for parts in ((attn.W_Q, attn.W_K, attn.W_V), (attn.b_Q, attn.b_K, attn.b_V))
        )
        found = block.ln1(x, _CLEAN) @ weights + biases[:, None]
        found = found.unflatten(2, (self.n, self.width)).permute(0, 2, 3, 1, 4).flatten(0, 1)
        return Heads(*found.split(n_heads, 2))

    def _rows(self, streams: Float[Tensor, "set 1 flat"]) -> Float[Tensor, "row pos d_model"]:
        return streams.reshape(len(streams) * self.n, self.width, -1)

    def _spread(self, bias: Float[Tensor, " d_model"]) -> Float[Tensor, " flat"]:
        return bias.repeat(self.n * self.width)

    def _before(self, layer: int) -> int:
        return 1 + layer * (self.model.config.n_heads + 1)

    def _clean_stream(self) -> list[Float[Tensor, " flat"]]:
        """The residual stream before each layer, and at the end."""
        found, constant = [], torch.zeros_like(self.written[0])
        for layer in range(len(self.model.blocks) + 1):
            found.append(self.written[: self._before(layer)].sum(0) + constant)
            if layer < len(self.model.blocks):
                block = self.model.blocks[layer]
                constant = constant + self._spread(block.attn.b_O + block.mlp.b_out)
        return found

    def _read(self, resid: Tensor, prompt: Tensor) -> Tensor:
        at, choose = (None if x is None else x.to(resid.device)[prompt] for x in (self.readout.at, self.readout.choose))
        resid = resid if at is None else take_positions(resid, at)
        return self.readout.score(self.model.unembed(resid, choose, _CLEAN), prompt)


class _Changes:
    """Counterfactual minus what was written, of every sender so far, where it can be patched in.

    The `first` senders wrote what they write in the clean run, the same under every set of cuts. Of the others, what
    is summed are the senders cut or, where they are fewer, all senders less those kept.
    """

    def __init__(self, runs: PatchedRuns, missed: Float[Tensor, "set sender receiver"], *, first: int) -> None:
        self.runs, self.missed, self.first, self.done = runs, missed, first, first
        self.clean = runs.clean_change[:first]
        senders, flat = runs.written.shape
        self.moved: Float[Tensor, "set sender flat"] = runs.written.new_empty(len(missed), senders - first, flat)
        self.total: Float[Tensor, "set flat"] = runs.written.new_zeros(len(missed), flat)

    def note(self, written: Float[Tensor, "set sender flat"]) -> None:
        """Add what the next senders wrote in every row."""
        new = slice(self.done, self.done + written.shape[1])
        change = self.moved[:, new.start - self.first : new.stop - self.first]
        torch.sub(self.runs.other[new], written, out=change)
        if self.runs.where is not None:
            change *= self.runs.where
        self.total += change.sum(1)
        self.done = new.stop

    def seen(self, resid: Float[Tensor, "set flat"], columns: slice) -> Float[Tensor, "set receiver flat"]:
        """The residual stream as each of these receivers sees it."""
        missed = self.missed[:, : self.done, columns].transpose(1, 2)
        early, late = missed[:, :, : self.first], missed[:, :, self.first :]
        kept = 1 - late
        cut_somewhere, kept_somewhere = (part.any(0).any(0).nonzero()[:, 0] for part in (late, kept))
        if len(cut_somewhere) <= len(kept_somewhere):
            chosen, weights = cut_somewhere, late
        else:
            chosen, weights, resid = kept_somewhere, -kept, resid + self.total
        streams = resid[:, None].expand(-1, missed.shape[1], -1)
        if bool(early.any()):
            streams = streams + early @ self.clean
        if not len(chosen):
            return streams
        return torch.baddbmm(streams, weights[:, :, chosen], self.moved[:, chosen])

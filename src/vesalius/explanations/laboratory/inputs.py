"""What a component reads: its inputs exchanged path by path, the component run again, and the model's answers.

A path leads from one sender into one receiver. Exchanged, the receiver reads what the sender wrote in the source, and
everything else reads what it wrote in the base; the receiver is computed again from that, and the rest of the model
follows. So one sender can be held while another is varied, also where both hold the same value on every input, which no
choice among natural inputs can do.

Senders are the components before the receiver and the embedding, `tokens`: the source's token with the own position's
code. Positions stay. The receiver None is the output, which reads the last residual stream.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.laboratory.circuits import CircuitLab
from vesalius.explanations.laboratory.runs import feeds
from vesalius.intervene import Batch, Plan, Values, run
from vesalius.intervene.inputs import logits_with, output_with
from vesalius.intervene.values import component_values, contribution

TOKENS = "tokens"
#: Pairs of inputs on which paths are exchanged; a held input leaves no case out, so fewer serve than for swaps.
PATH_PAIRS = 512


class PathsInto:
    """The senders of one receiver (None: the output), on the first pairs of a laboratory. What was measured is kept."""

    def __init__(self, lab: CircuitLab, receiver: Component | None) -> None:
        self.lab, self.receiver = lab, receiver
        self.n = min(lab.n, PATH_PAIRS)
        self._changed: dict[tuple[tuple[str, bytes], ...], Bool[Tensor, " pair"]] = {}

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """Everything that the receiver reads: the tokens, and the components before it."""
        parallel, parts = self.lab.model.config.parallel, self.lab.model.components
        earlier = [part for part in parts if self.receiver is None or feeds(part, self.receiver, parallel=parallel)]
        return (TOKENS, *map(str, earlier))

    def changed(
        self, exchanged: Iterable[str], *, where: Mapping[str, Bool[Tensor, "pair pos"]] | None = None
    ) -> Bool[Tensor, " pair"]:
        """Pairs in which some answer of the base changes when these senders' paths are exchanged together; `where`
        limits a sender to some positions (without BOS).
        """
        where = where or {}
        key = tuple(sorted((name, where[name].numpy().tobytes() if name in where else b"") for name in set(exchanged)))
        if key not in self._changed:
            answers = self._answers({name: where.get(name) for name, _ in key})
            lab, n = self.lab, self.n
            self._changed[key] = (~lab.same(answers, lab.clean[:n]) & lab.real[:n]).any(1)
        return self._changed[key]

    @torch.no_grad()
    def _answers(self, exchanged: Mapping[str, Tensor | None]) -> Tensor:
        lab, model, receiver = self.lab, self.lab.model, self.receiver
        change = torch.zeros_like(self._base.embed)
        for sender, where in exchanged.items():
            own = self._change(sender)
            change += own if where is None else own * _with_bos(where).to(own.device)[..., None]
        layer = model.config.n_layers - 1 if receiver is None else receiver.layer
        resid = lab.recordings.resid(layer)[: self.n]
        if receiver is None:
            logits = logits_with(model, resid=resid, values=self._base, change=change)
            return lab.read(logits, torch.arange(self.n)).cpu()
        output = output_with(model, receiver, self._batch, resid=resid, values=self._base, change=change)
        plan = Plan.each(model.config, torch.arange(self.n), receiver)
        return run(lab.recordings, plan, component_values(model, receiver, output), cost=lab.cost).cpu()

    def _change(self, sender: str) -> Float[Tensor, "pair pos d_model"]:
        """What a sender writes in the source, less what it writes in the base, where both have a token."""
        if sender == TOKENS:
            change = self._source.embed - self._base.embed
        else:
            part = Component.parse(sender)
            change = contribution(self.lab.model, part, self._source) - contribution(self.lab.model, part, self._base)
        return change * self._both[..., None]

    @cached_property
    def _batch(self) -> Batch:
        return self.lab.batch.take(torch.arange(self.n)).to(self.lab.model.device)

    @cached_property
    def _base(self) -> Values:
        return _first(self.lab.base_values, self.n)

    @cached_property
    def _source(self) -> Values:
        return _first(self.lab.table("resample"), self.n)

    @cached_property
    def _both(self) -> Bool[Tensor, "pair pos"]:
        """Where base and source have a token, BOS included."""
        masks = self.lab.batch.mask, self.lab.source.mask
        assert masks[0] is not None
        assert masks[1] is not None
        return (masks[0][: self.n].cpu() & masks[1][: self.n].cpu()).to(self._base.embed.device)


def _first(values: Values, n: int) -> Values:
    return Values(tuple(z[:n] for z in values.z), tuple(mlp[:n] for mlp in values.mlp), values.embed[:n])


def _with_bos(where: Bool[Tensor, "pair pos"]) -> Bool[Tensor, "pair pos_with_bos"]:
    """Positions after BOS as positions of the prompt; BOS is left as it is, for it is the same in every input."""
    return torch.cat([torch.zeros_like(where[:, :1]), where], 1)

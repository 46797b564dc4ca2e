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
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.components import Component
from vesalius.explanations.laboratory.circuits import CircuitLab
from vesalius.explanations.laboratory.runs import feeds
from vesalius.intervene import Plan, Values, run
from vesalius.intervene.values import component_values, contribution, logits_with, output_with

TOKENS = "tokens"
#: Pairs of inputs on which paths are exchanged; a held input leaves no case out, so fewer serve than for swaps.
PATH_PAIRS = 512
#: Pairs that are run at once while it is open whether too many change; twice as many then.
FIRST_PAIRS = 64
#: What each sender of a laboratory writes in the source, less what it writes in the base: the same for every receiver.
_CHANGES: WeakKeyDictionary[CircuitLab, dict[str, Tensor]] = WeakKeyDictionary()

Where = Mapping[str, Bool[Tensor, "pair pos"]]


class PathsInto:
    """The senders of one receiver (None: the output), on the first pairs of a laboratory. What was measured is kept."""

    def __init__(self, lab: CircuitLab, receiver: Component | None) -> None:
        self.lab, self.receiver = lab, receiver
        self.n = min(lab.n, PATH_PAIRS)
        self._changed: dict[tuple[tuple[str, bytes], ...], Bool[Tensor, " some"]] = {}

    @cached_property
    def senders(self) -> tuple[str, ...]:
        """Everything that the receiver reads: the tokens, and the components before it."""
        parallel, parts = self.lab.model.config.parallel, self.lab.model.components
        earlier = [part for part in parts if self.receiver is None or feeds(part, self.receiver, parallel=parallel)]
        return (TOKENS, *map(str, earlier))

    def changed(self, exchanged: Iterable[str], *, where: Where | None = None) -> Bool[Tensor, " pair"]:
        """Pairs in which some answer of the base changes when these senders' paths are exchanged together; `where`
        limits a sender to some positions (without BOS).
        """
        return self._run(exchanged, where or {}, self.n)

    def changes_more(self, share: float, exchanged: Iterable[str], *, where: Where | None = None) -> bool:
        """Whether more than a share of the pairs change; no more of them are run once that is certain."""
        most, n = int(share * self.n + 1e-6), FIRST_PAIRS
        exchanged = list(exchanged)
        while True:
            changed = self._run(exchanged, where or {}, min(n, self.n))
            if int(changed.sum()) > most:
                return True
            if len(changed) == self.n:
                return False
            n *= 2

    def _run(self, exchanged: Iterable[str], where: Where, n: int) -> Bool[Tensor, " some"]:
        """Which of the first pairs change, of at least `n` of them."""
        key = tuple(sorted((name, where[name].numpy().tobytes() if name in where else b"") for name in set(exchanged)))
        known = self._changed.get(key, torch.zeros(0, dtype=torch.bool))
        if len(known) < n:
            some = slice(len(known), n)
            answers = self._answers({name: where.get(name) for name, _ in key}, some)
            changed = (~self.lab.same(answers, self.lab.clean[some]) & self.lab.real[some]).any(1)
            known = self._changed[key] = torch.cat([known, changed])
        return known

    @torch.no_grad()
    def _answers(self, exchanged: Mapping[str, Tensor | None], some: slice) -> Tensor:
        lab, model, receiver = self.lab, self.lab.model, self.receiver
        rows, base = torch.arange(self.n)[some], _taken(self._base, some)
        change = torch.zeros_like(base.embed)
        for sender, where in exchanged.items():
            own = self._change(sender)[some]
            change += own if where is None else own * _with_bos(where[some]).to(own.device)[..., None]
        resid = self._resid[some]
        if receiver is None:
            return lab.read(logits_with(model, resid=resid, values=base, change=change), rows).cpu()
        batch = lab.batch.take(rows).to(model.device)
        output = output_with(model, receiver, batch, resid=resid, values=base, change=change)
        plan = Plan.each(model.config, rows, receiver)
        return run(lab.recordings, plan, component_values(model, receiver, output), cost=lab.cost).cpu()

    def _change(self, sender: str) -> Float[Tensor, "pair pos d_model"]:
        """What a sender writes in the source, less what it writes in the base, where both have a token."""
        changes = _CHANGES.setdefault(self.lab, {})
        if sender not in changes:
            if sender == TOKENS:
                change = self._source.embed - self._base.embed
            else:
                part, model = Component.parse(sender), self.lab.model
                change = contribution(model, part, self._source) - contribution(model, part, self._base)
            changes[sender] = change * self._both[..., None]
        return changes[sender]

    @cached_property
    def _resid(self) -> Float[Tensor, "pair pos d_model"]:
        """What enters the receiver's layer on the base, or the last one."""
        last = self.lab.model.config.n_layers - 1
        return self.lab.recordings.resid(last if self.receiver is None else self.receiver.layer)[: self.n]

    @cached_property
    def _base(self) -> Values:
        return _taken(self.lab.base_values, slice(self.n))

    @cached_property
    def _source(self) -> Values:
        return _taken(self.lab.table("resample"), slice(self.n))

    @cached_property
    def _both(self) -> Bool[Tensor, "pair pos"]:
        """Where base and source have a token, BOS included."""
        masks = self.lab.batch.mask, self.lab.source.mask
        assert masks[0] is not None
        assert masks[1] is not None
        return (masks[0][: self.n].cpu() & masks[1][: self.n].cpu()).to(self._base.embed.device)


def _taken(values: Values, some: slice) -> Values:
    return Values(tuple(z[some] for z in values.z), tuple(mlp[some] for mlp in values.mlp), values.embed[some])


def _with_bos(where: Bool[Tensor, "pair pos"]) -> Bool[Tensor, "pair pos_with_bos"]:
    """Positions after BOS as positions of the prompt; BOS is left as it is, for it is the same in every input."""
    return torch.cat([torch.zeros_like(where[:, :1]), where], 1)

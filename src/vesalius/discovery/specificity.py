"""Does a circuit matter for its own behaviour only? Its heads are ablated on other behaviours and on text.

1. The heads are replaced by their mean output over ordinary text (not the text that is measured), the same constant
   everywhere, so that the ablation is the same operation on every behaviour. Without a corpus the mean is taken over
   the prompts of all behaviours.
2. For each behaviour: drop = (clean - ablated logit difference) / clean logit difference, mean over prompts with a
   bootstrap interval. Behaviours that the model does not perform (the interval of the clean logit difference reaches
   0) have no drop. Variants of the circuit's own behaviour (`induction-out` of `induction`) do not count as others, and
   of a behaviour with variants only the basic form counts. For text: the increase of the next-token loss in nats and as
   a share of the clean loss.
3. The same for random heads, as many in the same layers if those have enough others.

`ratio` is the own drop divided by the mean drop of the other behaviours: 1 means that the circuit matters as much for
the others as for its own.

`each_specificity` asks the same of single components, in one batch a behaviour: what is necessary for a behaviour may
be what the model needs for anything.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.behaviour import Behaviour
from vesalius.behaviours.controls import Control, control, factbook
from vesalius.behaviours.registry import behaviour_of, behaviours
from vesalius.components import Component
from vesalius.documents.base import FrozenDict
from vesalius.documents.checks import Drop
from vesalius.documents.claims import PartSpecificity
from vesalius.errors import BadInput
from vesalius.intervene import Batch, Cost, Readout, Recordings, Replacement, Values, means
from vesalius.intervene.effects import effect_columns
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.statistics import bootstrap_means, means_interval
from vesalius.values import JsonObject

PROMPTS, TEXT_ROWS, TEXT_LENGTH, RANDOM_SETS = 12, 12, 32, 3
#: Text that means are taken over, and text that is measured.
REFERENCE_SPLIT, MEASURED_SPLIT = "train", "test"


@dataclass(frozen=True)
class Specificity:
    """Drops from ablating a circuit's heads: on its own behaviour, on the others by name, and on text (None: no
    corpus).
    """

    heads: tuple[Component, ...]
    own: Drop
    others: Mapping[str, Drop]
    text: Drop | None
    rows: float

    @property
    def others_mean(self) -> float | None:
        """Mean drop over the other behaviours that the model performs."""
        drops = [one.drop for one in self.others.values() if one.drop is not None]
        return sum(drops) / len(drops) if drops else None

    @property
    def ratio(self) -> float | None:
        """Own drop divided by the others' mean; None if one is missing or the others do not drop."""
        mean = self.others_mean
        return None if self.own.drop is None or mean is None or mean <= 0 else self.own.drop / mean

    def as_data(self) -> JsonObject:
        """The drops for JSON."""
        return {
            "heads": [str(head) for head in self.heads],
            "own": self.own.model_dump(),
            "others": {name: drop.model_dump() for name, drop in self.others.items()},
            "text": None if self.text is None else self.text.model_dump(),
            "others_mean": self.others_mean,
            "ratio": self.ratio,
        }


def specificity(
    specimen: Specimen,
    heads: Sequence[Component],
    *,
    n: int = PROMPTS,
    seed: int = 0,
    split: str = "validation",
) -> Specificity:
    """Ablate these heads of a natural model on every behaviour and on text."""
    vocabulary, model = specimen.vocabulary, specimen.model
    if not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(f"specimen {specimen.name!r} has one task of its own; only natural models have other behaviours")
    if not heads:
        raise BadInput("no heads to ablate; name at least one")
    config, prompts_of = model.config, {}
    for each in own_and_others(behaviour_of(specimen)):
        try:
            prompts_of[each.name] = each.sample(
                vocabulary.tokenizer, n, seed=seed, split=split, n_ctx=config.n_ctx, d_vocab=config.d_vocab
            )
        except BadInput:
            if each.name == specimen.behaviour:  # other behaviours that do not fit this tokenizer are left out
                raise
    text = _text(specimen, vocabulary, seed)
    cost = Cost()
    values = _values(model, [text[0].batch] if text else [prompts.batch for prompts in prompts_of.values()], cost)
    sets = [tuple(heads), *_random_heads(heads, config.n_layers, config.n_heads, seed)]
    drops = {
        name: _drop(*_losses(model, prompts.batch, prompts.margin(), sets, values, cost))
        for name, prompts in prompts_of.items()
    }
    own, on_text = drops.pop(specimen.behaviour), None
    if text is not None:
        score, lost = _losses(model, text[1].batch, text[1].readout, sets, values, cost)
        on_text = _drop(-score, lost)  # the score of text is minus its loss
    return Specificity(tuple(heads), own, drops, on_text, cost.rows)


#: Prompts of the own behaviour, and of each other one, on which single components are ablated.
EACH_OWN, EACH_OTHER = 8, 3
#: The least share of its own behaviour that an ablation must cost to say whether it is specific, and by how many times
#: that must exceed what it costs elsewhere.
LEAST_OWN, TIMES = 0.05, 2.0


def each_specificity(
    specimen: Specimen, components: Sequence[Component], *, seed: int = 0, split: str = "test"
) -> tuple[dict[Component, PartSpecificity], float]:
    """What ablating each component alone costs its own behaviour, others and text, and the passes of one prompt for it.
    Nothing where the model reads no text, or there are neither others nor a corpus.
    """
    vocabulary, model, cost = specimen.vocabulary, specimen.model, Cost()
    if not components or not isinstance(vocabulary, TextVocabulary) or specimen.behaviour is None:
        return {}, 0.0
    own = behaviour_of(specimen)
    prompts_of = {}
    for each in own_and_others(own):
        n = EACH_OWN if each is own else EACH_OTHER
        sizes = {"n_ctx": model.config.n_ctx, "d_vocab": model.config.d_vocab}
        try:
            prompts_of[each.name] = each.sample(vocabulary.tokenizer, n, seed=seed, split=split, **sizes)
        except BadInput:  # it does not fit this tokenizer, or has too few rows
            if each is own:
                return {}, 0.0
    text = _text(specimen, vocabulary, seed)
    if text is None and len(prompts_of) < 2:
        return {}, 0.0
    values = _values(model, [text[0].batch] if text else [prompts.batch for prompts in prompts_of.values()], cost)
    sets, shares = [(part,) for part in components], {}
    for name, prompts in prompts_of.items():
        clean, lost = _losses(model, prompts.batch, prompts.margin(), sets, values, cost)
        if float(clean.mean()) > 0:
            shares[name] = (lost.double().mean(0) / float(clean.mean())).tolist()
    if own.name not in shares:
        return {}, cost.rows
    nats = None
    if text is not None:
        score, nats = _losses(model, text[1].batch, text[1].readout, sets, values, cost)
        low, high = means_interval(nats.double())
        nats = nats.mean(0).tolist(), low.tolist(), high.tolist(), (nats.mean(0) / -score.mean()).tolist()
    found = {
        part: _specificity_of(
            shares[own.name][i],
            {name: of[i] for name, of in shares.items() if name != own.name},
            None if nats is None else [column[i] for column in nats],
        )
        for i, part in enumerate(components)
    }
    return found, cost.rows


def _specificity_of(own: float, others: Mapping[str, float], text: Sequence[float] | None) -> PartSpecificity:
    mean = sum(others.values()) / len(others) if others else None
    nats, low, high, share = [None] * 4 if text is None else [round(x, 4) for x in text]
    elsewhere = [x for x in (mean, share) if x is not None]
    return PartSpecificity(
        own=round(own, 4),
        others=FrozenDict({name: round(x, 4) for name, x in others.items()}),
        others_mean=None if mean is None else round(mean, 4),
        text=nats,
        text_low=low,
        text_high=high,
        text_share=share,
        specific=None if own < LEAST_OWN or not elsewhere else own >= TIMES * max(elsewhere),
        n=EACH_OWN,
    )


def own_and_others(own: Behaviour) -> list[Behaviour]:
    """A behaviour, and the basic form of every other family."""
    return [own, *(each for each in behaviours() if each.variant_of is None and each.family != own.family)]


def _text(specimen: Specimen, vocabulary: TextVocabulary, seed: int) -> tuple[Control, Control] | None:
    """Text for the means and text to measure; None if no corpus is installed or the context is too short."""
    n_ctx = specimen.model.config.n_ctx
    length = min(TEXT_LENGTH, n_ctx)
    try:
        corpus = factbook()
        first, second = (
            control(corpus, vocabulary.tokenizer, n=TEXT_ROWS, length=length, seed=seed, split=split, n_ctx=n_ctx)
            for split in (REFERENCE_SPLIT, MEASURED_SPLIT)
        )
    except BadInput:
        return None
    return first, second


@torch.no_grad()
def _values(model: Transformer, batches: Sequence[Batch], cost: Cost) -> Values:
    """Mean outputs of every component; each batch has the same weight."""
    parts = [means(model, batch.to(model.device)) for batch in batches]
    cost.rows += sum(map(len, batches))
    return Values(
        tuple(torch.stack(layer).mean(0) for layer in zip(*(part.z for part in parts), strict=True)),
        tuple(torch.stack(layer).mean(0) for layer in zip(*(part.mlp for part in parts), strict=True)),
        torch.stack([part.embed for part in parts]).mean(0),
    )


def _random_heads(heads: Sequence[Component], n_layers: int, n_heads: int, seed: int) -> list[tuple[Component, ...]]:
    """Sets of as many other heads, from the same layers if those have enough."""
    rng, excluded = random.Random(f"specificity/{seed}"), set(heads)
    sets = []
    for _ in range(RANDOM_SETS):
        members: list[Component] = []
        for head in heads:
            candidates = [Component(head.layer, i) for i in range(n_heads)]
            candidates = [other for other in candidates if other not in excluded and other not in members] or [
                other
                for other in (Component(layer, i) for layer in range(n_layers) for i in range(n_heads))
                if other not in excluded and other not in members
            ]
            if candidates:
                members.append(rng.choice(candidates))
        if members:
            sets.append(tuple(members))
    return sets


def _losses(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    sets: Sequence[tuple[Component, ...]],
    values: Values,
    cost: Cost,
) -> tuple[Float[Tensor, " prompt"], Float[Tensor, "prompt set"]]:
    """The clean score of every prompt, and how much ablating each set lowers it."""
    recordings = Recordings(model, batch.to(model.device), readout)
    cost.rows += len(batch)
    clean = recordings.scores().cpu()
    replacement = Replacement(values, torch.zeros(len(batch), dtype=torch.long))
    parts = [scores for _, scores in effect_columns(recordings, replacement, list(sets), cost=cost)]
    return clean, clean[:, None] - torch.cat(parts, 1)


def _drop(scale: Float[Tensor, " prompt"], lost: Float[Tensor, "prompt set"]) -> Drop:
    """Losses as shares of a positive scale; the first set is the circuit, the others random heads."""
    resampled = bootstrap_means(torch.stack([scale, lost[:, 0]], 1).double())
    clean, n = float(scale.mean()), len(scale)
    if float(resampled[:, 0].quantile(0.025)) <= 0:
        return Drop(clean=clean, drop=None, low=None, high=None, random=None, n=n)
    ratios = resampled[:, 1] / resampled[:, 0]
    low, high = ratios.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    circuit, *others = (lost.double().mean(0) / clean).tolist()
    by_chance = sum(others) / len(others) if others else None
    return Drop(clean=clean, drop=circuit, low=low, high=high, random=by_chance, n=n)

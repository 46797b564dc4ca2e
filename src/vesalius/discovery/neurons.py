"""The smallest set of neurons that keeps a stated share of a behaviour.

1. Score every neuron on the prompts, all of them in one backward pass (`intervene.attribute_units`).
2. Rank by magnitude. Keep the best k neurons and put the counterfactual prompt's values in the place of all others;
   heads stay, and compute on what the neurons leave them.
3. Share kept = (score with k neurons - score with none) / (score of the model - score with none). Double k until the
   share reaches the target, then halve the interval: the result is the smallest k that was tried.
4. On held-out prompts: the share of that set, the curve over sizes, and both for two other rankings: neurons by how
   much the replacement changes what they write (mean size of the change of their activation times the length of their
   output weights), and in random order.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.trial import Trial, note_limits, trial
from vesalius.components import Component, mlp_units
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.faithfulness import NothingToKeep, resampled_faithfulness
from vesalius.documents.metric import figure_apart
from vesalius.documents.neurons import NeuronDetail, NeuronPoint
from vesalius.documents.performance import Performance
from vesalius.intervene import Cost, Plan, Recordings, attribute_units, run
from vesalius.intervene.ablations import Resample
from vesalius.intervene.attribution import Rule, unit_changes
from vesalius.intervene.effects import number
from vesalius.intervene.plan import unit_place
from vesalius.intervene.probes import neuron_logits
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import activations
from vesalius.model.specimen import FiniteVocabulary, Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.options import Scoring
from vesalius.progress import Progress
from vesalius.statistics import means_interval

# What single neurons and experts do: how sure their scores are, which tokens they write, and where they fire.

#: Units that are described, and tokens of each.
MOST_DETAILS, TOKENS = 24, 5


def describe_units(
    specimen: Specimen, material: Trial, units: Sequence[Component], scores: Float[Tensor, "prompt unit"]
) -> tuple[NeuronDetail, ...]:
    """Describe units of MLPs, given with their scores on every prompt."""
    batch = material.batch.to(specimen.model.device)
    real, put_out = real_tokens(specimen.model.config, batch).cpu(), activations(specimen.model, batch, neurons=True)
    low, high = means_interval(scores)
    details = []
    for i, unit in enumerate(units):
        layer = put_out.units[unit.layer]
        fires = layer[:, :, unit.neuron] if unit.expert is None else layer[:, :, unit.expert].norm(dim=-1)
        fires = fires.float().cpu().masked_fill(~real, 0.0)
        prompt = int(fires.abs().amax(1).argmax())
        raises, lowers = _written_tokens(specimen, unit)
        details.append(
            NeuronDetail(
                id=str(unit),
                score=float(scores[:, i].mean()),
                low=number(low[i]),
                high=number(high[i]),
                raises=raises,
                lowers=lowers,
                tokens=specimen.pieces(batch.tokens[prompt].cpu()[real[prompt]]),
                activations=tuple(round(value, 4) for value in fires[prompt][real[prompt]].tolist()),
            )
        )
    return tuple(details)


def _written_tokens(specimen: Specimen, unit: Component) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens whose logits a neuron's output direction raises most and lowers most."""
    vocabulary = specimen.vocabulary
    texts = isinstance(vocabulary, TextVocabulary)
    if unit.neuron is None or not (texts or (isinstance(vocabulary, FiniteVocabulary) and vocabulary.outputs)):
        return (), ()
    logits = neuron_logits(specimen.model, unit)
    top = min(TOKENS, len(logits) // 2)
    ends = [logits.topk(top, largest=largest).indices.cpu() for largest in (True, False)]
    if isinstance(vocabulary, FiniteVocabulary) and vocabulary.outputs:
        raises, lowers = (tuple(str(vocabulary.outputs[i]) for i in end.tolist()) for end in ends)
    else:
        raises, lowers = (specimen.pieces(end) for end in ends)
    return raises, lowers


#: Prompts that neurons are not chosen by, and where they come from.
HELD_OUT_SPLIT, HELD_OUT_SEED = "validation", 10_000
#: Prompts, and the share of the behaviour to keep, where nothing else is said.
PROMPTS, KEEP = 16, 0.8
Order = Int[Tensor, " neuron"]


@dataclass(frozen=True)
class NeuronSet:
    """The neurons that were kept, strongest first, with their scores, and what the held-out prompts say."""

    neurons: list[tuple[Component, float]]
    details: tuple[NeuronDetail, ...]
    n_neurons: int
    share_chosen: float
    curve: tuple[NeuronPoint, ...]
    n: int
    n_held_out: int
    unit: str
    forwards: float
    seconds: float
    performance: Performance | None


class Keeping:
    """The score of every prompt with some neurons kept and all others resampled."""

    def __init__(self, model: Transformer, material: Trial, cost: Cost) -> None:
        self.model, self.material, self.cost = model, material, cost
        batch = material.batch.to(model.device)
        self.replacement = Resample().table(model, batch, counterfactual=material.counterfactual, neurons=True)
        self.recordings = Recordings(model, batch, material.readout)
        self.full = self.recordings.scores().cpu()
        self.places = torch.tensor([unit_place(part, model.config) for part in mlp_units(model.config)])
        cost.rows += 2 * len(batch)
        self.none = self.scores(torch.tensor([], dtype=torch.long))

    def scores(self, kept: Order) -> Float[Tensor, " prompt"]:
        """With these neurons kept."""
        removed = torch.ones(len(self.places), dtype=torch.bool)
        removed[kept] = False
        if not bool(removed.any()):
            return self.full
        plan = Plan.without_units(
            self.model.config, self.places[removed], choices=self.replacement.choices, positions=self.material.where
        )
        return run(self.recordings, plan, self.replacement.values, cost=self.cost).cpu()

    def shares(self, order: Order, sizes: Sequence[int]) -> list[tuple[float, float | None, float | None]]:
        """The share of the behaviour that the first neurons of an order keep, with 95 % bootstrap intervals, which one
        prompt does not have.
        """
        columns = [self.none, *(self.scores(order[:size]) for size in sizes), self.full]
        try:
            _, curve, drawn = resampled_faithfulness(torch.stack(columns, 1).double())
        except NothingToKeep:
            raise NothingToKeep(
                f"the neurons of all MLPs carry nothing of this behaviour: with all of them replaced the mean score is "
                f"{float(self.none.mean()):.4g} as before; `vesalius sweep` says which components do"
            ) from None
        if len(columns[0]) == 1:
            return [(share, None, None) for share in curve[0, 1:-1].tolist()]
        ends = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
        return list(zip(curve[0, 1:-1].tolist(), *(end[1:-1].tolist() for end in ends), strict=True))


def keep_neurons(
    specimen: Specimen,
    *,
    rule: Rule = "relp-qk",
    keep: float = KEEP,
    n: int = PROMPTS,
    seed: int = 0,
    split: str = "test",
    force: bool = False,
    progress: Progress | None = None,
) -> NeuronSet:
    """Find the smallest set of neurons that keeps the share `keep` of a behaviour, and read it on held-out prompts."""
    Scoring(rule, keep)  # refuses a share that there is none of
    model, start, cost = specimen.model, time.perf_counter(), Cost()
    material = trial(specimen, n, seed=seed, split=split)
    held_out = trial(specimen, n, seed=HELD_OUT_SEED + seed, split=HELD_OUT_SPLIT, apart_from=material)
    performance = None if specimen.behaviour is None else require_performance(specimen, seed=seed, force=force)
    note_limits(specimen, material.prompts, resampled=True)
    keeping = Keeping(model, material, cost)
    readout, _ = smooth_readout(model, material)
    per_prompt = attribute_units(model, material.batch, readout, keeping.replacement, rule=rule)
    scores = per_prompt.mean(0)
    cost.rows += 3 * len(material.batch)
    order = scores.abs().argsort(descending=True, stable=True)
    size, share = _smallest(keeping, order, keep, progress)
    rankings = {
        "kept": order,
        "magnitude": unit_changes(model, material.batch, keeping.replacement).argsort(descending=True, stable=True),
        "random": torch.randperm(len(order), generator=torch.Generator().manual_seed(seed)),
    }
    curve = _curve(Keeping(model, held_out, cost), rankings, size, progress)
    cost.rows += 2 * len(material.batch)  # how much neurons write, and where they fire
    neurons = mlp_units(model.config)
    strongest = order[: min(size, MOST_DETAILS)]
    return NeuronSet(
        neurons=[(neurons[i], float(scores[i])) for i in order[:size].tolist()],
        details=describe_units(specimen, material, [neurons[i] for i in strongest], per_prompt[:, strongest]),
        n_neurons=len(neurons),
        share_chosen=share,
        curve=curve,
        n=len(material.batch),
        n_held_out=len(held_out.batch),
        unit=readout.unit,
        forwards=cost.rows / len(material.batch),
        seconds=time.perf_counter() - start,
        performance=performance,
    )


def most_passes(n_units: int) -> float:
    """Passes of all prompts that `keep_neurons` takes at most: the runs of both sets of prompts, the scores, sizes that
    double and are then halved to two per cent, and three rankings at six sizes below all.
    """
    search = n_units.bit_length() + 1 + 6
    return 3 + 3 + search + 2 + 3 + 3 * 6


def _smallest(keeping: Keeping, order: Order, keep: float, progress: Progress | None) -> tuple[int, float]:
    """The smallest number of neurons tried that keeps the share, and the share it keeps."""
    total, tried = len(order), 0

    def share(size: int) -> float:
        nonlocal tried
        tried += 1
        if progress:
            progress("keeping neurons", tried, max(tried, 2 * total.bit_length()))
        return keeping.shares(order, [size])[0][0]

    size, reached = smallest_size(share, keep, total)
    if reached < keep:
        raise NothingToKeep(
            f"all {total} neurons keep {figure_apart(reached, keep)} of the behaviour, less than {keep:g}"
        )
    return size, reached


def smallest_size(share: Callable[[int], float], keep: float, most: int) -> tuple[int, float]:
    """The smallest size tried, from 1 to `most`, whose share reaches `keep`, and that share; `most` where none does.
    Sizes double until one does, then the interval is halved to two per cent of the size.
    """
    low, high = 0, min(1, most)
    while (reached := share(high)) < keep and high < most:
        low, high = high, min(2 * high, most)
    if reached < keep:
        return high, reached
    while high - low > max(1, high // 50):  # two per cent of the size is as fine as the prompts can tell
        middle = (low + high) // 2
        here = share(middle)
        low, high, reached = (low, middle, here) if here >= keep else (middle, high, reached)
    return high, reached


def _curve(
    keeping: Keeping, rankings: dict[str, Order], size: int, progress: Progress | None
) -> tuple[NeuronPoint, ...]:
    """The shares of all rankings at the chosen size and at sizes on both sides of it."""
    total = len(rankings["kept"])
    sizes = sorted({size, *(min(total, max(1, round(size * factor))) for factor in (0.1, 0.3, 3, 10, 30)), total})
    read = {}
    for done, (name, order) in enumerate(rankings.items()):
        if progress:
            progress("reading held-out prompts", done, len(rankings))
        read[name] = keeping.shares(order, sizes)
    return tuple(
        NeuronPoint(
            size=one,
            share=read["kept"][i][0],
            low=read["kept"][i][1],
            high=read["kept"][i][2],
            magnitude=read["magnitude"][i][0],
            random=read["random"][i][0],
        )
        for i, one in enumerate(sizes)
    )

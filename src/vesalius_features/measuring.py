"""What transcoders keep of a model: how much of what MLPs write, of its predictions of text, and of a behaviour.

Every figure is of tokens that nothing was trained on. In the model an MLP is *spliced*: what it writes is what its
transcoder makes of what it reads, at every position. Beside that stand the model as it is, and the same MLPs writing
their mean over the text, or nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.behaviours.contrast import replaced_scores
from vesalius.behaviours.trial import Trial
from vesalius.discovery.shares import share_between
from vesalius.documents.metric import Metric
from vesalius.intervene.probes import hooked_scores
from vesalius.model.dictionaries import Dictionaries, Dictionary
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, checkpoint
from vesalius_features.rows import Rows

#: Held-out tokens that figures are of, tokens of a run with logits, contexts kept for a latent, and prompts of a run.
MOST_TOKENS, AT_ONCE, CONTEXTS, PROMPTS_AT_ONCE = 16_384, 1_024, 3, 32
KINDS = ("spliced", "mean", "zero")


@dataclass(frozen=True)
class Reconstruction:
    """How well a dictionary says what is written: the share of variance explained, latents that are never active, and
    active ones a token; of each latent the values and places (row, position) where it is largest.
    """

    explained: float
    dead: int
    active: float
    tokens: int
    value: Float[Tensor, "latent context"]
    place: Int[Tensor, "latent context 2"]


@torch.no_grad()
def reconstructions(model: Transformer, rows: Rows, dictionaries: Dictionaries) -> dict[int, Reconstruction]:
    """Those of every layer on held-out rows, BOS left out."""
    return {layer: _reconstruction(model, rows, dictionaries.at(layer)) for layer in dictionaries.layers}


def _reconstruction(model: Transformer, rows: Rows, one: Dictionary) -> Reconstruction:
    latents, n = len(one), 0
    missed, square, total = 0.0, 0.0, torch.zeros(model.config.d_model, dtype=torch.float64)
    fired, active = torch.zeros(latents, dtype=torch.bool), 0
    value, place = torch.zeros(latents, CONTEXTS), torch.full((latents, CONTEXTS, 2), -1)
    places = rows.counted.nonzero()
    for read, written in _read(model, rows, one):
        coded = one.encode(read)
        missed += float((written - one.reconstruct(read)).double().square().sum())
        square += float(written.double().square().sum())
        total += written.double().sum(0).cpu()
        fired |= (coded != 0).any(0).cpu()
        active += int((coded != 0).sum())
        best = coded.topk(min(CONTEXTS, len(coded)), dim=0)
        both = torch.cat([value, best.values.T.cpu()], 1)
        where = torch.cat([place, places[n + best.indices.T.cpu()]], 1)
        value, order = both.topk(CONTEXTS, dim=1)
        place = where.gather(1, order[..., None].expand(-1, -1, 2))
        n += len(read)
    variance = square - float(total.square().sum()) / n
    place[value <= 0] = -1
    return Reconstruction(1 - missed / variance, int((~fired).sum()), active / n, n, value, place)


def _read(model: Transformer, rows: Rows, one: Dictionary) -> Iterator[tuple[Tensor, Tensor]]:
    """What a dictionary reads and should write at the counted tokens, some rows at a time."""
    hooks = [one.read_hook, one.write_hook]
    for part in rows.parts(max(1, 4 * AT_ONCE // rows.tokens.shape[1])):
        checkpoint()
        first = torch.zeros(len(part), 1, dtype=torch.long, device=model.device)
        _, cache = model.run_with_cache(part.tokens, mask=part.mask, names=hooks, choose=first)
        counted = part.counted.to(cache[one.read_hook].device)
        yield cache[one.read_hook][counted].float(), cache[one.write_hook][counted].float()


def mean_writes(model: Transformer, rows: Rows, dictionaries: Dictionaries) -> dict[int, Float[Tensor, " d"]]:
    """What each MLP writes, mean over the counted tokens."""
    means = {}
    with torch.no_grad():
        for layer in dictionaries.layers:
            written = [value for _, value in _read(model, rows, dictionaries.at(layer))]
            means[layer] = torch.cat(written).mean(0)
    return means


class Splicing:
    """Hooks that put something else in the place of what MLPs write."""

    def __init__(self, dictionaries: Dictionaries, means: dict[int, Float[Tensor, " d"]]) -> None:
        self.dictionaries, self.means = dictionaries, means

    def hooks(self, layers: Sequence[int], kind: str) -> list[Hook]:
        """Those of some layers: `spliced`, `mean` or `zero`."""
        return [hook for layer in layers for hook in self._of(layer, kind)]

    def _of(self, layer: int, kind: str) -> list[Hook]:
        one, kept = self.dictionaries.at(layer), []

        def read(value: Tensor, _: HookPoint) -> None:
            kept[:] = [value]

        def written(value: Tensor, _: HookPoint) -> Tensor:
            if kind == "spliced":
                return one.reconstruct(kept.pop()).to(value)
            return torch.zeros_like(value) if kind == "zero" else self.means[layer].to(value).expand_as(value)

        return [(one.read_hook, read), (one.write_hook, written)]


@torch.no_grad()
def text_losses(model: Transformer, rows: Rows, hooks: Sequence[Hook]) -> Float[Tensor, " row"]:
    """The mean loss of the next token of text, row by row."""
    losses = []
    for part in rows.parts(max(1, AT_ONCE // rows.tokens.shape[1])):
        checkpoint()
        logits = model.run_with_hooks(part.tokens, mask=part.mask, fwd_hooks=hooks)[:, :-1]
        target, counted = part.tokens[:, 1:].to(logits.device), part.counted[:, 1:].to(logits.device)
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2).float(), target, reduction="none")
        losses.append(((loss * counted).sum(1) / counted.sum(1)).cpu())
    return torch.cat(losses)


def behaviour_scores(model: Transformer, material: Trial, hooks: Sequence[Hook]) -> Float[Tensor, " prompt"]:
    """The score of every prompt of a behaviour."""
    n, scores = len(material.batch), []
    for start in range(0, n, PROMPTS_AT_ONCE):
        checkpoint()
        which = torch.arange(start, min(start + PROMPTS_AT_ONCE, n))
        part = material.batch.take(which).to(model.device)
        scores.append(hooked_scores(model, part, material.readout.take(which), hooks).float().cpu())
    return torch.cat(scores)


#: The figures of one splicing: of some layers, under each kind.
Spliced = dict[str, Metric]


def spliced_text(
    model: Transformer,
    rows: Rows,
    splicing: Splicing,
    sets: Sequence[tuple[int, ...]],
    progress: Progress,
) -> tuple[Metric, list[Spliced]]:
    """The loss on text of the model as it is, and with the MLPs of each set of layers replaced in each way."""
    intact = Metric.of_mean(text_losses(model, rows, []))
    return intact, _each(
        sets,
        lambda layers, kind: Metric.of_mean(text_losses(model, rows, splicing.hooks(layers, kind))),
        progress,
        "text",
    )


def surviving(
    model: Transformer,
    material: Trial,
    splicing: Splicing,
    sets: Sequence[tuple[int, ...]],
    progress: Progress,
) -> list[Spliced]:
    """The share of a behaviour that survives in each set of layers and each way: 1 with the model as it is, 0 where
    every component is resampled.
    """
    full, nothing = replaced_scores(model, material)

    def share(layers: tuple[int, ...], kind: str) -> Metric:
        scores = behaviour_scores(model, material, splicing.hooks(layers, kind))
        return share_between(nothing, scores.double(), full).metric()

    return _each(sets, share, progress, "behaviour")


def _each(
    sets: Sequence[tuple[int, ...]],
    measure: Callable[[tuple[int, ...], str], Metric],
    progress: Progress,
    what: str,
) -> list[Spliced]:
    found = []
    for done, layers in enumerate(sets):
        progress(f"splicing, {what}", done, len(sets))
        found.append({kind: measure(layers, kind) for kind in KINDS})
    return found

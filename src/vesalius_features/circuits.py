"""The smallest set of latents, heads and error terms that keeps a share of a behaviour.

The parts are the heads, the latents of every dictionary, what each dictionary misses (`L12.error`, a part of its own),
and the MLPs that have no dictionary.

1. Score every part by attribution: the slope of the score along what it writes, times its value less that on the
   counterfactual prompt, summed over positions.
2. Keep the k largest by magnitude; every other part takes its value on the counterfactual prompt.
3. Share kept = (score with k parts - score with none) / (score of the model - score with none). Double k until the
   share is reached, then halve the interval.
4. On held-out prompts: the share of that set, of as many parts at random among those with a score, and of the set
   without its error terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.discovery.attribution import smooth_readout
from vesalius.discovery.neurons import smallest_size
from vesalius.discovery.shares import KeptShare, share_between
from vesalius.errors import BadInput
from vesalius.intervene.attribution import slopes_at
from vesalius.intervene.probes import hooked_scores
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import Batch
from vesalius.model.dictionaries import Dictionaries
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress, checkpoint
from vesalius.sites import Feature

WRITES = "hook_mlp_out"
#: Prompts of a run.
AT_ONCE = 8
#: Passes of the two ends of a share: the model as it is, and with nothing kept, for which the counterfactuals run too.
ENDS = 3
Part = Component | Feature


def require_of_mlps(dictionaries: Dictionaries) -> None:
    """Refuse dictionaries that write anything but what MLPs write: their latents would hold what heads write too."""
    for layer, writes in dictionaries.writes.items():
        if writes != WRITES:
            raise BadInput(
                f"features {dictionaries.where}: layer {layer} writes {writes}; circuits are of dictionaries that "
                f"write {WRITES} (transcoders), and of others take `sweep` with `sites` features"
            )


def most_passes(parts: int) -> float:
    """Passes of all prompts that `smallest_set` takes at most: attributions (the prompts, their gradients and the
    counterfactuals), the ends of both shares, sizes that double and are then halved to two per cent, and three shares
    on held-out prompts.
    """
    search = parts.bit_length() + 1 + 6
    return 4 + 2 * ENDS + 2 * (search + 3)


class Parts:
    """Every part of a model with dictionaries, in one order: layer by layer the heads, then latents and error, or the
    MLP.
    """

    def __init__(self, model: Transformer, dictionaries: Dictionaries) -> None:
        self.model, self.dictionaries = model, dictionaries
        config, start = model.config, 0
        self.heads: dict[int, slice] = {}
        self.rest: dict[int, slice] = {}
        for layer in range(config.n_layers):
            self.heads[layer] = slice(start, start := start + config.n_heads)
            many = dictionaries.latents.get(layer, 0) + 1
            self.rest[layer] = slice(start, start := start + many)
        self.total = start

    def __len__(self) -> int:
        return self.total

    def part(self, place: int) -> Part:
        """The part at a place of the order."""
        for layer, heads in self.heads.items():
            if place < heads.stop:
                return Component(layer, place - heads.start)
            if place < (rest := self.rest[layer]).stop:
                if layer not in self.dictionaries.layers:
                    return Component(layer)
                index = place - rest.start if place + 1 < rest.stop else None
                return Feature(layer, index, self.dictionaries.at(layer))
        raise IndexError(place)

    def errors(self) -> list[int]:
        """The places of the error terms."""
        return [self.rest[layer].stop - 1 for layer in self.dictionaries.layers]

    def hook_names(self) -> list[str]:
        """The points where values are read."""
        every = [self.dictionaries.at(layer) for layer in self.dictionaries.layers]
        names = [f"blocks.{layer}.{end}" for layer in self.heads for end in ("attn.hook_z", WRITES)]
        return list(dict.fromkeys([*names, *(one.read_hook for one in every)]))


class Keeping:
    """The score of every prompt with some parts kept and all others as on the counterfactual prompt."""

    def __init__(self, parts: Parts, material: Trial) -> None:
        self.parts, self.material, self.model = parts, material, parts.model
        self.runs = 0
        config, batch = self.model.config, material.batch
        real = real_tokens(config, batch)
        self.where: Bool[Tensor, "prompt pos"] = real if material.where is None else material.where & real
        self.full = self.scores(torch.ones(len(parts), dtype=torch.bool))
        self.none = self.scores(torch.zeros(len(parts), dtype=torch.bool))

    @torch.no_grad()
    def scores(self, kept: Bool[Tensor, " part"]) -> Float[Tensor, " prompt"]:
        """With these parts kept."""
        found = []
        for start in range(0, len(self.material.batch), AT_ONCE):
            checkpoint()
            rows = torch.arange(start, min(start + AT_ONCE, len(self.material.batch)))
            batch, other = (
                one.take(rows).to(self.model.device) for one in (self.material.batch, self.material.counterfactual)
            )
            hooks = [] if bool(kept.all()) else self._hooks(kept, self._values(other), self.where[rows])
            readout = self.material.readout.take(rows)
            found.append(hooked_scores(self.model, batch, readout, hooks).float().cpu())
        self.runs += 1 if bool(kept.all()) else 2
        return torch.cat(found)

    def share(self, kept: Bool[Tensor, " part"]) -> KeptShare:
        """The share of the behaviour that these parts keep."""
        return share_between(self.none, self.scores(kept), self.full)

    def _values(self, batch: Batch) -> dict[str, Tensor]:
        first = torch.zeros(len(batch), 1, dtype=torch.long, device=self.model.device)
        names = self.parts.hook_names()
        _, cache = self.model.run_with_cache(batch.tokens, mask=batch.mask, names=names, choose=first)
        return {name: cache[name] for name in names}

    def _hooks(self, kept: Tensor, other: dict[str, Tensor], where: Tensor) -> list[Hook]:
        hooks: list[Hook] = []
        for layer, heads in self.parts.heads.items():
            hooks += self._of_heads(layer, kept[heads], other, where)
            hooks += self._of_rest(layer, kept[self.parts.rest[layer]], other, where)
        return hooks

    def _of_heads(self, layer: int, kept: Tensor, other: dict[str, Tensor], where: Tensor) -> list[Hook]:
        name = f"blocks.{layer}.attn.hook_z"

        def replaced(value: Tensor, _: HookPoint) -> Tensor:
            gone = where.to(value.device)[:, :, None, None] & ~kept.to(value.device)[:, None]
            return torch.where(gone, other[name], value)

        return [] if bool(kept.all()) else [(name, replaced)]

    def _of_rest(self, layer: int, kept: Tensor, other: dict[str, Tensor], where: Tensor) -> list[Hook]:
        name, held = f"blocks.{layer}.{WRITES}", list[Tensor]()
        if bool(kept.all()):
            return []
        if layer not in self.parts.dictionaries.layers:
            return [(name, lambda value, _: torch.where(where.to(value.device)[..., None], other[name], value))]
        one = self.parts.dictionaries.at(layer)

        def read(value: Tensor, _: HookPoint) -> None:
            held[:] = [value]

        def written(value: Tensor, _: HookPoint) -> Tensor:
            x, source = held.pop() if held else value, other[one.read_hook]
            change = (one.encode(source) - one.encode(x)) * ~kept[:-1].to(value.device)
            added = change @ one.W_dec.to(value.device)
            if not bool(kept[-1]):
                own, its = value.float() - one.reconstruct(x), other[name].float() - one.reconstruct(source)
                added = added + its - own
            return value + (added * where.to(value.device)[..., None]).to(value)

        return [(name, written)] if one.read_hook == name else [(one.read_hook, read), (name, written)]


def attributions(parts: Parts, material: Trial) -> Float[Tensor, " part"]:
    """The attribution of every part, mean over prompts."""
    model, dictionaries = parts.model, parts.dictionaries
    total = torch.zeros(len(parts), dtype=torch.float64)
    readout, _ = smooth_readout(model, material)
    names = parts.hook_names()
    for start in range(0, len(material.batch), AT_ONCE):
        checkpoint()
        rows = torch.arange(start, min(start + AT_ONCE, len(material.batch)))
        batch, other = (one.take(rows).to(model.device) for one in (material.batch, material.counterfactual))
        kept, slope = slopes_at(model, batch, readout.take(rows), "gradient", tuple(names))
        first = torch.zeros(len(other), 1, dtype=torch.long, device=model.device)
        with torch.no_grad():
            _, source = model.run_with_cache(other.tokens, mask=other.mask, names=names, choose=first)
            where = real_tokens(model.config, batch) if material.where is None else material.where[rows]
            where = where.to(model.device)[..., None]
            for layer, heads in parts.heads.items():
                z, y = f"blocks.{layer}.attn.hook_z", f"blocks.{layer}.{WRITES}"
                total[heads] += ((kept[z] - source[z]) * slope[z] * where[..., None]).sum((0, 1, 3)).double().cpu()
                along = slope[y] * where
                if layer not in dictionaries.layers:
                    total[parts.rest[layer]] += float(((kept[y] - source[y]) * along).sum())
                    continue
                one = dictionaries.at(layer)
                before, after = source[one.read_hook], kept[one.read_hook]
                change = one.encode(after) - one.encode(before)
                latents = ((along.float() @ one.W_dec.to(along.device).T) * change).sum((0, 1))
                errors = kept[y] - one.reconstruct(after) - source[y] + one.reconstruct(before)
                scores = torch.cat([latents, (errors * along).sum()[None]])
                total[parts.rest[layer]] += scores.double().cpu()
    scores = (total / len(material.batch)).float()
    if len(wrong := (~scores.isfinite()).nonzero()):
        raise BadInput(
            f"features {dictionaries.where}: the attribution of {parts.part(int(wrong[0]))} is not a finite number; "
            "the weights of this layer are too large to be added up"
        )
    return scores


@dataclass(frozen=True)
class LatentSet:
    """The parts that were kept, strongest first, with their scores; the shares on the choosing prompts and on held-out
    ones, of as many random parts, and without the error terms.
    """

    parts: list[tuple[Part, float]]
    scored: int
    share_chosen: float
    share: KeptShare
    random: KeptShare
    without_errors: KeptShare
    runs: int
    n: int
    n_held_out: int


def smallest_set(
    parts: Parts, material: Trial, held_out: Trial, *, keep: float, seed: int, progress: Progress
) -> LatentSet:
    """Search the smallest set on some prompts, and read it on others."""
    progress("attributing", 0, 0)
    scores = attributions(parts, material)
    scored = int((scores != 0).sum())
    if not scored:
        raise BadInput("no part has a slope on these prompts; choose another behaviour or metric")
    order, keeping = scores.abs().argsort(descending=True, stable=True), Keeping(parts, material)
    tried = 0

    def share(size: int) -> float:
        nonlocal tried
        tried += 1
        progress("keeping parts", tried, 2 * scored.bit_length())
        return keeping.share(_first(order, size, len(parts))).value

    size, reached = smallest_size(share, keep, scored)
    reading = Keeping(parts, held_out)
    chosen = _first(order, size, len(parts))
    alone = chosen.clone()
    alone[parts.errors()] = False
    drawn = order[:scored][torch.randperm(scored, generator=torch.Generator().manual_seed(seed))]
    return LatentSet(
        parts=[(parts.part(place), float(scores[place])) for place in order[:size].tolist()],
        scored=scored,
        share_chosen=reached,
        share=reading.share(chosen),
        random=reading.share(_first(drawn, size, len(parts))),
        without_errors=reading.share(alone),
        runs=keeping.runs + reading.runs + 4,
        n=len(material.batch),
        n_held_out=len(held_out.batch),
    )


def _first(order: Sequence[int] | Tensor, size: int, total: int) -> Bool[Tensor, " part"]:
    kept = torch.zeros(total, dtype=torch.bool)
    kept[torch.as_tensor(order[:size])] = True
    return kept

"""Latents of sparse dictionaries as places: replaced with the error kept, or the error itself, and ranked by
attribution.

A latent is replaced by adding `(new - old) W_dec[latent]` to what the dictionary writes: `old` is its value in the row
that is running, so replacing none, or one by its own value, changes nothing (up to rounding) whatever the dictionary
misses. Several latents of one dictionary are replaced together, all read from the same activation. The error is what
the dictionary writes in the model, less its reconstruction: without it the model runs on the dictionary's word alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vesalius.errors import BadInput
from vesalius.intervene.attribution import slopes_at
from vesalius.intervene.readout import Readout
from vesalius.intervene.tokens import real_tokens
from vesalius.intervene.values import Batch
from vesalius.model.dictionaries import Dictionaries, Dictionary
from vesalius.model.hooks import Hook, HookPoint
from vesalius.model.transformer import Transformer
from vesalius.sites import Feature, Site

#: Latents that a sweep of all of them replaces one by one, and prompts that are run together to rank them.
STRONGEST, AT_ONCE = 64, 8


def bound(sites: Sequence[Site], dictionaries: Dictionaries | None) -> list[Site]:
    """The same sites, latents with the dictionary that they are of; dictionaries of which none is named are refused."""
    if dictionaries is not None and not any(isinstance(site.place, Feature) for site in sites):
        raise BadInput(
            f"features {dictionaries.where}: nothing of these dictionaries is replaced; name latents (L12F4711) or "
            "errors (L12.error), or give `sites` features to `sweep`"
        )
    return [
        replace(site, place=_of(site.place, dictionaries)) if isinstance(site.place, Feature) else site
        for site in sites
    ]


def _of(latent: Feature, dictionaries: Dictionaries | None) -> Feature:
    if latent.dictionary is not None:
        return latent
    if dictionaries is None:
        raise BadInput(f"site {latent} is a latent of a sparse dictionary; give its directory with `features`")
    dictionary = dictionaries.at(latent.layer)
    if latent.index is not None and latent.index >= len(dictionary):
        raise BadInput(f"site {latent}: the dictionary of layer {latent.layer} has latents 0 to {len(dictionary) - 1}")
    return replace(latent, dictionary=dictionary)


def dictionary_of(latent: Feature) -> Dictionary:
    """The dictionary of a latent; refused where none has been loaded."""
    _of(latent, None)
    return latent.dictionary


@dataclass
class Latents:
    """Latents of one dictionary that are replaced together in some rows, each at its positions (None: all), and the
    error where it is.
    """

    dictionary: Dictionary
    which: Int[Tensor, " latent"]
    where: Sequence[Bool[Tensor, "row pos"] | None]
    #: What takes their place; a position or a row axis of 1 serves all.
    new: Float[Tensor, "row pos latent"]
    error: Float[Tensor, "row pos d_model"] | None = None
    error_where: Bool[Tensor, "row pos"] | None = None

    def hooks(self, rows: slice) -> list[Hook]:
        """Hooks that replace them in these rows of a run."""
        old: list[Tensor] = []

        def read(value: Tensor, _: HookPoint) -> None:
            old[:] = [value[rows]]

        def write(value: Tensor, _: HookPoint) -> Tensor:
            value = value.clone()
            value[rows] += self.change(old[0], value[rows]).to(value)
            return value

        def both(value: Tensor, hook: HookPoint) -> Tensor:
            read(value, hook)
            return write(value, hook)

        one = self.dictionary
        if one.reads == one.writes:
            return [(one.write_hook, both)]
        return [(one.read_hook, read), (one.write_hook, write)]

    def change(
        self, read: Float[Tensor, "row pos d_model"], written: Float[Tensor, "row pos d_model"]
    ) -> Float[Tensor, "row pos d_model"]:
        """What is added to the place that the dictionary writes, from what stands where it reads and writes."""
        old = self.dictionary.encode(read, self.which)
        change = self.new.to(old) - old
        for i, where in enumerate(self.where):
            if where is not None:
                change[..., i] *= where.to(change)
        added = change @ self.dictionary.directions(self.which, change)
        if self.error is None:
            return added
        gone = self.error.to(added) - written.to(added) + self.dictionary.reconstruct(read)
        return added + (gone if self.error_where is None else gone * self.error_where.to(added)[..., None])


def latents_at(
    latents: Iterable[Feature], kept: Mapping[str, Tensor], real: Bool[Tensor, "source pos"], *, mean: bool
) -> dict[Feature, Float[Tensor, "source pos *d_model"]]:
    """The values of latents, and errors, where the activations that their dictionaries read and write were `kept`, or
    their means over real tokens.
    """
    values = {}
    for latent in latents:
        one = dictionary_of(latent)
        x = kept[one.read_hook]
        if latent.index is None:
            value = kept[one.write_hook].to(torch.float32) - one.reconstruct(x)
        else:
            value = one.encode(x, torch.tensor([latent.index]))[..., 0]
        values[latent] = value[real.to(value.device)].mean(0)[None, None] if mean else value
    return values


def strongest(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    dictionaries: Dictionaries,
    *,
    other: Batch | None = None,
    where: Bool[Tensor, "prompt pos"] | None = None,
    most: int = STRONGEST,
) -> tuple[list[Site], int]:
    """The latents with the largest attributions: the slope of the score along what a latent writes, times its value
    less that on `other` (None: less zero), summed over positions. Returns them, strongest first, and how many had one.
    """
    totals = {layer: torch.zeros(len(dictionaries.at(layer)), dtype=torch.float64) for layer in dictionaries.layers}
    for start in range(0, len(batch), AT_ONCE):
        rows = torch.arange(start, min(start + AT_ONCE, len(batch)))
        some = batch.take(rows).to(model.device)
        source = None if other is None else other.take(rows).to(model.device)
        allowed = real_tokens(model.config, some) if where is None else where[rows]
        for layer, scores in _attributed(model, some, readout.take(rows), dictionaries, source, allowed).items():
            totals[layer] += scores.double().sum(0).cpu()
    found = []
    for layer, scores in totals.items():
        order = scores.abs().topk(min(most, len(scores))).indices.tolist()
        dictionary = dictionaries.at(layer)
        found += [
            (abs(float(scores[index])), Site(Feature(layer, index, dictionary))) for index in order if scores[index]
        ]
    found.sort(key=lambda pair: -pair[0])
    return [site for _, site in found[:most]], sum(int((scores != 0).sum()) for scores in totals.values())


def _attributed(
    model: Transformer,
    batch: Batch,
    readout: Readout,
    dictionaries: Dictionaries,
    other: Batch | None,
    allowed: Bool[Tensor, "prompt pos"],
) -> dict[int, Float[Tensor, "prompt latent"]]:
    """The attribution of every latent on some prompts, by layer."""
    every = [dictionaries.at(layer) for layer in dictionaries.layers]
    reads, writes = ([getattr(one, hook) for one in every] for hook in ("read_hook", "write_hook"))
    kept, slope = slopes_at(model, batch, readout, "gradient", tuple(dict.fromkeys((*reads, *writes))))
    source = None
    if other is not None:
        first = torch.zeros(len(other), 1, dtype=torch.long, device=model.device)
        _, source = model.run_with_cache(other.tokens, mask=other.mask, names=reads, choose=first)
    scores = {}
    with torch.no_grad():
        for one in every:
            change = one.encode(kept[one.read_hook])
            change = change if source is None else change - one.encode(source[one.read_hook])
            change *= allowed.to(change)[..., None]
            along = slope[one.write_hook].to(change) @ one.directions(torch.arange(len(one)), change).T
            scores[one.layer] = (along * change).sum(1)
    return scores

"""Where latents are active: the passages of held-out text in which each is largest, kept beside the dictionaries.

DIR/contexts.safetensors    tokens, and of each layer the largest values of every latent with their row and position
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from vesalius.intervene.probes import direct_logits
from vesalius.model.dictionaries import Dictionary
from vesalius.model.specimen import Specimen
from vesalius.model.states import read_tensors, write_tensors
from vesalius.sites import Feature
from vesalius_features.documents import Context, FeatureDetail
from vesalius_features.measuring import Reconstruction
from vesalius_features.rows import Rows

CONTEXTS_FILE = "contexts.safetensors"
#: Tokens before and after the largest value that a passage has, and tokens that a direction raises.
BEFORE, AFTER, RAISED = 12, 4, 5


def write_contexts(directory: Path, rows: Rows, found: Mapping[int, Reconstruction]) -> None:
    """Keep the places of the largest values of every latent."""
    tensors = {"tokens": rows.tokens.int(), "counted": rows.counted}
    for layer, one in found.items():
        tensors |= {f"value.{layer}": one.value, f"place.{layer}": one.place.int()}
    write_tensors(directory / CONTEXTS_FILE, tensors)


def most_active(found: Mapping[int, Reconstruction], each: int) -> list[tuple[int, int]]:
    """The latents of each layer with the largest values on held-out text: (layer, latent)."""
    pairs = []
    for layer, one in found.items():
        order = one.value[:, 0].topk(min(each, len(one.value))).indices.tolist()
        pairs += [(layer, latent) for latent in order if one.value[latent, 0] > 0]
    return pairs


def details(specimen: Specimen, directory: Path, latents: Iterable[Feature]) -> tuple[FeatureDetail, ...]:
    """What is known of latents: the tokens that their directions raise, and passages, where some are kept there."""
    file = directory / CONTEXTS_FILE
    kept = read_tensors(file) if file.is_file() else {}
    return tuple(
        FeatureDetail(
            id=str(latent),
            contexts=_passages(specimen, kept, latent.layer, latent.index, latent.dictionary),
            raises=_raised(specimen, latent.dictionary, latent.index),
        )
        for latent in latents
        if latent.index is not None
    )


def _passages(
    specimen: Specimen, kept: Mapping[str, torch.Tensor], layer: int, index: int, one: Dictionary
) -> tuple[Context, ...]:
    """The kept passages of a latent, with its value at each token."""
    places = kept.get(f"place.{layer}")
    if places is None or index >= len(places):
        return ()
    contexts: dict[int, Context] = {}
    for row, position in places[index].tolist():
        if row < 0 or row in contexts:
            continue
        tokens, counted = kept["tokens"][row].long(), kept["counted"][row].nonzero()
        begin = max(int(counted[0]), position - BEFORE)
        end = min(int(counted[-1]), position + AFTER) + 1
        with torch.no_grad():
            _, cache = specimen.model.run_with_cache(tokens[None, :end], names=[one.read_hook])
            values = one.encode(cache[one.read_hook][0, begin:end], torch.tensor([index]))[:, 0]
        rounded = tuple(round(value, 4) for value in values.tolist())
        contexts[row] = Context(tokens=specimen.pieces(tokens[begin:end]), values=rounded)
    return tuple(contexts.values())


@torch.no_grad()
def _raised(specimen: Specimen, one: Dictionary, index: int) -> tuple[str, ...]:
    """The tokens whose logits a direction raises most by itself."""
    direction = one.W_dec[index][None].to(specimen.model.device)
    logits = direct_logits(specimen.model, direction, resid=direction)[0]
    return specimen.pieces(logits.topk(min(RAISED, len(logits))).indices.cpu())

"""Where latents are active: the passages of held-out text in which each is largest, kept beside the dictionaries.

DIR/contexts.safetensors    tokens, and of each layer the largest values of every latent with their row and position
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from vesalius.documents.neurons import Context, FeatureDetail
from vesalius.errors import BadInput
from vesalius.intervene.probes import direct_logits
from vesalius.model.dictionaries import Dictionaries, Dictionary
from vesalius.model.specimen import Specimen
from vesalius.model.states import read_tensors, write_tensors
from vesalius.sites import Feature
from vesalius_features.measuring import Reconstruction
from vesalius_features.rows import Rows

CONTEXTS_FILE = "contexts.safetensors"
#: What is kept of them.
Contexts = Mapping[str, torch.Tensor]
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


def read_contexts(directory: Path, dictionaries: Dictionaries) -> Contexts:
    """The passages that are kept in a directory (none where it has no such file); a file that does not hold those of
    these dictionaries is refused in one line.
    """
    file = directory / CONTEXTS_FILE
    if not file.is_file():
        return {}
    kept = read_tensors(file)
    rows, counted = kept.get("tokens"), kept.get("counted")
    if rows is None or counted is None or rows.ndim != 2 or rows.shape != counted.shape:
        raise _unreadable(file, "tokens and counted are not rows of text")
    if rows.is_floating_point() or counted.dtype != torch.bool:
        raise _unreadable(file, "tokens and counted are not rows of text")
    most = dictionaries.config.d_vocab
    if rows.numel() and not 0 <= int(rows.min()) <= int(rows.max()) < most:
        raise _unreadable(file, f"a token is not one of the {most} of this model")
    ends = torch.tensor(rows.shape)
    for layer, latents in dictionaries.latents.items():
        if (places := kept.get(f"place.{layer}")) is None:
            continue
        if places.is_floating_point() or places.ndim != 3 or (len(places), places.shape[2]) != (latents, 2):
            raise _unreadable(file, f"place.{layer} is not of the {latents} latents of layer {layer}")
        shown = places[places[..., 0] >= 0].long()
        if bool(((shown < 0) | (shown >= ends)).any()) or not bool(counted[shown[:, 0], shown[:, 1]].all()):
            raise _unreadable(file, f"place.{layer} names places where no text is")
    return kept


def _unreadable(file: Path, why: str) -> BadInput:
    return BadInput(f"{file}: {why}; train the dictionaries again, or move the file away to do without passages")


def details(specimen: Specimen, kept: Contexts, latents: Iterable[Feature]) -> tuple[FeatureDetail, ...]:
    """What is known of latents: the tokens that their directions raise, and passages, where some are kept."""
    return tuple(
        FeatureDetail(
            id=str(latent),
            contexts=_passages(specimen, kept, latent.layer, latent.index, latent.dictionary),
            raises=_raised(specimen, latent.dictionary, latent.index),
        )
        for latent in latents
        if latent.index is not None
    )


def _passages(specimen: Specimen, kept: Contexts, layer: int, index: int, one: Dictionary) -> tuple[Context, ...]:
    """The kept passages of a latent, with its value at each token."""
    places = kept.get(f"place.{layer}")
    if places is None:
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

"""Positions of prompts by name: a number, a number from the end, a role; and all of them, for a map by position."""

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.behaviours.trial import Trial
from vesalius.errors import BadInput, choices, note
from vesalius.model.specimen import Specimen, TextVocabulary

#: Where the answer of a natural prompt is read.
END = "end"
#: What the columns of a map may be.
BY = ("position", "role")
#: Positions that a map has at most.
MOST_COLUMNS = 512


def ends_of(material: Trial) -> Int[Tensor, " prompt"]:
    """The last token of each prompt."""
    if material.prompts is not None:
        return material.prompts.position
    batch = material.batch
    return torch.full((len(batch),), batch.tokens.shape[1] - 1) if batch.mask is None else batch.mask.sum(1).cpu() - 1


def places_of(material: Trial, at: str | int) -> Int[Tensor, " prompt"]:
    """One position of each prompt: a number from 0 (BOS included), one below 0 from the last token, or a role."""
    if not isinstance(at, int):
        return _of_role(material, at)
    ends = ends_of(material)
    last = int(ends.min())
    if at > last or -at > last + 1:
        who = "the prompts have" if last == int(ends.max()) else "the shortest prompt has"
        raise BadInput(f"position {at}: {who} positions 0 to {last}, or -1 (the last token) and down")
    return torch.full_like(ends, at) if at >= 0 else ends + 1 + at


def _of_role(material: Trial, role: str) -> Int[Tensor, " prompt"]:
    roles = roles_of(material)
    if role not in roles:
        near = get_close_matches(role, roles, 1, 0.4)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        known = f"choose one of {choices(roles)}, or a position" if roles else "give a position, such as 3"
        raise BadInput(f"position {role[:60]!r}: these prompts have no such role{meant}; {known}")
    return roles[role]


def roles_of(material: Trial) -> dict[str, Int[Tensor, " prompt"]]:
    """The roles of the prompts; none where there is no behaviour."""
    return {} if material.prompts is None else {**material.prompts.roles, END: material.prompts.position}


def marked(material: Trial, at: Sequence[str | int]) -> Bool[Tensor, "prompt pos"]:
    """Each prompt's positions of these names."""
    mask = torch.zeros_like(material.batch.tokens, dtype=torch.bool, device="cpu")
    for one in at:
        mask.scatter_(1, places_of(material, one).cpu()[:, None], True)
    return mask


def aligned(material: Trial) -> Trial:
    """The prompts of the commonest length (of two, the longer), so that a position is the same in all of them; a note
    says how many.
    """
    lengths = (ends_of(material) + 1).tolist()
    counts = Counter(lengths)
    count, length = max((count, length) for length, count in counts.items())
    if len(counts) == 1:
        return material
    note(
        f"prompts have {min(lengths)} to {max(lengths)} tokens, and positions are compared among the {count} of "
        f"{len(lengths)} with {length}; `by` role takes all of them"
    )
    return material.take(torch.tensor([row for row, own in enumerate(lengths) if own == length]))


def columns_of(specimen: Specimen, material: Trial, by: str) -> dict[str | int, str]:
    """The positions of a map with what stands there: a role, a token where all prompts have the same one, or nothing
    but its number.
    """
    roles = roles_of(material)
    if by == "role":
        if not roles:
            raise BadInput("`by` role: these prompts have no roles; take `by` position")
        return {role: role for role in roles}
    length = int(ends_of(material).max()) + 1
    if length > MOST_COLUMNS:
        raise BadInput(f"`by` position: prompts of {length} tokens; a map has at most {MOST_COLUMNS}, take `by` role")
    return {at: _label(specimen, material, at, roles) for at in range(length)}


def _label(specimen: Specimen, material: Trial, at: int, roles: dict[str, Int[Tensor, " prompt"]]) -> str:
    here = [role for role, places in roles.items() if bool((places == at).all())]
    tokens = material.batch.tokens[:, at].unique()
    if here:
        return f"{at} {here[0]}"
    if len(tokens) == 1 and isinstance(specimen.vocabulary, TextVocabulary):
        return f"{at} {specimen.vocabulary.tokenizer.piece(int(tokens[0]))}"
    return str(at)

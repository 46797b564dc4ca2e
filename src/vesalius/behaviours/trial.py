"""The inputs of one experiment, for any specimen: prompts, counterfactual prompts and the readout.

Natural models: the behaviour's prompts and logit difference. Specimens with a finite vocabulary: random inputs,
other random inputs of independent lengths as counterfactuals (so that dependence on the length is visible), and the
share of unchanged outputs. Where almost no such pair differs in an output, pairs that do are searched (`rare`).

A trial can be drawn *apart from* another one, to check results on unseen inputs. The splits of a natural behaviour
share no prompt; random inputs of a small vocabulary do repeat, so inputs that were seen are left out, and a vocabulary
with too few unseen inputs gives fewer prompts than requested.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from vesalius.behaviours.apart import parts_apart
from vesalius.behaviours.encoding import source_note
from vesalius.behaviours.metrics import has_zero
from vesalius.behaviours.own import RowBehaviour, ids_note
from vesalius.behaviours.performance import draw_prompts
from vesalius.behaviours.prompts import Prompts, split_index
from vesalius.behaviours.rare import NUMERIC_TOLERANCE, RARE, is_rare, searched_pairs
from vesalius.behaviours.registry import behaviour_of
from vesalius.errors import BadInput, choices, note
from vesalius.intervene import Batch, Readout, Recordings, agreement
from vesalius.intervene.readout import SHARE_OF_OUTPUTS
from vesalius.model.specimen import FiniteVocabulary, IdVocabulary, Specimen, TextVocabulary
from vesalius.model.transformer import Transformer
from vesalius.options import require_drawable

#: How often inputs are drawn, and how many at least each time, before a vocabulary counts as exhausted.
MAX_DRAWS, LEAST_PER_DRAW = 16, 1024
Row = tuple[int, ...]


class NothingUnseen(BadInput):
    """All inputs that could be drawn were seen before."""


@dataclass(frozen=True)
class Trial:
    """What a sweep runs on.

    `prompts` is set for natural models. `where` marks the positions at which a counterfactual can be patched in: its
    own, without padding. Elsewhere the clean value stays. None means everywhere. `answers` are the outputs that count
    as right where they are not the model's own. `searched` pairs were looked for because their outputs differ, so they
    are no draws from the specimen's distribution.
    """

    batch: Batch
    counterfactual: Batch
    readout: Readout
    prompts: Prompts | None = None
    where: Bool[Tensor, "prompt pos"] | None = None
    answers: Int[Tensor, "prompt pos"] | None = None
    searched: bool = False

    @classmethod
    def of(cls, prompts: Prompts, readout: Readout) -> "Trial":
        """Prompts of a natural model beside their counterfactuals, read out like this."""
        return cls(prompts.batch, prompts.counterfactual_batch, readout, prompts)

    def signed(self, model: Transformer) -> Readout:
        """The readout with the logits of right, wrong and the rest beside the score, where the metric is of both."""
        return self.readout if self.prompts is None else self.prompts.signed(self.readout, model)

    def take(self, rows: slice | Int[Tensor, " n"]) -> "Trial":
        """Some of the prompts."""
        index = torch.arange(len(self.batch))[rows]
        return Trial(
            self.batch.take(index),
            self.counterfactual.take(index),
            self.readout.take(index),
            None if self.prompts is None else self.prompts.take(index),
            None if self.where is None else self.where[index],
            None if self.answers is None else self.answers[index],
            self.searched,
        )


def with_wrong_answers(specimen: Specimen, material: Trial, share: float, *, seed: int = 0) -> Trial:
    """A trial of a finite vocabulary in which each output counts as wrong by the chance `share`: another class, drawn
    at random, is the right one there.
    """
    tokens, classes = material.batch.tokens, specimen.model.config.d_vocab_out
    counted = specimen.model.config.not_padding(tokens)
    counted[:, 0] = False
    with torch.no_grad():
        answers = specimen.model(tokens.to(specimen.model.device)).argmax(-1).cpu()
    generator = torch.Generator().manual_seed(seed)
    wrong = (torch.rand(tokens.shape, generator=generator) < share) & counted
    other = (answers + torch.randint(1, classes, tokens.shape, generator=generator)) % classes
    answers = torch.where(wrong, other, answers)
    return replace(material, readout=agreement(answers, counted), answers=answers)


def trial(
    specimen: Specimen,
    n: int,
    *,
    seed: int = 0,
    split: str = "test",
    apart_from: Trial | None = None,
    centred: bool = False,
) -> Trial:
    """Draw a trial for a specimen; `split` picks the behaviour's pool of names, templates and fillers.

    `centred` subtracts the mean score of the counterfactual prompts from the scores of a metric that has no zero of its
    own, such as a log-probability, so that shares of the clean score mean something. With `apart_from`, no prompt is a
    prompt or counterfactual of that trial. A finite vocabulary then gives `n` distinct prompts or as many as there are,
    a behaviour the unseen ones among `n`; `len(trial.batch)` is the number.
    """
    require_drawable(n, seed)
    split_index(split)
    vocabulary = specimen.vocabulary
    if isinstance(vocabulary, TextVocabulary):
        source = behaviour_of(specimen)
        prompts = draw_prompts(source, specimen.model, vocabulary.tokenizer, n, seed=seed, split=split)
        if apart_from is not None:
            prompts = _unseen_prompts(prompts, split, rows_of(apart_from))
        readout = centred_readout(specimen.model, prompts) if centred else prompts.readout(specimen.model)
        return Trial.of(prompts, readout)
    if isinstance(vocabulary, IdVocabulary):
        return _of_ids(specimen, n, seed, () if apart_from is None else rows_of(apart_from))
    assert isinstance(vocabulary, FiniteVocabulary)
    seen = None if apart_from is None else rows_of(apart_from)
    if seen is None:
        inputs, others = specimen.sample(n, seed), specimen.sample(n, seed + 1)
    else:
        inputs, others = _unseen_pairs(specimen, n, seed, seen)
    searched = searched_pairs(specimen, n, seed=seed, seen=seen) if is_rare(specimen, inputs, others) else None
    if searched is not None:
        inputs, others = searched
        if apart_from is None:
            note(
                f"specimen {specimen.name!r}: of random pairs of inputs fewer than {RARE:.0%} differ in an output, so "
                "pairs that do were searched; shares and effects are those on such pairs"
            )
    tokens, n = specimen.tokenize([*inputs, *others]), len(inputs)
    mask = specimen.model.config.not_padding(tokens)
    batch, other = Batch(tokens[:n], mask[:n]), Batch(tokens[n:], mask[n:])
    readout = unchanged_outputs(specimen, batch)
    return Trial(batch, other, readout, where=mask[n:], searched=searched is not None)


def _of_ids(specimen: Specimen, n: int, seed: int, seen: Collection[Row]) -> Trial:
    """Random token ids, other random ids as counterfactuals, and the share of unchanged likeliest tokens."""
    inputs = [ids for ids in specimen.sample(n, seed) if tuple(ids) not in seen]
    if not inputs:
        raise NothingUnseen(f"specimen {specimen.name!r}: all inputs drawn were seen before; choose another seed")
    batch, other = (Batch(specimen.tokenize(ids)) for ids in (inputs, specimen.sample(len(inputs), seed + 1)))
    with torch.no_grad():
        clean = specimen.model(batch.tokens.to(specimen.model.device)).argmax(-1).cpu()
    return Trial(batch, other, agreement(clean, torch.ones_like(clean, dtype=torch.bool)))


def rows_of(material: Trial) -> set[Row]:
    """The token ids of every prompt and every counterfactual, without padding."""
    return {*_rows(material.batch), *_rows(material.counterfactual)}


def unseen_of(material: Trial, seen: Trial) -> Trial | None:
    """The prompts that are no prompt and no counterfactual of another trial; None where none is left."""
    rows = rows_of(seen)
    left = [place for place, row in enumerate(_rows(material.batch)) if row not in rows]
    return material if len(left) == len(material.batch) else material.take(torch.tensor(left)) if left else None


def in_two(material: Trial, first: int) -> tuple[Trial, Trial | None]:
    """The first prompts, and those of the others that the first have not seen (None: none); or halves of all that see
    as little of each other as can be, where more are left of the second.
    """
    if first >= len(material.batch):
        return material, None
    one, others = material.take(slice(0, first)), material.take(slice(first, None))
    left = unseen_of(others, one)
    if left is others:
        return one, left
    links: dict[Row, list[Row]] = {}
    prompts = _rows(material.batch)
    for prompt, counterfactual in zip(prompts, _rows(material.counterfactual), strict=True):
        links.setdefault(prompt, []).append(counterfactual)
    part = parts_apart(links, 2)
    places = [torch.tensor([part[row] == at for row in prompts]).nonzero()[:, 0] for at in (0, 1)]
    if all(map(len, places)):  # otherwise it is one prompt with several counterfactuals
        half, rest = map(material.take, places)
        unseen = unseen_of(rest, half)
        if unseen is not None and (left is None or len(unseen.batch) > len(left.batch)):
            return half, unseen
    return one, left


def _rows(batch: Batch) -> list[Row]:
    masks = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
    return [tuple(row[mask.bool()].tolist()) for row, mask in zip(batch.tokens.cpu(), masks.cpu(), strict=True)]


def centred_readout(model: Transformer, prompts: Prompts) -> Readout:
    """The readout of the prompts' metric; of one without a zero, less the mean score of the counterfactuals."""
    readout = prompts.readout(model)
    if has_zero(prompts.metric):
        return readout
    zero = float(Recordings(model, prompts.counterfactual_batch, readout).scores().mean())
    return replace(readout, score=lambda logits, prompt: readout.score(logits, prompt) - zero)


def note_limits(specimen: Specimen, prompts: Prompts | None, *, resampled: bool) -> None:
    """Say what dropped rows, few rows, one prompt and missing counterfactuals mean for what follows."""
    source = specimen.behaviour_source
    if not isinstance(source, RowBehaviour) or prompts is None:
        return
    if source.single:
        note(
            "one prompt shows what this model does on this prompt: effects have no interval, and whether they hold for "
            "others is not known; give a file of rows for that"
        )
    assert isinstance(specimen.vocabulary, TextVocabulary)
    config, tokenizer = specimen.model.config, specimen.vocabulary.tokenizer
    for text in source.limits(tokenizer, n_ctx=config.n_ctx, d_vocab=config.d_vocab):
        note(f"behaviour {source.label}: {text}")
    for text in filter(None, (source.notes, ids_note(source, tokenizer))):
        note(text)
    if resampled and (text := source_note(source.label, prompts)):
        note(text)


def _unseen_prompts(prompts: Prompts, split: str, seen: Collection[Row]) -> Prompts:
    unseen = [place for place, row in enumerate(_rows(prompts.batch)) if row not in seen]
    if not unseen:
        raise NothingUnseen(
            f"all prompts drawn from the {split} split were seen before; choose another split or seed, or more rows"
        )
    return prompts.take(torch.tensor(unseen))


def _unseen_pairs(specimen: Specimen, n: int, seed: int, seen: Collection[Row]) -> tuple[list[Any], list[Any]]:
    """Unseen inputs with unseen counterfactuals: all distinct while there are enough, else each input is also the
    counterfactual of another.
    """
    inputs = distinct_inputs(specimen, 2 * n, seed=seed, seen=seen)
    if len(inputs) < 2:
        raise NothingUnseen(
            f"specimen {specimen.name!r}: {len(inputs)} unseen inputs are left, and a prompt and a counterfactual are "
            "needed; discover on fewer prompts"
        )
    n = min(n, len(inputs))
    shift = n if len(inputs) > n else 1
    return inputs[:n], [inputs[(place + shift) % len(inputs)] for place in range(n)]


def distinct_inputs(specimen: Specimen, n: int, *, seed: int, seen: Collection[Row] = ()) -> list[Any]:
    """Up to `n` distinct inputs of a finite vocabulary, none among `seen` (token ids without padding)."""
    earlier: set[tuple[object, ...]] = set()
    inputs: list[object] = []
    for draw in range(MAX_DRAWS):
        sample = unique(specimen.sample(max(2 * n, LEAST_PER_DRAW), seed + draw))
        new = [tokens for tokens in sample if tuple(tokens) not in earlier]
        if new:
            ids = specimen.tokenize(new)
            rows = _rows(Batch(ids, specimen.model.config.not_padding(ids)))
            inputs += [tokens for row, tokens in zip(rows, new, strict=True) if row not in seen]
        if len(inputs) >= n:
            break
        earlier |= {tuple(tokens) for tokens in sample}
    return inputs[:n]


def unique(inputs: Sequence[Any]) -> list[Any]:
    """Token lists without repeats, in order of first occurrence."""
    return list({tuple(tokens): tokens for tokens in inputs}.values())


def unchanged_outputs(specimen: Specimen, batch: Batch) -> Readout:
    """Share of positions without padding whose output equals the clean model's (numbers: within 0.05)."""
    counted = specimen.model.config.not_padding(batch.tokens)
    counted[:, 0] = False
    with torch.no_grad():
        clean = specimen.model(batch.tokens.to(specimen.model.device)).cpu()
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, FiniteVocabulary) or vocabulary.outputs is not None:  # one class is no number
        return agreement(clean.argmax(-1), counted)

    def score(logits: Tensor, prompt: Tensor) -> Tensor:
        reference, mask = clean.to(logits.device)[prompt], counted.to(logits.device)[prompt]
        unchanged = (logits - reference).abs()[..., 0] < NUMERIC_TOLERANCE
        return (unchanged & mask).sum(1) / mask.sum(1)

    return Readout(score, unit=SHARE_OF_OUTPUTS)


# Positions of prompts by name: a number, a number from the end, a role; and all of them, for a map by position.

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
    """The roles of the prompts; without a behaviour only where the answer is read, if that is at one position."""
    if material.prompts is not None:
        return {**material.prompts.roles, END: material.prompts.position}
    read = material.readout.at
    return {END: read[:, 0]} if read is not None and read.shape[1] == 1 else {}


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

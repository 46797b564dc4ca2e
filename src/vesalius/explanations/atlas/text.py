"""Plain text for the atlas: passages of several kinds in which names and words come back, as they do in any text, and
the classes that tokens are told apart by.
"""

from collections.abc import Sequence

import torch

from vesalius.discovery.head_tests import Probe, bos_of
from vesalius.errors import BadInput
from vesalius.intervene import Batch
from vesalius.model.specimen import Specimen, TextVocabulary

#: Tokens of a passage that are read; where a vocabulary splits words less, all passages are cut to the shortest.
LENGTH, SHORTEST = 64, 8

PASSAGES: tuple[str, ...] = (
    "Anna put the kettle on and looked out of the window. It was still raining, and the street was empty. When the "
    "kettle began to sing, Anna made two cups of tea, one for herself and one for Peter, who was late again. Peter "
    "always came late when it was raining, and Anna had stopped asking him why.",
    "The river rises in the northern hills and flows through three counties before it reaches the sea. In spring the "
    "river floods the meadows on both banks, and farmers move their cattle to higher ground. A stone bridge was built "
    "across the river in 1784; the old bridge had been carried away by ice two winters before.",
    "To make the bread, mix 500 grams of flour with 10 grams of salt, add the yeast and 350 grams of warm water, and "
    "stir until no dry flour is left. Let the dough rest for an hour. Fold the dough four times, let it rest again, "
    "and bake it for 40 minutes in a very hot oven. Let the bread cool before you cut it.",
    "def total(values):\n    result = 0\n    for value in values:\n        result = result + value\n    return result\n"
    "\ndef mean(values):\n    if not values:\n        return None\n    return total(values) / len(values)\n\n"
    "print(mean([1, 2, 3, 4]))\n",
    '"Have you seen the letter?" asked Mr. Hale. "Which letter?" said his sister. "The letter from Boston, of course. '
    'It was on this table in the morning." His sister shook her head. "Nobody has touched your table. Look in your '
    'coat, Mr. Hale; you always put your letters there and forget them."',
    "On Monday the council met for the third time to discuss the new school. The council agreed that the school should "
    "open in September, but could not agree on who would pay for it. The mayor said on Tuesday that the town had no "
    "money left, and that the council would have to meet again on Thursday.",
    "Copper is a soft metal with a reddish colour. Pure copper conducts heat and electricity very well, which is why "
    "most wires are made of copper. When copper is left in damp air for many years, it becomes green. Bronze is made "
    "of copper and tin, brass of copper and zinc; both are harder than pure copper.",
    "The team won its first game by two goals and lost the second by three. Rivera scored in both games. In the third "
    "game the team played without Rivera, who had hurt his knee, and nobody scored at all. The coach said after the "
    "game that the team would need Rivera back before the end of the season.",
)
#: Words whose tokens heads are asked about: what does a head write where it reads one of them?
WORDS: tuple[str, ...] = (" John", " Paris", " seven", ",")


def passages(specimen: Specimen) -> Probe | None:
    """The passages as prompts of one length; None where the vocabulary cannot say two of them."""
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, TextVocabulary):
        return None
    prefix, rows = bos_of(specimen), []
    for passage in PASSAGES:
        try:
            rows.append(vocabulary.tokenizer.encode(passage))
        except BadInput:  # words that the vocabulary does not have
            continue
    if len(rows) < 2:
        return None
    length = min(LENGTH, specimen.model.config.n_ctx, *map(len, rows))
    return Probe(Batch(torch.tensor([row[:length] for row in rows])), len(prefix)) if length >= SHORTEST else None


def class_of(piece: str) -> str:
    """The class of a token by its text."""
    bare = piece.strip()
    if not bare:
        return "space" if "\n" not in piece else "line break"
    if any(letter.isdigit() for letter in bare):
        return "number"
    if not any(letter.isalpha() for letter in bare):
        return "punctuation"
    if not piece[:1].isspace():
        return "part of a word"
    return "capitalised word" if bare[0].isupper() else "word"


def classes(specimen: Specimen, probe: Probe) -> dict[str, torch.Tensor]:
    """For each class of tokens where it occurs in the prompts; BOS is in none."""
    pieces: Sequence[Sequence[str]] = [specimen.pieces(row) for row in probe.batch.tokens]
    named = [[class_of(piece) for piece in row] for row in pieces]
    kinds = sorted({kind for row in named for kind in row[probe.first :]})
    places = torch.arange(probe.batch.tokens.shape[1]) >= probe.first
    return {kind: torch.tensor([[one == kind for one in row] for row in named]) & places for kind in kinds}

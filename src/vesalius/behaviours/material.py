"""What prompts are made of: split pools of words, and templates that remember where each word went.

Every pool is dealt out like cards: item 0 to train, 1 to validation, 2 to test, 3 to train, and so on. Which split a
word belongs to thus depends on the pool alone, never on the tokenizer or the seed, and no word can be in two splits.
Words that the tokenizer at hand cuts into pieces are dropped afterwards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import TypeVar

from vesalius.behaviours.prompts import Prompt
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

SPLITS = ("train", "validation", "test")
Item = TypeVar("Item")


def split_index(split: str) -> int:
    """0, 1 or 2 for train, validation or test."""
    if split not in SPLITS:
        raise BadInput(f"split {split!r} does not exist; choose one of {', '.join(SPLITS)}")
    return SPLITS.index(split)


def deal(pool: Sequence[Item], split: str) -> list[Item]:
    """The items of a pool that belong to one split: every third, from the split's own start."""
    return list(pool[split_index(split) :: len(SPLITS)])


@dataclass(frozen=True)
class Text:
    """A filled template; `ends[field]` is the number of characters up to and including that field's value."""

    text: str
    ends: Mapping[str, int]


def fill(template: str, fields: Mapping[str, str]) -> Text:
    """Put values into `{field}` places, keeping account of where each ends."""
    text, ends = "", {}
    for literal, field, _, _ in Formatter().parse(template):
        text += literal
        if field is not None:
            text += fields[field]
            ends[field] = len(text)
    return Text(text, ends)


@dataclass(frozen=True)
class Material:
    """One split's pools as one tokenizer sees them, for one behaviour (which is named in complaints)."""

    behaviour: str
    tokenizer: Tokenizer
    split: str
    d_vocab: int

    def share(self, pool: Sequence[Item]) -> list[Item]:
        """This split's part of a pool."""
        return deal(pool, self.split)

    def words(self, pool: Sequence[str], *, at_least: int) -> list[str]:
        """This split's words that are one token after a space; too few of them is the tokenizer's unfitness."""
        kept = [word for word in self.share(pool) if self.tokenizer.is_single(f" {word}")]
        self.require(len(kept), at_least, what="single-token words")
        return kept

    def ids(self, *, at_least: int) -> list[int]:
        """This split's token ids that are text on their own: every third of the vocabulary."""
        start = split_index(self.split)
        kept = [
            i
            for i in self.tokenizer.ordinary_ids()
            if i % len(SPLITS) == start and i < self.d_vocab and i != self.tokenizer.bos
        ]
        self.require(len(kept), at_least, what="ordinary tokens")
        return kept

    def require(self, found: int, needed: int, *, what: str) -> None:
        """Complain, naming behaviour and tokenizer, if there is too little to make prompts of."""
        if found < needed:
            raise BadInput(
                f"behaviour {self.behaviour}: the tokenizer of {self.tokenizer.size} tokens leaves {found} {what} "
                f"in the {self.split} split and {needed} are needed; choose another behaviour or model"
            )

    def prompt(
        self, clean: Text, counterfactual: Text, *, correct: str, wrong: str, roles: Mapping[str, str]
    ) -> Prompt | None:
        """Tokenize a pair of prompts; None if the two do not align or an answer does not follow as one token.

        `roles` maps the name of a role to the template field whose last token has it. A role "end", the last token,
        is always added.
        """
        tokens, other = self.tokenizer.encode(clean.text), self.tokenizer.encode(counterfactual.text)
        answers = [self._continuation(clean.text, tokens, answer) for answer in (correct, wrong)]
        places = {role: self._last_token(clean, tokens, field) for role, field in roles.items()}
        others = {role: self._last_token(counterfactual, other, field) for role, field in roles.items()}
        if len(tokens) != len(other) or None in answers or None in places.values() or places != others:
            return None
        known = {role: place for role, place in places.items() if place is not None}
        known["end"] = len(tokens) - 1
        right, rival = (answer for answer in answers if answer is not None)
        return Prompt(tuple(tokens), tuple(other), right, rival, known, clean.text)

    def _continuation(self, text: str, tokens: list[int], answer: str) -> int | None:
        """The answer's token, if appending the answer appends exactly one token and leaves the others as they were."""
        longer = self.tokenizer.encode(text + answer)
        return longer[-1] if longer[:-1] == tokens else None

    def _last_token(self, text: Text, tokens: list[int], field: str) -> int | None:
        """Position of a field's last token, if the tokenizer has a boundary where the field ends."""
        before = self.tokenizer.encode(text.text[: text.ends[field]])
        return len(before) - 1 if before == tokens[: len(before)] else None

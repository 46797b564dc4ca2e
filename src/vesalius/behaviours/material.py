"""What prompts are made of: pools of words divided into splits, and templates that record where each word ends.

Item i of a pool belongs to train, validation or test by i mod 3. The split of a word thus depends on the pool alone,
never on the tokenizer or the seed, and no word is in two splits. Words that the tokenizer splits into several tokens
are dropped afterwards.
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


def select_split(pool: Sequence[Item], split: str) -> list[Item]:
    """The items of a pool that belong to one split: every third item, starting at the split's index."""
    return list(pool[split_index(split) :: len(SPLITS)])


@dataclass(frozen=True)
class Text:
    """A filled template; `ends[field]` is the number of characters up to and including that field's value."""

    text: str
    ends: Mapping[str, int]


def fill(template: str, fields: Mapping[str, str]) -> Text:
    """Replace each `{field}` by its value and record where the value ends."""
    text, ends = "", {}
    for literal, field, _, _ in Formatter().parse(template):
        text += literal
        if field is not None:
            text += fields[field]
            ends[field] = len(text)
    return Text(text, ends)


@dataclass(frozen=True)
class Material:
    """One split's pools for one tokenizer; `behaviour` is the name used in error messages."""

    behaviour: str
    tokenizer: Tokenizer
    split: str
    d_vocab: int

    def share(self, pool: Sequence[Item]) -> list[Item]:
        """This split's part of a pool."""
        return select_split(pool, self.split)

    def words(self, pool: Sequence[str], *, at_least: int) -> list[str]:
        """This split's words that are one token after a space; refuses a tokenizer with too few of them."""
        words = [word for word in self.share(pool) if self.tokenizer.is_single(f" {word}")]
        self.require(len(words), at_least, what="single-token words")
        return words

    def ids(self, *, at_least: int) -> list[int]:
        """This split's token ids that are text on their own: every third of the vocabulary."""
        start = split_index(self.split)
        ids = [
            i
            for i in self.tokenizer.ordinary_ids
            if i % len(SPLITS) == start and i < self.d_vocab and i != self.tokenizer.bos
        ]
        self.require(len(ids), at_least, what="ordinary tokens")
        return ids

    def require(self, n: int, needed: int, *, what: str) -> None:
        """Refuse, naming behaviour and tokenizer, if there are too few items to make prompts."""
        if n < needed:
            raise BadInput(
                f"behaviour {self.behaviour}: the tokenizer of {self.tokenizer.size} tokens leaves {n} {what} "
                f"in the {self.split} split and {needed} are needed; choose another behaviour or model"
            )

    def prompt(
        self, clean: Text, counterfactual: Text, *, correct: str, wrong: str, roles: Mapping[str, str]
    ) -> Prompt | None:
        """Tokenize a pair of prompts; None if the two do not align or an answer is not exactly one further token.

        `roles` maps the name of a role to the template field whose last token has it. A role "end", the last token,
        is always added.
        """
        aligned = self.aligned(clean, counterfactual, roles)
        if aligned is None:
            return None
        tokens, other_tokens, positions = aligned
        answers = [self._continuation(clean.text, tokens, answer) for answer in (correct, wrong)]
        if None in answers:
            return None
        correct_id, wrong_id = (answer for answer in answers if answer is not None)
        return Prompt(tuple(tokens), tuple(other_tokens), correct_id, wrong_id, positions, clean.text)

    def aligned(
        self, clean: Text, counterfactual: Text, roles: Mapping[str, str]
    ) -> tuple[list[int], list[int], dict[str, int]] | None:
        """The tokens of a pair of prompts and the place of each role; None if the two do not align."""
        tokens, other_tokens = self.tokenizer.encode(clean.text), self.tokenizer.encode(counterfactual.text)
        places = {role: self._last_token(clean, tokens, field) for role, field in roles.items()}
        other_places = {role: self._last_token(counterfactual, other_tokens, field) for role, field in roles.items()}
        if len(tokens) != len(other_tokens) or None in places.values() or places != other_places:
            return None
        positions = {role: place for role, place in places.items() if place is not None}
        return tokens, other_tokens, {**positions, "end": len(tokens) - 1}

    def _continuation(self, text: str, tokens: list[int], answer: str) -> int | None:
        """The answer's token, if appending the answer appends exactly one token and changes no other."""
        longer = self.tokenizer.encode(text + answer)
        return longer[-1] if longer[:-1] == tokens else None

    def _last_token(self, text: Text, tokens: list[int], field: str) -> int | None:
        """Position of a field's last token, if the tokenizer has a boundary where the field ends."""
        before = self.tokenizer.encode(text.text[: text.ends[field]])
        return len(before) - 1 if before == tokens[: len(before)] else None

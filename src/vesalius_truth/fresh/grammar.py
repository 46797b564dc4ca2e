"""A grammar of small, sensible RASP programs, with the sentence that says what each one does.

`Grammar.grow(kind, depth)` makes a variable of one kind whose longest chain of operators is at most `depth`:

| kind   | values             | made by                                                          |
|--------|--------------------|------------------------------------------------------------------|
| word   | tokens or labels   | relabelling, shifting, fetching the first, mirroring, masking    |
| flag   | 0 or 1             | membership, thresholds, equality, majority, logic                |
| count  | 0 to max_len       | occurrences of a value, of a condition, of smaller numbers, size |
| number | a real number      | shares of a condition, and differences of shares                 |

Every choice comes from the given random generator, and every function is a small table or comparison.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    LinearSequenceMap,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
    frac_prevs,
    hist,
    indices,
    length,
    shift_by,
    tokens,
)

Kind = Literal["word", "flag", "count", "number"]
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class PhrasedVariable:
    """A variable, what it says in words, and the values it is made of (for words)."""

    variable: Variable
    phrase: str
    values: tuple[Value, ...] = ()

    @property
    def nested(self) -> str:
        """The phrase as part of a longer one."""
        return self.phrase if self.variable is tokens else f"({self.phrase})"


def pseudo_words(rng: random.Random, count: int) -> list[str]:
    """Distinct short words that mean nothing."""
    words: set[str] = set()
    while len(words) < count:
        word = rng.choice(_CONSONANTS) + rng.choice(_VOWELS) + rng.choice(_CONSONANTS)
        words.add(word + (rng.choice(_VOWELS) if rng.random() < 0.3 else ""))
    return rng.sample(sorted(words), count)


class Grammar:
    """The productions over one vocabulary."""

    def __init__(self, rng: random.Random, vocab: list[Value], *, max_len: int, causal: bool) -> None:
        self.rng, self.vocab, self.max_len, self.causal = rng, tuple(vocab), max_len, causal
        self._scope = " up to here" if causal else ""

    def grow(self, kind: Kind, depth: int) -> PhrasedVariable:
        """A random part of this kind and at most this depth; at depth 0 the tokens themselves."""
        if depth <= 0:
            return PhrasedVariable(tokens, "the token", self.vocab)
        return self.rng.choice(self._productions(kind, depth))(depth)

    def sentence(self, kind: Kind, part: PhrasedVariable) -> str:
        """What the program outputs, as one sentence."""
        text = f"1 where {part.phrase}, otherwise 0" if kind == "flag" else part.phrase
        return f"{text[0].upper()}{text[1:]}."

    def _productions(self, kind: Kind, depth: int) -> list[Callable[[int], PhrasedVariable]]:
        table: dict[Kind, list[tuple[int, Callable[[int], PhrasedVariable]]]] = {
            "word": [
                (1, self._relabel), (1, self._shift), (1, self._first), (1, self._by_position), (2, self._mask),
                *([] if self.causal else [(3, self._mirror)]),
            ],
            "flag": [(1, self._member), (2, self._threshold), (2, self._same), (2, self._logic), (2, self._majority)],
            "count": [
                (1, self._occurrences), (1, self._tally),
                *([(1, self._rank)] if isinstance(self.vocab[0], int) else []),
                *([] if self.causal else [(1, self._size)]),
            ],
            "number": [(2, self._share), (3, self._balance)],
        }  # fmt: skip
        return [make for least, make in table[kind] if depth >= least]

    def _subset(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        size = self.rng.randint(1, max(1, len(values) // 2))
        return tuple(sorted(self.rng.sample(values, size), key=values.index))

    def _routed_word(self, depth: int) -> PhrasedVariable:
        """A word over the vocabulary that no Map made, so that a Map of it stays an operator of its own."""
        if depth <= 0:
            return self.grow("word", 0)
        return self.rng.choice([self._shift_tokens, self._first_token])(depth)

    # words

    def _relabel(self, depth: int) -> PhrasedVariable:
        x = self._routed_word(depth - 1)
        labels = pseudo_words(self.rng, self.rng.randint(3, 4) if len(self.vocab) > 3 else 3)
        table = {value: self.rng.choice(labels) for value in self.vocab}
        shown = ", ".join(f"{value} -> {label}" for value, label in table.items())
        used = tuple(dict.fromkeys(table.values()))
        return PhrasedVariable(Map(table.get, x.variable, name="relabelled"), f"{x.nested} relabelled by {shown}", used)

    def _shift(self, depth: int) -> PhrasedVariable:
        return self._shifted(self.grow("word", depth - 1))

    def _shift_tokens(self, depth: int) -> PhrasedVariable:
        return self._shifted(self.grow("word", 0))

    def _shifted(self, x: PhrasedVariable) -> PhrasedVariable:
        offset = self.rng.choice([1, 1, 2] if self.causal else [1, 1, 2, -1, -1, -2])
        places = f"{abs(offset)} position{'s' if abs(offset) > 1 else ''} {'earlier' if offset > 0 else 'later'}"
        return PhrasedVariable(shift_by(offset, x.variable, name="neighbour"), f"{x.nested} {places}", x.values)

    def _first(self, depth: int) -> PhrasedVariable:
        return self._fetched(self.grow("word", depth - 1))

    def _first_token(self, depth: int) -> PhrasedVariable:
        return self._fetched(self.grow("word", 0))

    def _fetched(self, x: PhrasedVariable) -> PhrasedVariable:
        place = self.rng.randint(0, 1)
        select = Select(indices, indices, lambda key, query: key == place)
        return PhrasedVariable(
            Aggregate(select, x.variable, name="fetched"), f"{x.nested} at position {place}", x.values
        )

    def _by_position(self, depth: int) -> PhrasedVariable:
        x, blank, odd = self.grow("word", depth - 1), self._blank(), self.rng.randint(0, 1)
        variable = SequenceMap(lambda v, i: v if i % 2 == odd else blank, x.variable, indices, name="alternating")
        where = "odd" if odd else "even"
        phrase = f"{x.nested} at {where} positions (from 0), {blank!r} at the others"
        return PhrasedVariable(variable, phrase, (*x.values, blank))

    def _mask(self, depth: int) -> PhrasedVariable:
        x, flag, blank = self._word_beside(depth), self.grow("flag", depth - 1), self._blank()
        variable = SequenceMap(lambda v, on: v if on else blank, x.variable, flag.variable, name="masked")
        return PhrasedVariable(variable, f"{x.nested} where {flag.nested}, otherwise {blank!r}", (*x.values, blank))

    def _mirror(self, depth: int) -> PhrasedVariable:
        x = self._word_beside(depth - 1)
        opposite = SequenceMap(lambda n, i: n - 1 - i, length(), indices, name="opposite")
        variable = Aggregate(Select(indices, opposite, Comparison.EQ), x.variable, name="mirrored")
        return PhrasedVariable(variable, f"{x.nested} at the mirrored position", x.values)

    def _word_beside(self, depth: int) -> PhrasedVariable:
        """The token, or now and then a deeper word, as second operand of something deep already."""
        return self.grow("word", depth - 1 if self.rng.random() < 0.3 else 0)

    def _blank(self) -> Value:
        if isinstance(self.vocab[0], int):
            return max(self.vocab) + 1  # type: ignore[type-var]
        return next(word for word in pseudo_words(self.rng, len(self.vocab) + 1) if word not in self.vocab)

    # flags

    def _member(self, depth: int) -> PhrasedVariable:
        x, subset = self._routed_word(depth - 1), self._subset(self.vocab)
        members = " or ".join(str(value) for value in subset)
        variable = Map(lambda value: int(value in subset), x.variable, name="is_member")
        return PhrasedVariable(variable, f"{x.nested} is {members}")

    def _threshold(self, depth: int) -> PhrasedVariable:
        count, least = self.grow("count", depth - 1), self.rng.randint(2, max(2, self.max_len // 2))
        variable = Map(lambda n: int(n >= least), count.variable, name="is_enough")
        return PhrasedVariable(variable, f"{count.nested} is at least {least}")

    def _same(self, depth: int) -> PhrasedVariable:
        moved = self._routed_word(depth - 1)
        variable = SequenceMap(lambda a, b: int(a == b), tokens, moved.variable, name="is_same")
        return PhrasedVariable(variable, f"the token equals {moved.nested}")

    def _logic(self, depth: int) -> PhrasedVariable:
        a, b = self.grow("flag", depth - 1), self.grow("flag", self.rng.randint(1, depth - 1))
        word, table = self.rng.choice(
            [("and", lambda p, q: p & q), ("or", lambda p, q: p | q), ("xor", lambda p, q: p ^ q)]
        )
        return PhrasedVariable(
            SequenceMap(table, a.variable, b.variable, name="combined"), f"{a.nested} {word} {b.nested}"
        )

    def _majority(self, depth: int) -> PhrasedVariable:
        a, b = self.grow("count", depth - 1), self.grow("count", self.rng.randint(1, depth - 1))
        variable = SequenceMap(lambda m, n: int(m > n), a.variable, b.variable, name="is_more")
        return PhrasedVariable(variable, f"{a.nested} exceeds {b.nested}")

    # counts

    def _occurrences(self, depth: int) -> PhrasedVariable:
        x = self.grow("word", depth - 1)
        return PhrasedVariable(
            hist(x.variable, name="occurrences"), f"the number of positions{self._scope} that share {x.nested}"
        )

    def _tally(self, depth: int) -> PhrasedVariable:
        if depth == 1:
            subset = self._subset(self.vocab)
            members = " or ".join(str(value) for value in subset)
            select = Select(tokens, tokens, lambda key, query: key in subset)
            return PhrasedVariable(
                SelectorWidth(select, name="tally"),
                f"the number of positions{self._scope} where the token is {members}",
            )
        flag = self.grow("flag", depth - 1)
        select = Select(flag.variable, flag.variable, lambda key, query: key == 1)
        return PhrasedVariable(
            SelectorWidth(select, name="tally"), f"the number of positions{self._scope} where {flag.nested}"
        )

    def _rank(self, depth: int) -> PhrasedVariable:
        comparison, word = self.rng.choice([(Comparison.LT, "smaller"), (Comparison.GT, "larger")])
        variable = SelectorWidth(Select(tokens, tokens, comparison), name="rank")
        return PhrasedVariable(variable, f"the number of tokens{self._scope} {word} than the token")

    def _size(self, depth: int) -> PhrasedVariable:
        return PhrasedVariable(length(), "the number of tokens")

    # numbers

    def _share(self, depth: int) -> PhrasedVariable:
        flag = self.grow("flag", depth - 1)
        return PhrasedVariable(
            frac_prevs(flag.variable, name="share"), f"the share of positions up to here where {flag.nested}"
        )

    def _balance(self, depth: int) -> PhrasedVariable:
        a, b = self._share(depth - 1), self._share(self.rng.randint(2, depth - 1))
        variable = LinearSequenceMap(a.variable, b.variable, x_factor=1, y_factor=-1, name="balance")
        return PhrasedVariable(variable, f"{a.nested} minus {b.nested}")

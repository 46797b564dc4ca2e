"""Kinds of tasks that the free grammar never, or almost never, draws: one small family of programs each.

| kind      | what makes it hard to explain                                                               |
|-----------|---------------------------------------------------------------------------------------------|
| plain     | nothing: the free grammar (`grammar.py`)                                                    |
| redundant | two heads hold the same value, and what reads them could do with one                        |
| rare      | the answer hangs on a condition that fewer than 2 % of the positions meet                   |
| pointer   | the token says where to look: `s[t]`, `s[i - t]`, `s[s[t]]`                                 |
| induction | what followed the earlier copies of this token                                              |
| sort      | sorting, ranks, the k-th smallest                                                           |
| mean      | the mean of numbers, over all positions, over those with a flag, or over those of one kind  |
| two       | two tasks in one model, and a token that says which                                         |
| deep      | six to ten components, from the free grammar                                                |

A kind draws a program and says which programs of it are worth keeping: how many components, how much each of them
must matter at the least, and how frequent or rare an answer may be. Every choice comes from the given random generator.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vesalius.rasp.language import (
    Aggregate,
    Comparison,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    Value,
    Variable,
    indices,
    shift_by,
    tokens,
)
from vesalius_truth.fresh.grammar import Grammar, Kind, PhrasedVariable, pseudo_words


@dataclass(frozen=True)
class Drawn:
    """A program before it is compiled: its output, the sentence that says what it is, and its inputs."""

    output: Variable
    sentence: str
    vocab: tuple[Value, ...]
    max_len: int
    causal: bool


@dataclass(frozen=True)
class TaskKind:
    """One kind of task.

    `draw(rng, depth)` makes a program; only the free grammar heeds the depth. Kept are programs of `fewest` to `most`
    components, each of which changes at least the share `min_effect` of the outputs, and of whose answers none is more
    frequent than `max_share` and the least frequent is no more frequent than `rarest`.
    """

    name: str
    help: str
    draw: Callable[[random.Random, int], Drawn]
    fewest: int = 1
    most: int = 6
    min_effect: float = 0.02
    max_share: float = 0.95
    rarest: float = 1.0


def _free(rng: random.Random, depth: int) -> Drawn:
    """A program of the free grammar."""
    size, max_len, causal = rng.randint(3, 8), rng.randint(5, 9), rng.random() < 0.5
    vocab = pseudo_words(rng, size) if rng.random() < 0.6 else sorted(rng.sample(range(1, 100), size))
    grammar = Grammar(rng, list(vocab), max_len=max_len, causal=causal)
    this_depth = rng.randint(1, depth)
    kinds: list[Kind] = ["word", "flag", "count"]
    if this_depth > 1:
        kinds.append("number")
    kind = rng.choice(kinds)
    part = grammar.grow(kind, this_depth)
    return Drawn(part.variable, grammar.sentence(kind, part), tuple(vocab), max_len, causal)


_DEEPEST = 6


def _deep(rng: random.Random, depth: int) -> Drawn:
    """A program of the free grammar whose parts are grown as deep as they go."""
    del depth
    size, max_len, causal = rng.randint(3, 5), rng.randint(5, 7), rng.random() < 0.5
    words = rng.random() < 0.6
    vocab: tuple[str | int, ...] = (
        tuple(pseudo_words(rng, size)) if words else tuple(sorted(rng.sample(range(1, 100), size)))
    )
    grammar = Grammar(rng, list(vocab), max_len=max_len, causal=causal)
    kind = rng.choice(["word", "flag", "count", "number"])
    part = grammar.grow(kind, rng.randint(4, _DEEPEST))  # type: ignore[arg-type]
    return Drawn(part.variable, grammar.sentence(kind, part), vocab, max_len, causal)  # type: ignore[arg-type]


def _words(rng: random.Random, low: int, high: int) -> tuple[Value, ...]:
    return tuple(pseudo_words(rng, rng.randint(low, high)))


def _spare(rng: random.Random, vocab: tuple[Value, ...]) -> str:
    """A word that is no token."""
    return next(word for word in pseudo_words(rng, len(vocab) + 1) if word not in vocab)


def _redundant(rng: random.Random, depth: int) -> Drawn:
    """The same value by two heads, and an MLP that reads both."""
    del depth
    vocab, max_len, causal = _words(rng, 3, 6), rng.randint(5, 8), rng.random() < 0.5
    what = rng.choice(["neighbour", "first", "tally"])
    if what == "tally":
        subset = frozenset(rng.sample(vocab, rng.randint(1, len(vocab) // 2)))
        members = " or ".join(str(value) for value in vocab if value in subset)
        a, b = (
            SelectorWidth(Select(tokens, tokens, lambda key, query: key in subset), name=name)
            for name in ("tally", "tally_again")
        )
        join = rng.choice(["sum", "largest", "agree"])
        table = {
            "sum": lambda m, n: m + n,
            "largest": max,
            "agree": lambda m, n: m if m == n else -1,
        }[join]
        said = {"sum": "twice", "largest": "", "agree": ""}[join]
        scope = " up to here" if causal else ""
        sentence = f"{said} the number of positions{scope} where the token is {members}".strip()
        return _drawn(SequenceMap(table, a, b, name="joined"), sentence, vocab, max_len, causal)
    if what == "neighbour":
        offset = rng.choice([1, 2] if causal else [1, 2, -1])
        a, b = (shift_by(offset, tokens, name=name) for name in ("neighbour", "neighbour_again"))
        place = f"{abs(offset)} position{'s' if abs(offset) > 1 else ''} {'earlier' if offset > 0 else 'later'}"
    else:
        at = rng.randint(0, 1)
        a, b = (
            Aggregate(Select(indices, indices, lambda key, query: key == at), tokens, name=name)
            for name in ("fetched", "fetched_again")
        )
        place = f"at position {at}"
    blank = _spare(rng, vocab)
    if rng.random() < 0.5:
        joined = SequenceMap(lambda x, y: x if x == y else blank, a, b, name="agreed")
        return _drawn(joined, f"the token {place}", vocab, max_len, causal)
    subset = frozenset(rng.sample(vocab, max(1, len(vocab) // 2)))
    members = " or ".join(str(value) for value in vocab if value in subset)
    joined = SequenceMap(lambda x, y: int(x in subset or y in subset), a, b, name="either")
    return _drawn(joined, f"1 where the token {place} is {members}, otherwise 0", vocab, max_len, causal)


def _rare(rng: random.Random, depth: int) -> Drawn:
    """Two or three conditions at once, each of them uncommon."""
    del depth
    vocab, max_len, causal = _words(rng, 6, 8), rng.randint(6, 9), rng.random() < 0.5
    here, before, first = rng.choice(vocab), rng.choice(vocab), rng.choice(vocab)
    previous = shift_by(1, tokens, name="neighbour")
    both = SequenceMap(lambda t, p: int(t == here and p == before), tokens, previous, name="both")
    sentence = f"1 where the token is {here} and the one before it {before}"
    output: Variable = both
    if rng.random() < 0.5:
        start = Aggregate(Select(indices, indices, lambda key, query: key == 0), tokens, name="fetched")
        some = frozenset({first, rng.choice(vocab)})
        output = SequenceMap(lambda b, s: int(b == 1 and s in some), both, start, name="all_three")
        members = " or ".join(str(value) for value in vocab if value in some)
        sentence += f" and the first {members}"
    if rng.random() < 0.5:
        warning = _spare(rng, vocab)
        output = SequenceMap(lambda t, on: warning if on else t, tokens, output, name="marked")
        sentence = f"the token, but {warning!r} {sentence.removeprefix('1 ')}"
        return _drawn(output, sentence, vocab, max_len, causal)
    return _drawn(output, f"{sentence}, otherwise 0", vocab, max_len, causal)


def _pointer(rng: random.Random, depth: int) -> Drawn:
    """The token at the place that the token names."""
    del depth
    max_len, causal = rng.randint(5, 7), rng.random() < 0.3
    vocab, blank = tuple(range(rng.randint(3, min(5, max_len)))), -1
    form = rng.choice(["place", "place", "back", "twice", "beyond"])
    if form == "back":
        place: Variable = SequenceMap(lambda i, t: i - t, indices, tokens, name="place")
        sentence = "the token as many positions earlier as the token says"
    elif form == "beyond":
        by = rng.randint(1, 2)
        place = Map(lambda t: t + by, tokens, name="place")
        sentence = f"the token at the position that the token names, {by} further"
    else:
        place, sentence = tokens, "the token at the position that the token names"
    found = Aggregate(Select(indices, place, Comparison.EQ), tokens, default=blank, name="pointed_at")
    if form == "twice":
        found = Aggregate(Select(indices, found, Comparison.EQ), tokens, default=blank, name="pointed_at_again")
        sentence = "the token at the position named by the token at the position that the token names"
    return _drawn(found, f"{sentence}, {blank} where there is none", vocab, max_len, causal)


def _induction(rng: random.Random, depth: int) -> Drawn:
    """What followed earlier copies of the token; the value that is listed first among equally frequent ones."""
    del depth
    vocab, max_len, causal = _words(rng, 4, 6), rng.randint(5, 7), rng.random() < 0.7
    form = rng.choice(["token", "token", "known", "label"])
    before = shift_by(1, tokens, name="neighbour")
    scope = " so far" if causal else ""
    copies = Select(before, tokens, Comparison.EQ)
    if form == "known":
        count = SelectorWidth(copies, name="followed")
        seen = Map(lambda n: int(n > 0), count, name="is_followed")
        sentence = f"1 where some token{scope} stands after a copy of the token, otherwise 0"
        return _drawn(seen, sentence, vocab, max_len, causal)
    blank = _spare(rng, vocab)
    follower = Aggregate(copies, tokens, default=blank, name="follower")
    sentence = f"the most frequent token after copies of the token{scope}, {blank!r} where there is none"
    if form == "label":
        other = SequenceMap(lambda f, t: int(f == t), follower, tokens, name="is_same")
        sentence = f"1 where the token equals the most frequent token after its copies{scope}, otherwise 0"
        return _drawn(other, sentence, vocab, max_len, causal)
    return _drawn(follower, sentence, vocab, max_len, causal)


def _sort(rng: random.Random, depth: int) -> Drawn:
    """Sorted tokens, ranks among all tokens or those so far, and what hangs on a rank."""
    del depth
    form = rng.choice(["sorted", "rank", "rank", "kth"])
    descending = rng.random() < 0.5
    less, word = (Comparison.GT, "larger") if descending else (Comparison.LT, "smaller")
    if form == "rank":
        vocab = tuple(sorted(rng.sample(range(1, 40), rng.randint(4, 8))))
        max_len, causal = rng.randint(5, 8), rng.random() < 0.5
        scope = " so far" if causal else ""
        rank = SelectorWidth(Select(tokens, tokens, less), name="rank")
        if rng.random() < 0.5:
            k = rng.randint(1, 2)
            top = Map(lambda n: int(n < k), rank, name="is_among_the_first")
            sentence = f"1 where fewer than {k} tokens{scope} are {word} than the token, otherwise 0"
            return _drawn(top, sentence, vocab, max_len, causal)
        at = rng.randint(1, 2)
        marked = SequenceMap(lambda t, n: t if n >= at else 0, tokens, rank, name="kept")
        sentence = f"the token where at least {at} tokens{scope} are {word}, otherwise 0"
        return _drawn(marked, sentence, vocab, max_len, causal)
    vocab, max_len = tuple(sorted(rng.sample(range(1, 40), 3))), 5
    value = {token: place for place, token in enumerate(vocab)}
    sign = -1 if descending else 1
    unique = SequenceMap(lambda t, i: sign * value[t] * max_len + i, tokens, indices, name="tie_free")
    rank = SelectorWidth(Select(unique, unique, Comparison.LT), name="rank")
    order = "from the largest to the smallest" if descending else "from the smallest to the largest"
    if form == "sorted":
        output = Aggregate(Select(rank, indices, Comparison.EQ), tokens, name="sorted")
        return _drawn(output, f"the tokens {order}", vocab, max_len, False)
    k = rng.randint(0, 1)
    output = Aggregate(Select(rank, rank, lambda key, query: key == k), tokens, name="chosen")
    which = ("largest", "second largest")[k] if descending else ("smallest", "second smallest")[k]
    sentence = f"the {which} token, equal ones counted each, None where there are too few"
    return _drawn(output, sentence, vocab, max_len, False)


def _mean(rng: random.Random, depth: int) -> Drawn:
    """The mean of numbers that the tokens stand for."""
    del depth
    max_len, causal = rng.randint(5, 8), rng.random() < 0.5
    vocab = _words(rng, 3, 5)
    worth: dict[Value, Value] = {token: rng.choice([0.0, 0.5, 1.0, 1.5]) for token in vocab}
    worth[vocab[0]], worth[vocab[1]] = 0.0, 1.5
    shown = ", ".join(f"{token} = {number:g}" for token, number in worth.items())
    numbers = Map(worth.get, tokens, name="number")
    scope = "so far" if causal else "in the sequence"
    form = rng.choice(["all", "so far", "same", "marked"])
    if form == "all":
        select, over = Select(tokens, tokens, Comparison.TRUE), f"the tokens {scope}"
    elif form == "so far":
        select, over = Select(indices, indices, Comparison.LEQ), "the tokens up to here"
    elif form == "same":
        group = {token: rng.randint(0, 1) for token in vocab} | {vocab[0]: 0, vocab[1]: 0}
        select = Select(tokens, tokens, lambda key, query: group[key] == group[query])
        sides = [" ".join(str(token) for token in vocab if group[token] == side) for side in (0, 1)]
        over = f"the tokens {scope} of this token's group ({'; '.join(filter(None, sides))})"
    else:
        marked = frozenset(rng.sample(vocab, max(2, len(vocab) - 2)))
        select = Select(tokens, tokens, lambda key, query: key in marked)
        members = " or ".join(str(token) for token in vocab if token in marked)
        over = f"those tokens {scope} that are {members}, 0 where there are none"
    output = Aggregate(select, numbers, numerical=True, name="mean")
    return _drawn(output, f"the mean of {over}, where {shown}", vocab, max_len, causal)


def _two(rng: random.Random, depth: int) -> Drawn:
    """Two tasks of one kind, and which of them is asked for."""
    del depth
    vocab, max_len, causal = _words(rng, 3, 5), rng.randint(5, 7), rng.random() < 0.5
    grammar = Grammar(rng, list(vocab), max_len=max_len, causal=causal)
    kind: Kind = rng.choice(["word", "flag", "count"])
    first, second = grammar.grow(kind, rng.randint(1, 2)), grammar.grow(kind, rng.randint(1, 2))
    subset = frozenset(rng.sample(vocab, max(1, len(vocab) // 2)))
    members = " or ".join(str(value) for value in vocab if value in subset)
    if rng.random() < 0.6:
        switch: Variable = Aggregate(Select(indices, indices, lambda key, query: key == 0), tokens, name="asked")
        where = f"the first token is {members}"
    else:
        switch, where = tokens, f"the token is {members}"
    either = SequenceMap(lambda a, b: (a, b), first.variable, second.variable, name="both_answers")
    output = SequenceMap(lambda pair, on: pair[0] if on in subset else pair[1], either, switch, name="answer")
    said = [_of_kind(kind, part) for part in (first, second)]
    return _drawn(output, f"where {where}: {said[0]}; elsewhere: {said[1]}", vocab, max_len, causal)


def _of_kind(kind: Kind, part: PhrasedVariable) -> str:
    return f"1 where {part.phrase}, otherwise 0" if kind == "flag" else part.phrase


def _drawn(output: Variable, sentence: str, vocab: tuple[Value, ...], max_len: int, causal: bool) -> Drawn:
    return Drawn(output, f"{sentence[0].upper()}{sentence[1:]}.", vocab, max_len, causal)


KINDS: Mapping[str, TaskKind] = {
    kind.name: kind
    for kind in (
        TaskKind("plain", "the free grammar", _free),
        TaskKind("redundant", "two heads hold the same value", _redundant),
        TaskKind(
            "rare",
            "a condition that fewer than 2 % of the positions meet",
            _rare,
            min_effect=0.001,
            max_share=0.998,
            rarest=0.02,
        ),
        TaskKind("pointer", "the token says where to look", _pointer),
        TaskKind("induction", "what followed earlier copies of the token", _induction),
        TaskKind("sort", "sorting, ranks, the k-th smallest", _sort),
        TaskKind("mean", "means of numbers", _mean),
        TaskKind("two", "two tasks in one model", _two, fewest=3, most=9, min_effect=0.01),
        TaskKind("deep", "six to ten components", _deep, fewest=6, most=10, min_effect=0.005),
    )
}

"""Names for whole programs, found by comparing inputs with outputs: reverse, sort, shift, count, histogram, ...

A name is given only if it is right at every position of every input, and only if the outputs differ enough to tell: a
program that always gave the same could be named anything.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vesalius_programs.naming.operation import is_number, ordered, said_value
from vesalius_programs.naming.table import name_table

Tokens = Sequence[Any]
#: What a function of the tokens in view gives at the last of them: (tokens in view, position).
Local = Callable[[Tokens, int], Any]
Pair = tuple[Tokens, Sequence[Any]]
#: Fewer inputs are too few to name a program by.
FEWEST_INPUTS = 20
#: Numbers the model gives are compared within this: half the smallest step between shares of up to ten positions.
TOLERANCE = 0.005
#: Steps a sequence can be shifted by.
SHIFTS = range(1, 5)


@dataclass(frozen=True)
class SequenceTask:
    """The name of a whole program: `task` is one word, `text` completes "The circuit ...", `n` inputs showed it."""

    task: str
    text: str
    n: int


def name_sequence_task(pairs: Sequence[Pair], *, causal: bool) -> SequenceTask | None:
    """The first known task that gives exactly these outputs; in a causal program a position sees what comes before.

    Where nothing else fits but each output follows from the token alone, the name is that of the token's table.
    """
    if len(pairs) < FEWEST_INPUTS or len({_plain(each) for _, outputs in pairs for each in outputs}) < 2:
        return None
    for task, text, function in _tasks(pairs):
        if all(_gives(function, tokens, outputs, causal=causal) for tokens, outputs in pairs):
            return SequenceTask(task, text, len(pairs))
    return _of_each_token(pairs)


def _gives(function: Local, tokens: Tokens, outputs: Sequence[object], *, causal: bool) -> bool:
    try:
        return all(
            _same(function(tokens[: place + 1] if causal else tokens, place), output)
            for place, output in enumerate(outputs)
        )
    except (TypeError, ValueError, ArithmeticError):
        return False


def _plain(value: object) -> Any:
    return round(value / TOLERANCE) if isinstance(value, float) else value


def _same(left: Any, right: Any) -> bool:
    if left is None or right is None or isinstance(left, str) or isinstance(right, str):
        return left == right
    return is_number(left) and is_number(right) and abs(left - right) <= TOLERANCE


def _tasks(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, Local]]:
    """Known tasks, simplest first. Values are compared, so yes and no may be written as 1 and 0."""
    seen = [tokens for tokens, _ in pairs]
    vocabulary = sorted({token for tokens in seen for token in tokens}, key=repr)
    yield "copy", "copies the sequence", lambda tokens, i: tokens[i]
    yield "reverse", "reverses the sequence", lambda tokens, i: tokens[len(tokens) - 1 - i]
    yield from _moves(pairs)
    yield "length", "gives the length of the sequence", lambda tokens, i: len(tokens)
    yield "position", "gives the position", lambda tokens, i: i
    yield from _counts(vocabulary)
    yield from _comparisons()
    yield from _choices()
    if ordered(vocabulary) is not None:
        yield from _ordered_tasks()
    if all(is_number(token) for token in vocabulary):
        yield from _numbers()


def _moves(pairs: Sequence[Pair]) -> Iterator[tuple[str, str, Local]]:
    for step in SHIFTS:
        steps = "one position" if step == 1 else f"{step} positions"
        fills = {_plain(out) for tokens, outputs in pairs for i, out in enumerate(outputs) if i < step}
        for fill in fills if len(fills) == 1 else ():
            filled = "nothing" if fill is None else said_value(fill)
            text = f"shifts the sequence by {steps} to the right, with {filled} at the start"
            yield "shift", text, lambda tokens, i, k=step, f=fill: tokens[i - k] if i >= k else f
        fills = {_plain(out) for tokens, outputs in pairs for i, out in enumerate(outputs) if i >= len(tokens) - step}
        for fill in fills if len(fills) == 1 else ():
            filled = "nothing" if fill is None else said_value(fill)
            text = f"shifts the sequence by {steps} to the left, with {filled} at the end"
            yield "shift", text, lambda tokens, i, k=step, f=fill: tokens[i + k] if i + k < len(tokens) else f
        yield (
            "rotate",
            f"rotates the sequence by {steps} to the right",
            lambda tokens, i, k=step: tokens[(i - k) % len(tokens)],
        )
        yield (
            "rotate",
            f"rotates the sequence by {steps} to the left",
            lambda tokens, i, k=step: tokens[(i + k) % len(tokens)],
        )
    yield "first", "gives the first token everywhere", lambda tokens, i: tokens[0]
    yield "last", "gives the last token everywhere", lambda tokens, i: tokens[-1]
    yield "swap", "swaps neighbouring tokens in pairs", _swapped


def _swapped(tokens: Tokens, i: int) -> Any:
    partner = i ^ 1
    return tokens[partner] if partner < len(tokens) else tokens[i]


def _counts(vocabulary: Sequence[object]) -> Iterator[tuple[str, str, Local]]:
    for token in vocabulary:
        said = said_value(token)
        yield "count", f"counts how often {said} occurs", lambda tokens, i, t=token: tokens.count(t)
        yield (
            "count so far",
            f"counts how often {said} occurs up to each position",
            lambda tokens, i, t=token: tokens[: i + 1].count(t),
        )
        yield (
            "share so far",
            f"gives the share of {said} among the tokens up to each position",
            lambda tokens, i, t=token: tokens[: i + 1].count(t) / (i + 1),
        )
        yield (
            "share",
            f"gives the share of {said} in the sequence",
            lambda tokens, i, t=token: tokens.count(t) / len(tokens),
        )
        yield "presence", f"says whether {said} occurs", lambda tokens, i, t=token: t in tokens
        yield (
            "parity of a count",
            f"gives the parity of how often {said} occurs",
            lambda tokens, i, t=token: tokens.count(t) % 2,
        )
    yield "histogram", "gives how often the token at each position occurs", lambda tokens, i: tokens.count(tokens[i])
    yield (
        "occurrence number",
        "gives how often the token at each position has occurred so far",
        lambda tokens, i: tokens[: i + 1].count(tokens[i]),
    )
    yield "distinct tokens", "counts the distinct tokens", lambda tokens, i: len(set(tokens))
    yield (
        "distinct tokens so far",
        "counts the distinct tokens up to each position",
        lambda tokens, i: len(set(tokens[: i + 1])),
    )


def _comparisons() -> Iterator[tuple[str, str, Local]]:
    yield (
        "palindrome",
        "says whether the sequence is a palindrome",
        lambda tokens, i: list(tokens) == list(tokens[::-1]),
    )
    yield (
        "symmetry",
        "says whether the token at each position equals the one mirrored at the middle",
        lambda tokens, i: tokens[i] == tokens[len(tokens) - 1 - i],
    )
    yield "all equal", "says whether all tokens are equal", lambda tokens, i: len(set(tokens)) == 1
    yield "all different", "says whether all tokens are different", lambda tokens, i: len(set(tokens)) == len(tokens)
    yield "repeated", "says whether the token at each position occurs more than once", _repeated
    yield "unique", "says whether the token at each position occurs only once", lambda t, i: not _repeated(t, i)
    yield "first occurrence", "says whether the token at each position is new", lambda t, i: t[i] not in t[:i]
    yield "seen before", "says whether the token at each position occurred before", lambda t, i: t[i] in t[:i]
    yield "equals previous", "says whether each token equals the one before", lambda t, i: i > 0 and t[i] == t[i - 1]


def _repeated(tokens: Tokens, i: int) -> bool:
    return tokens.count(tokens[i]) > 1


def _choices() -> Iterator[tuple[str, str, Local]]:
    yield "deduplicate", "keeps each token at its first occurrence and gives nothing elsewhere", _if_first
    yield (
        "most frequent",
        "gives the most frequent token (ties: the one that comes first in the sequence)",
        lambda tokens, i: Counter(tokens).most_common(1)[0][0],
    )
    for last in (False, True):
        tie = "last" if last else "first"
        yield (
            "most frequent",
            f"gives the most frequent token (ties: the one that comes {tie} in order)",
            lambda tokens, i, last=last: _most_frequent(tokens, last=last),
        )
    yield (
        "changes",
        "keeps each token that differs from the one before and gives nothing elsewhere",
        lambda tokens, i: tokens[i] if i > 0 and tokens[i] != tokens[i - 1] else None,
    )


def _if_first(tokens: Tokens, i: int) -> Any:
    return tokens[i] if tokens[i] not in tokens[:i] else None


def _most_frequent(tokens: Tokens, *, last: bool) -> Any:
    counts = Counter(tokens)
    top = [token for token, count in counts.items() if count == max(counts.values())]
    return max(top) if last else min(top)


def _ordered_tasks() -> Iterator[tuple[str, str, Local]]:
    yield "sort", "sorts the sequence in rising order", lambda tokens, i: sorted(tokens)[i]
    yield "sort", "sorts the sequence in falling order", lambda tokens, i: sorted(tokens, reverse=True)[i]
    yield "maximum", "gives the largest token", lambda tokens, i: max(tokens)
    yield "minimum", "gives the smallest token", lambda tokens, i: min(tokens)
    yield "running maximum", "gives the largest token up to each position", lambda tokens, i: max(tokens[: i + 1])
    yield "running minimum", "gives the smallest token up to each position", lambda tokens, i: min(tokens[: i + 1])
    yield "rank", "counts the tokens smaller than each token", lambda t, i: sum(other < t[i] for other in t)
    yield "rank", "counts the tokens larger than each token", lambda t, i: sum(other > t[i] for other in t)
    yield "is sorted", "says whether the sequence never falls", lambda t, i: all(a <= b for a, b in pairwise(t))
    yield "is sorted", "says whether the sequence always rises", lambda t, i: all(a < b for a, b in pairwise(t))
    yield "is sorted", "says whether the sequence never rises", lambda t, i: all(a >= b for a, b in pairwise(t))


def _numbers() -> Iterator[tuple[str, str, Local]]:
    yield "total", "gives the sum of the sequence", lambda tokens, i: sum(tokens)
    yield "running total", "gives the sum up to each position", lambda tokens, i: sum(tokens[: i + 1])
    yield "mean", "gives the mean of the sequence", lambda tokens, i: sum(tokens) / len(tokens)
    yield "running mean", "gives the mean up to each position", lambda tokens, i: sum(tokens[: i + 1]) / (i + 1)
    yield "all even", "says whether all tokens are even", lambda t, i: all(token % 2 == 0 for token in t)


def _of_each_token(pairs: Sequence[Pair]) -> SequenceTask | None:
    """A function of the token alone, where that has a name."""
    table: dict[tuple[Any, ...], Any] = {}
    for tokens, outputs in pairs:
        for token, output in zip(tokens, outputs, strict=True):
            if not _same(table.setdefault((token,), output), output):
                return None
    values = {_plain(output): output for output in table.values()}
    named = name_table({key: _plain(output) for key, output in table.items()}, values=values)
    if named is None or named.exact != "values":
        return None
    return SequenceTask(named.operation, f"gives at each position {named.text(('the token',))}", len(pairs))

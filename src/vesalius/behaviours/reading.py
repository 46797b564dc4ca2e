"""Where the answers of a row are read: the tokens that they add to a prompt, and the one at which they are compared.

A metric that compares a right with a wrong answer needs one place where both can follow. Tokens that the two share at
their start are put behind the prompt (the *prefix*: of " 6" against " 7" the space, where that is a token of its own;
of " New York" against " New Jersey" the token " New"), and the answers are compared at the next token, where they part.
Of lists the first right and wrong answer that part decide the prefix; those that end at that token are used, the others
are named; where none ends there, all are read at that token, which is said. Metrics that score an answer of several
tokens by teacher forcing read all of it and need no prefix.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vesalius.behaviours.metrics import LOG_PROBABILITY, NEEDS_WRONG, TEACHER_FORCED
from vesalius.behaviours.rows import Answer
from vesalius.model.tokenizer import Tokenizer

Tokens = tuple[int, ...]
#: Between two tokens, and before the place where the answer is read, when tokens are shown.
BETWEEN, READ_HERE = "|", " → "


class Dropped(Exception):
    """A row, or a part of one, that cannot be used: the reason, and what would help."""

    def __init__(self, reason: str, suggestion: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.suggestion = reason, suggestion


@dataclass(frozen=True)
class Given:
    """Some answers of a row: the tokens that each adds to the prompt, or why it cannot follow it."""

    what: str
    answers: tuple[Answer, ...]
    read: Mapping[Answer, Tokens]
    refused: Mapping[Answer, Dropped]

    def single(self, after: Tokens = ()) -> tuple[list[Tokens], list[str]]:
        """The answers that are one token more than a prefix, and what is said of the others."""
        others = []
        for one in self.answers:
            if one in self.refused:
                others.append(f"{self.what} {one!r} ({self.refused[one].reason})")
            elif not _goes_on(self.read[one], after):
                others.append(f"{self.what} {one!r} (it does not go on as the first answer does)")
            elif len(self.read[one]) > len(after) + 1:
                others.append(f"{self.what} {one!r} ({len(self.read[one])} tokens)")
        fitting = (ids for ids in self.read.values() if _goes_on(ids, after) and len(ids) == len(after) + 1)
        return list(dict.fromkeys(fitting)), others


@dataclass
class AnswerTokens:
    """The tokens put behind the prompt, the right and wrong tokens after them, and all tokens of an answer that is
    teacher-forced. `said` is what was done to a row, `lost` what is not used of it.
    """

    prefix: Tokens
    answers: Tokens
    wrongs: Tokens = ()
    forced: Tokens = ()
    said: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def read_answers(right: Given, wrong: Given, metric: str, tokenizer: Tokenizer) -> AnswerTokens:
    """Where and as what the answers of a row are read; raises `Dropped`."""
    if metric in NEEDS_WRONG and not wrong.answers:
        raise Dropped(f"no wrong answer: give one, or `metric` {LOG_PROBABILITY}")
    if not right.read:
        raise _refusal(right)
    if metric in NEEDS_WRONG and not wrong.read:
        raise _refusal(wrong)
    if both := set(right.read.values()) & set(wrong.read.values()):
        raise Dropped(f"{_text(tokenizer, both.pop())!r} is both right and wrong")
    if metric in TEACHER_FORCED:
        # The right answers of one token, or all tokens of the only one.
        wrongs, lost = wrong.single()
        if len(right.answers) == 1:
            (whole,) = right.read.values()
            return AnswerTokens((), whole[:1], _firsts(wrongs), whole if len(whole) > 1 else (), lost=lost)
        single, others = right.single()
        if not single and len(right.read) > 1:
            raise Dropped(f"none of {len(right.answers)} answers is one token: give one, scored by teacher forcing")
        if not single:
            raise _refusal(right)
        return AnswerTokens((), _firsts(single), _firsts(wrongs), lost=[*others, *lost])
    return _compared(right, wrong, tokenizer) if wrong.read else _alone(right, wrong, tokenizer)


def _alone(right: Given, wrong: Given, tokenizer: Tokenizer) -> AnswerTokens:
    """Right answers without a wrong one to compare with: one token each."""
    single, lost = right.single()
    if single:
        return AnswerTokens((), _firsts(single), lost=[*lost, *wrong.single()[1]])
    first, ids = next(iter(right.read.items()))
    many = len(right.answers)
    also = f", and no other of {many} is one token" if many > 1 else ""
    reason = f"{first!r} is {len(ids)} tokens{also}: give a wrong answer, a shorter one, or `metric` {LOG_PROBABILITY}"
    pieces = [tokenizer.piece(token) for token in ids]
    # The bytes of a character cannot be shown.
    raise Dropped(reason, None if "\ufffd" in "".join(pieces) else f"its tokens are {', '.join(map(repr, pieces))}")


def _compared(right: Given, wrong: Given, tokenizer: Tokenizer) -> AnswerTokens:
    """Right and wrong answers at the token where the first of them part."""
    prefix = _shared(right, wrong)
    place, reading = len(prefix), AnswerTokens(prefix, ())
    for given in (right, wrong):
        ids, others = given.single(prefix)
        if ids:
            reading.lost += others
            tokens = tuple(dict.fromkeys(one[place] for one in ids))
        else:
            fitting = [one for one in given.answers if _goes_on(given.read.get(one, ()), prefix)]
            tokens = tuple(dict.fromkeys(given.read[one][place] for one in fitting))
            cut = f"{fitting[0]!r}" + (f" and {len(fitting) - 1} more are" if len(fitting) > 1 else " is")
            reading.said.append(f"{cut} read at the token {tokenizer.piece(tokens[0])!r}")
            reading.lost += [other for other in others if not other.endswith(" tokens)")]
        if given is right:
            reading.answers = tokens
        else:
            kept = tuple(token for token in tokens if token not in reading.answers)
            if len(kept) < len(tokens):
                reading.lost.append("wrong answers that share that token with a right one")
            reading.wrongs = kept
    if prefix:
        reading.said.insert(0, f"{_text(tokenizer, prefix)!r}, with which the answers start, is put behind the prompt")
    return reading


def _shared(right: Given, wrong: Given) -> Tokens:
    """What the first right and wrong answer that part share before that."""
    for one in right.read.values():
        for other in wrong.read.values():
            place = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
            if place is not None:
                return one[:place]
    (first, ids), (second, longer) = next(iter(right.read.items())), next(iter(wrong.read.items()))
    begins, whole = (first, second) if len(ids) < len(longer) else (second, first)
    raise Dropped(f"{whole!r} begins with {begins!r}: give a wrong answer that parts from the right one at a token")


def _goes_on(ids: Tokens, after: Tokens) -> bool:
    return len(ids) > len(after) and ids[: len(after)] == after


def _firsts(answers: Sequence[Tokens]) -> Tokens:
    return tuple(one[0] for one in answers)


def _refusal(given: Given) -> Dropped:
    """Why the first answer cannot be used, where none can."""
    first = given.refused[given.answers[0]]
    return Dropped("wrong: " * (given.what == "wrong") + first.reason, first.suggestion)


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return "".join(map(tokenizer.piece, ids))


def shown_tokens(
    tokenizer: Tokenizer, tokens: Sequence[int], prefix: int, right: Sequence[int], wrong: Sequence[int]
) -> str:
    """A prompt as the model reads it: its tokens, in brackets those put behind it, and after an arrow what is read."""

    def pieces(ids: Sequence[int]) -> list[str]:
        return [tokenizer.piece(token).replace("\n", "\\n") for token in ids]

    end = len(tokens) - prefix
    shown = [*pieces(tokens[:end]), *(f"[{piece}]" for piece in pieces(tokens[end:]))]
    sides = [" or ".join(map(repr, map(tokenizer.piece, side))) for side in (right, wrong) if side]
    return BETWEEN.join(shown) + READ_HERE + " against ".join(sides)

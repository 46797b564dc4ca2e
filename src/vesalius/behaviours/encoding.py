"""What becomes of a row with a tokenizer: kept as a prompt, or dropped for a stated reason.

A row is kept if

1. it is complete, its counterfactual differs from the prompt, and no earlier row asks the same;
2. prompt and counterfactual have the same number of tokens and fit the model's context;
3. appending an answer leaves the prompt's tokens as they are, and the answers can be compared at a token (`reading`).

A prompt that ends with a space is read as one text with its answers. What was done to a kept row, and what it lost, a
member of a list or a role, is said with it.
"""

import random
import re
import unicodedata
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vesalius.behaviours.metrics import NONE, BehaviourMetric, metric_name
from vesalius.behaviours.prompts import OTHER_PROMPT, SWAPPED_PROMPT, Prompt, Prompts
from vesalius.behaviours.reading import Dropped, Given, Tokens, read_answers, shown_tokens
from vesalius.behaviours.rows import END, TAKEN, Answer, Row
from vesalius.documents.performance import RANDOM_TOKENS
from vesalius.errors import BadInput, shortened
from vesalius.model.tokenizer import Tokenizer
from vesalius.values import JsonObject

#: Scripts without spaces between words, besides those of wide characters (Chinese, Japanese).
UNSPACED = ("THAI", "LAO", "KHMER", "MYANMAR")


@dataclass(frozen=True)
class Fate:
    """What became of a row: its prompt if it is kept, the reason if not (or what was done to a kept one), what would
    help, and its tokens as the model reads them.
    """

    row: Row
    split: str
    prompt: Prompt | None = None
    reason: str | None = None
    suggestion: str | None = None
    tokens: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the row is used."""
        return self.prompt is not None

    def as_data(self) -> JsonObject:
        """One entry of the check of a file."""
        reason, suggestion = (said and shortened(said) for said in (self.reason, self.suggestion))  # they quote rows
        data = {"row": self.row.number, "kept": self.kept, "reason": reason, "split": self.split}
        return {**data, "prompt": self.row.prompt, "suggestion": suggestion, "tokens": self.tokens}


@dataclass(frozen=True)
class Encoder:
    """Rows to prompts for one model; `metric` decides which answers can be read."""

    tokenizer: Tokenizer
    n_ctx: int
    d_vocab: int
    metric: BehaviourMetric | None

    def encode(self, row: Row) -> tuple[Prompt, str | None]:
        """The prompt of a row, whose counterfactual is its own tokens where none is given, and what was left out of
        it; raises `Dropped`.
        """
        if row.defect:
            raise Dropped(row.defect)
        done: list[str] = []
        row = self._as_one_text(row, done)
        if row.counterfactual == row.prompt:
            raise Dropped("identical pair: the counterfactual is the prompt itself")
        tokens = self._tokens(row.prompt)
        other = tokens if row.counterfactual is None else self._tokens(row.counterfactual)
        if len(tokens) != len(other):
            raise Dropped(
                f"{len(tokens)} tokens against {len(other)}",
                _alignment(self.tokenizer, row.prompt, row.counterfactual or ""),
            )
        right, wrong = (
            self._given(row, tokens, what, given, done)
            for what, given in (("answer", row.answers), ("wrong", row.wrongs))
        )
        reading = read_answers(right, wrong, metric_name(self.metric), self.tokenizer)
        places, lost = self._places(row, tokens, reading.lost), reading.lost
        tokens, other = (*tokens, *reading.prefix), (*other, *reading.prefix)
        if (whole := len(tokens) + max(0, len(reading.forced) - 1)) > self.n_ctx:
            raise Dropped(f"{whole} tokens; the model's context holds {self.n_ctx}")
        prompt = Prompt(
            tokens,
            other,
            reading.answers[0],
            reading.wrongs[0] if reading.wrongs else NONE,
            {**places, END: len(tokens) - 1},
            row.prompt + "".join(map(self.tokenizer.piece, reading.prefix)),
            answers=reading.answers if len(reading.answers) > 1 else (),
            wrongs=reading.wrongs if len(reading.wrongs) > 1 else (),
            forced=reading.forced,
            prefix=len(reading.prefix),
            kind=row.kind or "",
        )
        without = [f"kept without {' and '.join(lost)}"] if lost else []
        return prompt, "; ".join([*done, *reading.said, *without]) or None

    def shown(self, prompt: Prompt) -> str:
        """The tokens of a prompt as the model reads them, and what is read after them."""
        right, wrong = prompt.answers or (prompt.correct,), prompt.wrongs or (prompt.wrong,)
        return shown_tokens(self.tokenizer, prompt.tokens, prompt.prefix, right, [one for one in wrong if one != NONE])

    def _as_one_text(self, row: Row, done: list[str]) -> Row:
        """A row whose prompt ends with a space, asked as its reader means it: one space between prompt and answer. It
        stays with the prompt where it is a token of its own before every answer, else each answer begins with it.
        """
        texts = [one.lstrip(" ") for one in (*row.answers, *row.wrongs) if isinstance(one, str)]
        if row.as_written or not row.prompt.endswith(" ") or not texts:
            return row
        base, other = row.prompt.rstrip(" "), row.counterfactual and row.counterfactual.rstrip(" ")
        roles = {
            role: where.rstrip(" ") or where if isinstance(where, str) else (where[0], min(where[1], len(base)))
            for role, where in row.roles.items()
        }
        if all(self._starts(f"{base} {text}", f"{base} ") for text in texts):
            done.append("the space at the end of the prompt is a token of its own")
            base, other, start = f"{base} ", other and f"{other} ", ""
        else:
            done.append("the space at the end of the prompt is read with the answer")
            start = " "
        right, wrong = (
            tuple(start + one.lstrip(" ") if isinstance(one, str) else one for one in side)
            for side in (row.answers, row.wrongs)
        )
        return replace(row, prompt=base, counterfactual=other, answers=right, wrongs=wrong, roles=roles)

    def _given(self, row: Row, tokens: Tokens, what: str, given: Sequence[Answer], done: list[str]) -> Given:
        """The tokens that each answer adds to the prompt, and what is wrong with those that cannot follow it."""
        read: dict[Answer, Tokens] = {}
        refused: dict[Answer, Dropped] = {}
        for one in given:
            try:
                read[one] = self._continuation(row, tokens, one, done)
            except Dropped as dropped:
                refused[one] = dropped
        return Given(what, tuple(given), read, refused)

    def _tokens(self, text: str) -> Tokens:
        try:
            tokens = tuple(self.tokenizer.encode(text))
        except BadInput as error:
            raise Dropped(str(error)) from None
        if any(token >= self.d_vocab for token in tokens):
            raise Dropped("the tokenizer gives tokens that the model does not have")
        return tokens

    def _starts(self, text: str, beginning: str) -> bool:
        """Whether the tokens of a text start with those of its beginning; False for what the vocabulary lacks."""
        try:
            start = self._tokens(beginning)
            return self._tokens(text)[: len(start)] == start
        except Dropped:
            return False

    def _continuation(self, row: Row, tokens: Tokens, answer: Answer, done: list[str]) -> Tokens:
        """The tokens that an answer adds to a prompt. One that the tokenizer would join with the prompt's last word is
        read on its own where the row says that it is meant so.
        """
        if isinstance(answer, int):
            if not 0 <= answer < self.d_vocab:
                raise Dropped(f"answer token {answer} is outside the model's vocabulary of {self.d_vocab}")
            return (answer,)
        if not row.as_written and _is_spaced(row.prompt[-1:]) and _is_spaced(answer[:1]):
            raise Dropped(
                f"starts without a space: did you mean {' ' + answer!r}?",
                'to continue the word, give the row "as_written": true',
            )
        longer = self._tokens(row.prompt + answer)
        if longer[: len(tokens)] == tokens and len(longer) > len(tokens):
            return longer[len(tokens) :]
        if not row.as_written:
            raise Dropped(
                f"the tokenizer joins the end of the prompt with {answer!r}",
                'to read it apart from the prompt, give the row "as_written": true',
            )
        done.append(f"{answer!r} is read apart from the prompt, with which the tokenizer would join it")
        return tuple(self.tokenizer.continuing(answer))

    def _places(self, row: Row, tokens: Tokens, lost: list[str]) -> dict[str, int]:
        """The position of the last token of each role."""
        places = {}
        for role, where in row.roles.items():
            ends = [where[1]] if isinstance(where, tuple) else _ends(where, row.prompt)
            if len(ends) > 1:
                lost.append(f"role {role!r} ({where!r} occurs {len(ends)} times: give [start, end])")
                continue
            place = self._last_token(row.prompt[: ends[0]], tokens)
            if role in TAKEN or (role == END and place != len(tokens) - 1):
                lost.append(f"role {role!r} (the name means a place that every prompt has: choose another)")
            elif place is None:
                lost.append(f"role {role!r} (it ends inside a token)")
            else:
                places[role] = place
        return places

    def _last_token(self, beginning: str, tokens: Tokens) -> int | None:
        """The position of the last token of a prompt's beginning; None where that ends inside a token."""
        try:
            before = self._tokens(beginning)
        except Dropped:  # half a word may not be in the vocabulary at all
            return None
        return len(before) - 1 if before == tokens[: len(before)] else None


def _ends(piece: str, prompt: str) -> list[int]:
    """Where a piece of a prompt ends: as whole words, or inside of words where it is nowhere a whole one."""
    ends = [found.end() for found in re.finditer(rf"(?<!\w){re.escape(piece)}(?!\w)", prompt)]
    return ends or [found.end() for found in re.finditer(re.escape(piece), prompt)]


def _is_spaced(letter: str) -> bool:
    """Whether this is a letter of a script that puts spaces between words."""
    if not letter.isalpha() or unicodedata.east_asian_width(letter) == "W":
        return False
    return not unicodedata.name(letter, "").startswith(UNSPACED)


def _alignment(tokenizer: Tokenizer, prompt: str, counterfactual: str) -> str:
    """Which part of a counterfactual has another number of tokens, and which number would align."""
    ours, theirs = _words(prompt), _words(counterfactual)
    start = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    end = 0
    while end < min(len(ours), len(theirs)) - start and ours[-1 - end] == theirs[-1 - end]:
        end += 1
    middle, other = (" ".join(words[start : len(words) - end]) for words in (ours, theirs))
    lead = " " if start else ""
    length = len(tokenizer.continuing(lead + middle)) if middle else 0
    return f"instead of {other!r} one of {length} token{'' if length == 1 else 's'}, as {middle!r} has, would align"


def _words(text: str) -> list[str]:
    return text.split(" ")


# Counterfactuals for rows that have none: another prompt of the same split and length, else random tokens.


def with_counterfactuals(fates: Sequence[Fate], *, swap: bool = False) -> list[Fate]:
    """Kept rows that lack a counterfactual get the next prompt of their split and length, with what would align; with
    `swap` the next whose right answer is their wrong one, where there is any.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for place, fate in enumerate(fates):
        if fate.prompt is not None:
            groups.setdefault((fate.split, len(fate.prompt.own)), []).append(place)
    filled = list(fates)
    for group in groups.values():
        prompts = [prompt for place in group if (prompt := fates[place].prompt) is not None]
        swapped = swapped_partners(prompts) if swap else [None] * len(prompts)
        for place, prompt, partner, mirror in zip(group, prompts, partners(prompts), swapped, strict=True):
            if fates[place].row.counterfactual is not None:
                continue
            source, partner = (OTHER_PROMPT, partner) if mirror is None else (SWAPPED_PROMPT, mirror)
            text, taken = f"a prompt of {len(prompt.own)} tokens would align", replace(prompt, source=RANDOM_TOKENS)
            if partner is not None:
                other = fates[group[partner]].row
                text = f"row {other.number} would align ({other.prompt!r})"
                tokens = (*prompts[partner].own, *prompt.tokens[len(prompt.own) :])
                taken = replace(prompt, counterfactual=tokens, source=source)
            filled[place] = replace(fates[place], prompt=taken, suggestion=f"no counterfactual: {text}")
    return filled


def swapped_partners(prompts: Sequence[Prompt]) -> list[int | None]:
    """For each prompt the place of the next one, in a circle, whose right answer is its wrong one."""
    places: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        places.setdefault(prompt.correct, []).append(place)

    def partner(start: int) -> int | None:
        having = places.get(prompts[start].wrong, [])
        first = bisect(having, start)
        after = (having[(first + step) % len(having)] for step in range(len(having)))
        return next((at for at in after if prompts[at].own != prompts[start].own), None)

    return [partner(start) for start in range(len(prompts))]


def partners(prompts: Sequence[Prompt]) -> list[int | None]:
    """For each prompt the place of the next one, in a circle, with other tokens and another answer.

    Prompts that share the answer, or the tokens, and stand beside each other are passed in one step: thousands of rows
    with one answer take as long as thousands with many.
    """
    to_other_answer = _to_next_other([prompt.correct for prompt in prompts])
    to_other_tokens = _to_next_other([prompt.own for prompt in prompts])
    return [_partner(start, prompts, to_other_answer, to_other_tokens) for start in range(len(prompts))]


def _partner(
    start: int, prompts: Sequence[Prompt], to_other_answer: Sequence[int], to_other_tokens: Sequence[int]
) -> int | None:
    at = passed = start
    while passed < start + len(prompts):
        if prompts[at].correct == prompts[start].correct:
            steps = to_other_answer[at]
        elif prompts[at].own == prompts[start].own:
            steps = to_other_tokens[at]
        else:
            return at
        if not steps:
            return None
        passed += steps
        at = passed % len(prompts)
    return None


def _to_next_other(values: Sequence[object]) -> list[int]:
    """How many steps on, in a circle, the next different value stands; 0 everywhere if all are the same."""
    n, steps = len(values), [0] * len(values)
    if all(value == values[0] for value in values):
        return steps
    for place in reversed(range(2 * n)):  # twice around: the first pass finds what follows the last
        here, after = place % n, (place + 1) % n
        steps[here] = 1 if values[here] != values[after] else steps[after] + 1
    return steps


def random_tokens(row: Prompt, tokenizer: Tokenizer, d_vocab: int) -> tuple[int, ...]:
    """As many random tokens as a prompt has, for want of another prompt of its length; its prefix stays."""
    first = int(bool(row.tokens) and row.tokens[0] == tokenizer.bos)
    rng = random.Random(f"{row.text}/{len(row.tokens)}")
    drawn = (_random_token(rng, tokenizer, d_vocab) for _ in row.own[first:])
    return (*row.tokens[:first], *drawn, *row.tokens[len(row.own) :])


def _random_token(rng: random.Random, tokenizer: Tokenizer, d_vocab: int) -> int:
    """A token that is a word or a piece of one; any token where a vocabulary has few of those."""
    token = 0
    for _ in range(50):
        token = rng.randrange(d_vocab)
        if tokenizer.piece(token).strip().isalpha():
            break
    return token


def source_note(name: str, prompts: Prompts) -> str | None:
    """What takes the place of counterfactuals that are missing."""
    swapped, others, drawn = map(prompts.sources.count, (SWAPPED_PROMPT, OTHER_PROMPT, RANDOM_TOKENS))
    if not swapped and not others and not drawn:
        return None
    parts = [f"{swapped} from the prompt whose right answer is their wrong one"] if swapped else []
    parts += [f"{others} from another prompt of the same length"] if others else []
    parts += [f"{drawn} from random tokens"] if drawn else []
    return f"behaviour {name} lacks counterfactuals: of {len(prompts)} prompts {' and '.join(parts)} are resampled"

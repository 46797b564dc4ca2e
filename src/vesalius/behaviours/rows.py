"""Rows of a behaviour of one's own, and what becomes of each with a tokenizer: kept, or dropped for a stated reason.

A row is a prompt with one or several right answers and, where there are any, wrong answers, a counterfactual prompt,
named places in the prompt (roles) and a split. Its text is taken literally: braces mean nothing. Answers are what
follows the prompt character by character, so they usually begin with a space; a row whose answer continues the last
word of the prompt says so with `as_written`.

A row is kept if

1. it is complete, its counterfactual differs from the prompt, and no earlier row asks the same;
2. prompt and counterfactual have the same number of tokens and fit the model's context;
3. appending an answer leaves the prompt's tokens as they are and adds one token, or several where the metric scores
   them by teacher forcing. Of a list of answers those of one token are used.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vesalius.behaviours.metrics import (
    LOG_PROBABILITY,
    LOGIT_DIFFERENCE,
    NEEDS_WRONG,
    NONE,
    TEACHER_FORCED,
    Metric,
    metric_name,
)
from vesalius.behaviours.prompts import Prompt
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

FIELDS = ("prompt", "answer", "wrong", "counterfactual", "roles", "split", "as_written")
SPLIT_NAMES = {"train": "train", "validation": "validation", "valid": "validation", "dev": "validation", "test": "test"}
#: How alike a field's name and a known one must be to be taken for a slip.
TYPO = 0.8
Answer = str | int


@dataclass(frozen=True)
class Row:
    """One row as written, before any tokenizer. Answers are texts, or token ids where a file gives those; `roles` maps
    a name to a piece of the prompt or to its (start, end). `number` counts from 1. `as_written` allows answers that
    continue the last word of the prompt. `defect` says what is missing.
    """

    number: int
    prompt: str = ""
    answers: tuple[Answer, ...] = ()
    wrongs: tuple[Answer, ...] = ()
    counterfactual: str | None = None
    roles: Mapping[str, str | tuple[int, int]] = field(default_factory=dict)
    split: str | None = None
    defect: str | None = None
    as_written: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for rows that ask the same question."""
        return self.prompt, self.counterfactual, self.answers, self.wrongs

    def as_data(self) -> dict[str, Any]:
        """The row as it is written in a file."""
        given = {
            "prompt": self.prompt,
            "answer": self.answers[0] if len(self.answers) == 1 else list(self.answers),
            "wrong": self.wrongs[0] if len(self.wrongs) == 1 else list(self.wrongs),
            "counterfactual": self.counterfactual,
            "roles": {role: place if isinstance(place, str) else list(place) for role, place in self.roles.items()},
            "split": self.split,
            "as_written": self.as_written or None,
        }
        return {name: value for name, value in given.items() if value not in (None, [], {})}


@dataclass(frozen=True)
class Fate:
    """What became of a row: its prompt if it is kept, the reason if not (or what was left out of a kept one), and what
    would help.
    """

    row: Row
    split: str
    prompt: Prompt | None = None
    reason: str | None = None
    suggestion: str | None = None

    @property
    def kept(self) -> bool:
        """Whether the row is used."""
        return self.prompt is not None

    def as_data(self) -> dict[str, Any]:
        """One entry of the check of a file."""
        data = {"row": self.row.number, "kept": self.kept, "reason": self.reason, "split": self.split}
        return {**data, "prompt": self.row.prompt, "suggestion": self.suggestion}


def parse_rows(data: Sequence[Any], *, source: str = "rows") -> tuple[Row, ...]:
    """Rows from plain data; what a row lacks is its defect, a misspelt field is refused."""
    if isinstance(data, str) or not isinstance(data, Sequence):
        raise BadInput(
            f"{source}: {type(data).__name__} is not a list of rows; a row is {{prompt, answer, wrong, ...}}"
        )
    if not data:
        raise BadInput(f"{source}: there are no rows; give at least one with a prompt and an answer")
    return tuple(parse_row(one, number, source=source) for number, one in enumerate(data, 1))


def parse_row(data: Any, number: int, *, source: str = "rows") -> Row:
    """One row from plain data."""
    if isinstance(data, Row):
        return data
    if not isinstance(data, Mapping):
        return Row(number, defect=f"is {type(data).__name__}, not an object with a prompt and an answer")
    _refuse_slips(data, number, source)
    prompt, counterfactual = data.get("prompt"), data.get("counterfactual")
    if not isinstance(prompt, str) or not prompt:
        return Row(number, defect="has no prompt")
    if counterfactual is not None and not isinstance(counterfactual, str):
        return Row(number, prompt, defect=f"the counterfactual is {type(counterfactual).__name__}, not a text")
    answers, wrongs = _answers(data.get("answer")), _answers(data.get("wrong"))
    roles, split = _roles(data.get("roles"), prompt), data.get("split")
    if answers is None or wrongs is None:
        which = "answer" if answers is None else "wrong"
        return Row(number, prompt, defect=f"{which} is neither a text nor a list of texts")
    if not answers:
        return Row(number, prompt, defect="has no answer")
    if isinstance(roles, str):
        return Row(number, prompt, answers, wrongs, counterfactual, defect=roles)
    if split is not None and not (isinstance(split, str) and split in SPLIT_NAMES):
        defect = f"split {split!r:.60} does not exist: use train, validation or test"
        return Row(number, prompt, answers, wrongs, counterfactual, roles, defect=defect)
    as_written = _boolean(data.get("as_written"))
    if as_written is None:
        return Row(
            number, prompt, answers, wrongs, defect=f"as_written is {data['as_written']!r:.40}, not true or false"
        )
    named = split and SPLIT_NAMES[split]
    return Row(number, prompt, answers, wrongs, counterfactual or None, roles, named, as_written=as_written)


def _refuse_slips(data: Mapping[Any, Any], number: int, source: str) -> None:
    """Fields of other tools are ignored; one that looks like a misspelt field of ours is not."""
    for name in data:
        if name in FIELDS or not isinstance(name, str):
            continue
        for meant in difflib.get_close_matches(name, FIELDS, 1, TYPO):
            if meant not in data:
                raise BadInput(f"{source}: row {number}: field {name!r} is not known; did you mean {meant!r}?")


def _answers(given: Any) -> tuple[Answer, ...] | None:
    """Texts (or token ids); an empty text is not an answer. None where it is something else."""
    if given is None or given == "":
        return ()
    many = given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(one, str) or (isinstance(one, int) and not isinstance(one, bool)) for one in many):
        return None
    return tuple(dict.fromkeys(one for one in many if one != ""))


def _boolean(given: Any) -> bool | None:
    """A truth value, or the word for it that a CSV holds; None where it is something else."""
    if isinstance(given, bool):
        return given
    return (
        {None: False, "": False, "false": False, "true": True}.get(given)
        if given is None or isinstance(given, str)
        else None
    )


def _roles(given: Any, prompt: str) -> dict[str, str | tuple[int, int]] | str:
    """Names of places, or what is wrong with them."""
    if given is None or given == "":
        return {}
    if not isinstance(given, Mapping):
        return "roles is not an object of names and pieces of the prompt"
    roles: dict[str, str | tuple[int, int]] = {}
    for name, place in given.items():
        if place is None:
            continue
        if isinstance(place, str):
            if not place or place not in prompt:
                return f"role {name!r}: {place!r} is not in the prompt"
            roles[str(name)] = place
        elif isinstance(place, list | tuple) and len(place) == 2 and all(isinstance(x, int) for x in place):
            start, end = place
            if not 0 <= start < end <= len(prompt):
                return f"role {name!r}: characters {start} to {end} are not in the prompt"
            roles[str(name)] = (start, end)
        else:
            return f"role {name!r} is neither a piece of the prompt nor [start, end]"
    return roles


@dataclass(frozen=True)
class Encoder:
    """Rows to prompts for one model; `metric` decides which answers can be read."""

    tokenizer: Tokenizer
    n_ctx: int
    d_vocab: int
    metric: Metric | None

    def encode(self, row: Row) -> Prompt:
        """The prompt of a row, whose counterfactual is its own tokens where none is given; raises `Dropped`."""
        if row.defect:
            raise Dropped(row.defect)
        if row.counterfactual == row.prompt:
            raise Dropped("identical pair: the counterfactual is the prompt itself")
        if row.prompt.endswith(" ") and isinstance(row.answers[0], str):
            better = f"{row.prompt.rstrip()!r} and {' ' + row.answers[0].strip()!r}"
            raise Dropped("the prompt ends with a space: put it at the start of the answer", better)
        tokens = self._tokens(row.prompt)
        other = tokens if row.counterfactual is None else self._tokens(row.counterfactual)
        if len(tokens) != len(other):
            raise Dropped(
                f"{len(tokens)} tokens against {len(other)}",
                _alignment(self.tokenizer, row.prompt, row.counterfactual or ""),
            )
        answers, wrongs = self._answers(row, row.answers, tokens, "answer"), self._wrongs(row, tokens)
        if shared := set(answers) & set(wrongs):
            raise Dropped(f"{self.tokenizer.decode(list(shared.pop()))!r} is both right and wrong")
        correct, forced = answers[0][0], answers[0] if len(answers[0]) > 1 else ()
        if len(tokens) + max(0, len(forced) - 1) > self.n_ctx:
            raise Dropped(f"{len(tokens) + max(0, len(forced) - 1)} tokens; the model's context holds {self.n_ctx}")
        return Prompt(
            tokens,
            other,
            correct,
            wrongs[0][0] if wrongs else NONE,
            {**self._places(row, tokens), "end": len(tokens) - 1},
            row.prompt,
            answers=tuple(one[0] for one in answers) if len(answers) > 1 else (),
            wrongs=tuple(one[0] for one in wrongs) if len(wrongs) > 1 else (),
            forced=forced,
        )

    def remarks(self, row: Row) -> str | None:
        """What was left out of a row that is kept."""
        tokens = self._tokens(row.prompt)
        left_out = [
            one for one in row.answers if len(row.answers) > 1 and len(self._continuation(row, tokens, one)) > 1
        ]
        return f"kept without {', '.join(map(repr, left_out))}: more than one token" if left_out else None

    def _wrongs(self, row: Row, tokens: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The wrong answers of one token; none where the metric can do without."""
        needed = metric_name(self.metric) in NEEDS_WRONG
        if not row.wrongs:
            if needed:
                raise Dropped(f"no wrong answer: give one, or `metric` {LOG_PROBABILITY}")
            return []
        try:
            return self._answers(row, row.wrongs, tokens, "wrong")
        except Dropped:
            if needed:
                raise
            return []

    def _tokens(self, text: str) -> tuple[int, ...]:
        try:
            tokens = tuple(self.tokenizer.encode(text))
        except BadInput as error:
            raise Dropped(str(error)) from None
        if any(token >= self.d_vocab for token in tokens):
            raise Dropped("the tokenizer gives tokens that the model does not have")
        return tokens

    def _answers(self, row: Row, given: Sequence[Answer], tokens: tuple[int, ...], what: str) -> list[tuple[int, ...]]:
        """The answers that can be read: all single tokens, or the only one if it has several and is teacher-forced."""
        continuations = [self._continuation(row, tokens, one) for one in given]
        single = [one for one in continuations if len(one) == 1]
        if single:
            return list(dict.fromkeys(single))
        if what == "answer" and metric_name(self.metric) in TEACHER_FORCED:
            if len(given) == 1:
                return continuations
            raise Dropped(f"none of {len(given)} answers is one token: give one answer to score it by teacher forcing")
        use = "give a list" if metric_name(self.metric) in (*NEEDS_WRONG, LOGIT_DIFFERENCE) else "give a shorter one"
        reason = f"{given[0]!r} is {len(continuations[0])} tokens: {use}, or `metric` {LOG_PROBABILITY}"
        pieces = ", ".join(repr(self.tokenizer.piece(token)) for token in continuations[0])
        raise Dropped(reason if what == "answer" else f"wrong: {reason}", f"its tokens are {pieces}")

    def _continuation(self, row: Row, tokens: tuple[int, ...], answer: Answer) -> tuple[int, ...]:
        """The tokens that an answer adds to a prompt."""
        if isinstance(answer, int):
            if not 0 <= answer < self.d_vocab:
                raise Dropped(f"answer token {answer} is outside the model's vocabulary of {self.d_vocab}")
            return (answer,)
        if not row.as_written and row.prompt[-1:].isalpha() and answer[:1].isalpha():
            raise Dropped(
                f"starts without a space: did you mean {' ' + answer!r}?",
                'to continue the word, give the row "as_written": true',
            )
        longer = self._tokens(row.prompt + answer)
        if longer[: len(tokens)] != tokens or len(longer) == len(tokens):
            raise Dropped(f"the tokenizer joins the end of the prompt with {answer!r}")
        return longer[len(tokens) :]

    def _places(self, row: Row, tokens: tuple[int, ...]) -> dict[str, int]:
        """The position of the last token of each role; a role that ends inside a token has none."""
        places = {}
        for role, where in row.roles.items():
            end = row.prompt.index(where) + len(where) if isinstance(where, str) else where[1]
            before = self._tokens(row.prompt[:end])
            if before == tokens[: len(before)]:
                places[role] = len(before) - 1
        return places


class Dropped(Exception):
    """A row that cannot be used: the reason, and what would help."""

    def __init__(self, reason: str, suggestion: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.suggestion = reason, suggestion


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


def inline_rows(text: str) -> list[Any] | None:
    """Rows written out as JSON, one object or a list; None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"behaviour {text[:40]!r}: not readable as JSON ({error})") from None
    return data if isinstance(data, list) else [data]

"""Behaviours of one's own: rows from a file, from Python, from templates, from a function, or a single prompt.

Splits. Rows that name different splits keep them. Otherwise row i belongs to train, validation or test by i mod 3, but
fewer than `LEAST_TO_DIVIDE` rows are not divided: every split is all of them, and a note says so.

Counterfactuals. A row without one takes another prompt of the same split, length and a different answer; where there is
none, random tokens of the vocabulary. Notes say which.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vesalius.behaviours.behaviour import MAKERS, Behaviour
from vesalius.behaviours.material import SPLITS, split_index
from vesalius.behaviours.metrics import LOG_PROBABILITY, LOGIT_DIFFERENCE, Metric, metric_name, require_metric
from vesalius.behaviours.prompts import OTHER_PROMPT, RANDOM_TOKENS, Prompt, Prompts
from vesalius.behaviours.rows import Dropped, Encoder, Fate, Row, parse_row, parse_rows
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

LEAST_TO_DIVIDE = 12
#: Every row, whatever its split.
ALL_ROWS = "all"
#: Rows drawn from a function for each split, and how often it may repeat itself before it counts as exhausted.
FUNCTION_ROWS, FUNCTION_TRIES = 64, 1000


def _nothing(material: Any) -> Any:
    raise AssertionError("rows are not drawn")


@dataclass(frozen=True, kw_only=True)
class RowBehaviour(Behaviour):
    """A behaviour whose prompts are rows of the user's own. `note` says what its reader should know about them."""

    prepare: Callable[..., Any] = _nothing
    rows: tuple[Row, ...]
    note: str | None = None

    def __post_init__(self) -> None:
        require_metric(self.metric)

    @property
    def measured_split(self) -> str:
        """Whether a model performs it is measured on every row."""
        return ALL_ROWS

    @cached_property
    def divided(self) -> bool:
        """Whether the splits hold different rows."""
        return self._names_splits or len(self._distinct) >= LEAST_TO_DIVIDE

    @cached_property
    def _names_splits(self) -> bool:
        """Whether the rows themselves name different splits; one name for all rows divides nothing."""
        return len({row.split for row in self.rows if row.split}) > 1

    @property
    def single(self) -> bool:
        """Whether it is one prompt."""
        return len(self.rows) == 1

    @property
    def used_metric(self) -> Metric | None:
        """The metric: as given, else the logit difference if every row has a wrong answer, else log-probability."""
        complete = [row for row in self.rows if row.defect is None]
        if self.metric is None and not all(row.wrongs for row in complete):
            return LOG_PROBABILITY
        return self.metric

    @property
    def notes(self) -> str | None:
        """What is said when it is used: its note, and why it is not measured by the logit difference."""
        lacking = [row.number for row in self.rows if row.defect is None and not row.wrongs]
        mixed = 0 < len(lacking) < sum(row.defect is None for row in self.rows)
        if self.metric is not None or not mixed:
            return self.note
        rows = f"row {lacking[0]} has" if len(lacking) == 1 else f"row {lacking[0]} and {len(lacking) - 1} more have"
        text = (
            f"{rows} no wrong answer, so every row is measured by log-probability; add one, or leave such rows out "
            f"with `metric` {LOGIT_DIFFERENCE}"
        )
        return text if self.note is None else f"{self.note}; {text}"

    def with_metric(self, metric: Metric | None) -> "RowBehaviour":
        """The same rows, measured by another metric."""
        return replace(self, metric=metric)

    def check(self, tokenizer: Tokenizer, *, n_ctx: int, d_vocab: int) -> list[Fate]:
        """What becomes of each row with this model, in order."""
        encoder = Encoder(tokenizer, n_ctx, d_vocab, self.used_metric)
        fates, first = [], {}
        for row in self.rows:
            split = self._split_of(row)
            earlier = None if row.defect else first.setdefault(row.key, row.number)
            if earlier not in (None, row.number):
                fates.append(Fate(row, split, reason=f"duplicate: the same as row {earlier}"))
                continue
            try:
                fates.append(Fate(row, split, encoder.encode(row), encoder.remarks(row)))
            except Dropped as dropped:
                fates.append(Fate(row, split, reason=dropped.reason, suggestion=dropped.suggestion))
        return [_with_alignment(fate, fates) for fate in fates]

    def sample(
        self, tokenizer: Tokenizer, n: int, *, seed: int, split: str = "train", n_ctx: int, d_vocab: int
    ) -> Prompts:
        """Up to `n` rows of a split in an order decided by the seed; all where there are fewer."""
        if split != ALL_ROWS:
            split_index(split)
        if n < 1:
            raise BadInput(f"behaviour {self.name}: {n} prompts were requested; request at least 1")
        fates = self.check(tokenizer, n_ctx=n_ctx, d_vocab=d_vocab)
        mine = [fate for fate in fates if split == ALL_ROWS or not self.divided or fate.split == split]
        rows = [fate.prompt for fate in mine if fate.prompt is not None]
        if not rows:
            raise BadInput(self._refusal(fates, mine, split))
        rng = random.Random(f"{self.label}/{split}/{seed}")
        missing = {id(fate.prompt) for fate in mine if fate.kept and fate.row.counterfactual is None}
        rows = [_with_source(row, rows, tokenizer, d_vocab) if id(row) in missing else row for row in rows]
        rng.shuffle(rows)
        prompts = Prompts.from_rows(rows[:n], pad=tokenizer.bos or 0, n_ctx=n_ctx, d_vocab=d_vocab)
        return prompts.with_metric(self.used_metric)

    @cached_property
    def _distinct(self) -> dict[tuple[object, ...], int]:
        """The place of each different question among all."""
        keys = dict.fromkeys(row.key for row in self.rows if row.defect is None)
        return {key: place for place, key in enumerate(keys)}

    def splits(self) -> tuple[str, ...]:
        """The splits that hold rows; one of them, "all", where the rows are not divided."""
        if not self.divided:
            return (ALL_ROWS,)
        present = {self._split_of(row) for row in self.rows}
        return tuple(split for split in SPLITS if split in present)

    def _split_of(self, row: Row) -> str:
        if not self.divided:
            return ALL_ROWS
        if self._names_splits and row.split is not None:
            return row.split
        return SPLITS[self._distinct.get(row.key, 0) % len(SPLITS)]

    def _refusal(self, fates: Sequence[Fate], mine: Sequence[Fate], split: str) -> str:
        dropped = [fate for fate in mine if not fate.kept] or [fate for fate in fates if not fate.kept]
        kept = sum(fate.kept for fate in fates)
        first = f"; row {dropped[0].row.number}: {dropped[0].reason}" if dropped else ""
        where = "" if split == ALL_ROWS or not self.divided else f" of the {split} split"
        have = f", {kept} are in other splits" if kept else ""
        return (
            f"behaviour {self.label}: none of the rows{where} can be used with this model{have}{first} "
            "(`vesalius behaviours MODEL --behaviour ...` says it for every row)"
        )


def from_rows(
    rows: Sequence[Any],
    *,
    name: str | None = None,
    metric: Metric | None = None,
    description: str = "",
    note: str | None = None,
    source: str = "rows",
) -> RowBehaviour:
    """A behaviour from rows, as dictionaries or as `Row`."""
    parsed = parse_rows(rows, source=source)
    if name is None:
        written = json.dumps([row.as_data() for row in parsed], sort_keys=True, ensure_ascii=False)
        name = written[1:-1] if len(parsed) == 1 else f"rows-{hashlib.sha256(written.encode()).hexdigest()[:8]}"
    return RowBehaviour(
        name=name, description=description or _description(parsed), metric=metric, rows=parsed, note=note
    )


def from_function(
    draw: Callable[[random.Random], Mapping[str, Any] | None],
    *,
    name: str | None = None,
    metric: Metric | None = None,
    description: str = "",
    seed: int = 0,
    rows: int = FUNCTION_ROWS,
) -> RowBehaviour:
    """A behaviour from a function that draws a row with a random generator (None: draw again); `rows` for each split.

    A row without a split gets one by a digest of its prompt, so that no prompt is in two splits.
    """
    label = name or getattr(draw, "__name__", "function")
    rng = random.Random(f"{label}/{seed}")
    drawn: dict[tuple[object, ...], Row] = {}
    counts: dict[str, int] = dict.fromkeys(SPLITS, 0)
    failed = 0
    while failed < FUNCTION_TRIES and min(counts.values()) < rows:
        data = draw(rng)
        row = None if data is None else parse_row(data, len(drawn) + 1, source=f"function {label}")
        if row is not None and row.defect:
            raise BadInput(f"function {label}: the row {data!r} {row.defect}")
        if row is None or row.key in drawn:
            failed += 1
            continue
        split = row.split or SPLITS[int(hashlib.sha256(row.prompt.encode()).hexdigest(), 16) % len(SPLITS)]
        if counts[split] >= rows:
            failed += 1
            continue
        counts[split], failed = counts[split] + 1, 0
        drawn[row.key] = replace(row, split=split, number=len(drawn) + 1)
    if not drawn:
        raise BadInput(f"function {label}: it drew no row in {FUNCTION_TRIES} attempts; return a row with a prompt")
    few = list(drawn.values())
    if len(few) < LEAST_TO_DIVIDE:
        few = [replace(row, split=None) for row in few]
    return from_rows(few, name=label, metric=metric, description=description)


MAKERS |= {"rows": from_rows, "function": from_function}


def _description(rows: Sequence[Row]) -> str:
    first = next((row for row in rows if row.defect is None), None)
    if first is None:
        return "Rows that cannot be used."
    return f"Complete {first.prompt[-60:]!r} with {str(first.answers[0]).strip()!r}" + (
        "." if len(rows) == 1 else f", and {len(rows) - 1} more rows."
    )


def _with_source(row: Prompt, rows: Sequence[Prompt], tokenizer: Tokenizer, d_vocab: int) -> Prompt:
    """The row with a counterfactual: another prompt of its length, else random tokens."""
    place = next(i for i, one in enumerate(rows) if one is row)
    others = [*rows[place + 1 :], *rows[:place]]
    for other in others:
        if len(other.tokens) == len(row.tokens) and other.tokens != row.tokens and other.correct != row.correct:
            return replace(row, counterfactual=other.tokens, source=OTHER_PROMPT)
    first = int(bool(row.tokens) and row.tokens[0] == tokenizer.bos)
    rng = random.Random(f"{row.text}/{len(row.tokens)}")
    drawn = [_random_token(rng, tokenizer, d_vocab) for _ in row.tokens[first:]]
    return replace(row, counterfactual=(*row.tokens[:first], *drawn), source=RANDOM_TOKENS)


def _random_token(rng: random.Random, tokenizer: Tokenizer, d_vocab: int) -> int:
    """A token that is a word or a piece of one; any token where a vocabulary has few of those."""
    token = 0
    for _ in range(50):
        token = rng.randrange(d_vocab)
        if tokenizer.piece(token).strip().isalpha():
            break
    return token


def _with_alignment(fate: Fate, fates: Sequence[Fate]) -> Fate:
    """The fate with a counterfactual that would align: for a row without one, another row of the same length."""
    if not fate.kept or fate.row.counterfactual is not None or fate.prompt is None:
        return fate
    for other in fates:
        if other.prompt is None or other is fate or other.split != fate.split:
            continue
        if len(other.prompt.tokens) == len(fate.prompt.tokens) and other.prompt.correct != fate.prompt.correct:
            text = f"no counterfactual: row {other.row.number} would align ({other.row.prompt!r})"
            return replace(fate, suggestion=text)
    length = len(fate.prompt.tokens)
    return replace(fate, suggestion=f"no counterfactual: a prompt of {length} tokens would align")


def source_note(name: str, prompts: Prompts) -> str | None:
    """What takes the place of counterfactuals that are missing."""
    others, drawn = prompts.sources.count(OTHER_PROMPT), prompts.sources.count(RANDOM_TOKENS)
    if not others and not drawn:
        return None
    parts = [f"{others} from another prompt of the same length"] if others else []
    parts += [f"{drawn} from random tokens"] if drawn else []
    return f"behaviour {name} lacks counterfactuals: of {len(prompts)} prompts {' and '.join(parts)} are resampled"


def metric_label(behaviour: Behaviour) -> str:
    """The name of the metric that a behaviour is measured by."""
    used = behaviour.used_metric if isinstance(behaviour, RowBehaviour) else behaviour.metric
    return metric_name(used)

"""Behaviours of one's own: rows from a file, from Python, from templates, from a function, or a single prompt.

Splits. Rows that name different splits keep them; a prompt that is then in two of them is said, and for a split without
rows another serves. Otherwise prompts belong to train, validation and test in turns, each with all its rows and with
the prompts that are its counterfactuals, and each wording by turns of its own (`apart`). Fewer than `LEAST_TO_DIVIDE`
prompts are not divided: every split is all of them, and a note says so.

Counterfactuals. A row without one takes another prompt of the same split and length: one whose right answer is this
one's wrong answer, or the next with a different answer, whichever lowers the model's score more for certain
(`contrast.with_best_partners`); where there is none, random tokens of the vocabulary. Notes say which.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vesalius.behaviours.apart import parts_apart, wordings
from vesalius.behaviours.behaviour import MAKERS, Behaviour
from vesalius.behaviours.encoding import Encoder, Fate, random_tokens, with_counterfactuals
from vesalius.behaviours.metrics import LOG_PROBABILITY, LOGIT_DIFFERENCE, BehaviourMetric, metric_name, require_metric
from vesalius.behaviours.prompts import SPLITS, Prompts, split_index
from vesalius.behaviours.reading import Dropped
from vesalius.behaviours.rows import Row, parse_row, parse_rows
from vesalius.documents.performance import RANDOM_TOKENS
from vesalius.errors import BadInput, quoted
from vesalius.model.tokenizer import Tokenizer

LEAST_TO_DIVIDE = 12
#: Every row, whatever its split.
ALL_ROWS = "all"
#: Which splits serve for one without rows, in the order of preference: held-out rows for held-out rows.
INSTEAD = {"train": ("validation", "test"), "validation": ("test", "train"), "test": ("validation", "train")}
#: Rows drawn from a function for each split, and how often it may repeat itself before it counts as exhausted.
FUNCTION_ROWS, FUNCTION_TRIES = 64, 1000


def _nothing(material: object) -> object:
    raise AssertionError("rows are not drawn")


@dataclass(frozen=True, kw_only=True)
class RowBehaviour(Behaviour):
    """A behaviour whose prompts are rows of the user's own. `note` says what its reader should know about them,
    `swap` whether rows without a counterfactual take the prompt of their wrong answer (None: not decided, they do not).
    """

    prepare: Callable[..., Any] = _nothing
    rows: tuple[Row, ...]
    note: str | None = None
    swap: bool | None = None

    def __post_init__(self) -> None:
        require_metric(self.metric)

    @property
    def measured_split(self) -> str:
        """Whether a model performs it is measured on every row."""
        return ALL_ROWS

    @cached_property
    def divided(self) -> bool:
        """Whether the splits hold different rows."""
        return self._names_splits or len(self._turns) >= LEAST_TO_DIVIDE

    @cached_property
    def _names_splits(self) -> bool:
        """Whether the rows themselves name different splits; one name for all rows divides nothing."""
        return len({row.split for row in self.rows if row.split}) > 1

    @property
    def single(self) -> bool:
        """Whether it is one prompt."""
        return len(self.rows) == 1

    @property
    def used_metric(self) -> BehaviourMetric | None:
        """The metric: as given, else the logit difference if every row has a wrong answer, else log-probability."""
        complete = [row for row in self.rows if row.defect is None]
        if self.metric is None and not all(row.wrongs for row in complete):
            return LOG_PROBABILITY
        return self.metric

    @property
    def notes(self) -> str | None:
        """What is said when it is used: its note, prompts in several splits, and why it is not measured by the logit
        difference.
        """
        parts = [part for part in (self.note, self._shared_note, self._metric_note) if part]
        return "; ".join(parts) or None

    @property
    def _metric_note(self) -> str | None:
        lacking = [row.number for row in self.rows if row.defect is None and not row.wrongs]
        mixed = 0 < len(lacking) < sum(row.defect is None for row in self.rows)
        if self.metric is not None or not mixed:
            return None
        rows = f"row {lacking[0]} has" if len(lacking) == 1 else f"row {lacking[0]} and {len(lacking) - 1} more have"
        return (
            f"{rows} no wrong answer, so every row is measured by log-probability; add one, or leave such rows out "
            f"with `metric` {LOGIT_DIFFERENCE}"
        )

    @property
    def _shared_note(self) -> str | None:
        shared = self._in_several_splits
        if not shared:
            return None
        first = next(iter(shared.values()))
        where = " and ".join(f"row {number} ({split})" for split, number in list(first.items())[:2])
        some = "1 prompt is" if len(shared) == 1 else f"{len(shared)} prompts are"
        return f"{some} in more than one split, first of {where}: what is found on one is not checked on unseen prompts"

    def with_metric(self, metric: BehaviourMetric | None) -> "RowBehaviour":
        """The same rows, measured by another metric."""
        return replace(self, metric=metric)

    def check(self, tokenizer: Tokenizer, *, n_ctx: int, d_vocab: int) -> list[Fate]:
        """What becomes of each row with this model, in order."""
        model = id(tokenizer), n_ctx, d_vocab
        if model not in self._checked:
            self._checked.clear()  # the last model's is kept, and its tokenizer, so that no other has its id
            self._checked[model] = tokenizer, self._fates(tokenizer, n_ctx, d_vocab)
        return list(self._checked[model][1])

    def _fates(self, tokenizer: Tokenizer, n_ctx: int, d_vocab: int) -> list[Fate]:
        encoder = Encoder(tokenizer, n_ctx, d_vocab, self.used_metric)
        fates, first = [], {}
        for row in self.rows:
            split = self._split_of(row)
            earlier = None if row.defect else first.setdefault(row.key, row.number)
            if earlier not in (None, row.number):
                fates.append(Fate(row, split, reason=f"duplicate: the same as row {earlier}"))
                continue
            try:
                prompt, lost = encoder.encode(row)
                said = "; ".join(filter(None, (lost, self._shared(row)))) or None
                fates.append(Fate(row, split, prompt, said, tokens=encoder.shown(prompt)))
            except Dropped as dropped:
                fates.append(Fate(row, split, reason=dropped.reason, suggestion=dropped.suggestion))
        return with_counterfactuals(fates, swap=bool(self.swap))

    def sample(
        self, tokenizer: Tokenizer, n: int, *, seed: int, split: str = "train", n_ctx: int, d_vocab: int
    ) -> Prompts:
        """Up to `n` rows of a split in an order decided by the seed; all where there are fewer."""
        if split != ALL_ROWS:
            split_index(split)
        if n < 1:
            raise BadInput(f"behaviour {self.name}: {n} prompts were requested; request at least 1")
        fates = self.check(tokenizer, n_ctx=n_ctx, d_vocab=d_vocab)
        serving = self._serving(split, fates)
        mine = [fate for fate in fates if serving == ALL_ROWS or fate.split == serving]
        rows = [fate.prompt for fate in mine if fate.prompt is not None]
        if not rows:
            raise BadInput(self._refusal(fates))
        random.Random(f"{self.label}/{split}/{seed}").shuffle(rows)
        drawn = [
            replace(row, counterfactual=random_tokens(row, tokenizer, d_vocab)) if row.source == RANDOM_TOKENS else row
            for row in rows[:n]
        ]
        prompts = Prompts.from_rows(drawn, pad=tokenizer.bos or 0, n_ctx=n_ctx, d_vocab=d_vocab)
        return prompts.with_metric(self.used_metric)

    def limits(self, tokenizer: Tokenizer, *, n_ctx: int, d_vocab: int) -> list[str]:
        """What is said of rows that this model cannot be asked, and of splits that are left without any."""
        fates = self.check(tokenizer, n_ctx=n_ctx, d_vocab=d_vocab)
        kept, said = sum(fate.kept for fate in fates), []
        if kept < len(fates):
            said.append(f"{kept} of {len(fates)} rows can be used with this model; {self._ask} says why not the others")
        if not self.divided and not self.single:
            said.append(
                f"{kept} row{' is' if kept == 1 else 's are'} too few to hold some out; every step uses them all"
            )
        for split in SPLITS if self.divided else ():
            if (other := self._serving(split, fates)) != split:
                said.append(f"no row of the {split} split can be used, so that the {other} rows serve as such")
        return said

    def _serving(self, split: str, fates: Sequence[Fate]) -> str:
        """The split whose rows are used for one: its own, or another where it has none."""
        if split == ALL_ROWS or not self.divided:
            return ALL_ROWS
        present = {fate.split for fate in fates if fate.kept}
        return next((one for one in (split, *INSTEAD[split]) if one in present), split)

    @property
    def _ask(self) -> str:
        """How to ask what becomes of each row."""
        is_file = "/" in self.name or Path(self.name).suffix != ""
        return (
            f"`vesalius behaviours MODEL --behaviour {self.name}`" if is_file else "ves.behaviours(model, behaviour=)"
        )

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: what is computed of it is computed again there."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def _checked(self) -> dict[tuple[int, int, int], tuple[Tokenizer, list[Fate]]]:
        """The rows' fates with the last model, whose every sample needs them."""
        return {}

    @cached_property
    def _turns(self) -> Mapping[str, int]:
        """The number of each prompt's split, where the rows name none."""
        others: dict[str, list[str]] = {}
        for row in self.rows:
            if row.defect is None:
                others.setdefault(row.prompt, []).extend(filter(None, [row.counterfactual]))
        return parts_apart(others, len(SPLITS), wordings(list(others)))

    @cached_property
    def _named(self) -> dict[str, dict[str, int]]:
        """The splits that rows name for each prompt, with the first row that does."""
        named: dict[str, dict[str, int]] = {}
        seen: set[tuple[object, ...]] = set()
        for row in self.rows:
            if row.defect is None and row.split is not None and row.key not in seen:
                named.setdefault(row.prompt, {}).setdefault(row.split, row.number)
                seen.add(row.key)
        return named

    @property
    def _in_several_splits(self) -> dict[str, dict[str, int]]:
        if not self._names_splits:
            return {}
        return {prompt: rows for prompt, rows in self._named.items() if len(rows) > 1}

    def _shared(self, row: Row) -> str | None:
        """What is said of a row whose prompt is in another split as well."""
        if not self._names_splits or row.split is None:
            return None
        others = [(split, number) for split, number in self._named[row.prompt].items() if split != row.split]
        if not others:
            return None
        split, number = min(others, key=lambda other: other[1])
        return f"kept, though row {number} of the {split} split has the same prompt"

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
        if self._names_splits and row.prompt in self._named:
            return next(iter(self._named[row.prompt]))
        return SPLITS[self._turns.get(row.prompt, 0)]

    def _refusal(self, fates: Sequence[Fate]) -> str:
        if self.single:
            (fate,) = fates
            hint = f" ({fate.suggestion})" if fate.suggestion else ""
            return f"prompt {quoted(fate.row.prompt)} cannot be used with this model: {fate.reason}{hint}"
        first = f"; row {fates[0].row.number}: {fates[0].reason}"
        return (
            f"behaviour {self.label}: none of the rows can be used with this model{first} ({self._ask} says it for "
            "every row)"
        )


def from_rows(
    rows: Iterable[object],
    *,
    name: str | None = None,
    metric: BehaviourMetric | None = None,
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


def from_prompt(row: Mapping[str, object], *, metric: BehaviourMetric | None = None) -> RowBehaviour:
    """A behaviour of one row, which must be complete."""
    made = from_rows([row], metric=metric, source="prompt")
    if defect := made.rows[0].defect:
        raise BadInput(f"prompt {quoted(row.get('prompt'))}: {defect}")
    return made


def from_function(
    draw: Callable[[random.Random], Mapping[str, object] | None],
    *,
    name: str | None = None,
    metric: BehaviourMetric | None = None,
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


MAKERS |= {"rows": from_rows, "prompt": from_prompt, "function": from_function}


def _description(rows: Sequence[Row]) -> str:
    first = next((row for row in rows if row.defect is None), None)
    if first is None:
        return "Rows that cannot be used."
    right = first.answers[0]
    answer = f"token {right}" if isinstance(right, int) else repr(right.strip())
    return f"Complete {first.prompt[-60:]!r} with {answer}" + (
        "." if len(rows) == 1 else f", and {len(rows) - 1} more row{'' if len(rows) == 2 else 's'}."
    )


def ids_note(behaviour: RowBehaviour, tokenizer: Tokenizer) -> str | None:
    """What answers given as token ids mean with a model's tokenizer: ids of another one are other words."""

    def read(answers: Sequence[str | int]) -> list[str]:
        ids = [one for one in answers if isinstance(one, int)]
        return [quoted(tokenizer.piece(one), 40) if one < tokenizer.size else str(one) for one in ids]

    for row in behaviour.rows:
        if row.defect is None and (right := read(row.answers)):
            against = f" against {wrong[0]}" if (wrong := read(row.wrongs)) else ""
            return (
                f"answers are token ids: row {row.number} asks for {right[0]}{against} with this tokenizer; if that is "
                "not what it means, the file was made for another"
            )
    return None


def metric_label(behaviour: Behaviour) -> str:
    """The name of the metric that a behaviour is measured by."""
    used = behaviour.used_metric if isinstance(behaviour, RowBehaviour) else behaviour.metric
    return metric_name(used)

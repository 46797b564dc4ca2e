"""Rows from templates: sentences with slots, lists of words, and the answers as expressions over the slots.

    templates = ["The capital of {place.country} is", "{place.country} has its capital in"]
    answer = " {place.capital}"
    wrong = " {other.capital}"
    counterfactual = { place = "other" }      # the same sentence with one slot taken from another

    [slots]                                   # a slot draws from a list; slots of the same list draw different words
    place = "countries"
    other = "countries"

    [words]
    countries = [{ country = "France", capital = "Paris" }, { country = "Italy", capital = "Rome" }, ...]

`{slot}` is the word, `{slot.field}` a field of it, `{slot|lower}` (`upper`, `capitalize`) another form, `{{` a brace.
`counterfactual` may also be a sentence of its own. A slot that occurs once in a template is a role of that name.

Splits: item i of every list, and of the templates, belongs to train, validation or test by i mod 3, so that no word and
no template is in two splits. A list too short for that serves all splits, and the behaviour says which; a prompt then
belongs to the split that draws it first, and fewer than `LEAST_TO_DIVIDE` prompts are not divided.
"""

import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vesalius.behaviours.behaviour import MAKERS
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.own import LEAST_TO_DIVIDE, RowBehaviour, from_rows
from vesalius.behaviours.prompts import SPLITS, select_split
from vesalius.behaviours.rows import Row
from vesalius.errors import BadInput, choices, quoted
from vesalius.files import why_not_text
from vesalius.values import JsonObject

#: Rows of each split unless the file says otherwise, the most of them, and how often a draw may repeat before a split
#: counts as exhausted.
ROWS, MOST_ROWS, TRIES = 64, 100_000, 500
KEYS = ("name", "description", "templates", "answer", "wrong", "counterfactual", "rows", "slots", "words", "metric")
#: What else can be done about an empty list.
LEAVE_OUT = {"wrong": ", or leave it out"}
FORMS = {"lower": str.lower, "upper": str.upper, "capitalize": str.capitalize}
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


def from_templates(
    templates: str | Path | Mapping[str, Any], *, name: str | None = None, metric: BehaviourMetric | None = None
) -> RowBehaviour:
    """A behaviour from a TOML file of templates, or from the same as a dictionary."""
    if isinstance(templates, Mapping):
        source, data = name or "templates", templates
    else:
        source, data = str(templates), _read(Path(templates).expanduser())
    plan = _Templates.parse(data, source)
    rows = plan.rows()
    divided = plan.note is None or len({row.prompt for row in rows}) >= LEAST_TO_DIVIDE
    numbered = [replace(row, number=i, split=row.split if divided else None) for i, row in enumerate(rows, 1)]
    given = data.get("metric") if metric is None else metric
    made = from_rows(numbered, name=name or str(data.get("name") or source), metric=given, note=plan.note)
    return made if not isinstance(templates, str | Path) else _named(made, source, str(data.get("description", "")))


MAKERS["templates"] = from_templates


def _named(made: RowBehaviour, source: str, description: str) -> RowBehaviour:
    """A file is found again by its path."""
    return from_rows(made.rows, name=source, metric=made.metric, description=description, note=made.note)


def _read(file: Path) -> JsonObject:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise BadInput(f"{file}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{file}: not readable as TOML ({why_not_text(error)})") from None


@dataclass(frozen=True)
class _Templates:
    source: str
    templates: tuple[str, ...]
    answers: tuple[str, ...]
    wrongs: tuple[str, ...]
    counterfactual: Mapping[str, str] | str | None
    slots: Mapping[str, tuple[str, Sequence[Any]]]
    n_rows: int

    @classmethod
    def parse(cls, data: Mapping[str, object], source: str) -> "_Templates":
        """Check everything that can be wrong with a file."""
        if unknown := [key for key in data if key not in KEYS]:
            raise BadInput(f"{source}: {unknown[0]!r} is not known here; use {choices(KEYS)}")
        templates, answers = _texts(data, "templates", source), _texts(data, "answer", source)
        words, slots = data.get("words", {}), data.get("slots", {})
        if not isinstance(words, Mapping) or not isinstance(slots, Mapping):
            raise BadInput(f"{source}: [slots] and [words] are tables, such as [words] with names = [...]")
        lists = {slot: _list_of(slot, given, words, source) for slot, given in (slots or words).items()}
        counterfactual, n_rows = data.get("counterfactual"), data.get("rows", ROWS)
        if counterfactual is not None and not isinstance(counterfactual, str | Mapping):
            raise BadInput(f"{source}: counterfactual is a sentence or a table of slots, such as {{ place = 'other' }}")
        if isinstance(n_rows, bool) or not isinstance(n_rows, int) or not 1 <= n_rows <= MOST_ROWS:
            raise BadInput(
                f"{source}: rows = {quoted(n_rows)} is not a number of rows for each split, 1 to {MOST_ROWS:,}"
            )
        wrongs = _texts(data, "wrong", source) if "wrong" in data else ()
        made = cls(source, templates, answers, wrongs, counterfactual, lists, n_rows)
        made._check_names()
        return made

    @property
    def note(self) -> str | None:
        """What could not be divided between the splits."""
        shared = [name for name, words in self._lists.items() if not self._divides(name, words)]
        few = "the only template" if len(self.templates) == 1 else f"the {len(self.templates)} templates"
        parts = [few] if len(self.templates) < len(SPLITS) else []
        parts += [f"the words of {name}" for name in shared]
        return f"{self.source}: too few to divide, so that every split uses them: {', '.join(parts)}" if parts else None

    def rows(self) -> list[Row]:
        """Up to `n_rows` different rows of every split, drawn by turns; no prompt is in two splits."""
        draws = {split: self._draws(split) for split in SPLITS}
        rows_of: dict[str, dict[tuple[object, ...], Row]] = {split: {} for split in SPLITS}
        failed: dict[str, int] = dict.fromkeys(SPLITS, 0)
        split_of: dict[str, str] = {}
        while unfinished := [split for split in SPLITS if len(rows_of[split]) < self.n_rows and failed[split] < TRIES]:
            for split in unfinished:
                row = draws[split](len(rows_of[split]))
                mine = split_of.setdefault(row.prompt, split) == split
                failed[split] = 0 if mine and row.key not in rows_of[split] else failed[split] + 1
                if mine:
                    rows_of[split].setdefault(row.key, row)
        return [row for split in SPLITS for row in rows_of[split].values()]

    def _draws(self, split: str) -> Callable[[int], Row]:
        """What draws the rows of a split, given how many it has."""
        rng = random.Random(f"templates/{split}")
        templates = select_split(self.templates, split) if len(self.templates) >= len(SPLITS) else self.templates
        pools = {
            name: select_split(words, split) if self._divides(name, words) else list(words)
            for name, words in self._lists.items()
        }
        return lambda n: self._draw(rng, templates[n % len(templates)], pools, split)

    @property
    def _lists(self) -> dict[str, Sequence[Any]]:
        return dict(self.slots.values())

    def _divides(self, name: str, words: Sequence[object]) -> bool:
        """Whether every split gets enough words of a list for all slots that draw from it."""
        return len(words) // len(SPLITS) >= max(2, self._users(name))

    def _users(self, name: str) -> int:
        return sum(one == name for one, _ in self.slots.values())

    def _draw(self, rng: random.Random, template: str, pools: Mapping[str, Sequence[object]], split: str) -> Row:
        drawn: JsonObject = {}
        for name, words in pools.items():
            users = [slot for slot, (one, _) in self.slots.items() if one == name]
            drawn |= zip(users, rng.sample(words, len(users)), strict=True)
        prompt, spans = _filled(template, drawn)
        counterfactual = None
        if isinstance(self.counterfactual, str):
            counterfactual = _filled(self.counterfactual, drawn)[0]
        elif self.counterfactual is not None:
            swapped = {slot: drawn[other] for slot, other in self.counterfactual.items()}
            counterfactual = _filled(template, {**drawn, **swapped})[0]
        answers, wrongs = (
            tuple(dict.fromkeys(_filled(text, drawn)[0] for text in texts)) for texts in (self.answers, self.wrongs)
        )
        return Row(0, prompt, answers, wrongs, counterfactual, spans, split)

    def _check_names(self) -> None:
        """Every expression names slots and fields that exist, and every list is long enough."""
        texts = [*self.templates, *self.answers, *self.wrongs]
        texts += [self.counterfactual] if isinstance(self.counterfactual, str) else []
        for text in texts:
            for expression in (found[1] for found in _PIECE.finditer(text) if found[1] is not None):
                self._check_expression(expression, text)
            if {"{", "}"} & set(_PIECE.sub("", text)):
                raise BadInput(f"{self.source}: {text!r}: a brace without its other half (a brace is written {{{{)")
        if isinstance(self.counterfactual, Mapping):
            for slot in (*self.counterfactual, *map(str, self.counterfactual.values())):
                if slot not in self.slots:
                    raise BadInput(f"{self.source}: counterfactual: no slot {slot!r}; there are {choices(self.slots)}")
        for name, words in self._lists.items():
            if len(words) < self._users(name):
                raise BadInput(
                    f"{self.source}: {self._users(name)} slots draw different words from {name}, which has {len(words)}"
                )

    def _check_expression(self, expression: str, text: str) -> None:
        slot, field, form = _parts(expression)
        if slot not in self.slots:
            raise BadInput(
                f"{self.source}: {text!r}: no slot {slot!r}; there are {choices(self.slots) or 'none'} "
                "(a brace is written {{)"
            )
        if form is not None and form not in FORMS:
            raise BadInput(f"{self.source}: {text!r}: {form!r} is not a form of a word; use {choices(FORMS)}")
        for word in self.slots[slot][1]:
            if (field is None) == isinstance(word, Mapping) or (field is not None and field not in word):
                known = f"fields {choices(word)}" if isinstance(word, Mapping) else "no fields"
                raise BadInput(f"{self.source}: {text!r}: {{{expression}}} does not fit {word!r}, which has {known}")


def _texts(data: Mapping[str, object], key: str, source: str) -> tuple[str, ...]:
    given = data.get(key)
    texts = [given] if isinstance(given, str) else given
    if texts == []:
        raise BadInput(f"{source}: the list {key} is empty; give at least one text{LEAVE_OUT.get(key, '')}")
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise BadInput(f'{source}: {key} must be a text or a list of texts, such as {key} = "The {{word}} is"')
    return tuple(texts)


def _list_of(slot: str, given: object, words: Mapping[str, object], source: str) -> tuple[str, Sequence[Any]]:
    """The list that a slot draws from, with its name; a list of its own has the slot's."""
    name, values = (given, words.get(given)) if isinstance(given, str) else (slot, given)
    if values == []:
        raise BadInput(f"{source}: the list {name!r} is empty; give slot {slot!r} some words")
    if not isinstance(values, list):
        raise BadInput(f"{source}: slot {slot!r}: no list {name!r} in [words]; there are {choices(words) or 'none'}")
    for value in values:
        parts = value.values() if isinstance(value, Mapping) else [value]
        if not all(isinstance(part, str | int) and part != "" for part in parts):
            raise BadInput(f"{source}: the words of {name!r} must be texts or tables of texts, not {quoted(value, 60)}")
    return name, values


def _parts(expression: str) -> tuple[str, str | None, str | None]:
    """Slot, field and form of an expression such as `place.country|lower`."""
    path, _, form = expression.strip().partition("|")
    slot, _, field = path.strip().partition(".")
    return slot, field or None, form.strip() or None


def _filled(text: str, drawn: Mapping[str, Any]) -> tuple[str, dict[str, tuple[int, int]]]:
    """A text with its slots filled, and where each slot that occurs once stands."""
    result, last, spans, counts = "", 0, {}, Counter()
    for piece in _PIECE.finditer(text):
        result += text[last : piece.start()]
        last = piece.end()
        if piece[1] is None:
            result += piece[0][0]
            continue
        slot, field, form = _parts(piece[1])
        word = drawn[slot] if field is None else drawn[slot][field]
        value = FORMS[form](str(word)) if form else str(word)
        spans[slot] = (len(result), len(result) + len(value))
        counts[slot] += 1
        result += value
    return result + text[last:], {slot: span for slot, span in spans.items() if counts[slot] == 1}

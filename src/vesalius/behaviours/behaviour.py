"""A behaviour: something natural models do, as a seeded source of prompts.

A behaviour is a name and a function that takes one split's material and returns a `draw` function. A draw takes a
random generator and the index of the prompt and returns one row. The index allows exact balancing (even prompts one
way, odd prompts the other). Rows are distinct and shuffled. Behaviours of one's own are rows instead (`own`): the
`from_...` methods make them.
"""

import hashlib
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict, Unpack

from vesalius.behaviours.metrics import BehaviourMetric, require_metric
from vesalius.behaviours.prompts import Material, Prompt, Prompts, split_index
from vesalius.documents.view import has_options
from vesalius.errors import BadInput
from vesalius.model.tokenizer import Tokenizer

Draw = Callable[[random.Random, int], Prompt | None]
MAX_FAILED_DRAWS = 1000
#: What `Behaviour.from_...` calls; the modules that make behaviours of rows put their functions here.
MAKERS: dict[str, Callable[..., "Behaviour"]] = {}


class TooFewPrompts(BadInput):
    """More prompts were requested than there are; `n` is how many there are."""

    def __init__(self, message: str, n: int) -> None:
        super().__init__(message)
        self.n = n


class AdditionOptions(TypedDict, total=False):
    """The options of `Behaviour.addition`; one that is None or left out has its usual value."""

    operands: int | None
    signs: str
    low: int
    high: int
    answers: tuple[int, int] | None
    shots: int
    template: str | None
    change: str
    read: str | None
    keep: str


@dataclass(frozen=True)
class Behaviour:
    """Prompts with answers, and the metric they are measured by (None: the logit difference).

    `prepare(material)` returns a draw; a draw that returns None is repeated. `variant_of` names the behaviour that this
    one measures in another way; `only_right` restricts experiments to prompts that the model answers correctly, which
    `performance.draw_prompts` does. With `open_answer` the right answer is one of several right ones, so that a model
    which does the behaviour need not say it. `name` is what `--behaviour` and `ves.load` take to find it again.
    """

    name: str
    description: str
    prepare: Callable[[Material], Draw] = field(repr=False)
    variant_of: str | None = None
    metric: BehaviourMetric | None = field(default=None, kw_only=True)
    only_right: bool = field(default=False, kw_only=True)
    open_answer: bool = field(default=False, kw_only=True)

    @staticmethod
    def from_rows(
        rows: Iterable[Mapping[str, object]], *, name: str | None = None, metric: BehaviourMetric | None = None
    ) -> "Behaviour":
        """A behaviour from a list (or a generator) of rows `{prompt, answer, wrong?, counterfactual?, roles?, split?}`;
        answers are a text or a list of texts.
        """
        return MAKERS["rows"](rows, name=name, metric=metric)

    @staticmethod
    def from_file(path: str | Path, *, metric: BehaviourMetric | None = None) -> "Behaviour":
        """A behaviour from a file: rows in JSONL, JSON or CSV, templates in TOML, or a directory of a dataset."""
        return MAKERS["file"](path, metric=metric)

    @staticmethod
    def from_prompt(
        prompt: str,
        answer: str | Sequence[str],
        *,
        wrong: str | Sequence[str] | None = None,
        counterfactual: str | None = None,
        roles: Mapping[str, str] | None = None,
        as_written: bool = False,
        metric: BehaviourMetric | None = None,
    ) -> "Behaviour":
        """A behaviour of one prompt: what it shows holds for that prompt and has no interval. `as_written` allows an
        answer that continues the last word of the prompt.
        """
        row: dict[str, object] = {"prompt": prompt, "answer": answer, "wrong": wrong, "counterfactual": counterfactual}
        row |= {"roles": roles, "as_written": as_written}
        return MAKERS["prompt"](row, metric=metric)

    @staticmethod
    def from_templates(
        templates: str | Path | Mapping[str, object], *, name: str | None = None, metric: BehaviourMetric | None = None
    ) -> "Behaviour":
        """A behaviour from templates with slots: a TOML file, or the same as a dictionary."""
        return MAKERS["templates"](templates, name=name, metric=metric)

    @staticmethod
    def from_function(
        draw: Callable[[random.Random], Mapping[str, object] | None],
        *,
        name: str | None = None,
        metric: BehaviourMetric | None = None,
        seed: int = 0,
    ) -> "Behaviour":
        """A behaviour from a function that draws one row with a random generator."""
        return MAKERS["function"](draw, name=name, metric=metric, seed=seed)

    @staticmethod
    def addition(*, metric: BehaviourMetric | None = None, **options: Unpack["AdditionOptions"]) -> "Behaviour":
        """The behaviour `addition` with options: A - B + C with `signs="-+"`, operands from `low` to `high`, answers
        within `answers`, `shots` solved sums in front. `vesalius.behaviours.addition.Options` has all of them.
        """
        return MAKERS["addition"](metric=metric, **options)

    def __post_init__(self) -> None:
        require_metric(self.metric)

    @property
    def family(self) -> str:
        """The name of the underlying behaviour: `variant_of` if set, else `name`."""
        return self.variant_of or self.name

    @property
    def label(self) -> str:
        """A short name, for titles and directories."""
        return label_of(self.name)

    @property
    def measured_split(self) -> str:
        """The split on which it is measured whether a model performs it."""
        return "test"

    def with_metric(self, metric: BehaviourMetric | None) -> "Behaviour":
        """The same prompts, measured by another metric."""
        return replace(self, metric=metric)

    def sample(
        self, tokenizer: Tokenizer, n: int, *, seed: int, split: str = "train", n_ctx: int, d_vocab: int
    ) -> Prompts:
        """`n` distinct prompts, the same on every machine for the same seed and split."""
        split_index(split)
        if n < 1:
            raise BadInput(f"behaviour {self.name}: {n} prompts were requested; request at least 1")
        draw = self.prepare(Material(self.name, tokenizer, split, d_vocab))
        rng = random.Random(f"{self.name}/{split}/{seed}")  # a string seeds by SHA-512: no dependence on hash()
        # Up to `n` distinct rows; stops after `MAX_FAILED_DRAWS` draws in a row without a new one.
        rows: list[Prompt] = []
        seen: set[object] = set()
        failed_draws = 0
        while len(rows) < n and failed_draws < MAX_FAILED_DRAWS:
            row = draw(rng, len(rows))
            if row is None or row.key in seen:
                failed_draws += 1
                continue
            failed_draws = 0
            seen.add(row.key)
            rows.append(row)
        if len(rows) < n:
            raise TooFewPrompts(
                f"behaviour {self.name}: {n} prompts were requested, but the {split} split has only {len(rows)} "
                f"distinct ones with this tokenizer; {'request fewer' if rows else 'choose another behaviour'}",
                len(rows),
            )
        rng.shuffle(rows)
        prompts = Prompts.from_rows(rows, pad=tokenizer.bos or 0, n_ctx=n_ctx, d_vocab=d_vocab)
        return prompts.with_metric(self.metric)


def label_of(name: str) -> str:
    """A behaviour's name, short enough for a title or a directory: of a path the stem, of a row its prompt."""
    head, colon, options = name.partition(":")
    if colon and has_options(name):
        words = re.sub(r"[^A-Za-z0-9]+", "-", options).strip("-")
        return f"{head}-{words[:32].lower()}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    if name.lstrip().startswith("{"):
        words = re.sub(r"[^A-Za-z0-9]+", "-", name.partition('"prompt": "')[2].partition('"')[0]).strip("-")
        return f"{words[:32].lower()}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
    return Path(name).stem if "/" in name or Path(name).suffix else name

"""The exported unit tests that an evaluator is trained on, and the share of them that is right."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.files import parse_json, read_text, sha256
from vesalius_functions.agents.evaluator import SPLITS, Split, groups_of
from vesalius_functions.box import CHANCE, Example, Function, UnitTest

EXPORT = "write it with `vesalius functions evaluator-data --out DIR`"
#: Characters of the mark of a concept, a relation or a program.
_MARK = 16


@dataclass(frozen=True)
class Row:
    """One test of a true description, and the concepts, the relation or the program it is about."""

    category: str
    group: tuple[str, ...]
    description: str
    test: UnitTest

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of its groups."""
        return tuple(mark(self.category, group) for group in self.group)


def read_splits(directory: Path) -> dict[Split, list[Row]]:
    """The tests of every split; a file that is missing, empty or of another shape is refused in one line."""
    if not directory.is_dir():
        raise BadInput(f"data {directory}: is no directory; {EXPORT}")
    splits: dict[Split, list[Row]] = {split: _read(directory / f"{split}.jsonl") for split in SPLITS}
    used = {one for split in ("train", "validation") for row in splits[split] for one in row.marks}
    for row in splits["test"]:
        if used & set(row.marks):
            raise BadInput(f"data {directory}: {row.group[0]!r:.60} is in the test and in another split; {EXPORT}")
    return splits


def data_digest(directory: Path) -> str:
    """A digest of all splits."""
    joined = "".join(sha256(directory / f"{split}.jsonl") for split in SPLITS)
    return hashlib.sha256(joined.encode()).hexdigest()


def _read(path: Path) -> list[Row]:
    if not path.is_file():
        raise BadInput(f"data {path}: no such file; {EXPORT}")
    lines = read_text(path).split("\n")
    rows = [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise BadInput(f"data {path}: holds no test; {EXPORT} and more --tests")
    return rows


def _row(line: str, where: str) -> Row:
    data: Any = parse_json(line, source=f"data {where}")
    try:
        examples = tuple(Example(one["input"], one["output"]) for one in data["examples"])
        groups = tuple(map(str, data["group"])) if isinstance(data["group"], list) else ()
        row = Row(str(data["category"]), groups, str(data["description"]), UnitTest(examples, int(data["answer"]) - 1))
    except (KeyError, TypeError, ValueError, AssertionError):
        raise BadInput(f"data {where}: is not a unit test with three examples and an answer; {EXPORT}") from None
    if not groups:
        raise BadInput(f"data {where}: says no list `group`, so it may be in two splits; {EXPORT}")
    return row


def mark(category: str, group: str) -> str:
    """A short digest of a concept, a relation or a program."""
    return hashlib.sha256(f"{category}/{group}".encode()).hexdigest()[:_MARK]


def marks_of(function: Function) -> frozenset[str]:
    """The marks of a function."""
    return frozenset(mark(function.category, group) for group in groups_of(function))


def seen_marks(splits: dict[Split, list[Row]]) -> list[str]:
    """What training and the choice among trained models have looked at."""
    return sorted({one for split in ("train", "validation") for row in splits[split] for one in row.marks})


def share_right(hits: Sequence[bool], groups: Iterable[Sequence[str]]) -> Metric:
    """The share right, with an interval over groups of functions: tests of one group stand or fall together."""
    totals: dict[str, list[bool]] = {}
    for group, hit in zip(groups, hits, strict=True):
        totals.setdefault(json.dumps(list(group)), []).append(hit)
    counts = [(sum(one), len(one)) for one in totals.values()]
    return Metric.of_circuits([right for right, _ in counts], [n for _, n in counts], baseline=CHANCE)

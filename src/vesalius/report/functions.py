"""The page of a functions run: the figures, failures by family, and the cases themselves, failures first.

Numeric cases are drawn: the function, the submitted code, the points that were asked. Of the others, examples are
listed. A page shows a limited number of cases; the rest are in the run's files.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.functions.suite import in_words
from vesalius.report.html import render, write
from vesalius.report.overlay import Curves, draw_curves
from vesalius.runs.directory import INDEX, document_or_none, explanation_path, read_run, read_scorecard
from vesalius.runs.functions.benchmark import GRADES
from vesalius.runs.functions.work import Graded, Interpreted

SHOWN_FAILURES, SHOWN_OTHERS = 48, 12
#: Of one case: characters of its code and description, examples, queries.
MOST_TEXT, MOST_EXAMPLES, MOST_QUERIES = 3_000, 10, 12
KINDS = {"numeric": "Numeric", "strings": "String", "entities": "Entity", "relations": "Relation"}
#: The page's words for what decides; others are shown under their own names.
TITLES = {
    "success": "Published success (NMSE below 0.1)",
    "exact_match": "Exact matches",
    "unit_test": "Unit tests passed",
    "interval_found": "Corrupted interval found",
    "false_alarm": "Interval seen where there is none",
    "family_named": "Family named",
    "queries": "Queries per function",
    "hallucinated": "Outputs invented by the model",
}


@dataclass(frozen=True)
class Example:
    """One input with the true and the answered output."""

    input: str
    truth: str
    answer: str

    @property
    def right(self) -> bool:
        """Whether the two agree."""
        return self.truth == self.answer


@dataclass(frozen=True)
class Case:
    """One function as the page shows it."""

    id: str
    family: str
    failed: bool
    value: float | None
    truth: str
    description: str
    domain: str
    code: str
    fault: str
    queries: int
    curves: Curves | None
    columns: tuple[str, str, str]
    examples: tuple[Example, ...]
    asked: tuple[tuple[str, str], ...]


def render_functions(directory: Path, *, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """Write the page of a finished functions run and return its path."""
    scorecard, settings = read_scorecard(directory), read_run(directory)["settings"]
    failures = {row["id"]: row for row in scorecard["failures"]}
    others = [path.stem for path in sorted((directory / GRADES).glob("*.json")) if path.stem not in failures]
    wanted = [*list(failures)[:SHOWN_FAILURES], *others[:SHOWN_OTHERS]]
    cases = []
    for done, case in enumerate(wanted, 1):
        found = _case(directory, case, failures.get(case))
        if found is not None:
            cases.append(found)
        if progress is not None:
            progress(f"drawing {case}", done, len(wanted))
    html = render(
        "functions.html",
        ["theme.js"],
        card=scorecard,
        kind=KINDS[scorecard["category"]],
        cases=cases,
        titles=TITLES,
        families=[(name, row) for name, row in scorecard["families"].items()],
        failures=len(failures),
        shown_failures=sum(case.failed for case in cases),
        command=command(settings),
    )
    return write(directory / INDEX, html)


def command(settings: dict[str, Any]) -> str:
    """The command that makes such a run."""
    words = ["vesalius bench functions", f"--category {settings['category']}"]
    for name in ("interpreter", "backbone", "evaluator", "dataset", "seed", "count", "mode", "budget"):
        if settings.get(name) is not None:
            words.append(f"--{name} {settings[name]}")
    return " ".join(words)


def _case(directory: Path, case: str, failure: dict[str, Any] | None) -> Case | None:
    interpreted = document_or_none(Interpreted, explanation_path(directory, case))
    graded = document_or_none(Graded, directory / GRADES / f"{case}.json")
    if interpreted is None or graded is None:
        return None
    answer = interpreted.answer
    value = None if failure is None else next((failure[n] for n in TITLES if n in failure), None)
    return Case(
        id=case,
        family=interpreted.family,
        failed=failure is not None,
        value=value,
        truth=_cut(in_words(interpreted.truth)),
        description=_cut(answer.description),
        domain=_cut(answer.domain or ""),
        code=_cut(answer.code or ""),
        fault=_cut(graded.fault or ""),
        queries=len(interpreted.log),
        curves=_curves(graded.picture, interpreted),
        columns=("Offered", "Right", "Chosen") if "triplets" in graded.picture else ("Input", "Function", "Answer"),
        examples=_examples(graded.picture),
        asked=tuple((_text(x), _text(y)) for x, y in interpreted.log[:MOST_QUERIES]),
    )


def _curves(picture: dict[str, Any], interpreted: Interpreted) -> Curves | None:
    if not {"x", "truth", "answer"} <= set(picture):
        return None
    x, truth, answer = (list(map(_number, picture[name])) for name in ("x", "truth", "answer"))
    samples = [
        (at, value)
        for given, output in interpreted.log
        if (at := _number(given)) is not None and (value := _number(output)) is not None
    ]
    summary = f"{interpreted.id}, {interpreted.family}: the function, the answer, and {len(samples)} points asked"
    return draw_curves([value or 0.0 for value in x], truth, answer, samples=samples, summary=summary)


def _examples(picture: dict[str, Any]) -> tuple[Example, ...]:
    if "triplets" in picture:
        return tuple(map(_picked, picture["triplets"][:MOST_EXAMPLES]))
    rows: Sequence[dict[str, Any]] = picture.get("examples", [])
    return tuple(
        Example(*(_text(row.get(name)) for name in ("input", "truth", "answer"))) for row in rows[:MOST_EXAMPLES]
    )


def _picked(triplet: dict[str, Any]) -> Example:
    """A unit test as a row: the three that were offered, the true one, and whether the answer led there."""
    offered = [_text(one) if isinstance(one, str) else " → ".join(map(_text, one)) for one in _offered(triplet)]
    true, credit = offered[triplet["true"]], triplet["credit"]
    return Example(" · ".join(offered), true, true if credit == 1 else "another" if credit == 0 else "undecided")


def _offered(triplet: dict[str, Any]) -> Sequence[Any]:
    return triplet.get("words") or triplet.get("pairs") or []


def _number(value: Any) -> float | None:
    """A value as something to draw; complex numbers, kept as texts, by their real part."""
    if isinstance(value, str):
        try:
            value = complex(value).real
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond all floats
        return None


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"error"}:
        return f"none ({_cut(str(value['error']), 80)})"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200)


def _cut(text: str, most: int = MOST_TEXT) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"

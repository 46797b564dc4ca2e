"""The page of a functions run: the figures, failures by family, and the cases themselves, failures first.

Numeric cases are drawn: the function, the submitted code, the points that were asked. Of the others, examples are
listed. The dialogue of a language model stands with its case: what it was told, said and got back. A page shows a
limited number of cases, and texts up to a length; the rest is in the run's files.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vesalius.documents.scorecard import FunctionFailure
from vesalius.progress import Progress
from vesalius.report.charts import Curves, draw_curves
from vesalius.report.html import render, write
from vesalius.runs.conversation import Conversation
from vesalius.runs.directory import INDEX, calls_path, document_or_none, explanation_path, read_scorecard
from vesalius_functions.bench.settings import GRADES
from vesalius_functions.bench.work import Graded, Interpreted
from vesalius_functions.suite import in_words

SHOWN_FAILURES, SHOWN_OTHERS = 48, 12
#: Of one case: characters of its code, examples, queries.
MOST_TEXT, MOST_EXAMPLES, MOST_QUERIES = 3_000, 10, 12
#: Calls of a dialogue.
MOST_TURNS = 40
#: Of what is said about a function and of it; all of it is in the run's files.
MOST_SAID = 600
#: So many records that were left out are listed.
MOST_LEFT_OUT = 200
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
    "exact_all": "All pairs exact",
    "exact_held_out": "Exact on fresh inputs",
    "held_out_success": "Success on fresh points, without noise",
    "understood": "Understood (a short rule, right on fresh inputs)",
    "table": "Answers that are tables",
    "nmse": "Normalised squared error",
    "held_out_nmse": "Normalised squared error on fresh points, without noise",
    "r2": "R², on fresh points",
    "code_length": "Characters of code",
    "noise_named": "Noise named",
    "operands_named": "Both operands named",
    "interval_iou": "Overlap of the interval found",
    "inside_success": "Success inside the corrupted part",
    "outside_success": "Success outside the corrupted part",
    "domain_read": "Domain could be read from the words",
    "concepts_counted": "One or two concepts named",
    "hallucinated": "Outputs invented by the model",
    "rounds": "Rounds per function",
    "unit_test_executable": "Unit tests passed by the executable grader",
    "unit_test_unanswered": "Unit tests left unanswered",
    "exemplar_overlap": "Exemplars that are test items",
}
#: A category's own names for figures that the page shows under the common name.
_SAME = {
    "operations_named": "family_named",
    "concept_named": "family_named",
    "rule_named": "family_named",
    "exception_found": "interval_found",
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
class Test:
    """One unit test: what was offered, which of them is the function's own, and where the answer led."""

    offered: tuple[str, ...]
    true: int
    credit: float

    @property
    def right(self) -> bool:
        """Whether the answer led to the function's own and to no other."""
        return self.credit == 1

    @property
    def chosen(self) -> str:
        """The choice in words; where several fit alike, there was none."""
        return "right" if self.right else "undecided" if self.credit else "another"


@dataclass(frozen=True)
class Turn:
    """One message of a dialogue: `told` is what the model was told, `said` what it said, `failed` a call without an
    answer.
    """

    kind: Literal["told", "said", "failed"]
    text: str


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
    scores: str
    queries: int
    curves: Curves | None
    examples: tuple[Example, ...]
    tests: tuple[Test, ...]
    asked: tuple[tuple[str, str], ...]
    dialogue: tuple[Turn, ...] = ()
    calls: int = 0


def render_functions(directory: Path, *, progress: Progress | None = None) -> Path:
    """Write the page of a finished functions run and return its path."""
    scorecard = read_scorecard(directory)
    failures = {row.id: row for row in scorecard.failures or ()}
    others = [path.stem for path in sorted((directory / GRADES).glob("*.json")) if path.stem not in failures]
    shown = [*list(failures)[:SHOWN_FAILURES], *others[:SHOWN_OTHERS]]
    cases = []
    for done, name in enumerate(shown, 1):
        case = function_case(directory, name, failures.get(name))
        if case is not None:
            cases.append(case)
        if progress is not None:
            progress(f"drawing {name}", done, len(shown))
    left_out = scorecard.left_out or {}
    html = render(
        "functions.html",
        ["theme.js"],
        card=scorecard,
        kind=KINDS[scorecard.category or ""],
        cases=cases,
        most_turns=MOST_TURNS,
        titles=TITLES,
        metrics=[(name, metric) for name, metric in scorecard.metrics.items() if name not in _SAME],
        families=list((scorecard.families or {}).items()),
        left_out=list(left_out.items())[:MOST_LEFT_OUT],
        n_left_out=len(left_out),
        failures=len(failures),
        shown_failures=sum(case.failed for case in cases),
        command="" if scorecard.request is None else scorecard.request.command_line(),
    )
    return write(directory / INDEX, html)


def function_case(directory: Path, case: str, failure: FunctionFailure | None) -> Case | None:
    """One function of a graded run; None where its files are not whole. `failure` is there if it is less than right."""
    interpreted = document_or_none(Interpreted, explanation_path(directory, case))
    graded = document_or_none(Graded, directory / GRADES / f"{case}.json")
    if interpreted is None or graded is None:
        return None
    answer = interpreted.answer
    dialogue, calls = _dialogue(directory, case)
    figures = () if failure is None else (failure.success, failure.exact_match, failure.unit_test)
    return Case(
        id=case,
        family=interpreted.family,
        failed=failure is not None,
        value=next((figure for figure in figures if figure is not None), None),
        truth=_cut(in_words(interpreted.truth), MOST_SAID),
        description=_cut(answer.description, MOST_SAID),
        domain=_cut(answer.domain or "", MOST_SAID),
        code=_cut(answer.code or ""),
        fault=_cut(graded.fault or ""),
        scores=_scores(graded.metrics),
        queries=len(interpreted.log),
        curves=_curves(graded.picture, interpreted),
        examples=_examples(graded.picture),
        tests=tuple(map(_test, graded.picture.get("triplets", [])[:MOST_EXAMPLES])),
        asked=asked_of(interpreted, MOST_QUERIES),
        dialogue=dialogue,
        calls=calls,
    )


def _dialogue(directory: Path, case: str) -> tuple[tuple[Turn, ...], int]:
    """What was said in the first calls of a case, and how many calls there are; nothing where no model interprets."""
    talk = Conversation(calls_path(directory, case), case)
    talk.update()
    turns: list[Turn] = []
    for call in talk.calls[:MOST_TURNS]:
        said = call.text.text if call.text else "\n".join(f"{name}: {one.text}" for name, one in call.answer.items())
        parts: list[tuple[Literal["told", "said", "failed"], str | None]] = [
            ("told", call.prompt and call.prompt.text),
            ("failed", call.failure),
            ("said", said),
            ("told", call.reply and call.reply.text),
        ]
        turns += [Turn(kind, _cut(text)) for kind, text in parts if text]
    return tuple(turns), len(talk.calls)


def asked_of(interpreted: Interpreted, most: int) -> tuple[tuple[str, str], ...]:
    """The first queries of a function with their outputs, as texts."""
    return tuple((_text(x), _text(y)) for x, y in interpreted.log[:most])


def _scores(metrics: dict[str, float | None]) -> str:
    """What else says how right an answer is: a noisy function can be understood and fail by the published rule."""
    names = {"nmse": "NMSE", "r2": "R²", "exact_held_out": "exact on fresh inputs"}
    parts = [f"{said} {value:.3g}" for name, said in names.items() if (value := metrics.get(name)) is not None]
    if (understood := metrics.get("understood")) is not None:
        parts.append("understood" if understood else "not understood")
    return ", ".join(parts)


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
    rows: Sequence[dict[str, Any]] = picture.get("examples", [])
    return tuple(
        Example(*(_text(row.get(name)) for name in ("input", "truth", "answer"))) for row in rows[:MOST_EXAMPLES]
    )


def _test(triplet: dict[str, Any]) -> Test:
    offered = [_text(one) if isinstance(one, str) else " → ".join(map(_text, one)) for one in _offered(triplet)]
    return Test(tuple(offered), triplet["true"], triplet["credit"])


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

"""The page of a functions run: the figures, failures by family, and the cases themselves, failures first.

Numeric cases are drawn: the function, the submitted code, the points that were asked. Of the others, examples are
listed. The dialogue of a language model stands with its case: what it was told, said and got back. A page shows a
limited number of cases, and texts up to a length; the rest is in the run's files.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vesalius.documents.scorecard import FunctionFailure
from vesalius.documents.view import (
    Answer,
    Code,
    Curves,
    Facts,
    Group,
    Section,
    Sheet,
    Text,
    View,
    duration,
    figure,
)
from vesalius.progress import Progress
from vesalius.report.layout import write_view
from vesalius.runs.directory import INDEX, calls_path, document_or_none, explanation_path, read_scorecard
from vesalius_backbones.runs.conversation import Conversation
from vesalius_functions.bench.settings import GRADES
from vesalius_functions.bench.work import Graded, Interpreted
from vesalius_functions.documents import FunctionExample, FunctionTest
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
    examples: tuple[FunctionExample, ...]
    tests: tuple[FunctionTest, ...]
    asked: tuple[tuple[str, str], ...]
    #: Who said what: "Told", "The model" or "The call failed", and the text.
    dialogue: tuple[tuple[str, str], ...] = ()
    calls: int = 0


def render_functions(directory: Path, *, progress: Progress | None = None) -> Path:
    """Write the page of a finished functions run and return its path."""
    return write_view(functions_view(directory, progress=progress), directory / INDEX)


def functions_view(directory: Path, *, progress: Progress | None = None) -> View:
    """What a finished run of functions shows."""
    card = read_scorecard(directory)
    failures = {row.id: row for row in card.failures or ()}
    others = [path.stem for path in sorted((directory / GRADES).glob("*.json")) if path.stem not in failures]
    shown = [*list(failures)[:SHOWN_FAILURES], *others[:SHOWN_OTHERS]]
    cases = []
    for done, name in enumerate(shown, 1):
        case = function_case(directory, name, failures.get(name))
        if case is not None:
            cases.append(case)
        if progress is not None:
            progress(f"drawing {name}", done, len(shown))
    left_out = list((card.left_out or {}).items())
    kind = KINDS[card.category or ""]
    errors = f", {card.n_error} error{'s' if card.n_error > 1 else ''}, in no figure" if card.n_error else ""
    cost = "cost unknown" if card.cost is None else f"${card.cost:.2f}" if card.cost else "no cost"
    shown_failures = sum(case.failed for case in cases)
    sections: list[Section] = [
        Facts(
            [
                ("functions", f"{card.n}{errors}"),
                ("suite", f"{card.suite}, mode {card.mode}"),
                *([("language model", card.backbone)] if card.backbone else []),
                *([("unit tests taken by", card.evaluator)] if card.evaluator else []),
                ("effort", f"{duration(card.seconds)}, {cost}"),
            ]
        ),
        *([Text(card.caveats, quiet=True)] if card.caveats else []),
        Sheet(
            ("metric", "value", "low", "high", "n", "baseline"),
            [
                (TITLES.get(name, name.replace("_", " ")), one.value, one.low, one.high, one.n, one.baseline)
                for name, one in card.metrics.items()
                if name not in _SAME
            ],
            title="Figures",
        ),
        Sheet(
            ("family", "functions", "less than right", "mean score"),
            [(name, row.n, row.failed, row.value) for name, row in (card.families or {}).items()],
            title="Failures by family",
        ),
        Group(
            [_shown(case, legend=not number) for number, case in enumerate(cases)],
            title="Functions",
            caption=f"{len(cases)} of {card.n} are shown: {shown_failures} of the {len(failures)} that are less than "
            "right, then others. All answers are in the folder explanations of the run.",
            tiled=True,
        ),
    ]
    if left_out:
        listed = f"; the first {MOST_LEFT_OUT} are listed" if len(left_out) > MOST_LEFT_OUT else ""
        caption = f"{len(left_out)} records of the dataset are not functions here{listed}."
        rows = left_out[:MOST_LEFT_OUT]
        sections.append(Sheet(("record", "reason"), rows, title="Left out", caption=caption, folded=True))
    return View(
        f"{kind} functions interpreted by {card.subject}",
        Answer(f"{card.n - len(failures)} of {card.n} functions are fully right"),
        sections,
        command=None if card.request is None else card.request.command_line(),
    )


def _shown(case: Case, *, legend: bool) -> Group:
    """One function as a group of sections."""
    said = {"truth": case.truth, "answer": case.description or "none", "scores": case.scores, "domain": case.domain}
    parts: list[Section] = [] if case.curves is None else [replace(case.curves, legend=legend)]
    if case.examples:
        rows = [(one.input, one.truth, one.answer + ("" if one.right else " (differs)")) for one in case.examples]
        parts.append(Sheet(("input", "function", "answer"), rows))
    if case.tests:
        width = max(len(test.offered) for test in case.tests)
        tests = []
        for test in case.tests:
            own = test.offered[test.own : test.own + 1]
            offered = [*own, *(one for place, one in enumerate(test.offered) if place != test.own)]
            tests.append((*offered, *[""] * (width - len(offered)), test.chosen))
        others = ["offered with it", *[""] * (width - 2)]
        parts.append(Sheet(("the function's own", *others[: width - 1], "chosen"), tests))
    parts.append(Facts([(name, text) for name, text in (said | {"fault": case.fault}).items() if text]))
    if case.code or case.asked:
        inner: list[Section] = [Code(case.code, title="Code")] if case.code else []
        caption = f"The first {len(case.asked)} of {case.queries} queries"
        inner += [Sheet(("input", "output"), case.asked, caption=caption)] if case.asked else []
        parts.append(Group(inner, title=f"{'Code and ' if case.code else ''}{case.queries} queries", folded=True))
    if case.dialogue:
        turns: list[Section] = [Code(text, title=who) for who, text in case.dialogue]
        if case.calls > MOST_TURNS:
            turns.append(Text([f"The first {MOST_TURNS} calls; all of them are in calls/{case.id}.jsonl."], quiet=True))
        calls = f"Dialogue, {case.calls} {'call' if case.calls == 1 else 'calls'}"
        parts.append(Group(turns, title=calls, folded=True))
    word = "right" if not case.failed else figure(case.value) if case.value else "wrong"
    verdict = "refuted" if case.failed else "supported"
    return Group(parts, title=case.id, caption=case.family, name=case.id, verdict=verdict, word=word)


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


def _dialogue(directory: Path, case: str) -> tuple[tuple[tuple[str, str], ...], int]:
    """What was said in the first calls of a case, and how many calls there are; nothing where no model interprets."""
    talk = Conversation(calls_path(directory, case), case)
    talk.update()
    turns: list[tuple[str, str]] = []
    for call in talk.calls[:MOST_TURNS]:
        said = call.text.text if call.text else "\n".join(f"{name}: {one.text}" for name, one in call.answer.items())
        parts = [
            ("Told", call.prompt.text if call.prompt else None),
            ("The call failed", call.failure),
            ("The model", said),
            ("Told", call.reply.text if call.reply else None),
        ]
        turns += [(who, _cut(text)) for who, text in parts if text]
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
    return Curves([value or 0.0 for value in x], truth, answer, samples, summary)


def _examples(picture: dict[str, Any]) -> tuple[FunctionExample, ...]:
    rows: Sequence[dict[str, Any]] = picture.get("examples", [])
    texts = [{name: _text(row.get(name)) for name in ("input", "truth", "answer")} for row in rows[:MOST_EXAMPLES]]
    return tuple(FunctionExample(**one, right=one["truth"] == one["answer"]) for one in texts)


def _test(triplet: dict[str, Any]) -> FunctionTest:
    """One unit test: the choice in words; where several fit alike, there was none."""
    given = triplet.get("words") or triplet.get("pairs") or []
    offered = [_text(one) if isinstance(one, str) else " → ".join(map(_text, one)) for one in given]
    credit, right = triplet["credit"], triplet["credit"] == 1
    chosen = "right" if right else "undecided" if credit else "another"
    return FunctionTest(offered=tuple(offered), own=triplet["true"], chosen=chosen, right=right)


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

"""The figures of the papers that show an example or a drawing instead of shares: their rows, and their pictures.

HyVE: Figure 1 is one task with its answer, from an explanation; Figure 2 the stages of the agent. FIND: Figures 1 and 2
say how functions are made, from the code; Figures 3 and A5 are dialogues of a language model; Figures 4 and A1 to A3
show what was answered about single functions, from runs whose answers are still there.
"""

import textwrap
from collections.abc import Iterator, Sequence

from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.view import Curves, cut_text
from vesalius.report.plots import Picture, new_figure
from vesalius.runs.directory import document_or_none, explanation_path
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.sources import SourceResult, Sources
from vesalius_functions.bench.settings import GRADES
from vesalius_functions.bench.work import Graded, Interpreted
from vesalius_functions.interpreters import ORACLE
from vesalius_functions.page import Case, function_case
from vesalius_functions.page_kinds import COLOURS
from vesalius_functions.suite import SUITE

#: Functions of a run that a figure shows, characters of a text, and characters in a line of a picture.
MOST_CASES, MOST_TURNS, LONGEST, LINE = 4, 12, 200, 96
#: A unit test at chance or below and an error above the bar are marked as failures, as published.
CHANCE, MOST_ERROR = 0.33, 0.1
GOOD, BAD = "#2e7d4f", "#b2182b"
#: The stages of the agent: what each is given, and what comes out of it.
STAGES = {
    "observe": ("a component, the task's examples and code that can be run", "what was seen, and a first hypothesis"),
    "hypothesize": ("observations, and the hypotheses refuted so far", "the next hypothesis, with a plan to test it"),
    "validate": ("the plan", "supported or refuted; a refuted one goes back to hypothesize, at most three times"),
    "classify": ("the hypotheses kept", "one of five tags and a note for each component"),
    "summarize": ("all tags and notes", "what the whole circuit computes"),
}
#: How the functions of a category are made harder than their atoms.
KINDS_OF = {
    "numeric": ("families of formulas", "sum or product of two, noise, a corrupted interval, a net in their place"),
    "strings": ("operations on strings", "two operations in a row"),
    "entities": ("how far a word belongs to a concept, 0 to 1", "one of two concepts"),
    "relations": ("a fact about the input, such as its capital", "an exception where the answer is undefined"),
}
MODULES = {
    "entity": ("1 if the input belongs to the concept, else 0", "p(1) / (p(0) + p(1)) of the model's next token"),
    "relation": ("the fact about the input; undefined for all else and for the exception", "the model's reply"),
}


def task_instance(sources: Sources) -> list[PaperRow]:
    """HyVE, Figure 1: tag and role of every component of an explained circuit, and the task."""
    rows = []
    for result in sources.of("explanation"):
        explanation = document_or_none(Explanation, result.directory / EXPLANATION_FILE)
        if not isinstance(explanation, Explanation):
            continue
        details = f"specimen {explanation.specimen}"
        for part in explanation.components:
            values: dict[str, Cell] = {"tag": part.tag, "role": cut_text(part.note, LONGEST)}
            rows.append(result.row(part.id, values, details))
        task: dict[str, Cell] = {"role": cut_text(explanation.task_description, LONGEST)}
        rows.append(result.row("whole circuit", task, details))
    return rows


def stages() -> dict[str, dict[str, Cell]]:
    """HyVE, Figure 2."""
    return {name: {"given": given, "gives": gives} for name, (given, gives) in STAGES.items()}


def categories() -> dict[str, dict[str, Cell]]:
    """FIND, Figure 1."""
    return {
        name: {"functions": SUITE[name], "atoms": atoms, "harder": harder} for name, (atoms, harder) in KINDS_OF.items()
    }


def modules() -> dict[str, dict[str, Cell]]:
    """FIND, Figure 2."""
    return {name: {"told": told, "output": output} for name, (told, output) in MODULES.items()}


def answered(sources: Sources, categories: Sequence[str]) -> Iterator[tuple[SourceResult, Case, Graded, Interpreted]]:
    """The first functions of each run with what was answered about them; runs without answers give none."""
    for result in sources.of("functions"):
        card = result.document
        if card.category not in categories or card.subject == ORACLE or not result.directory.is_dir():
            continue
        for path in sorted((result.directory / GRADES).glob("*.json"))[:MOST_CASES]:
            case = function_case(result.directory, path.stem, None)
            graded = document_or_none(Graded, path)
            interpreted = document_or_none(Interpreted, explanation_path(result.directory, path.stem))
            if case is not None and graded is not None and interpreted is not None:
                yield result, case, graded, interpreted


def answers(sources: Sources, categories: Sequence[str]) -> list[PaperRow]:
    """FIND, Figures 4 and A1 to A3: what a function is, what was answered, and its score."""
    rows = []
    for result, case, graded, _ in answered(sources, categories):
        name, value = score(graded)
        values: dict[str, Cell] = {
            "function": cut_text(case.truth, LONGEST),
            "answer": cut_text(case.description, LONGEST),
            "measure": name,
            "score": value,
            "asked": case.queries,
        }
        rows.append(result.row(f"{result.document.category} {case.id}", values))
    return rows


def score(graded: Graded) -> tuple[str, float | None]:
    """The figure beside an answer: the error of numbers, else the share of unit tests."""
    names = ("nmse", "unit_test")
    return next(((name, value) for name in names if (value := graded.metrics.get(name)) is not None), ("score", None))


def dialogue(sources: Sources, *, invented: bool) -> list[PaperRow]:
    """FIND, Figure 3: the first dialogue of each run with a language model; Figure A5: the first in which the model
    invented outputs.
    """
    rows, seen = [], set()
    for result, case, _, interpreted in answered(sources, tuple(SUITE)):
        if result.run in seen or not case.dialogue or (invented and not interpreted.answer.hallucinated):
            continue
        seen.add(result.run)
        details = f"{interpreted.answer.hallucinated or 0} outputs invented"
        for place, (who, text) in enumerate(case.dialogue[:MOST_TURNS], 1):
            values: dict[str, Cell] = {"who": who, "said": cut_text(" ".join(text.split()), LONGEST)}
            rows.append(result.row(f"{case.id}, {place}", values, details))
    return rows


def draw_curves(sources: Sources) -> Picture | None:
    """FIND, Figure A1: numeric functions, the answers in their place and the points asked."""
    drawn = [(case, case.curves, graded) for _, case, graded, _ in answered(sources, ("numeric",)) if case.curves]
    if not drawn:
        return None
    columns = min(3, len(drawn))
    lines = -(-len(drawn) // columns)
    figure = new_figure(3.2 * columns, 2.6 * lines)
    for place, (case, curves, graded) in enumerate(drawn, 1):
        axes = figure.add_subplot(lines, columns, place)
        assert isinstance(curves, Curves)
        axes.plot(
            curves.x, [float("nan") if y is None else y for y in curves.truth], color=COLOURS[2], label="function"
        )
        answer = [float("nan") if y is None else y for y in curves.answer]
        axes.plot(curves.x, answer, "--", color=COLOURS[0], label="answer")
        axes.plot(*zip(*curves.samples, strict=True), ".", color=COLOURS[5], markersize=3, label="asked")
        name, value = score(graded)
        right = value is not None and value < MOST_ERROR
        axes.set_title(f"{case.id}: {name} {value:.2g}", fontsize=8, color=GOOD if right else BAD)
        axes.tick_params(labelsize=6)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_texts(rows: Sequence[PaperRow], *, title: str, arrows: bool = False) -> Picture:
    """A box of text for each row, one below the other; `arrows` lead from each to the next."""
    blocks = [(row.name, _lines(row), _colour(row)) for row in rows]
    height = sum(len(lines) + 2.2 for _, lines, _ in blocks)
    figure = new_figure(7.4, 0.6 + 0.155 * height)
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(height, 0))
    axes.set_title(title, loc="left", fontsize=10)
    top = 0.0
    for place, (name, lines, colour) in enumerate(blocks):
        words = "\n".join(lines)
        frame = {"boxstyle": "round,pad=0.35", "facecolor": "#f6f6f6", "edgecolor": colour}
        axes.text(0.01, top + 0.9, name, fontsize=8, weight="bold", va="top", color=colour)
        axes.text(0.03, top + 2.0, words, fontsize=7, va="top", family="monospace", bbox=frame)
        top += len(lines) + 2.2
        if arrows and place + 1 < len(blocks):
            axes.annotate("", (0.97, top + 0.9), (0.97, top - 0.9), arrowprops={"arrowstyle": "->", "color": "#555555"})
    return figure


def _lines(row: PaperRow) -> list[str]:
    """The values of a row as wrapped lines."""
    texts = [f"{name}: {_said(value)}" for name, value in row.values.items() if value not in (None, "")]
    return [line for text in texts for line in textwrap.wrap(text.replace("$", r"\$"), LINE) or [""]]


def _said(value: Cell) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _colour(row: PaperRow) -> str:
    """Green or red where a row has a score, as published."""
    value = row.values.get("score")
    if not isinstance(value, int | float):
        return COLOURS[0]
    right = value < MOST_ERROR if row.values.get("measure") == "nmse" else value > CHANCE
    return GOOD if right else BAD

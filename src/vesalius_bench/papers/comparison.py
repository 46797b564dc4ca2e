"""Runs side by side, in the tables and figures of the paper that published the benchmark, and by what they asked.

A row is a run or a published backbone; what a run did not measure is None. Published rows say so, because they were
measured on other models than ours: they are a point of reference, not a contest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vesalius.documents.metric import Metric
from vesalius.documents.printed import RunUsage
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.view import Answer, Facts, View, Viewable
from vesalius.documents.view import Sheet as ShownSheet
from vesalius.errors import BadInput
from vesalius.runs.directory import is_run, read_run, read_scorecard
from vesalius.runs.scorecard import model_name
from vesalius.runs.settings import BENCHMARK
from vesalius.runs.usage import run_usage
from vesalius_bench.papers import find_tables as find
from vesalius_bench.papers import published
from vesalius_bench.papers.published import SOURCE, Row
from vesalius_functions.bench.settings import BENCHMARK as FUNCTIONS

Metrics = Callable[[Scorecard], Mapping[str, Metric] | None]
FIGURE_5 = "FIND Figure 5"
UNNUMBERED = "Figures 3 and 4 were published as pictures without numbers."


@dataclass(frozen=True)
class Sheet:
    """One table: rows of named figures. `scale` says what they mean where a name does not."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, str, Row], ...]  # name, source, figures
    scale: str = ""

    def as_data(self) -> dict[str, Any]:
        """The table as JSON."""
        rows = [{"name": name, "source": source, **figures} for name, source, figures in self.rows]
        return {"id": self.id, "title": self.title, "scale": self.scale, "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True, repr=False)
class Comparison(Viewable):
    """Runs side by side: the published `tables` for those of the benchmark, and what all of them asked (`usage`). It
    can be read like the list of its tables.
    """

    tables: tuple[Sheet, ...]
    usage: tuple[RunUsage, ...]

    def __iter__(self) -> Iterator[Sheet]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, place: int) -> Sheet:
        return self.tables[place]

    def as_data(self) -> dict[str, Any]:
        """The tables and the calls as JSON."""
        return {"tables": [sheet.as_data() for sheet in self.tables], "usage": [one.as_data() for one in self.usage]}

    def view(self) -> View:
        """What each run asked."""
        runs = "; ".join(f"{one.run}: {one.total.calls} calls" for one in self.usage)
        rows = [{"run": one.run, **stage.as_data()} for one in self.usage for stage in one.stages]
        return View(
            "Comparison of runs",
            Answer(f"Comparison of {len(self.usage)} runs in {len(self.tables)} tables"),
            [Facts([("", runs)]), ShownSheet.of(rows, title="Calls")],
        )


def compare(directories: Sequence[Path]) -> Comparison:
    """The published tables with finished runs of the circuits and the functions benchmark, and the calls of the runs of
    circuits and of explanations.
    """
    labels = {directory: run_label(directory, directories) for directory in directories}
    cards = {directory: _card(directory) for directory in directories if is_run(directory)}
    of_functions = {directory: card for directory, card in cards.items() if card.benchmark == FUNCTIONS}
    circuits = {labels[directory]: card for directory, card in cards.items() if directory not in of_functions}
    usage = tuple(run_usage(path, label=label) for path, label in labels.items() if path not in of_functions)
    tables = circuit_sheets(circuits) if circuits else []
    tables += function_sheets(of_functions, labels) if of_functions else []
    return Comparison(tuple(tables), usage)


def function_sheets(cards: dict[Path, Scorecard], labels: dict[Path, str]) -> list[Sheet]:
    """Table 2 and Figure 5 of the functions benchmark."""
    named = {labels[run]: card for run, card in cards.items()}
    results = _sheet("2", "success rates", named, find.table_2, find.TABLE_2, source=find.SOURCE)
    by_kind = [(labels[run], _source(card), find.figure_5(run, card)) for run, card in cards.items()]
    columns = tuple(dict.fromkeys(column for _, _, row in by_kind for column in row))
    published_rows = [(name, f"{find.SOURCE}. {find.UNNUMBERED}", {}) for name in find.TABLE_2]
    return [
        replace(results, id="FIND Table 2", scale="numeric and code: share right; others: unit tests, chance 0.33"),
        Sheet(FIGURE_5, "success by kind of function", columns, (*by_kind, *published_rows), scale="means"),
    ]


def circuit_sheets(cards: dict[str, Scorecard]) -> list[Sheet]:
    """Tables 2 and 9 to 11 and Figures 3 and 4 of the circuits benchmark, with runs by their labels."""
    return [
        _sheet("2", "results", cards, _results, published.TABLE_2),
        _sheet("9", "grounding of hypotheses", cards, _grounding, published.TABLE_9, scale="0 to 2; shares of 2 and 1"),
        _sheet("10", "soundness of validation plans", cards, _soundness, published.TABLE_10, scale="0 to 2"),
        _sheet("11", "tokens and dollars", cards, _spending, published.TABLE_11, scale="the scientist's, no judges"),
        _picture("Figure 3", "failed executions by category", cards, lambda card: card.execution_errors),
        _picture(
            "Figure 4",
            "components by the iteration that resolved them",
            cards,
            lambda card: card.convergence_by_iteration,
        ),
    ]


def _card(directory: Path) -> Scorecard:
    read_run(directory)
    card = read_scorecard(directory)
    if card.benchmark not in (BENCHMARK, FUNCTIONS):
        raise BadInput(f"{directory}: a run of {card.benchmark!r}; the tables are for circuits and functions")
    return card


def run_label(directory: Path, all_of_them: Sequence[Path]) -> str:
    """The directory's name, or its whole path where two runs share the name."""
    name = directory.resolve().name
    alone = sum(other.resolve().name == name for other in all_of_them) == 1
    return name if alone else str(directory)


def _sheet(
    number: str,
    title: str,
    cards: dict[str, Scorecard],
    figures: Callable[[Scorecard], Row],
    theirs: dict[str, Row],
    *,
    scale: str = "",
    source: str = SOURCE,
) -> Sheet:
    ours = [(name, _source(card), figures(card)) for name, card in cards.items()]
    columns = tuple(dict.fromkeys(column for row in (*theirs.values(), *(row for *_, row in ours)) for column in row))
    rows = [*ours, *((name, source, row) for name, row in theirs.items())]
    return Sheet(f"Table {number}", title, columns, tuple(rows), scale)


def _picture(id: str, title: str, cards: dict[str, Scorecard], metrics: Metrics) -> Sheet:
    ours = [(run, _source(card), _shares(metrics(card) or {})) for run, card in cards.items()]
    columns = tuple(dict.fromkeys(column for _, _, row in ours for column in row))
    rows = [*ours, *((backbone, f"{SOURCE}. {UNNUMBERED}", {}) for backbone in published.TABLE_2)]
    return Sheet(id, title, columns, tuple(rows), scale="shares")


def _source(card: Scorecard) -> str:
    interpreter = card.subject if card.backbone and card.benchmark == FUNCTIONS else None
    words = [card.backbone or card.subject, interpreter, card.protocol, card.access, *_conditions(card)]
    return f"measured: {', '.join(filter(None, words))}, n = {card.n}, n_error = {card.n_error}"


def _conditions(card: Scorecard) -> Iterator[str]:
    """What makes a run other than the reported one: other circuits or functions, or another who answers them."""
    options = {} if card.request is None else card.request.options
    for name, words in (("specimens", "circuits of"), ("dataset", "functions of")):
        if options.get(name):
            yield f"{words} {Path(str(options[name])).name}"
    if options.get("mode") not in (None, "fixed"):
        yield f"mode {options['mode']}"
    if options.get("function_backbone"):
        yield f"answered by {model_name(str(options['function_backbone']))}"


def _value(card: Scorecard, name: str) -> float | None:
    metric = card.metrics.get(name)
    return None if metric is None else metric.value


def _shares(metrics: Mapping[str, Metric]) -> Row:
    return {name: metric.value for name, metric in metrics.items()}


def _results(card: Scorecard) -> Row:
    return {name: _value(card, name) for name in published.TABLE_2[published.GPT]}


def _grounding(card: Scorecard) -> Row:
    levels = card.grounding_levels or {}
    return {"grounding": _value(card, "grounding"), "fully": levels.get("2"), "partial": levels.get("1")}


def _soundness(card: Scorecard) -> Row:
    return {"plan_soundness": _value(card, "plan_soundness")}


def _spending(card: Scorecard) -> Row:
    used = (card.usage or {}).get("scientist")
    if used is None:
        return {}
    each = None if used.cost is None else used.cost / (card.n + card.n_error)
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cost": used.cost,
        "cost_per_case": each,
    }

"""Runs side by side, in the tables and figures of the paper that published the benchmark, and by what they asked.

A row is a run or a published backbone; what a run did not measure is None. Published rows say so, because they were
measured on other models than ours: they are a point of reference, not a contest.

A run of functions fills the columns of its category and interpreter. An interpreter that FIND has not (the built-in
one, the oracle, one of your own) has a column of its own where those of the paper are headed by interpreters.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.documents.metric import Metric
from vesalius.documents.printed import RunUsage
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.view import Answer, Facts, Section, Sheet, Text, View, Viewable
from vesalius.errors import BadInput
from vesalius.files import mark_of
from vesalius.runs.directory import is_run, read_run, read_scorecard
from vesalius_backbones.runs.usage import model_name, run_usage
from vesalius_bench.circuits.settings import BENCHMARK
from vesalius_bench.papers import published
from vesalius_bench.papers.documents import figure_cell, figure_cells
from vesalius_bench.papers.published import NOT_MEASURED, PAPERS, SOURCE, FigureRow, printed
from vesalius_functions.bench.settings import BENCHMARK as FUNCTIONS

#: A row of a table: its name, its source and its figures.
ComparedRow = tuple[str, str, FigureRow]
FIGURE_5 = "FIND Figure 5"
#: What the kinds of numeric functions are called, in the order of the figure.
KINDS = {"clean": "clean", "noised": "noised", "corrupted": "corrupted", "mlp": "net"}
#: Components that are printed, those that took most input tokens.
MOST_COMPONENTS = 20
#: The columns of calls, and their headings.
CALLS = {
    "calls": "calls",
    "input_tokens": "tokens in",
    "cached_tokens": "cached",
    "output_tokens": "out",
    "cost": "cost",
    "seconds": "seconds",
}


@dataclass(frozen=True)
class ComparedTable:
    """One table: rows of named figures. `scale` says what they mean where a name does not."""

    id: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[ComparedRow, ...]
    scale: str = ""

    def as_data(self) -> dict[str, Any]:
        """The table as JSON."""
        rows = [{"name": name, "source": source, **figures} for name, source, figures in self.rows]
        return {"id": self.id, "title": self.title, "scale": self.scale, "columns": list(self.columns), "rows": rows}

    def measured(self) -> list[ComparedRow]:
        """The rows that were measured here."""
        return [row for row in self.rows if NOT_MEASURED not in row[1]]

    def section(self) -> Section:
        """The table in a view; a star marks what was published."""
        title = f"{self.id}: {self.title}{f' ({self.scale})' if self.scale else ''}"
        if not self.columns:
            return Text(["nothing was counted in these runs"], title=title)
        rows = [
            (f"{name} *" if NOT_MEASURED in source else name, *figure_cells(self.columns, row))
            for name, source, row in self.rows
        ]
        return Sheet(("", *(column.replace("_", " ") for column in self.columns)), rows, title=title, terminal=500)


def beside(
    id: str,
    title: str,
    ours: Sequence[ComparedRow],
    theirs: Mapping[str, FigureRow],
    *,
    scale: str = "",
    source: str = SOURCE,
) -> ComparedTable:
    """Our rows, then the published ones; the columns are those of the paper, then what only ours have."""
    rows = (*ours, *((name, source, row) for name, row in theirs.items()))
    columns = dict.fromkeys(column for row in (*theirs.values(), *(row for *_, row in ours)) for column in row)
    return ComparedTable(id, title, tuple(columns), rows, scale)


@dataclass(frozen=True, repr=False)
class Comparison(Viewable):
    """Runs side by side: the published `tables` for those of the benchmark, and what all of them asked (`usage`). It
    can be read like the list of its tables.
    """

    tables: tuple[ComparedTable, ...]
    usage: tuple[RunUsage, ...]

    def __iter__(self) -> Iterator[ComparedTable]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self.tables)

    def __getitem__(self, place: int) -> ComparedTable:
        return self.tables[place]

    def as_data(self) -> dict[str, Any]:
        """The tables and the calls as JSON."""
        return {"tables": [table.as_data() for table in self.tables], "usage": [one.as_data() for one in self.usage]}

    def view(self) -> View:
        """Every published table with the runs beside it, then the calls of each run by stage and by component."""
        runs = "; ".join(f"{one.run}: {one.total.calls} calls" for one in self.usage)
        stages = [{"run": one.run, **stage.as_data()} for one in self.usage for stage in one.stages]
        measured = dict.fromkeys(f"{name}: {source}" for table in self.tables for name, source, _ in table.measured())
        notes = dict.fromkeys(source for table in self.tables for _, source, _ in table.rows if NOT_MEASURED in source)
        # Of a paper whose figures have no numbers the longer note says that as well.
        last = [note for note in notes if not any(other != note and other.startswith(note) for other in notes)]
        return View(
            "Comparison of runs",
            Answer(f"Comparison of {len(self.usage)} runs in {len(self.tables)} tables"),
            [
                Facts([("", runs)]),
                Sheet.of(stages, title="Calls", terminal=0),
                Text(list(measured)),
                *(table.section() for table in self.tables),
                Text([f"* {note}" for note in last]),
                *(self._calls() if self.usage else []),
            ],
        )

    def _calls(self) -> list[Section]:
        def figures(used: Mapping[str, Any]) -> list[Any]:
            return [figure_cell(name, used[name]) for name in CALLS]

        stages = []
        for one in self.usage:
            stages += [(one.run, stage.stage, *figures(stage.as_data())) for stage in one.stages]
            stages.append((one.run, "all", *figures(one.total.as_data())))
            if one.per_component is not None:
                stages.append((one.run, "per component", *figures(one.per_component)))
        asked = sorted(
            ((run.run, one) for run in self.usage for one in run.components), key=lambda row: -row[1].input_tokens
        )
        parts = [(run, one.case, one.component or "(all)", *figures(one.as_data())) for run, one in asked]
        title, scope = "Calls by stage", "the scientist's, no judges"
        return [
            Sheet(
                ("run", "stage", *CALLS.values()),
                stages,
                title=f"{title} (per component: {scope})",
                terminal=500,
                terminal_only=True,
            ),
            Sheet(
                ("run", "case", "component", *CALLS.values()),
                parts,
                title=f"Calls by component ({scope}), most input tokens first",
                terminal=MOST_COMPONENTS,
            ),
        ]


def compare_runs(directories: Sequence[Path]) -> Comparison:
    """The published tables with finished runs of the circuits and the functions benchmark, and the calls of the runs of
    circuits and of explanations.
    """
    labels = {directory: run_label(directory, directories) for directory in directories}
    cards = {directory: _card(directory) for directory in directories if is_run(directory)}
    of_functions = {labels[directory]: card for directory, card in cards.items() if card.benchmark == FUNCTIONS}
    circuits = {labels[directory]: card for directory, card in cards.items() if card.benchmark != FUNCTIONS}
    usage = tuple(run_usage(path, label=label) for path, label in labels.items() if label not in of_functions)
    tables = circuit_tables(circuits) if circuits else []
    tables += function_tables(of_functions) if of_functions else []
    return Comparison(tuple(tables), usage)


def function_tables(cards: Mapping[str, Scorecard]) -> list[ComparedTable]:
    """Table 2 and Figure 5 of the functions benchmark, with runs by their labels."""
    theirs, source = printed("find", "Table 2").numbers(), PAPERS["find"].not_measured
    rates = [(name, _source(card), _success_rates(card)) for name, card in cards.items()]
    kinds = [(name, _source(card), _by_kind(card)) for name, card in cards.items()]
    scale = "numeric and code: share right; others: unit tests, chance 0.33"
    unnumbered = f"{source}. Figure 5 was published as a picture without numbers."
    pictured: dict[str, FigureRow] = {name: {} for name in theirs}
    return [
        beside("FIND Table 2", "success rates", rates, theirs, scale=scale, source=source),
        beside(FIGURE_5, "success by kind of function", kinds, pictured, scale="means", source=unnumbered),
    ]


def circuit_tables(cards: Mapping[str, Scorecard]) -> list[ComparedTable]:
    """Tables 2 and 9 to 11 and Figures 3 and 4 of the circuits benchmark, with runs by their labels."""

    def ours(figures: Callable[[Scorecard], FigureRow]) -> list[ComparedRow]:
        return [(name, _source(card), figures(card)) for name, card in cards.items()]

    def named(*names: str) -> list[ComparedRow]:
        return ours(lambda card: {name: _value(card, name) for name in names})

    def shares(metrics: Callable[[Scorecard], Mapping[str, Metric] | None]) -> list[ComparedRow]:
        return ours(lambda card: {name: metric.value for name, metric in (metrics(card) or {}).items()})

    marks, tokens = "0 to 2; shares of 2 and 1", "the scientist's, no judges"
    unnumbered = f"{SOURCE}. Figures 3 and 4 were published as pictures without numbers."
    pictured: dict[str, FigureRow] = {name: {} for name in published.TABLE_2}
    errors = shares(lambda card: card.execution_errors)
    resolved = shares(lambda card: card.convergence_by_iteration)
    by_iteration = "components by the iteration that resolved them"
    return [
        beside("Table 2", "results", named(*published.TABLE_2[published.GPT]), published.TABLE_2),
        beside("Table 9", "grounding of hypotheses", ours(_grounding), published.TABLE_9, scale=marks),
        beside(
            "Table 10", "soundness of validation plans", named("plan_soundness"), published.TABLE_10, scale="0 to 2"
        ),
        beside("Table 11", "tokens and dollars", ours(_spending), published.TABLE_11, scale=tokens),
        beside("Figure 3", "failed executions by category", errors, pictured, scale="shares", source=unnumbered),
        beside("Figure 4", by_iteration, resolved, pictured, scale="shares", source=unnumbered),
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


def _source(card: Scorecard) -> str:
    return f"measured: {card.backbone or card.subject}, {card_details(card)}"


def card_details(card: Scorecard) -> str:
    """How a run was made, and on how many cases."""
    interpreter = card.subject if card.backbone and card.benchmark == FUNCTIONS else None
    words = [interpreter, card.protocol, card.access, *_conditions(card), f"n = {card.n}", f"n_error = {card.n_error}"]
    return ", ".join(filter(None, words))


def _conditions(card: Scorecard) -> Iterator[str]:
    """What makes a run other than the reported one: other circuits or functions, or another who answers them."""
    options = {} if card.request is None else card.request.options
    if card.own_prompts:
        yield f"own prompts {mark_of(card.own_prompts)}"
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


def _grounding(card: Scorecard) -> FigureRow:
    levels = card.grounding_levels or {}
    return {"grounding": _value(card, "grounding"), "fully": levels.get("2"), "partial": levels.get("1")}


def _spending(card: Scorecard) -> FigureRow:
    used = (card.usage or {}).get("scientist")
    if used is None:
        return {}
    each = None if used.cost is None else used.cost / (card.n + card.n_error)
    tokens: FigureRow = {"input_tokens": used.input_tokens, "output_tokens": used.output_tokens}
    return {**tokens, "cost": used.cost, "cost_per_case": each}


def _success_rates(card: Scorecard) -> FigureRow:
    """A run's figures under the columns of FIND's Table 2; of other categories than its own there are none. A command
    or a plug-in stands under the first part of its name, which the row's source has whole.
    """
    figures: FigureRow = dict.fromkeys(printed("find", "Table 2").columns)
    if card.category == "numeric":
        figures["numeric"] = _value(card, "success")
    elif card.category == "strings":
        figures |= {"strings_code": _value(card, "exact_match"), "strings_unit_test": _value(card, "unit_test")}
    elif card.category in ("entities", "relations"):
        figures[f"{card.category}_{card.subject.partition(':')[0]}"] = _value(card, "unit_test")
    return figures


def _by_kind(card: Scorecard) -> FigureRow:
    """Means of the deciding figure by kind: clean, noised, corrupted and nets, or the families of other categories."""
    if card.category != "numeric":
        return {name: family.value for name, family in sorted((card.families or {}).items())}
    kinds = card.kinds or {}
    return {name: kinds[kind].get("success") for kind, name in KINDS.items() if kind in kinds}

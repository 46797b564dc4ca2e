"""Black-box functions."""

from typing import Any

from rich.table import Table

from vesalius.cli.console import print_line, stdout
from vesalius_functions.bench.functions import in_words
from vesalius_functions.documents.reliability import Reliability
from vesalius_functions.documents.unit_tests import UnitTests

#: The least reliable functions that are printed.
WORST = 10


def print_functions(rows: list[dict[str, Any]]) -> None:
    """One line per function: what it hides, and a few inputs and outputs."""
    table = Table("id", "family", "truth", "examples", box=None, pad_edge=False)
    for row in rows:
        examples = ", ".join(example["text"] for example in row["examples"][:3])
        table.add_row(row["id"], row["family"], in_words(row["truth"])[:160], examples)
    stdout.print(table, markup=False)


def print_reliability(study: Reliability) -> None:
    """The means of each category with their intervals, and the functions that follow their rule least."""
    table = Table("category", "answered by", "figure", "value", "95 % interval", "n", box=None, pad_edge=False)
    for name, category in study.categories.items():
        for which, metric in category.metrics.items():
            value = "-" if metric.value is None else f"{metric.value:.3f}"
            interval = "-" if metric.low is None or metric.high is None else f"{metric.low:.3f} to {metric.high:.3f}"
            table.add_row(name, category.backbone, which, value, interval, str(metric.n))
    stdout.print(table, markup=False)
    worst = sorted(study.functions, key=lambda row: (row.rate.value or 0.0, row.id))
    worst = [row for row in worst if (row.rate.value or 0.0) < 1][:WORST]
    for row in worst:
        outputs = "" if row.own is None or row.random is None else f", own {row.own:.3f}, random {row.random:.3f}"
        print_line(f"{row.id} {row.name[:80]}: {row.rate.value or 0.0:.2f} of {row.rate.n} right{outputs}")
    if study.selectivity is not None:
        largest = study.selectivity.diagonal_largest
        print_line(f"own words score highest in {largest.figures} of {largest.n} entities")
    for caveat in study.caveats:
        print_line(caveat)
    if study.usage is not None:
        cost = "cost not known" if study.usage.cost is None else f"cost ${study.usage.cost:.2f}"
        print_line(f"{study.usage.calls} calls, {cost}, {study.seconds:.0f} s")


def print_unit_tests(study: UnitTests) -> None:
    """Who got how much right, and how far people and evaluators order the functions alike."""
    table = Table("taker", "task", "accuracy", "95 % interval", "functions", "tests", box=None, pad_edge=False)
    for taker in study.takers:
        metric = taker.accuracy
        interval = "-" if metric.low is None or metric.high is None else f"{metric.low:.3f} to {metric.high:.3f}"
        row = [f"{taker.name} ({taker.kind})", taker.task, f"{metric.value:.3f}", interval, str(metric.n)]
        table.add_row(*row, str(taker.n_tests))
    stdout.print(table, markup=False)
    for one in study.correlations:
        value = "not defined" if one.rho is None else f"{one.rho:.3f} [{one.low:.3f}, {one.high:.3f}], p {one.p:.2g}"
        print_line(f"Spearman of people and {one.evaluator}, {one.task}: {value}, n {one.n}")

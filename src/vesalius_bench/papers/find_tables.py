"""Functions runs in Table 2 and Figure 5 of the paper that published the benchmark.

A run fills the columns of its category and interpreter. An interpreter that the paper has not (the built-in one, the
oracle, one of your own) has a column of its own where those of the paper are headed by interpreters. Figure 5 was
published as a picture, so its published rows are empty; ours are means of the deciding figure over the functions of
each kind.
"""

from collections.abc import Mapping
from pathlib import Path

from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.runs.directory import EXPLANATIONS, document_or_none
from vesalius.runs.scorecard import mean
from vesalius_bench.papers.published import NOT_MEASURED, Row, printed
from vesalius_functions.bench.scorecard import deciding
from vesalius_functions.bench.work import Graded, Interpreted

SOURCE = f"FIND paper (arXiv 2309.03886); {NOT_MEASURED}"
UNNUMBERED = "Figure 5 was published as a picture without numbers."
TABLE_2: dict[str, Row] = printed("find", "Table 2").numbers()
COLUMNS = printed("find", "Table 2").columns
#: What the kinds of numeric functions are called, in the order of the figure.
KINDS = {"clean": "clean", "noised": "noised", "corrupted": "corrupted", "mlp": "net"}


def table_2(card: Scorecard) -> Row:
    """A run's figures under the columns of Table 2; of other categories than its own there are none. A command or a
    plug-in stands under the first part of its name, which the row's source has whole.
    """
    figures: Row = dict.fromkeys(COLUMNS)
    if card.category == "numeric":
        figures["numeric"] = _value(card, "success")
    elif card.category == "strings":
        figures |= {"strings_code": _value(card, "exact_match"), "strings_unit_test": _value(card, "unit_test")}
    elif card.category in ("entities", "relations"):
        figures[f"{card.category}_{card.subject.partition(':')[0]}"] = _value(card, "unit_test")
    return figures


def figure_5(run: Path, card: Scorecard) -> Row:
    """Means of the deciding figure by kind: clean, noised, corrupted and nets, or the families of other categories."""
    if card.category != "numeric":
        return {name: family.value for name, family in sorted((card.families or {}).items())}
    values: dict[str, list[float]] = {}
    for path in sorted((run / "grades").glob("*.json")):
        grade = document_or_none(Graded, path)
        answer = document_or_none(Interpreted, run / EXPLANATIONS / path.name)
        if grade is None or answer is None:
            raise BadInput(f"{path}: it or its answer is damaged; `vesalius bench functions` again makes it new")
        decision = deciding(dict(grade.metrics))
        if decision is not None:
            values.setdefault(KINDS.get(str(answer.truth.get("kind")), "other"), []).append(decision[1])
    return {name: mean(values[name]) for name in (*KINDS.values(), "other") if name in values}


def _value(card: Scorecard, name: str) -> float | None:
    metrics: Mapping = card.metrics
    return None if name not in metrics else metrics[name].value

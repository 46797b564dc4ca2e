"""HyVE (arXiv 2606.24026): Tables 1 to 14, Figures 3 and 4.

Tables 2 and 9 to 11 and both figures are filled by runs of the circuits benchmark, Tables 4 and 12 to 14 by studies of
addition, Tables 6 to 8 by ratings. Tables 1 and 5 describe the benchmark; ours are counted in its key.
"""

from collections.abc import Callable, Iterator

from vesalius.components import Component
from vesalius.discovery.known_heads import LLAMA_3_8B
from vesalius.documents.trace import TRACE_FILE, Attempt, Trace
from vesalius.documents.view import shortened
from vesalius.explanations.hyve.prompting import TAXONOMY
from vesalius.grading.key_check import key_statistics
from vesalius.runs.directory import EXPLANATIONS, TRACES, document_or_none
from vesalius_bench.papers.comparison import circuit_sheets
from vesalius_bench.papers.documents import Cell, PaperRow
from vesalius_bench.papers.entries import Entry, PaperTables, Rows, from_code, measured_rows, one_column
from vesalius_bench.papers.published import printed
from vesalius_bench.papers.sources import Result, Sources
from vesalius_bench.ratings.agreement import judged_circuits, rating_sheets
from vesalius_bench.study.documents import COLUMNS, ComponentEvidence, Study
from vesalius_bench.study.run import folder_of

LONGEST = 90
AGENT = "vesalius bench circuits --scientist hyve --protocol paper --backbone P:M --max-cost DOLLARS"
JUDGED = f"{AGENT} --judge P:M --judge P:M"
STUDY = "vesalius study af1 --model MODEL"
PEOPLE = "vesalius open RUN... --annotate, then vesalius ratings FILE... --run RUN --out DIR"
OWN_CIRCUITS = "84 circuits of the same tasks, trained here; prompts in our words"
NO_NUMBERS = "published as a picture without numbers; ours are shares"
#: Scores of a judge in words.
GROUNDED = {2: "fully", 1: "partially", 0: "not"}
SOUND = {2: "sound", 1: "partially", 0: "not"}


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
    return from_code([(name, {"count": count}) for name, count in counts.items()])


def _taxonomy(_: Sources) -> list[PaperRow]:
    """Table 5: the kinds of component and the RASP expressions that each tag has in our key."""
    tags = key_statistics().tags
    return from_code(
        [
            (
                tag,
                {
                    "type": ", ".join(tags[tag].kinds),
                    "primitive": ", ".join(f"{name} {count}" for name, count in tags[tag].expressions.most_common()),
                    "meaning": meaning,
                },
            )
            for tag, meaning in TAXONOMY.items()
        ]
    )


def _of_circuits(id: str) -> Rows:
    return lambda sources: measured_rows(circuit_sheets(sources.documents("circuits")), id)


def _of_ratings(id: str) -> Rows:
    def rows(sources: Sources) -> list[PaperRow]:
        return [
            row.model_copy(update={"source": f"{label}: {row.source}"})
            for label, ratings in sources.documents("ratings").items()
            for row in measured_rows(rating_sheets(ratings), id)
        ]

    return rows


def _examples(sources: Sources) -> list[PaperRow]:
    """Table 3: of each run, the first hypothesis that judges found fully, partially and not grounded."""
    judged = [result for result in sources.of("circuits") if result.document.judges]
    return [row for result in judged for row in _examples_of(result)]


def _examples_of(result: Result) -> Iterator[PaperRow]:
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
            values={f"iteration_{attempt.iteration}": _attempt(attempt) for attempt in part.attempts},
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


def _attempt(attempt: Attempt) -> str:
    return f"{attempt.verdict}: {_short(attempt.hypothesis)}"


def _short(text: str) -> str:
    return shortened(" ".join(text.split()), LONGEST)


def _evidence(belongs: Callable[[str, Study], bool]) -> Rows:
    """Tables 13 and 14: what interventions say about the components of each study."""

    def rows(sources: Sources) -> list[PaperRow]:
        return [
            one_column(f"{one.component}: {name}", f"measured: {label}, {study.model}, n = {study.evidence.n}", value)
            for label, study in sources.documents("study").items()
            for one in study.evidence.components
            if belongs(one.component, study)
            for name, value in _figures(one)
        ]

    return rows


def _figures(one: ComponentEvidence) -> Iterator[tuple[str, float]]:
    """The figures of a component under the names of the published rows."""
    yield from ((f"attention to {_operand(role)}", value) for role, value in one.attention.items())
    yield "accuracy without it", one.zeroed
    yield from ((f"accuracy without its edge to {_operand(role)}", value) for role, value in one.cut.items())
    yield from ((f"answers switched by another {_operand(role)}", value) for role, value in one.switched.items())
    if one.once_others_zeroed is not None:
        before, after = one.once_others_zeroed
        others = " and ".join(one.others)
        yield f"accuracy without {others}", before
        yield f"accuracy without {others} and it", after
    yield "answer in the lens top 5", one.lens_top_5


def _operand(role: str) -> str:
    return role.removeprefix("operand ")


def _is_late(component: str, study: Study) -> bool:
    """Whether Table 14 has it: MLPs, and the two late heads of Llama-3-8B."""
    if study.recognised_as == LLAMA_3_8B:
        published = {name.partition(":")[0] for name in printed("hyve", "Table 14").rows}
        return component in published
    return not Component.parse(component).is_head


def _is_transfer(component: str, study: Study) -> bool:
    return not _is_late(component, study)


_BY_PEOPLE = "needs ratings by people; rate with `vesalius open RUN... --annotate`, then `vesalius ratings --out DIR`"

TABLES = PaperTables(
    "hyve",
    "HyVE paper (arXiv 2606.24026)",
    (
        Entry("Table 1", "statistics of the benchmark", (), "vesalius paper hyve --table 1", OWN_CIRCUITS, _statistics),
        Entry(
            "Table 2",
            "results by backbone",
            ("circuits",),
            f"{JUDGED}; without a language model: vesalius bench circuits",
            f"{OWN_CIRCUITS}; the built-in scientist writes no code and asks no judge",
            _of_circuits("Table 2"),
            "circuits",
        ),
        Entry(
            "Table 3",
            "examples of grounding and of validation plans",
            ("circuits",),
            JUDGED,
            "marks are those of judges, not of people",
            _examples,
            "judged",
        ),
        Entry(
            "Table 4",
            "role descriptions of the AF1 circuit, rated",
            ("study",),
            f"{STUDY} --backbone P:M --ratings FILE (or --judge P:M)",
            "any model that adds; reference roles of Llama-3-8B and `arithmetic`, or --roles FILE",
            _rated_roles,
            by_hand="needs ratings: `vesalius study af1 --model MODEL --ratings FILE`, or `--judge P:M`",
        ),
        Entry(
            "Table 5",
            "the five tags",
            (),
            "vesalius paper hyve --table 5",
            "tags follow from the RASP program by rule; the RASP expressions behind each are counted in our key",
            _taxonomy,
        ),
        Entry(
            "Table 6",
            "agreement of people and judges, two backbones",
            ("ratings",),
            PEOPLE,
            "your raters and runs",
            _of_ratings("Table 6"),
            by_hand=_BY_PEOPLE,
        ),
        Entry(
            "Table 7",
            "agreement of people and judges, four backbones",
            ("ratings",),
            PEOPLE,
            "your raters and runs",
            _of_ratings("Table 7"),
            by_hand=_BY_PEOPLE,
        ),
        Entry(
            "Table 8",
            "agreement of each person with each judge",
            ("ratings",),
            PEOPLE,
            "your raters and judges",
            _of_ratings("Table 8"),
            by_hand=_BY_PEOPLE,
        ),
        Entry(
            "Table 9",
            "grounding of hypotheses",
            ("circuits",),
            JUDGED,
            "scored by judges on all components, not by a person on 17",
            _of_circuits("Table 9"),
            "judged",
        ),
        Entry(
            "Table 10",
            "soundness of validation plans",
            ("circuits",),
            JUDGED,
            OWN_CIRCUITS,
            _of_circuits("Table 10"),
            "judged",
        ),
        Entry("Table 11", "tokens and dollars", ("circuits",), AGENT, OWN_CIRCUITS, _of_circuits("Table 11"), "agent"),
        Entry(
            "Table 12",
            "hypotheses about two AF1 heads, iteration by iteration",
            ("study", "explanation"),
            f"{STUDY} --backbone P:M --protocol paper",
            "every component of your model; hypotheses as the language model wrote them",
            _traces,
            "study agent",
        ),
        Entry(
            "Table 13",
            "evidence on the AF1 transfer heads",
            ("study",),
            STUDY,
            "all heads of your model's circuit; the margin of logits is not measured",
            _evidence(_is_transfer),
            "study",
        ),
        Entry(
            "Table 14",
            "evidence on the late AF1 components",
            ("study",),
            STUDY,
            "MLPs of your model's circuit; CAMA ablation, cosines and single logits are not measured",
            _evidence(_is_late),
            "study",
        ),
        Entry(
            "Figure 3",
            "failed executions by category",
            ("circuits",),
            AGENT,
            NO_NUMBERS,
            _of_circuits("Figure 3"),
            "agent",
        ),
        Entry(
            "Figure 4",
            "components by the iteration that resolved them",
            ("circuits",),
            AGENT,
            NO_NUMBERS,
            _of_circuits("Figure 4"),
            "agent",
        ),
    ),
)

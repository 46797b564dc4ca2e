"""Are the roles right? Tags of an explanation against the answer key, beside the honest baseline.

The baseline needs no experiment: every head AGGREGATOR, every MLP MAPPER. It is right for 104 of the 163 benchmark
components, so a tag accuracy means something only above 0.64.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from vesalius.components import Component
from vesalius.documents.explanation import ComponentExplanation, Executable, Explanation, Tag
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.rasp.document import from_document, to_document

#: Per component: the true tag, the given ones, the verdict and the guess by kind.
TagRow = dict[str, str]


def guess_by_kind(component: str) -> Tag:
    """The tag that is likeliest before any experiment."""
    return "AGGREGATOR" if Component.parse(component).is_head else "MAPPER"


def tag_rows(
    explanation: Explanation, truth: Mapping[str, str], second: Mapping[str, str] | None = None
) -> dict[str, TagRow]:
    """Given and true tag of each component of the key; a component that is not explained has no tag, and no tag is
    wrong. `second` is the other tag of those of which the published rule allows two readings.
    """
    explained = {part.id: part for part in explanation.components}
    rows: dict[str, TagRow] = {}
    for component, tag in truth.items():
        own = explained.get(component)
        rows[component] = {
            "true": tag,
            "tag": (own.tag or "") if own else "",
            "by_experiment": (own.tag_by_experiment or "") if own else "",
            "by_model": (own.tag_by_model or "") if own else "",
            "verdict": own.verdict if own else "untested",
            "guess": guess_by_kind(component),
        }
        if second is not None:
            rows[component]["second"] = second.get(component, "")
    return rows


def tag_metrics(circuits: Sequence[Sequence[TagRow]]) -> dict[str, Metric]:
    """Tag accuracies over circuits: overall, by experiment alone, among supported components, with both readings taken
    as right where the published rule allows two and without such components, by the language model where one chose
    tags, and tag by tag.
    """
    made = {
        "tag_accuracy": _accuracy(circuits, "tag"),
        "tag_accuracy_experiment_only": _accuracy(circuits, "by_experiment"),
        "tag_accuracy_supported": _accuracy(circuits, "tag", where=lambda row: row["verdict"] == "supported"),
    }
    if any("second" in row for circuit in circuits for row in circuit):
        made["tag_accuracy_either_reading"] = _accuracy(circuits, "tag", also="second")
        made["tag_accuracy_one_reading"] = _accuracy(circuits, "tag", where=lambda row: not row.get("second"))
    if any(row.get("by_model") for circuit in circuits for row in circuit):
        made["tag_accuracy_by_model"] = _accuracy(circuits, "by_model")
    for tag in get_args(Tag):
        metric = _accuracy(circuits, "tag", where=lambda row, tag=tag: row["true"] == tag)
        if metric.n:
            made[f"tag_accuracy_{tag}"] = metric
    return made


def always(tag: Tag, circuits: Sequence[Sequence[TagRow]]) -> float:
    """The accuracy of giving every component the same tag."""
    rows = [row for circuit in circuits for row in circuit]
    return sum(row["true"] == tag for row in rows) / len(rows) if rows else 0.0


def _accuracy(
    circuits: Sequence[Sequence[TagRow]],
    column: str,
    *,
    where: Callable[[TagRow], bool] = lambda row: True,
    also: str | None = None,
) -> Metric:
    chosen = [[row for row in circuit if where(row)] for circuit in circuits]

    def right(column: str) -> list[int]:
        return [sum(_is_right(row, column, also) for row in rows) for rows in chosen]

    counts = [len(rows) for rows in chosen]
    baseline = sum(right("guess")) / sum(counts) if sum(counts) else None
    return Metric.of_circuits(right(column), counts, baseline=baseline)


def _is_right(row: TagRow, column: str, also: str | None) -> bool:
    given = row.get(column, "")
    return given != "" and given in (row["true"], row.get(also, "") if also else row["true"])


# Explanations that must not earn credit, graded by the same path as everybody's.

NULLS = ("shuffled", "mixed", "empty", "generic")
GENERIC = "It attends to the relevant tokens, transforms the information and passes it on to later layers."
_OPPOSITE = {
    "EQ": "NEQ",
    "NEQ": "EQ",
    "LT": "GEQ",
    "GEQ": "LT",
    "LEQ": "GT",
    "GT": "LEQ",
    "TRUE": "FALSE",
    "FALSE": "TRUE",
}


def mixed(explanation: Explanation, *, donor: Explanation | None, seed: int = 0) -> Explanation:
    """The explanation with its components mixed up; `donor` serves circuits of one component (see `donor_of`)."""
    if len(explanation.components) > 1:
        return _rotated(explanation, random.Random(f"{seed}/{explanation.specimen}"))
    executable = explanation.executable
    if donor is not None:
        parts = donor.components
        executable = donor.executable
    else:
        parts = tuple(_tagged(part, _next_tag(part.tag), _next_tag(part.tag)) for part in explanation.components)
        executable = turned_wrong(executable)
    return explanation.model_copy(update={"components": parts, "executable": executable})


def empty(explanation: Explanation) -> Explanation:
    """An explanation of the same specimen that says nothing."""
    nothing = {"components": (), "information_flow": "", "edges": (), "task_description": "", "program": None}
    return explanation.model_copy(update={**nothing, "executable": None, "program_agreement": None})


def generic(explanation: Explanation) -> Explanation:
    """An explanation that would fit any specimen."""
    parts = tuple(
        ComponentExplanation(
            id=part.id,
            tag=guess_by_kind(part.id),
            tag_by_experiment=guess_by_kind(part.id),
            note=f"{part.id}: {GENERIC}",
            verdict="untested",
        )
        for part in explanation.components
    )
    said = {"components": parts, "information_flow": GENERIC, "task_description": GENERIC}
    return empty(explanation).model_copy(update=said)


def donor_of(explanation: Explanation, pool: Sequence[Explanation]) -> Explanation | None:
    """The next explanation in the pool whose program has the same vocabulary and components and computes otherwise."""
    own = explanation.executable
    if own is None or len(explanation.components) != 1:
        return None
    place = next((i for i, other in enumerate(pool) if other is explanation), -1)
    for other in [*pool[place + 1 :], *pool[: max(place, 0)]]:
        theirs = other.executable
        if theirs and _shape(theirs) == _shape(own) and _computation(theirs) != _computation(own):
            return other
    return None


def _rotated(explanation: Explanation, rng: random.Random) -> Explanation:
    """Every component takes what another one carries, and its tags."""
    parts = list(explanation.components)
    order = rng.sample(range(len(parts)), len(parts))
    giver = {taker: parts[place] for taker, place in zip(order, [*order[1:], order[0]], strict=True)}
    mixed = tuple(_tagged(part, giver[i].tag, giver[i].tag_by_experiment) for i, part in enumerate(parts))
    executable = explanation.executable
    if executable is not None:
        carriers = {part.id: executable.carriers.get(giver[i].id, ()) for i, part in enumerate(parts)}
        executable = Executable(program=executable.program, carriers=carriers)
    return explanation.model_copy(update={"components": mixed, "executable": executable})


def _tagged(part: ComponentExplanation, tag: Tag | None, by_experiment: Tag | None) -> ComponentExplanation:
    return part.model_copy(update={"tag": tag, "tag_by_experiment": by_experiment})


def _next_tag(tag: Tag | None) -> Tag | None:
    if tag is None:
        return None
    tags: tuple[Tag, ...] = get_args(Tag)
    return tags[(tags.index(tag) + 1) % len(tags)]


def _shape(executable: Executable) -> tuple[Any, ...]:
    program = executable.program
    return *(program.get(field) for field in ("vocab", "max_len", "causal")), sorted(executable.carriers)


def _computation(executable: Executable) -> list[Any]:
    """What a program computes, variables by place instead of name; nothing where it cannot be read."""
    try:
        variables = to_document(from_document(executable.program))["variables"]
    except BadInput:
        return []
    place = {entry["name"]: i for i, entry in enumerate(variables)}
    return [{**entry, "name": i, "of": [place.get(of, of) for of in entry["of"]]} for i, entry in enumerate(variables)]


def turned_wrong(executable: Executable | None) -> Executable | None:
    """The program with the results of every table moved on by one and every selection reversed; None if that is no
    program.
    """
    if executable is None:
        return None
    try:
        document = to_document(from_document(executable.program))
        wrong = {**document, "variables": [_wrong(entry) for entry in document["variables"]]}
        from_document(wrong)
    except BadInput:
        return None
    return Executable(program=wrong, carriers=executable.carriers)


def _wrong(entry: dict[str, Any]) -> dict[str, Any]:
    if "table" in entry:
        results: list[Any] = []
        for row in entry["table"]:
            if row[-1] not in results:
                results.append(row[-1])
        moved = [[*row[:-1], results[(results.index(row[-1]) + 1) % len(results)]] for row in entry["table"]]
        return {**entry, "table": moved}
    if "comparison" in entry:
        return {**entry, "comparison": _OPPOSITE[entry["comparison"]]}
    return {**entry, "factors": [-factor for factor in entry["factors"]]} if "factors" in entry else entry


def null_explanation(kind: str, specimen: str, components: Sequence[str], *, seed: int = 0) -> Explanation:
    """An explanation by rote: `empty`, `by-kind`, or `always-TAG`; those that say something call it supported."""
    tags: dict[str, Tag] = {part: guess_by_kind(part) for part in components}
    if kind.startswith("always-"):
        tags = dict.fromkeys(components, cast(Tag, kind.removeprefix("always-")))
    parts = tuple(
        ComponentExplanation(id=part, tag=tag, tag_by_experiment=tag, note=f"{part}: {GENERIC}", verdict="supported")
        for part, tag in tags.items()
    )
    said = "" if kind == "empty" else GENERIC
    return Explanation(
        specimen=specimen,
        scientist=kind,
        components=() if kind == "empty" else parts,
        information_flow=said,
        task_description=said,
        seconds=0.0,
        seed=seed,
    )


#: What `null_explanation` makes.
NULL_SCIENTISTS = ("empty", "by-kind", *(f"always-{tag}" for tag in get_args(Tag)))

"""Reference roles of components of natural models, and role descriptions rated against them.

| model        | reference roles                                                                        |
|--------------|----------------------------------------------------------------------------------------|
| Llama-3-8B   | the ten components of the AF1 circuit, annotated by hand in the HyVE paper             |
| `arithmetic` | every component, established by exhaustive interventions on sets                       |
| any          | a file of the caller's: CSV with `component` and `role`, or a JSON object of the two   |

People rate by majority, judges by the lowest score of all; both score 0 (wrong), 1 (partial) or 2 (correct).
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput, choices
from vesalius.files import parse_json
from vesalius_bench.judges.circuit import JudgedCircuit, judge_explanation
from vesalius_bench.judges.judge import Judge, Judgement
from vesalius_bench.ratings.reading import LEAST_RATERS, Rating, majority, read_csv_or_json, votes
from vesalius_truth.grading.keys import ReferenceRoles, ReferenceTexts

MEASURE = "description_quality"


@dataclass(frozen=True)
class RatedText:
    """The score of one role description; without one, `unrated` says why. `votes` are the scores by rater or judge."""

    score: int | None
    unrated: str = ""
    votes: Mapping[str, int] | None = None


def read_roles(path: Path | str, *, task: str) -> ReferenceRoles:
    """Reference roles from a .csv or .json file; the first slip is refused in one line."""
    file, text = read_csv_or_json(path, "roles")
    roles: dict[str, str] = {}
    for name, role in _csv_roles(text, file) if file.suffix.lower() == ".csv" else _json_roles(text, file):
        try:
            component = str(Component.parse(name))
        except BadInput as error:
            raise BadInput(f"roles {file}: {error}") from None
        if not isinstance(role, str) or not role.strip():
            raise BadInput(f"roles {file}: {component} has no role; write what it does")
        if component in roles:
            raise BadInput(f"roles {file}: {component} is there twice; keep one")
        roles[component] = role.strip()
    if not roles:
        raise BadInput(f"roles {file}: holds no roles; expected rows with component, role")
    return ReferenceRoles(str(file), task, roles)


def _csv_roles(text: str, file: Path) -> list[tuple[str, object]]:
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if not {"component", "role"} <= set(reader.fieldnames or ()):
            raise BadInput(f"roles {file}, header: lacks component or role; the fields are component, role")
        return [(row["component"] or "", row["role"]) for row in reader]
    except csv.Error as error:
        raise BadInput(f"roles {file}, row {reader.line_num}: is not CSV ({error}); fix its quotes") from None


def _json_roles(text: str, file: Path) -> list[tuple[str, object]]:
    data = parse_json(text, source=f"roles {file}", unique=True)
    if not isinstance(data, dict):
        raise BadInput(f'roles {file}: is not an object; give {{"L1H2": "what it does", ...}}')
    return list(data.items())


def rated_by_people(
    ratings: Sequence[Rating], specimen: str, explainers: Mapping[str, Iterable[str]]
) -> dict[str, dict[str, RatedText]]:
    """The majority of the raters for every explainer and component; `explainers` has the components of each.

    Ratings that are of nothing in the study are refused: a slip in a name would otherwise leave out a vote.
    """
    several = {name: list(components) for name, components in explainers.items()}
    ours = [_named(rating, specimen, several) for rating in ratings if rating.measure == MEASURE]
    if not ours:
        raise BadInput(f"ratings: none of {len(ratings)} is of {MEASURE}, the measure of role descriptions")
    given = {(item.explainer, item.component): scores for item, scores in votes(ours).items()}
    return {
        name: {component: _majority(given.get((name, component), {})) for component in components}
        for name, components in several.items()
    }


def _named(rating: Rating, specimen: str, explainers: Mapping[str, list[str]]) -> Rating:
    """A rating with its explainer, if it is of something in the study."""
    whose = rating.explainer or (next(iter(explainers)) if len(explainers) == 1 else "")
    if rating.specimen != specimen:
        raise BadInput(f"ratings: specimen {rating.specimen!r} is not the one of this study; write {specimen!r}")
    if whose not in explainers:
        problem = f"explainer {whose!r} is not in this study" if whose else "the explainer is left out"
        raise BadInput(f"ratings: {problem}; write {choices(explainers)}")
    if rating.component not in explainers[whose]:
        raise BadInput(
            f"ratings: component {rating.component} is not in the circuit of this study; it has "
            f"{choices(explainers[whose])}"
        )
    return rating.model_copy(update={"explainer": whose})


def _majority(scores: Mapping[str, int]) -> RatedText:
    score = majority(list(scores.values()))
    if score is not None:
        return RatedText(score, votes=scores)
    few = len(scores) < LEAST_RATERS
    reason = f"{len(scores)} of {LEAST_RATERS} raters" if few else "no majority of the raters"
    return RatedText(None, reason, scores)


def rated_by_judges(
    explanation: Explanation, components: Iterable[str], references: ReferenceRoles, judges: Sequence[Judge]
) -> tuple[dict[str, RatedText], JudgedCircuit]:
    """The lowest score of the judges for every component that has a reference role, and all they said; where an
    explanation says nothing the score is 0.
    """
    notes = {name: references.roles[name] for name in components if name in references.roles}
    judged = judge_explanation(explanation, judges=judges, truth=ReferenceTexts(references.task, notes))
    rated = {
        item.component: RatedText(
            item.score,
            "" if item.score is not None else f"a judge failed: {item.error}",
            _seats(item.judgements),
        )
        for item in judged.items
        if item.measure == MEASURE
    }
    return rated, judged


def _seats(judgements: Sequence[Judgement]) -> dict[str, int]:
    """The scores by judge; a second judge of the same name has its number."""
    seats: dict[str, int] = {}
    for number, one in enumerate(judgements, 1):
        if one.score is not None:
            seats[one.judge if one.judge not in seats else f"{one.judge} ({number})"] = one.score
    return seats

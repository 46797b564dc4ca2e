"""Small results of every kind that the tables of the papers read, made by hand or by scripted models."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.runs.models import perform, settings
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.study import (
    CircuitEvidence,
    ComponentEvidence,
    Localisation,
    StudiedExplainer,
    StudiedRole,
    Study,
    StudyRow,
)
from vesalius.grading.rating_report import rating_report
from vesalius.grading.ratings import Rating

RECORDED = Path(__file__).parents[2] / "examples" / "recorded" / "paper"


def write_run(place: Path, name: str, **card: Any) -> Path:
    """A finished run of a benchmark with this scorecard."""
    directory = place / name
    directory.mkdir(parents=True)
    fields = {"benchmark": "circuits", "subject": "builtin", "n": 2, "n_error": 0, "metrics": {}, "seed": 0}
    fields |= {"cost": 0.0, "seconds": 1.0, "schema": 2, **card}
    (directory / "run.json").write_text(json.dumps({"schema": 1, "settings": {"benchmark": fields["benchmark"]}}))
    (directory / "scorecard.json").write_text(json.dumps(fields))
    return directory


def metric(value: float) -> dict[str, Any]:
    """A figure of a scorecard."""
    return {"value": value, "low": None, "high": None, "n": 4}


def write_judged_run(place: Path) -> Path:
    """A run of a stand-in agent with two judges, who give 1 to everything."""
    place.mkdir(parents=True, exist_ok=True)
    perform(place / "judged", settings(place, cases=1, judges=2))
    return place / "judged"


def write_study(place: Path) -> Path:
    """A study of one head and one MLP, of which one role was rated."""
    evidence = [
        ComponentEvidence(
            component=name,
            zeroed=zeroed,
            attention={"operand A": 0.75} if name == "L0H1" else {},
            cut={"operand A": 0.25} if name == "L0H1" else {},
            switched={"operand A": 0.5},
            lens_answer=0.0,
            lens_top_5=0.125,
            others=("L0H2",) if name == "L0H1" else (),
            once_others_zeroed=(0.875, 0.0625) if name == "L0H1" else None,
        )
        for name, zeroed in (("L0H1", 0.375), ("L1_MLP", 0.625))
    ]
    roles = [
        StudiedRole(component="L0H1", role="mover of A", note="Moves A.", verdict="supported", rating="correct"),
        StudiedRole(component="L1_MLP", role=None, note="Adds.", verdict="supported", unrated="no reference"),
    ]
    builtin = StudiedExplainer(
        name="builtin",
        scientist="builtin",
        backbone=None,
        protocol=None,
        roles=tuple(roles),
        cost=0.0,
        seconds=1.0,
        directory="explanations/builtin",
    )
    row = StudyRow(
        agent="GPT-5.4", source="published", model="Llama-3-8B", n=10, correct=6, partial=3, wrong=1, not_rated=0
    )
    study = Study(
        request=Request(command="study af1", options={"model": "tiny"}),
        model="tiny",
        behaviour="addition",
        performance=Performance(
            accuracy=1.0,
            accuracy_low=0.9,
            accuracy_high=1.0,
            logit_difference=2.0,
            ld_low=1.5,
            ld_high=2.5,
            top1=1.0,
            n=8,
            performs=True,
        ),
        localisation=Localisation(source="given", how="named", components=("L0H1", "L1_MLP")),
        evidence=CircuitEvidence(n=8, components=tuple(evidence)),
        explainers=(builtin,),
        published=(row,),
        published_in="the paper",
    )
    return study.save(place / "study").parent


def write_ratings(place: Path) -> Path:
    """Ratings of four texts by two people who disagree about one."""
    scores = {"alice": (2, 1, 0, 2), "bob": (2, 1, 1, 2)}
    given = [
        Rating(specimen="3", component=f"L{place_}_MLP", rater=rater, measure="description_quality", score=score)
        for rater, row in scores.items()
        for place_, score in enumerate(row)
    ]
    directory = place / "ratings"
    directory.mkdir(parents=True)
    report = rating_report(given, {})
    pair = report.pairs[0]
    judge = pair.model_copy(update={"b": "judge one", "kind": "human-judge", "kappa": 0.5})
    report.model_copy(update={"pairs": (*report.pairs, judge)}).write(directory / "ratings.json")
    return directory


def write_trace(place: Path) -> Path:
    """The recorded explanation of an agent."""
    return Path(shutil.copytree(RECORDED, place / "explained"))

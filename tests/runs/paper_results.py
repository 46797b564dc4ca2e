"""Small results of every kind that the tables of the papers read, made by hand or by scripted models."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.functions.fakes import Line
from tests.runs.models import perform, settings
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius_backbones import Scripted, open_backbone
from vesalius_bench.ratings.agreement import rating_report
from vesalius_bench.ratings.reading import Rating
from vesalius_bench.study.documents import (
    Localisation,
    StudiedExplainer,
    StudiedRole,
    Study,
    StudyRow,
)
from vesalius_bench.study.evidence import CircuitEvidence, ComponentEvidence
from vesalius_functions.agents import interpret_with
from vesalius_functions.bench.work import Graded, Interpreted
from vesalius_functions.box import Box
from vesalius_functions.documents import Reliability, UnitTests
from vesalius_mechrl.documents import MechrlStudy

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
    """The recorded explanation of an agent, and the same as if it were of a model that adds."""
    shutil.copytree(RECORDED, place / "added")
    trace = json.loads((place / "added" / "trace.json").read_text())
    request = {"command": "explain", "specimen": "arithmetic", "behaviour": "addition"}
    (place / "added" / "trace.json").write_text(json.dumps({**trace, "request": request}))
    return Path(shutil.copytree(RECORDED, place / "explained"))


def write_mechrl(place: Path) -> Path:
    """MechRL's tables in paper mode with two seeds, made up."""
    figure = {"value": 1.5, "low": 1.0, "high": 2.0, "n": 2}
    curve = [{"step": step, "evaluation": {"induction": 0.5 * step, "ioi": 0.25}} for step in (1, 2)]
    regret = {"method": "random", "budgets": [1.0, 2.0], "mean": [2.0, 1.0], "low": [1.5, 0.5], "high": [2.5, 1.5]}
    regret |= {"seeds": [[2.0, 1.0], [2.0, 1.0]]}
    study = MechrlStudy(
        request=Request(command="bench mechrl", specimen="tiny", options={"paper": True}),
        specimen="tiny",
        mode="paper",
        unit="logits",
        seeds=2,
        steps=2,
        episodes=1,
        heads=4,
        rows_per_episode=8,
        training_tasks=("induction-out", "ioi"),
        held_out=("docstring",),
        table1=[
            {"task": task, "held_out": held, "method": "paper K=1", "policy": figure, "oracle": figure, "gap": figure}
            for task, held in (("induction-out", False), ("docstring", True))
        ],
        table2=[{"head": "L5H5", "method": "paper K=1", "policy_ranks": [2.0, 5.0], "oracle_rank": 1.0}],
        table3=[
            {"group": "Induction-in-IOI", "size": 4, "method": "paper K=1", "overlap": [1.0, 2.0]},
            {"group": "S-Inhibition", "size": 4, "method": "paper K=1", "overlap": []},
        ],
        table4=[
            {"task": task, "condition": condition, "method": method, "found": figure}
            for task, condition, method in (
                ("docstring", "primed induction-out", "paper K=1"),
                ("docstring", "primed induction-out", "paper K=5"),
                ("docstring", "", "oracle"),
                ("capitals", "no label", "paper K=1"),
            )
        ],
        regret=[
            {"task": "ioi", "unit": "logits", "episodes": 1, "seeds": 2, "oracle": 2.0, "methods": [regret]},
        ],
        verdicts=(),
        entropy={
            "single environment": [
                [{"step": 1900, "entropy": 1.25}, {"step": 2500, "entropy": 0.5}],
                [{"step": 1900, "entropy": 1.375}, {"step": 2500, "entropy": 0.25}],
            ]
        },
        curves={"paper K=1": [curve, curve]},
        quirks={},
        numbers="mechrl-paper.json",
        pictures=(),
    )
    return study.save(place / "mechrl").parent


def write_reliability(place: Path) -> Path:
    """A reliability study of two entities; `climate` has the name of a published one."""
    rate = {"value": 1.0, "low": None, "high": None, "n": 2}
    study = Reliability(
        request=Request(command="functions reliability", options={"matrix": True}),
        inputs=2,
        categories={"entities": {"backbone": "word vectors", "metrics": {}}},
        functions=[
            {"id": f"f0000{n}", "category": "entities", "name": name, "rate": rate, "own": own, "random": 0.25}
            for n, (name, own) in enumerate((("climate", 0.75), ("coffee", 0.5)))
        ],
        selectivity={
            "entities": ["climate", "coffee"],
            "means": [[0.75, 0.25], [0.125, 0.5]],
            "diagonal_largest": {"value": 1.0, "low": None, "high": None, "n": 2},
        },
        seconds=1.0,
    )
    directory = place / "reliability"
    directory.mkdir(parents=True)
    study.write(directory / "reliability.json")
    return directory


def write_unit_tests(place: Path) -> Path:
    """Unit tests that one person took, with a correlation."""
    tests = UnitTests(
        run="asked",
        category="entities",
        interpreter="aia",
        files=("alice.csv",),
        takers=[
            {"name": "alice", "kind": "person", "task": task, "accuracy": metric(value), "n_tests": 4}
            for task, value in (("ground-truth", 1.0), ("interpretation", 0.75), ("matching", 0.5))
        ],
        correlations=[{"evaluator": "P:M", "task": "interpretation", "rho": 0.5, "n": 4}],
        functions=[],
    )
    directory = place / "unit-tests"
    directory.mkdir(parents=True)
    tests.write(directory / "unit_tests.json")
    return directory


def write_dialogue(place: Path) -> Path:
    """A run of the functions benchmark with one function that a scripted model asked about, having invented outputs."""
    directory = write_run(
        place, "talked", benchmark="functions", subject="aia", category="strings", backbone="scripted:x.py"
    )
    for folder in ("explanations", "grades"):
        (directory / folder).mkdir()
    said = iter(['PYTHON(function.py sun)\n"sun" -> "moon"', "[DESCRIPTION]: it reverses the input"])
    with open_backbone(Scripted(lambda _: next(said)), record=directory / "calls" / "f00000.jsonl") as backbone:
        answer = interpret_with(backbone.within("f00000"), Box(Line(0, category="strings")))
    kept = Interpreted(
        id="f00000",
        family="reverse",
        truth={"description": "reverses the input"},
        answer=answer,
        log=[("sun", "nus")],
        seconds=0.1,
    )
    grade = Graded(id="f00000", metrics={"unit_test": 0.75}, picture={}, seconds=0.1)
    (directory / "explanations" / "f00000.json").write_text(kept.model_dump_json())
    (directory / "grades" / "f00000.json").write_text(grade.model_dump_json())
    return directory

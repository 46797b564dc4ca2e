"""What callers give in other forms than the usual one: taken where it is clear, refused in one line where it is not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import vesalius as ves
from tests.api.scientist import NAME as SILENT
from vesalius.documents import Discovery, Request
from vesalius.model.specimen import Specimen
from vesalius_bench.survey.documents import Survey, SurveyCell
from vesalius_mechrl.documents import HeadSets


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


@pytest.fixture(scope="module")
def discovery(specimen: Specimen) -> Discovery:
    return ves.discover(specimen, n=8, checks=False)


def asked(specimen: Specimen, *circuit: Any, **options: Any) -> tuple[str, ...] | None:
    request = ves.explain(specimen, *circuit, scientist=SILENT, **options).request
    assert request is not None
    return request.components


def test_a_circuit_is_taken_in_every_form(specimen: Specimen, discovery: Discovery) -> None:
    chosen = tuple(map(str, discovery.circuit.chosen()))
    assert chosen == ("L0_MLP", "L1H2")
    assert asked(specimen, discovery) == chosen
    assert asked(specimen, circuit=discovery) == chosen
    assert asked(specimen, circuit=discovery.circuit) == chosen
    assert asked(specimen, "L0_MLP") == ("L0_MLP",)
    assert asked(specimen, "m0, a1.h2") == chosen
    assert asked(specimen, ves.Component(1, 2)) == ("L1H2",)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda s: ves.explain(s, 5), "5 names no components; give names such as L1H2"),
        (lambda s: ves.explain(s, [5]), "component 5 is not a name; expected a head such as L1H2"),
        (lambda s: ves.explain(s, "L9H9"), "component L9H9 is not in this model"),
        (lambda s: ves.explain(s, circuit=5), "circuit int is none; give a path, a Circuit or a Discovery"),
        (lambda s: ves.explain(s, top="a"), "top='a' is not a whole number"),
        (lambda s: ves.discover(s, n="a"), "n='a' is not a whole number; give one, such as n=8"),
        (lambda s: ves.discover(s, "bandit", budget=2.5), r"budget=2\.5 is not a whole number"),  # type: ignore[call-overload]
        (lambda s: ves.discover(s, seed=True), "seed=True is not a whole number"),
        (lambda s: ves.sweep(s, n=None), "n=None is not"),
        (lambda s: ves.sweep(s, components=5), "5 names no components"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(
    call: Callable[[Specimen], Any], line: str, specimen: Specimen
) -> None:
    with pytest.raises(ves.BadInput, match=line):
        call(specimen)


def test_sets_of_heads_are_found_by_their_own_verb(specimen: Specimen, tmp_path: Path) -> None:
    found = ves.discover_sets(specimen, n=8, pool="L1H1,L1H2", out=tmp_path)
    assert found.sets[0].heads == ("L1H2",)
    assert (found.method, found.pool, found.request.options["pool"]) == ("sets", ("L1H1", "L1H2"), ["L1H1", "L1H2"])
    assert HeadSets.read(tmp_path / "sets.json") == found
    assert len(repr(found)) < 500
    assert found.view().sheet().records()[0]["heads"] == "L1H2"
    in_memory = ves.discover_sets(specimen, n=8, pool=["L1H1", "L1H2"])
    assert [one.heads for one in in_memory.sets] == [one.heads for one in found.sets]
    assert in_memory.directory is None


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda s: ves.discover(s, "sets"), r"finds sets instead of scores; use `vesalius sets` or ves\.discover_sets"),
        (lambda s: ves.discover(s, "eap", search="beam"), "`search` cannot be given with `method` eap"),
    ],
)
def test_sets_and_scores_have_verbs_of_their_own(
    call: Callable[[Specimen], Any], line: str, specimen: Specimen
) -> None:
    with pytest.raises(ves.BadInput, match=line):
        call(specimen)
    with pytest.raises(TypeError, match="checks"):
        ves.discover_sets(specimen, checks=False)  # type: ignore[call-arg]


def test_what_commands_print_without_a_file_has_a_type(specimen: Specimen, tmp_path: Path) -> None:
    shown, plan = ves.show(specimen), ves.plan("sweep", specimen, n=2)
    assert shown.components == ("L0_MLP", "L1H2")
    assert plan.as_data()["forwards"] == plan.forwards
    assert plan.peak_bytes > plan.weight_bytes
    tasks = ves.generate(seed=7, count=2, depth=2, out=tmp_path)
    assert [task["name"] for task in tasks.as_data()["tasks"]] == [task.name for task in tasks.tasks]
    for result in (shown, plan, tasks):
        assert len(repr(result)) < 500
        assert "<table" in result._repr_html_()
        with pytest.raises(ValidationError, match="frozen"):
            result.seed = 1  # type: ignore[attr-defined,union-attr]


def test_a_grade_is_saved_with_its_version(specimen: Specimen, tmp_path: Path) -> None:
    grade = ves.grade(ves.explain(specimen, []))
    path = grade.save(tmp_path)
    assert json.loads(path.read_text())["schema"] == 1
    assert type(grade).read(path) == grade


def test_an_empty_circuit_is_an_abstention_that_can_be_looked_at(specimen: Specimen) -> None:
    explanation = ves.explain(specimen, [])
    assert explanation.components == ()
    assert "Nothing was established" in explanation.task_description
    (axes,) = explanation.plot().axes
    assert "Nothing was established" in " ".join(axes.texts[0].get_text().split())
    assert explanation.view().sheet().records() == []


def test_a_survey_of_failures_has_a_picture() -> None:
    request = Request(command="survey", options={"models": ["a"], "behaviour": ["b"]})
    cell = SurveyCell(id="a-b", model="a", behaviour="b", status="failed", error="not found")
    picture = Survey(request=request, cells=(cell,)).plot()
    assert [text.get_text() for text in picture.axes[0].texts] == ["failed"]


def test_the_effects_on_one_prompt_have_a_picture_without_intervals(specimen: Specimen) -> None:
    swept = ves.api.sweep_report(specimen, n=1, components=["L0_MLP", "L1H2"])
    assert [row.ci_low for row in swept.components] == [None, None]
    assert len(swept.plot().axes[0].patches) == 2
    assert len(ves.sweep(specimen, n=1, components="L1H2").plot().axes[0].patches) == 1


def test_force_and_progress_reach_the_discovery_before_an_explanation(
    specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vesalius.discovery import discover as methods
    from vesalius.discovery.method import MethodResult

    given: dict[str, Any] = {}
    usual = methods.discover

    def noted(*names: Any, **options: Any) -> MethodResult:
        given.update(options)
        return usual(*names, **{**options, "force": False})

    monkeypatch.setattr(methods, "discover", noted)
    steps: list[str] = []
    ves.explain(
        specimen,
        circuit_from="sweep",
        scientist=SILENT,
        force=True,
        progress=lambda step, done, total: steps.append(step),
    )
    assert given["force"] is True
    assert steps
    assert given["progress"] is not None


def test_a_language_model_is_asked_by_hyve_in_benchmarks_too() -> None:
    """Without a scientist, a language model means HyVE; what is refused here is the model, not the combination."""
    with pytest.raises(ves.BadInput, match="nowhere"):
        ves.bench("circuits", backbone="nowhere:model", ids=["3"])

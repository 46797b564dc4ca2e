"""A discovery method of your own: a class, a function, and a package, with no other file changed."""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

import vesalius as ves
from vesalius.behaviours.trial import Trial
from vesalius.discovery.discover import circuit_method_names, method_named, method_names
from vesalius.discovery.method import REGISTERED, Method, MethodInput, Scores
from vesalius.intervene.estimate import Workload
from vesalius.model.specimen import Specimen
from vesalius.options.records import option
from vesalius.report.pages import render_discovery

#: A method that scores a component by its place.
PACKAGE = '''
from dataclasses import dataclass

from vesalius.discovery.method import Method, Scores
from vesalius.options.records import option


@dataclass(frozen=True)
class Ladder(Method):
    """Higher layers score more."""

    name = "ladder"
    meaning = "A component's score is its layer times the height of a rung."
    scores_edges = False
    rung: int = option(1, "The height of a rung.")

    def score(self, given):
        components = given.specimen.model.components
        return Scores({part: float(self.rung * part.layer) for part in components}, {}, 0.0, "rungs")

    def cost(self, work):
        return 3.0


def by_place(specimen, material, *, seed):
    return Scores({part: float(part.layer) for part in specimen.model.components}, {}, 0.0, "layers")


by_place.cost = lambda work: 2.0
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package that offers a method as a class and another as a function."""
    folder = tmp_path / "site"
    info = folder / "ladders-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "ladders.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ladders\nVersion: 1.0\n")
    points = ["[vesalius.discovery_methods]", "ladder = ladders:Ladder", "by-place = ladders:by_place", ""]
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("VESALIUS_TRUST_PLUGINS", "ladders")
    yield folder
    REGISTERED.pop("ladder", None)
    sys.modules.pop("ladders", None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "forwards"), [("ladder", 3.0), ("by-place", 2.0)])
def test_a_package_adds_a_method(name: str, forwards: float, package: Path, tmp_path: Path) -> None:
    specimen = ves.load("frac_prevs")
    assert name in method_names()
    assert name in circuit_method_names()
    found = ves.discover(specimen, name, n=4, out=tmp_path / "found", progress=False)
    assert found.method == name
    assert [row.score for row in found.components if row.id == "L1H2"] == [1.0]
    assert ves.plan("discover", specimen, method=name, n=4, progress=False).forwards == forwards
    page = unescape(render_discovery(tmp_path / "found").read_text())
    assert (found.meaning or f"what the method {name} gave it") in page
    card = ves.bench(
        "discovery", methods=[name], ids=["frac_prevs"], n=4, jobs=1, out=tmp_path / "bench", progress=False
    )
    assert card.methods[name].n == 1


def test_the_options_of_a_package_are_those_of_its_class(package: Path, tmp_path: Path) -> None:
    found = ves.discover("frac_prevs", "ladder", rung=3, n=4, checks=False, out=tmp_path, progress=False)
    assert [row.score for row in found.components if row.id == "L1H2"] == [3.0]
    assert found.request.options["rung"] == 3
    assert json.loads((tmp_path / "discovery.json").read_text())["request"]["options"]["rung"] == 3
    again = ves.rerun(found, progress=False)
    assert isinstance(again, type(found))
    assert again.circuit == found.circuit
    with pytest.raises(ves.BadInput, match="`steps` cannot be given with `method` ladder, whose options are `rung`"):
        method_named("ladder", steps=3)


def test_a_class_that_is_defined_here_is_found_by_its_name() -> None:
    @dataclass(frozen=True)
    class Constant(Method):
        name = "constant"
        meaning = "Every component scores the same."
        level: float = option(1.0, "What all score.")

        def score(self, given: MethodInput) -> Scores:
            return Scores(dict.fromkeys(given.specimen.model.components, self.level), {}, 0.0, "none")

        def cost(self, work: Workload) -> float:
            return 0.0

    try:
        by_name = ves.discover("frac_prevs", "constant", level=2.0, n=4, checks=False, progress=False)
        by_object = ves.discover("frac_prevs", Constant(level=2.0), n=4, checks=False, progress=False)
        assert by_name.circuit == by_object.circuit
        assert by_name.request == by_object.request
        assert {row.score for row in by_object.components} == {2.0}
        assert Constant.option_help() == {"level": "What all score."}
        with pytest.raises(ves.BadInput, match="has that name; choose another"):
            type("Other", (Method,), {"name": "constant"})
    finally:
        REGISTERED.pop("constant")


def test_a_function_scores_under_its_own_name() -> None:
    def zeros(specimen: Specimen, material: Trial, *, seed: int) -> Scores:
        return Scores(dict.fromkeys(specimen.model.components, 0.0), {}, 0.0, "none")

    specimen = ves.load("frac_prevs")
    found = ves.discover(specimen, zeros, n=4, checks=False, progress=False)
    assert (found.method, {row.score for row in found.components}) == ("zeros", {0.0})
    with pytest.raises(ves.BadInput, match="method 'zeros' has no plan"):
        ves.plan("discover", specimen, method=zeros, n=4, progress=False)


@pytest.mark.parametrize(
    ("named", "made"),
    [
        (
            lambda s: ves.discover(s, "sweep", n=4, checks=False),
            lambda s: ves.discover(s, ves.Sweep(), n=4, checks=False),
        ),
        (
            lambda s: ves.discover(s, "eap-ig", steps=3, n=4, checks=False),
            lambda s: ves.discover(s, ves.EAPIG(steps=3), n=4, checks=False),
        ),
        (
            lambda s: ves.discover(s, "bandit", budget=3, seeds=2, n=4, checks=False),
            lambda s: ves.discover(s, ves.Bandit(budget=3, seeds=2), n=4, checks=False),
        ),
        (lambda s: ves.sweep(s, kind="mean", n=4), lambda s: ves.sweep(s, kind=ves.Mean(), n=4)),
    ],
)
def test_a_name_is_sugar_for_an_object(named: Callable, made: Callable) -> None:
    specimen = ves.load("frac_prevs")
    first, second = named(specimen), made(specimen)
    if hasattr(first, "circuit"):
        assert first.circuit == second.circuit
        assert first.request == second.request
    else:
        assert first.ranked() == second.ranked()

"""Scientists as objects: one of your own is a class, with no other file changed."""

import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import vesalius as ves
from vesalius.components import Component
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.explanations.scientists import (
    REGISTERED,
    Builtin,
    Explained,
    Function,
    Scientist,
    Task,
    protocol_of,
    scientist_named,
)
from vesalius.intervene.estimate import Workload
from vesalius.options.records import option
from vesalius_agents.hyve.scientists import Hybrid, Hyve
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_session.scientist import Command


@dataclass(frozen=True)
class Parrot(Scientist):
    """Says one word of everything."""

    name = "parrot"
    meaning = "It says a word."
    asks = "never"
    word: str = option("cracker", "What it says.")

    def explain(self, task: Task, backbone: object) -> Explained:
        names = task.components or tuple(map(str, task.specimen().components))
        parts = tuple(
            ComponentExplanation(id=one, tag="MAPPER", tag_by_experiment=None, note=self.word, verdict="untested")
            for one in names
        )
        return Explained(
            Explanation(
                specimen=task.id,
                scientist=self.label,
                components=parts,
                information_flow=self.word,
                task_description=self.word,
                seconds=0.0,
                seed=task.seed,
            )
        )

    def cost(self, work: Workload, components: Sequence[Component] | None) -> float:
        return float(len(work.circuit if components is None else components))


PACKAGE = """
from vesalius.explanations.scientists import Scientist


class Owl(Scientist):
    name = "owl"
    meaning = "It looks."
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that offers a scientist as a class."""
    info = tmp_path / "owls-1.0.dist-info"
    info.mkdir()
    (tmp_path / "owls.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: owls\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vesalius.scientists]\nowl = owls:Owl\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("VESALIUS_TRUST_PLUGINS", "owls")
    yield
    REGISTERED.pop("owl", None)
    sys.modules.pop("owls", None)


def test_a_class_that_is_defined_here_explains_by_name_and_as_an_object(tmp_path: Path) -> None:
    specimen = ves.load("frac_prevs")
    by_name = ves.explain(specimen, ["L1H2"], scientist="parrot", word="pretty", out=tmp_path, progress=False)
    by_object = ves.explain(specimen, ["L1H2"], Parrot(word="pretty"), progress=False)
    assert [part.note for part in by_object.components] == ["pretty"]
    assert by_name.request == by_object.request
    assert by_name.request is not None
    assert (by_name.request.method, by_name.request.options) == ("parrot", {"word": "pretty"})
    again = ves.rerun(Explanation.read(tmp_path / "explanation.json"), progress=False)
    assert isinstance(again, Explanation)
    assert again.components == by_name.components
    assert ves.plan("explain", specimen, Parrot(), components=["L1H2"], progress=False).forwards == 1.0
    for options, reason in (
        ({"top": 3}, "`top` cannot be given with `scientist` parrot, whose options are `word`"),
        ({"backbone": "scripted:none.py"}, "`scientist` parrot asks no language model"),
        ({"jobs": 2}, "scientist 'parrot': the engine and the jobs are for the built-in one"),
    ):
        with pytest.raises(ves.BadInput, match=reason):
            ves.explain(specimen, scientist="parrot", progress=False, **options)
    with pytest.raises(ves.BadInput, match=r"the scientist is an object, .* give Parrot\(word=...\)"):
        ves.explain(specimen, None, Parrot(), word="x", progress=False)


def test_a_package_offers_a_class(package: None) -> None:
    owl = scientist_named("owl")
    assert (owl.label, type(owl).meaning) == ("owl", "It looks.")
    with pytest.raises(ves.BadInput, match="`n` cannot be given with `scientist` owl, which has no options"):
        scientist_named("owl", n=8)
    with pytest.raises(ves.BadInput, match="scientist 'owl' has no plan"):
        owl.require_plan()


@pytest.mark.parametrize(
    ("name", "options", "scientist", "protocol"),
    [
        ("builtin", {"n": 8, "leave_out": "count", "top": None}, Builtin(n=8, leave_out="count"), None),
        ("hyve", {"compact": True}, Hyve(compact=True), "typed"),
        ("hybrid", {"top": 4}, Hybrid(top=4), None),
        ("command:cat -u", {"n": 8}, Command(program="cat -u", n=8), None),
        ("tests.api.scientist:silent", {"protocol": "paper"}, Function("tests.api.scientist:silent", "paper"), "paper"),
    ],
)
def test_a_name_with_options_is_an_object(name: str, options: dict, scientist: Scientist, protocol: str | None) -> None:
    made = scientist_named(name, **options)
    assert made == scientist
    assert (made.label, protocol_of(made)) == (name, protocol)
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_benchmark_is_asked_with_the_options_of_an_object() -> None:
    from vesalius.options import Ask, Who
    from vesalius_bench.circuits.selection import benchmark_circuits

    circuits = benchmark_circuits(["3"])
    by_object = BenchmarkSettings.of(circuits, Who(Builtin(leave_out="count")), Ask(), (), None)
    assert by_object == BenchmarkSettings.of(circuits, Who("builtin", leave_out="count"), Ask(), (), None)
    assert by_object.explainer == Builtin(leave_out="count")
    with pytest.raises(ves.BadInput, match="`top`: a benchmark has its own; leave it out of the scientist"):
        BenchmarkSettings.of(circuits, Who(Builtin(top=3)), Ask(), (), None)


@pytest.mark.slow
def test_the_built_in_scientist_explains_without_hyve_and_language_models() -> None:
    code = """
import sys
import vesalius.explanations.scientists as s
s.scientist_named("builtin")
absent = ("vesalius_agents.hyve", "vesalius_backbones", "torch")
assert not [name for name in sys.modules if name.startswith(absent)]
assert s.scientist_named("hyve").label == "hyve"
assert "vesalius_agents.hyve.scientists" in sys.modules and "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

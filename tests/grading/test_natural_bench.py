"""`bench natural`: what scientists say runs, a null stands at the controls, and the planted answers stay shut."""

import ast
import json
from pathlib import Path

import pytest

import vesalius_bench.natural as package
from vesalius.api.loading import load
from vesalius.behaviours.natural import require_performance
from vesalius.documents.scorecard import CaseError
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.runs.directory import Run
from vesalius.runs.engine import in_process
from vesalius_bench.natural import benchmark, planted, settings
from vesalius_bench.natural.benchmark import NaturalSteps
from vesalius_bench.natural.documents import NaturalBench
from vesalius_bench.natural.grading import graded
from vesalius_bench.natural.key import ANSWERS
from vesalius_bench.natural.plan import grading_passes
from vesalius_bench.natural.planted import planted_models
from vesalius_bench.natural.scripted import rule_of
from vesalius_bench.natural.settings import NaturalSettings
from vesalius_bench.options import NaturalOptions
from vesalius_session.proposals.reading import read_proposal

GOLDEN = Path(__file__).parent.parent / "documents" / "golden" / "natural_bench.json"
#: What looks at the right token in each planted model.
RULES = {
    "planted-1": {"L0H0": "1 back", "L1H1": "after earlier copy"},
    "planted-2": {"L0H0": "1 back", "L1H0": "after earlier copy", "L1H2": "after earlier copy"},
    "planted-3": {"L0H0": "2 back", "L1H0": "3 back", "L1H1": "1 back"},
    "planted-4": {"L0H0": "4 back", "L1H0": "1 back", "L1H1": "3 back"},
}
SIZES = {"n": 8, "claims": 16, "top": 4, "device": "cpu"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("planted")
    for one in planted_models():
        one.write(place)
    return place


def specimen_of(name: str, written: Path) -> Specimen:
    behaviour = next(one.behaviour for one in planted_models() if one.id == name)
    return load(written / name, behaviour=behaviour, device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize("name", RULES)
def test_what_was_planted_is_right_in_every_figure_and_a_wrong_answer_in_none(name: str, written: Path) -> None:
    specimen, answer = specimen_of(name, written), ANSWERS[name]
    assert require_performance(specimen).accuracy == 1.0
    right = read_proposal(
        {
            "programs": RULES[name],
            "mlps": list(answer.mlps),
            "algorithm": answer.algorithm or "induction",
            "variables": dict(answer.variables),
            "stand_ins": [list(group) for group in answer.stand_ins],
        },
        specimen.model.config,
    )
    case = {"case": "x", "scientist": "key", "model": name, "behaviour": specimen.behaviour or ""}
    figures = graded(specimen, right, case=case, n=8, seed=0, spent=(0.0, 0.0))
    assert figures.planted is not None
    values = [getattr(figures.planted, field).value for field in type(figures.planted).model_fields]
    assert set(values) <= {1.0, None}
    assert values[:3] == [1.0, 1.0, 1.0]
    assert ((figures.run.kept and figures.run.kept.value) or 0.0) > 0.9
    assert figures.run.rows <= grading_passes(8)
    if answer.variables:
        assert figures.variables.value == 1.0
    if answer.stand_ins:
        pairs = figures.stand_ins
        assert (pairs.precision.value, pairs.recall.value) == (1.0, 1.0)
        assert pairs.interchangeable == 1


@pytest.mark.slow
def test_the_built_in_scientist_and_its_null_in_a_run_that_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planted_models()[:1]
    for module in (planted, settings, benchmark):
        monkeypatch.setattr(module, "planted_models", lambda: first)
    asked = NaturalSettings(("planted",), NaturalOptions(scientists=("builtin", "null"), **SIZES))
    with Run(tmp_path, settings=asked.as_data()) as run:
        steps = NaturalSteps(run, asked, engine=in_process)
        done = [event.step for event in steps.work() if event.step == benchmark.PROPOSE]
        result = steps.result()
    assert len(done) == 2
    built_in, null = (result.row(who, "planted-1", "induction") for who in ("builtin", "null"))
    assert built_in.beyond == "beyond the controls"
    assert null.beyond == "no more than a control"
    assert set(built_in.run.proposal.programs) == set(null.run.proposal.programs) == {"L0H0", "L1H1"}
    assert built_in.planted is not None
    assert (built_in.planted.recall.value, built_in.planted.programs.value) == (1.0, 1.0)
    assert built_in.run.kept is not None
    assert null.run.kept is not None
    assert (built_in.run.kept.low or 0.0) > (null.run.kept.high or 1.0)
    assert (null.run.kept.value or 0.0) < 0.2
    assert result.answered().verdict == "yes"
    with Run(tmp_path, settings=asked.as_data()) as run:
        again = NaturalSteps(run, asked, engine=in_process)
        assert not list(again.work())
        assert again.result() == result


@pytest.mark.slow
def test_the_scripted_agent_finds_programs_and_stand_ins_through_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = planted_models()[1:2]
    for module in (planted, settings, benchmark):
        monkeypatch.setattr(module, "planted_models", lambda: second)
    asked = NaturalSettings(("planted",), NaturalOptions(scientists=("scripted",), **SIZES))
    with Run(tmp_path, settings=asked.as_data()) as run:
        steps = NaturalSteps(run, asked, engine=in_process)
        assert [event.step for event in steps.work()] == [benchmark.PROPOSE, benchmark.RUN]
        (row,) = steps.result().rows
        explanation = run.explanation(row.case)
    assert row.beyond == "beyond the controls"
    assert row.planted is not None
    assert (row.planted.programs.value, row.planted.stand_ins.value) == (1.0, 1.0)
    assert explanation is not None
    assert explanation.proposed is not None
    assert explanation.proposed.proposal == row.run.proposal


def test_the_rule_of_a_head_is_that_which_finds_most() -> None:
    assert rule_of({"BOS": 0.9, "1 back": 0.6, "self": 0.4}) == "1 back"
    assert rule_of({"BOS": 0.9, "1 back": 0.1}) == "BOS"
    assert rule_of({}) == "BOS"


# The answer key stays shut.


def test_only_grading_opens_the_key() -> None:
    place = Path(package.__file__).parent
    opens = {
        file.stem
        for file in place.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "vesalius_bench.natural.key"
    }
    assert opens == {"grading"}


def test_what_proposes_imports_nothing_that_grades_or_builds() -> None:
    place = Path(package.__file__).parent

    def imported(name: str) -> set[str]:
        tree = ast.parse((place / f"{name}.py").read_text())
        at_the_top = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        return {
            (node.module or "").rpartition(".")[2]
            for node in at_the_top
            if (node.module or "").startswith("vesalius_bench.natural.")
        }

    waiting, seen = ["work", "scripted"], set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        waiting += imported(name) - seen
    assert not seen & {"key", "grading", "planted"}


def test_a_written_model_says_nothing_of_what_was_planted(written: Path) -> None:
    secrets = {"induction", "arithmetic", "difference", "planted", "operand", "previous"}
    for one in planted_models():
        place = written / one.id
        for file in place.iterdir():
            text = file.read_bytes()[:4096] if file.suffix == ".safetensors" else file.read_bytes()
            words = {word for word in secrets if word.encode() in text.lower()}
            assert not words, (file, words)
    assert set(ANSWERS) == {one.id for one in planted_models()}


# What is asked.


@pytest.mark.parametrize(
    ("models", "options", "said"),
    [
        (("planted",), {"scientists": ("null",)}, "name builtin beside it"),
        (("nomodel",), {}, "'nomodel' is not known"),
        (("planted",), {"scientists": ("nobody",)}, "nobody"),
        (("planted",), {"scientists": ("builtin", "builtin")}, "names one twice"),
        (("planted",), {"behaviours": ("induction",)}, "planted models have their own"),
        (("arithmetic",), {"behaviours": ("banana",)}, "banana"),
    ],
)
def test_bad_requests_are_refused_before_any_model_is_read(models: tuple, options: dict, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        NaturalSettings(models, NaturalOptions(**options))


def test_cases_are_every_scientist_on_every_model_and_behaviour(tmp_path: Path) -> None:
    asked = NaturalSettings(("planted", "arithmetic"), NaturalOptions())
    cases = asked.cases(tmp_path)
    assert len(cases) == 3 * (4 + 1)
    assert len({case.id for case in cases}) == len(cases)
    assert asked.request().command_line() == "vesalius bench natural planted arithmetic --seed 0"
    other = NaturalSettings(
        ("org/a", "org/b"), NaturalOptions(behaviours=("ioi", "capitals"), scientists=("builtin",), n=8)
    )
    assert [case.behaviour for case in other.cases(tmp_path)] == ["ioi", "capitals", "ioi", "capitals"]
    assert "--behaviour ioi --behaviour capitals" in other.request().command_line()


def test_the_first_line_says_in_how_many_cases_programs_exceed_the_controls() -> None:
    document = NaturalBench.read(GOLDEN)
    assert document.answered().verdict == "yes"
    assert "in 1 of 1 cases" in document.answered().text
    built_in = document.of("builtin")[0]
    beaten = built_in.run.model_copy(update={"running": None})
    running = built_in.run.running
    assert running is not None
    rungs = tuple(
        one.model_copy(update={"kept": one.kept.model_copy(update={"value": 1.4})}) if one.step == "programs" else one
        for one in running.rungs
    )
    above = built_in.run.model_copy(update={"running": running.model_copy(update={"rungs": rungs})})
    assert built_in.model_copy(update={"run": above}).beyond == "more than the model"
    worse = document.model_copy(update={"rows": (*document.rows, built_in.model_copy(update={"run": beaten}))})
    assert worse.answered().verdict == "partly"
    assert "in 1 of 2 cases" in worse.answered().text
    assert document.model_copy(update={"rows": ()}).answered().verdict == "no"
    failed = tuple(CaseError(case=f"c{i}", method="builtin", kind="BadInput", reason="says nothing") for i in range(3))
    silent = document.model_copy(update={"errors": failed}).answered()
    assert silent.verdict == "partly"
    assert "in 1 of 4 cases" in silent.text
    assert "over 1 cases, 3 without figures" in silent.text


def test_a_recorded_benchmark_is_written_back_as_it_was_read(tmp_path: Path) -> None:
    document = NaturalBench.read(GOLDEN)
    document.write(tmp_path / "again.json")
    written, recorded = (json.loads(path.read_text()) for path in (tmp_path / "again.json", GOLDEN))
    assert written == recorded
    assert document.view().title == "Explanations of natural models, run in their place"

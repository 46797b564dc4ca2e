"""Parts of a natural model's work on an engine: the same documents as without one, in whatever order parts return."""

import importlib.util
import pickle
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.closeness import FIGURES, assert_same_document
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.api import sweeps
from vesalius.behaviours.natural import _loaded
from vesalius.behaviours.trial import trial
from vesalius.discovery.sweep import cut
from vesalius.intervene.effects import effect_columns
from vesalius.runs import engine
from vesalius.runs.engine import Failure, outcome

#: What a call costs; parts repeat clean runs.
COSTS = ("seconds", "rows", "forwards", "directory")


def backwards(work: Callable[[Any], Any], cases: Iterable[Any], *, jobs: int = 2) -> Generator[tuple[Any, Any]]:
    """An engine that sends cases and results as another process would get them, and answers the last case first."""
    for case in reversed(list(cases)):
        sent_work, sent = pickle.loads(pickle.dumps((work, case)))
        yield case, pickle.loads(pickle.dumps(outcome(sent_work, sent)))


def loses_the_second(work: Callable[[Any], Any], cases: Iterable[Any], *, jobs: int = 2) -> Generator[tuple[Any, Any]]:
    """An engine on which the worker of the second case dies each time."""
    for number, case in enumerate(cases):
        died = Failure("killed", "its process ended with SIGKILL, 2 times")
        yield case, died if number == 1 else outcome(work, case)


@pytest.fixture(autouse=True)
def engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (backwards, loses_the_second):
        monkeypatch.setitem(engine.ENGINES, function.__name__, f"{__name__}:{function.__name__}")


@pytest.fixture(scope="module")
def inducer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two heads of the last layer do induction, one more strongly than the other."""
    directory = tmp_path_factory.mktemp("models") / "inducer"
    as_specimen(induction_model(word_tokenizer().size, strengths={0: 1.0, 2: 0.5}, norm="rms")).save(directory)
    return directory


def quiet(inducer: Path, **more: Any) -> dict[str, Any]:
    return {"specimen": inducer, "behaviour": "induction", "n": 6, "progress": False, **more}


@pytest.mark.parametrize("kind", ["zero", "mean", "resample"])
def test_a_sweep(inducer: Path, kind: str) -> None:
    here, parts = (ves.sweep(**quiet(inducer, kind=kind, **how)) for how in ({}, {"engine": "backwards", "jobs": 3}))
    assert here.sets == parts.sets
    assert float((here.matrix - parts.matrix).abs().max()) <= FIGURES
    assert here.forwards == pytest.approx(parts.forwards)


def test_a_sweep_of_pairs(inducer: Path) -> None:
    options = quiet(inducer, pairs=True, components=["L0H0", "L1H0", "L1H2"])
    here, parts = (ves.sweep(**options, **how) for how in ({}, {"engine": "backwards"}))
    assert here.sets == parts.sets
    assert float((here.matrix - parts.matrix).abs().max()) <= FIGURES


@pytest.mark.parametrize("method", ["sweep", "eap"])
def test_a_discovery_and_its_checks(inducer: Path, method: str) -> None:
    here, parts = (
        ves.discover(**quiet(inducer, method=method, **how)).as_data() for how in ({}, {"engine": "backwards"})
    )
    assert here["forwards"] == pytest.approx(parts["forwards"])
    scores = [{row["id"]: row["score"] for row in found["components"]} for found in (here, parts)]
    assert scores[0] == pytest.approx(scores[1], abs=FIGURES)
    for found in (here, parts):  # sorted by scores, of which some are equal up to rounding
        for listed in ("components", "edges"):
            found.pop(listed, None)
        found["circuit"] = None
    assert_same_document(here, parts, leave_out=COSTS)


def test_an_explanation(inducer: Path) -> None:
    options = quiet(inducer, components=["L0H0", "L0H1", "L1H0", "L1H2", "L1_MLP"])
    here, parts = (ves.explain(**options, **how).as_data() for how in ({}, {"engine": "backwards", "jobs": 2}))
    assert_same_document(here, parts, leave_out=COSTS)
    assert any(row["verdict"] == "supported" for row in parts["components"])


def test_a_survey(inducer: Path, tmp_path: Path) -> None:
    here, parts = (
        ves.survey([inducer], ["induction", "ioi"], n=4, out=tmp_path / str(len(how)), progress=False, **how)
        for how in ({}, {"engine": "backwards"})
    )
    assert (
        [cell.status for cell in here.cells] == [cell.status for cell in parts.cells] == ["performed", "not performed"]
    )
    assert here.cells[0].sweep is not None
    assert parts.cells[0].sweep is not None
    effects = [{row.id: row.effect for row in one.components} for one in (here.cells[0].sweep, parts.cells[0].sweep)]
    assert effects[0] == pytest.approx(effects[1], abs=FIGURES)


def test_what_is_finished_is_kept_when_a_worker_dies(
    inducer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten components in five parts of two, of which one is lost: the next call computes its two and no others."""
    monkeypatch.setattr(sweeps, "ROWS_BETWEEN_SAVES", 12)
    reason = r"resample ablation: 1 of 5 parts could not be finished \(its process ended with SIGKILL, 2 times\)"
    with pytest.raises(ves.Failed, match=reason):
        ves.sweep(**quiet(inducer, engine="loses_the_second", jobs=1, out=tmp_path))
    computed = []

    def counted(recordings: Any, replacement: Any, sets: Any, **options: Any) -> Any:
        computed.extend(map(str, (members[0] for members in sets)))
        return effect_columns(recordings, replacement, sets, **options)

    monkeypatch.setattr(sweeps, "effect_columns", counted)
    whole = ves.sweep(**quiet(inducer, out=tmp_path))
    assert computed == [str(members[0]) for members in whole.sets[2:4]]
    assert float((whole.matrix - ves.sweep(**quiet(inducer)).matrix).abs().max()) <= FIGURES


@pytest.mark.parametrize(("n", "jobs", "largest"), [(10, 2, None), (1, 4, None), (300, 2, 32), (7, 100, 3)])
def test_cut(n: int, jobs: int, largest: int | None) -> None:
    spans = cut(n, jobs, largest=largest)
    assert [place for span in spans for place in span] == list(range(n))
    assert max(map(len, spans)) <= (largest or n)
    assert len(spans) >= min(n, 2 * jobs)


def test_what_cannot_be_cut_is_refused(inducer: Path) -> None:
    with pytest.raises(ves.BadInput, match="'frac_prevs': parts of the work are run elsewhere for natural models only"):
        ves.sweep("frac_prevs", jobs=2, progress=False)
    with pytest.raises(ves.BadInput, match=r"in memory only, .* write it with \.save\(directory\) and load that"):
        ves.discover(as_specimen(induction_model(word_tokenizer().size)), jobs=2, progress=False)
    with pytest.raises(ves.BadInput, match="method 'bandit' decides one step by the last, so it has no parts"):
        ves.discover(**quiet(inducer, method="bandit", checks=False, jobs=2))
    with pytest.raises(ves.BadInput, match="engine 'slurm' does not exist; use local, ray"):
        ves.sweep(**quiet(inducer, engine="slurm"))
    specimen = ves.load(inducer, behaviour="induction")
    with pytest.raises(ves.BadInput, match="prompts given as material are run in this process; leave out the engine"):
        ves.sweep(specimen, material=trial(specimen, 4), jobs=2, progress=False)
    with pytest.raises(ves.BadInput, match="jobs=0 would do nothing"):
        ves.explain(**quiet(inducer, jobs=0))
    with pytest.raises(ves.BadInput, match="cannot be sent to another process"):
        ves.sweep(**quiet(inducer, engine="backwards", metric=lambda logits, answers, wrongs: logits[:, 0]))


def test_weights_that_changed_are_refused(inducer: Path) -> None:
    """A worker that finds other weights at the path says so instead of mixing two models."""
    specimen = ves.load(inducer, behaviour="induction")
    _loaded.cache_clear()
    as_specimen(induction_model(word_tokenizer().size)).save(inducer)
    try:
        with pytest.raises(ves.BadInput, match="holds other weights than those that were loaded here"):
            ves.sweep(specimen, n=4, engine="backwards", progress=False)
    finally:
        specimen.save(inducer)
        _loaded.cache_clear()


def test_without_ray_one_line_names_the_extra(inducer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    for call in (ves.sweep, ves.discover, ves.explain):
        with pytest.raises(ves.BadInput, match=r'ray is not installed; run: pip install "vesalius\[ray\]"'):
            call(**quiet(inducer, engine="ray"))
    with pytest.raises(ves.BadInput, match=r'ray is not installed; run: pip install "vesalius\[ray\]"'):
        ves.survey([inducer], ["induction"], engine="ray")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", "ray"])
def test_real_processes(inducer: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ray" and importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    here, parts = (ves.sweep(**quiet(inducer, **how)) for how in ({}, {"engine": name, "jobs": 2}))
    assert float((here.matrix - parts.matrix).abs().max()) <= FIGURES

"""What `explain` takes as a circuit: every form gives the same components, and an empty one the same abstention."""

import json
from pathlib import Path

import pytest

import vesalius as ves
from tests.agents.hyve.scripts import WALKTHROUGH
from tests.cli.conftest import Vesalius
from vesalius.documents.circuit import Circuit
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput
from vesalius.explanations.scientists import Explained, Task
from vesalius_backbones import Backbone

NAMES_ONLY = f"{__name__}:name_components"


def name_components(task: Task, backbone: Backbone | None) -> Explained:
    """A scientist that names the components it was given and says nothing about them."""
    given = task.components or tuple(map(str, task.specimen().components))
    parts = tuple(
        ComponentExplanation(id=name, tag="MAPPER", tag_by_experiment="MAPPER", note="", verdict="untested")
        for name in given
    )
    return Explained(
        Explanation(
            specimen=task.id,
            scientist="names",
            components=parts,
            information_flow="",
            task_description="",
            seconds=0.0,
            seed=task.seed,
        )
    )


def explained(specimen: str, *given: object, **options: object) -> list[str]:
    explanation = ves.explain(specimen, *given, scientist=NAMES_ONLY, progress=False, **options)  # type: ignore[arg-type]
    return [part.id for part in explanation.components]


@pytest.fixture(scope="module")
def discovery(tmp_path_factory: pytest.TempPathFactory) -> Discovery:
    """A discovery with its files: L0_MLP and L1H2, the true circuit."""
    return ves.discover("frac_prevs", n=4, checks=False, out=tmp_path_factory.mktemp("discovery"), progress=False)


def test_every_form_of_a_circuit_names_the_same_components(discovery: Discovery, tmp_path: Path) -> None:
    directory = Path(str(discovery.directory))
    elsewhere = tmp_path / "mine.json"
    elsewhere.write_bytes((directory / "circuit.json").read_bytes())
    expected = ["L0_MLP", "L1H2"]
    assert explained("frac_prevs", discovery) == expected
    assert explained("frac_prevs", discovery.circuit) == expected
    for file in (directory, directory / "discovery.json", directory / "circuit.json", elsewhere):
        assert explained("frac_prevs", circuit=file) == expected, file
    assert explained("frac_prevs", circuit_from="sweep") == expected


def test_a_benchmark_run_is_a_source(tmp_path: Path) -> None:
    run = tmp_path / "bench"
    card = ves.bench("discovery", ids=["3"], methods=["sweep", "eap"], n=4, jobs=1, out=run, progress=False)
    assert isinstance(card, Scorecard)
    chosen = card.as_data()["cases"][0]["methods"]["eap"]["chosen"]
    assert explained("3", circuit=run, circuit_from="eap") == chosen
    with pytest.raises(BadInput, match="several methods for specimen 3; give `circuit_from`"):
        explained("3", circuit=run)
    with pytest.raises(BadInput, match="no circuit by acdc"):
        explained("3", circuit=run, circuit_from="acdc")
    with pytest.raises(BadInput, match="has no specimen 8"):
        explained("8", circuit=run, circuit_from="eap")


def test_the_request_explains_the_same_again(discovery: Discovery) -> None:
    directory = str(discovery.directory)
    made = ves.explain("frac_prevs", circuit=directory, scientist=NAMES_ONLY, progress=False)
    assert made.request is not None
    assert (made.request.circuit, made.request.components) == (directory, None)
    first = ves.explain("frac_prevs", circuit_from="sweep", scientist=NAMES_ONLY, progress=False)
    assert first.request is not None
    assert "--circuit-from sweep" in first.request.command_line()
    assert first.request.components is None


def test_refusals(discovery: Discovery, tmp_path: Path) -> None:
    directory = Path(str(discovery.directory))
    (tmp_path / "empty").mkdir()
    for given, options, reason in (
        ((["L0_MLP"],), {"circuit": directory}, "choose one"),
        ((["L0_MLP"],), {"circuit_from": "sweep"}, "choose one"),
        ((), {"circuit": tmp_path / "empty"}, "neither discovery.json nor circuit.json"),
        ((), {"circuit": directory, "circuit_from": "eap"}, "is not one"),
        ((), {"circuit_from": "guessing"}, "'guessing' does not exist"),
        ((), {"circuit": tmp_path / "nowhere.json"}, "nowhere.json"),
    ):
        with pytest.raises(BadInput, match=reason):
            explained("frac_prevs", *given, **options)
    with pytest.raises(BadInput, match="not in this one"):
        explained("11", circuit=directory / "discovery.json")  # of the same shape, with other weights


def test_an_empty_circuit_is_three_abstentions(vesalius: Vesalius, discovery: Discovery, tmp_path: Path) -> None:
    """One discovered and empty circuit: the built-in scientist, HyVE and Python all establish nothing."""
    config = ves.load("frac_prevs").model.config
    scores = dict.fromkeys(discovery.circuit.components, 0.0)
    nothing = discovery.model_copy(update={"circuit": Circuit.scored(config, config.d_model, scores, {})})
    path = nothing.save(tmp_path / "nothing")
    explanations = []
    for scientist in ([], ["--backbone", f"scripted:{WALKTHROUGH}"]):
        shown = vesalius("explain", "frac_prevs", "--circuit", path, *scientist, "--json", "--out", tmp_path / "out")
        assert shown.code == 0, shown.err
        explanations.append(Explanation.model_validate(json.loads(shown.out)))
    explanations.append(ves.explain("frac_prevs", nothing, progress=False))
    assert [explanation.scientist for explanation in explanations] == ["builtin", "hyve", "builtin"]
    for explanation in explanations:
        assert explanation.components == ()
        assert explanation.task_description.startswith("Nothing was established: no head or MLP is in the circuit")
        assert explanation.information_flow.startswith("Not measured")

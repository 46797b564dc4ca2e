"""`bench circuits` on models in InterpBench's layout with annotations in AgenticInterpBench's, all written here.

The models are shipped specimens in the published layout: the same weights, with the tokens in Tracr's order.
"""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import vesalius as ves
from tests.circuits.test_originals import settings_of
from vesalius import api
from vesalius.circuits.originals import BOS, PAD, load_directory, load_original, original_folders, tracr_order
from vesalius.cli.console import print_view
from vesalius.documents.explanation import ComponentExplanation, Explanation
from vesalius.errors import BadInput
from vesalius.explanations.scientists import Explained, Task
from vesalius.model.states import to_state
from vesalius_backbones import Backbone
from vesalius_bench.circuits.selection import chosen_circuits, original_circuits
from vesalius_truth.grading.circuits import grade_circuit
from vesalius_truth.grading.keys import reference_texts, second_tags, true_tags
from vesalius_truth.grading.programs import Grader

TAGS = {"L0_MLP": "INDICATOR", "L1H2": "AGGREGATOR"}


def write_model(folder: Path, specimen: Any) -> None:
    """One case's files, the embedding's rows in the published order."""
    folder.mkdir(parents=True)
    ours = [*specimen.vocabulary.tokens, BOS, PAD]
    state = {name: value.detach().clone() for name, value in to_state(specimen.model).items()}
    state["embed.W_E"] = state["embed.W_E"][[ours.index(token) for token in tracr_order(ours)]]
    torch.save(state, folder / "ll_model.pth")
    (folder / "ll_model_cfg.pkl").write_bytes(pickle.dumps(settings_of(specimen.model.config)))
    hooks = [part.format("hook") for part in specimen.components]
    (folder / "edges.pkl").write_bytes(pickle.dumps([(hook, "blocks.1.hook_resid_post") for hook in hooks]))
    (folder / "meta.json").write_text(json.dumps({"epochs": 2000}))


def write_annotation(folder: Path, case: str, tags: dict[str, str]) -> Path:
    components = [{"id": name, "role": {"tag": tag, "note": f"note of {name}"}} for name, tag in tags.items()]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"case_{case}.json"
    file.write_text(json.dumps({"task_summary": "share of x so far", "components": components}))
    return file


def half_right(task: Task, backbone: Backbone | None) -> Explained:
    """Tags every component an indicator, which is right for the first of the two; has no key beside its model."""
    specimen = task.specimen()
    parts = tuple(
        ComponentExplanation(
            id=str(part), tag="INDICATOR", tag_by_experiment="INDICATOR", note="a note", verdict="supported"
        )
        for part in specimen.components
    )
    return Explained(
        Explanation(
            specimen=task.id,
            scientist="half-right",
            components=parts,
            information_flow="",
            task_description="",
            seconds=0.0,
            seed=task.seed,
        )
    )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cases 3 and 67 beside `annotations/`; 67 has no annotation."""
    root = tmp_path_factory.mktemp("InterpBench")
    for case in ("3", "67"):
        write_model(root / case, ves.load(case))
    write_annotation(root / "annotations", "3", TAGS)
    return root


def test_the_layout_holds_the_same_model(published: Path) -> None:
    ours, original = ves.load("3"), load_directory(published / "3")
    inputs = original.sample(8)
    assert [[float(v) for v in row] for row in original.predict(inputs)] == [
        pytest.approx([float(v) for v in row], abs=1e-5) for row in ours.predict(inputs)
    ]
    assert original.components == ours.components


@pytest.mark.slow
def test_a_published_case_from_end_to_end(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Graded against the annotation beside it, and against another one."""
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="so left out: 67"):
        card = api.bench_circuits(
            scientist="tests.runs.test_original_circuits:half_right",
            specimens=published,
            jobs=1,
            out=tmp_path / "run",
            progress=False,
        )
    assert (card.n, card.n_error) == (1, 0)
    assert card.specimens is not None
    assert card.request is not None
    (row,) = card.specimens
    assert row.id == "3"
    explanation = Explanation.read(tmp_path / "run" / "explanations" / "3.json")
    assert row.tags_right == 1
    assert card.metrics["tag_accuracy"].value == pytest.approx(0.5)
    keywords = card.request.keywords()
    assert (list(keywords["ids"]), keywords["annotations"]) == (["3"], str(published / "annotations"))
    seen = json.loads((tmp_path / "run" / "explanations" / "3.json").read_text())
    assert "note of L0_MLP" not in json.dumps(seen), "the key stays shut"
    assert not [name for name in card.metrics if name.endswith("_reading")], "of an annotation no reading was derived"
    print_view(card.view())
    assert "1 circuits, 0 errors" in capsys.readouterr().out

    other = {"L0_MLP": "MAPPER", "L1H2": "ROUTER", "L1H3": "ROUTER"}
    wrong = write_annotation(tmp_path / "other", "3", other)
    graded = grade_circuit(explanation, directory=published / "3", annotation=wrong)
    assert graded.missed == ("L1H3",)
    assert graded.own.tags_right == sum(part.tag == other[part.id] for part in explanation.components)
    assert true_tags("interpbench/3", published / "3") == TAGS, "beside the folder"
    assert reference_texts("interpbench/3", published / "3", wrong).notes["L1H3"] == "note of L1H3"


def test_an_annotation_has_no_second_readings(published: Path) -> None:
    """Without a program nothing says which tags have two, so no figure may stand for both."""
    assert second_tags("interpbench/3", published / "3") is None


def test_components_are_inert_where_all_inputs_have_one_length(published: Path) -> None:
    """multiply_by_length: at one length the length is a constant, so no interchange shows what finds it."""
    shown = Grader(load_original(published, "67"), n=32).crossed
    assert [str(part) for part in shown if shown[part] is None] == ["L0H0", "L0_MLP"]
    assert None not in Grader(ves.load("67"), n=32).crossed.values()


def test_what_cannot_be_graded_is_refused_in_one_line(published: Path, tmp_path: Path) -> None:
    def refused(*given: Any, **options: Any) -> str:
        with pytest.raises(BadInput) as error:
            original_circuits(*given, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "there is no case '9'; it holds 3, 67" in refused(published, ids=["9"])
    assert "none for 67; expected files such as case_3.json" in refused(published, ids=["67"])
    nothing = tmp_path / "nothing"
    write_model(nothing / "3", ves.load("3"))
    assert "no annotations in or beside it" in refused(nothing)
    beyond = write_annotation(tmp_path / "beyond", "3", {"L9H0": "ROUTER"}).parent
    assert "component L9H0 does not exist in the model" in refused(published, beyond, ["3"])
    untagged = write_annotation(tmp_path / "untagged", "3", {"L0_MLP": "WIZARD"}).parent
    assert "has tag 'WIZARD'; the tags are" in refused(published, untagged, ["3"])
    (nothing / "3" / "edges.pkl").unlink()
    assert "edges.pkl: no such file; a case needs ll_model.pth" in refused(nothing)
    with pytest.raises(BadInput, match="give their directory or hub id in `specimens`"):
        chosen_circuits(None, None, None, "annotations")
    with pytest.raises(BadInput, match="which `bench circuits` grades"):
        ves.bench("discovery", specimens=published, ids=["3"], out=tmp_path / "run")


def test_a_hub_id_fetches_the_cases_and_the_dataset(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def snapshot(hub_id: str, **options: Any) -> str:
        asked.append((hub_id, options.get("repo_type"), options["allow_patterns"]))
        return str(published)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    monkeypatch.chdir(tmp_path)
    (case,) = chosen_circuits("org/models", ["3"], None, "org/annotations")
    assert (case.id, case.annotation) == ("3", published / "annotations" / "case_3.json")
    files = ["3/ll_model.pth", "3/ll_model_cfg.pkl", "3/edges.pkl", "3/meta.json"]
    assert asked == [("org/models", None, files), ("org/annotations", "dataset", ["annotations/*.json"])]
    assert [folder.name for folder in original_folders(published)] == ["3", "67"]

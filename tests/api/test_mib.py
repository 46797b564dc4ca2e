"""Discoveries as a MIB submission: names of folders, and what MIB would not take."""

from pathlib import Path

import pytest

import vesalius as ves
from vesalius import api
from vesalius.documents import Discovery
from vesalius.errors import BadInput
from vesalius_bench.mib.submissions import folder_name


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("mib") / "run"
    ves.discover("frac_prevs", "eap", n=4, checks=False, out=directory)
    return directory


def renamed(run: Path, place: Path, specimen: str, behaviour: str | None) -> Path:
    """The run as if it were one of another model."""
    discovery = Discovery.read(run / "discovery.json")
    request = discovery.request.model_copy(update={"specimen": specimen, "behaviour": behaviour})
    discovery.model_copy(update={"request": request}).save(place)
    return place


def test_folders_have_mibs_names(run: Path, tmp_path: Path) -> None:
    names = {
        ("openai-community/gpt2", "ioi"): "ioi_gpt2",
        ("meta-llama/Llama-3.1-8B", "arc_easy"): "arc-easy_llama3",
        ("/models/my_own", "data/rows.jsonl"): "rows_my-own",
        ("frac_prevs", None): "frac-prevs_specimen",
    }
    for place, ((specimen, behaviour), name) in enumerate(names.items()):
        renamed(run, tmp_path / str(place), specimen, behaviour)
        assert folder_name(Discovery.read(tmp_path / str(place) / "discovery.json")) == name


def test_a_submission_of_two_tasks_and_two_models_is_complete(run: Path, tmp_path: Path) -> None:
    runs = [
        renamed(run, tmp_path / "a", "openai-community/gpt2", "ioi"),
        renamed(run, tmp_path / "b", "Qwen/Qwen2.5-0.5B", "mcqa"),
    ]
    submission = api.write_mib(runs, tmp_path / "submission")
    assert [row.folder for row in submission.folders] == ["ioi_gpt2", "mcqa_qwen2.5"]
    assert submission.problems == ()
    alone = api.write_mib(runs[:1], tmp_path / "alone", level="node")
    assert alone.problems == ("MIB needs at least 2 tasks and this has 1", "MIB needs at least 2 models and this has 1")
    assert alone.folders[0].level == "node"
    with pytest.raises(BadInput, match=r"is ioi_gpt2, as .*a is; give one discovery of each task and model"):
        api.write_mib([runs[0], renamed(run, tmp_path / "c", "gpt2", "ioi")], tmp_path / "twice")
    assert not (tmp_path / "twice").exists()

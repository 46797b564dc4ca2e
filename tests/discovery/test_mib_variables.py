"""MIB's causal variable track: rows, folders and scores, held to a model whose weights, set by hand, hold A - B."""

import json
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.explanations.difference_model import BLOCKS, D_MODEL, difference_model
from tests.explanations.induction_model import as_specimen
from vesalius import api
from vesalius.errors import BadInput
from vesalius.intervene.exchanging import Place
from vesalius.model.specimen import Specimen
from vesalius_bench.mib.documents import MibInterchange
from vesalius_bench.mib.features import FEATURIZER, INDICES, INVERSE, FolderName, read_units, unit_name, write_units
from vesalius_bench.mib.tasks import TASKS, TaskRows, algorithm_of

PROGRAM = """
VARIABLES = ["difference", "total"]

def difference(number1, number2):
    return number1 - number2

def total(number2, number3):
    return number3 - number2

def answer(difference, number3):
    return difference + number3
"""
ROLES = ("number1", "number2", "number3", "end")


def sums(rng: random.Random) -> tuple[int, int, int]:
    while True:
        a, b, c = (rng.randrange(5) for _ in range(3))
        if 0 <= a - b + c <= 8:
            return a, b, c


def row(rng: random.Random, split: str) -> dict[str, Any]:
    """One row in the layout of MIB's datasets: the prompt, and two counterfactuals, each a row of its own."""
    a, b, c = sums(rng)
    while True:
        x, y, _ = sums(rng)
        if 0 <= x - y + c <= 8:
            break
    others = {"random_counterfactual": sums(rng), "first_two_counterfactual": (x, y, c)}
    nested = {name: {"prompt": "{}-{}+{}=".format(*one)} for name, one in others.items()}
    return {"prompt": f"{a}-{b}+{c}=", "split": split, "metadata": {"kind": "sum"}, **nested}


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return as_specimen(difference_model(), None)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset's directory and a program."""
    place, rng = tmp_path_factory.mktemp("mib"), random.Random(0)
    (place / "rows").mkdir()
    for split, n in (("train", 24), ("test", 40)):
        lines = [json.dumps(row(rng, split)) for _ in range(n)]
        (place / "rows" / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    both = [json.loads(line) for split in ("train", "test") for line in (place / "rows" / f"{split}.jsonl").open()]
    (place / "rows.jsonl").write_text("\n".join(map(json.dumps, both)), encoding="utf-8")
    (place / "program.py").write_text(PROGRAM, encoding="utf-8")
    return place


def written(specimen: Specimen, material: Path, out: Path, **more: Any) -> MibInterchange:
    return api.align_mib(
        specimen,
        out,
        rows=material / "rows.jsonl",
        task="sums",
        algorithm=material / "program.py",
        n=24,
        held_out=40,
        unsafe_sandbox=True,
        progress=False,
        **more,
    )


@pytest.mark.slow
def test_a_variable_is_placed_written_and_scored_at_one_and_elsewhere_as_an_unchanged_model(
    specimen: Specimen, material: Path, tmp_path: Path
) -> None:
    right = written(specimen, material, tmp_path / "right", variable="difference")
    (unit,) = right.units
    # A - B stands at B's position after block 0, and nowhere else.
    assert (unit.unit, unit.place) == ("ResidualStream(Layer-0,Token-number2)", "resid1@number2")
    assert Path(right.folder).name == "sums_by-hand_difference"
    assert (unit.accuracy.value, unit.changes.value, right.average) == (1.0, 1.0, 1.0)
    assert unit.accuracy.baseline is not None
    assert unit.accuracy.baseline < 0.5
    assert set(unit.kinds) == {"random", "first_two"}
    wrong = written(specimen, material, tmp_path / "wrong", variable="difference", at=["resid1@number1", "L0H1@end"])
    for one in wrong.units:
        assert one.accuracy.value == one.accuracy.baseline == unit.accuracy.baseline
        assert one.changes.value == 0.0
    again = api.interchange_mib(
        right.folder,
        specimen,
        rows=material / "rows.jsonl",
        algorithm=material / "program.py",
        unsafe_sandbox=True,
        progress=False,
    )
    assert again.units == right.units


@pytest.mark.slow
def test_a_variable_that_the_model_does_not_compute_is_at_no_place(
    specimen: Specimen, material: Path, tmp_path: Path
) -> None:
    program = PROGRAM.replace("def answer(difference, number3)", "def answer(total, number1)")
    program = program.replace("return difference + number3", "return number1 + total")
    (tmp_path / "rival.py").write_text(program, encoding="utf-8")
    given = {"rows": material / "rows.jsonl", "task": "sums", "algorithm": tmp_path / "rival.py"}
    found = api.align_mib(
        specimen, tmp_path, variable="total", n=24, held_out=40, unsafe_sandbox=True, progress=False, **given
    )
    assert found.units[0].changes.value is not None
    assert found.units[0].changes.value <= 0.25


@pytest.mark.slow
def test_directions_are_found_and_are_a_projection_in_the_files(
    specimen: Specimen, material: Path, tmp_path: Path
) -> None:
    found = written(specimen, material, tmp_path, variable="difference", at=["resid1@number2"], directions=16)
    assert (found.units[0].directions, found.units[0].changes.value) == (16, 1.0)
    data = torch.load(Path(found.folder) / f"{found.units[0].unit}{FEATURIZER}", weights_only=True)
    rotation = data["model_info"]["additional_config"]["rotation_matrix"]
    assert rotation.shape == (D_MODEL, 16)
    assert torch.allclose(rotation.T @ rotation, torch.eye(16), atol=1e-5)
    # 4 directions of the token and 4 of A differ, and of A - B up to 8, as many as its values in these rows tell.
    assert float(rotation[BLOCKS["difference"]].pow(2).sum()) >= 7


# What MIB's own classes need to find in the files.


def test_the_state_of_a_written_featurizer_is_what_a_parametrized_rotation_loads(tmp_path: Path) -> None:
    directions = torch.linalg.qr(torch.randn(8, 3, generator=torch.Generator().manual_seed(0)))[0]
    write_units(tmp_path / "a_b_c", [Place(("end",), layer=2, directions=directions)], "last_token")
    base = tmp_path / "a_b_c" / "ResidualStream(Layer-1,Token-last_token)"
    assert sorted(path.name for path in base.parent.iterdir()) == sorted(
        f"{base.name}{ending}" for ending in (FEATURIZER, INVERSE, INDICES)
    )
    assert base.with_name(base.name + INDICES).read_text() == "null"
    for ending in (FEATURIZER, INVERSE):
        data = torch.load(f"{base}{ending}", weights_only=True)
        rotate = torch.nn.Module()
        rotate.weight = torch.nn.Parameter(torch.empty(8, 3).normal_())
        holder = torch.nn.Module()
        holder.rotate = torch.nn.utils.parametrizations.orthogonal(rotate)
        holder.load_state_dict(data["state_dict"])  # strict
        assert torch.allclose(rotate.weight, directions, atol=1e-6)
        assert data["model_info"]["featurizer_class"] == "SubspaceFeaturizerModule"


def test_names_of_folders_and_units() -> None:
    name = FolderName.parse("4_answer_MCQA_Qwen2ForCausalLM_answer_pointer")
    assert (name.task, name.model, name.variable) == ("4_answer_MCQA", "Qwen2ForCausalLM", "answer_pointer")
    assert str(FolderName.parse("arithmetic_Gemma2ForCausalLM_ones_carry")) == "arithmetic_Gemma2ForCausalLM_ones_carry"
    for bad in ("arithmetic", "arithmetic_Gemma2ForCausalLM", "_a_b"):
        with pytest.raises(BadInput, match="is not named TASK_MODEL_VARIABLE"):
            FolderName.parse(bad)
    assert unit_name(Place(("S2",), layer=3), "last") == "ResidualStream(Layer-2,Token-S2)"
    with pytest.raises(BadInput, match="has no name for the embedding"):
        unit_name(Place(("S2",), layer=0), "last")


def test_mibs_tasks_are_read_by_their_rows() -> None:
    addition = TASKS["arithmetic"].read({"prompt": "The sum of 27 and 5 is "})
    assert addition.inputs == {"op1_tens": 2, "op1_ones": 7, "op2_tens": 0, "op2_ones": 5}
    assert addition.ends["op2_last"] == len("The sum of 27 and 5")
    question = {"prompt": "A box is brown. What color is a box?\nA. gray\nB. brown\nAnswer:", "answerKey": 1}
    choice = TASKS["4_answer_MCQA"].read({**question, "choices": {"label": ["A", "B"], "text": ["gray", "brown"]}})
    assert choice.inputs == {"key": 1, "labels": ["A", "B"]}
    assert question["prompt"][: choice.ends["correct_symbol"]].endswith("\nB")


def test_the_programs_of_mibs_tasks() -> None:
    carry = {"op1_tens": 2, "op1_ones": 7, "op2_tens": 1, "op2_ones": 5}
    plain = {**carry, "op2_ones": 1}
    with algorithm_of("arithmetic", None).runner() as runner:
        (one,) = runner.predicted([(carry, plain)])
    assert (one.base, one.source, one.after) == (42, 38, {"ones_carry": 32})
    base, source = ({"key": key, "labels": labels} for key, labels in ((0, ["A", "B"]), (1, ["C", "D"])))
    with algorithm_of("ARC_easy", None).runner() as runner:
        (one,) = runner.predicted([(base, source)])
    assert one.after == {"answer_pointer": "B", "answer": "D"}


def test_rows_that_are_none_of_the_track_and_tasks_that_are_not_scored_are_refused(
    specimen: Specimen, material: Path, tmp_path: Path
) -> None:
    (tmp_path / "plain.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n', encoding="utf-8")
    with pytest.raises(BadInput, match="row 1 has no field such as random_counterfactual"):
        TaskRows.of(tmp_path / "plain.jsonl", "arithmetic")
    with pytest.raises(BadInput, match="squared error of a logit difference"):
        TaskRows.of(material / "rows.jsonl", "ioi_task")
    unsplit = [{**row(random.Random(1), "x"), "split": None}]
    (tmp_path / "unsplit.jsonl").write_text(json.dumps(unsplit[0]), encoding="utf-8")
    rows = TaskRows.of(tmp_path / "unsplit.jsonl", "sums")
    assert len(rows.sources(specimen, train=False).cases) == 1
    with pytest.raises(BadInput, match="no row has the split train"):
        rows.sources(specimen, train=True)
    with pytest.raises(BadInput, match="it has no choices"):
        TaskRows.of(tmp_path / "unsplit.jsonl", "4_answer_MCQA").sources(specimen, train=False)


# Files that must be refused in one line.


class _Code:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("the pickle was run",))


def folder_of(place: Path, info: dict[str, Any] | None = None, indices: str = "null") -> Path:
    write_units(place, [Place(("end",), layer=1, directions=torch.eye(4)[:, :2])], "last")
    base = place / "ResidualStream(Layer-0,Token-last)"
    for ending in (FEATURIZER, INVERSE) if info is not None else ():
        path = Path(f"{base}{ending}")
        data = torch.load(path, weights_only=True)
        data["model_info"] |= info or {}
        torch.save(data, path)
    Path(f"{base}{INDICES}").write_text(indices, encoding="utf-8")
    return place


@pytest.mark.parametrize(
    ("info", "indices", "said"),
    [
        ({"featurizer_class": "MyFeaturizer"}, "null", "is not read, for it is code"),
        ({"additional_config": {"rotation_matrix": torch.ones(5, 2)}}, "null", r"has shape \[5, 2\]"),
        ({"additional_config": {"rotation_matrix": torch.full((4, 2), float("nan"))}}, "null", "are not orthonormal"),
        ({"additional_config": {"rotation_matrix": torch.ones(4, 2)}}, "null", "are not orthonormal"),
        ({"additional_config": {"rotation_matrix": "4 by 2"}}, "null", "no rotation_matrix of numbers"),
        ({"additional_config": None}, "null", "no rotation_matrix of numbers"),
        (None, "[2]", "features from 0 to 1"),
        (None, "[0, 0]", "list of different features"),
        (None, "[true]", "list of different features"),
        (None, "{", "not readable as JSON"),
    ],
)
def test_damaged_units_are_refused(
    specimen: Specimen, tmp_path: Path, info: dict[str, Any] | None, indices: str, said: str
) -> None:
    config = specimen.model.config.model_copy(update={"d_model": 4})
    folder = folder_of(tmp_path / "a_b_c", info, indices)
    with pytest.raises(BadInput, match=said) as refused:
        read_units(folder, config, ROLES, "last")
    assert "\n" not in str(refused.value)


def test_a_pickle_is_not_run_and_stray_names_are_refused(specimen: Specimen, tmp_path: Path) -> None:
    config = specimen.model.config.model_copy(update={"d_model": 4})
    folder = folder_of(tmp_path / "a_b_c")
    (unit,) = read_units(folder, config, ROLES, "last")
    assert unit.place.directions is not None
    assert torch.equal(unit.place.directions, torch.eye(4)[:, :2])
    path = folder / f"ResidualStream(Layer-0,Token-last){FEATURIZER}"
    for content in (pickle.dumps({"model_info": _Code()}), b"", b"PK\x03\x04 not a zip"):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="is not a plain checkpoint of tensors"):
            read_units(folder, config, ROLES, "last")
    path.unlink()
    with pytest.raises(BadInput, match="holds no file that ends in _featurizer"):
        read_units(folder, config, ROLES, "last")
    for stray, said in {
        "ResidualStream(Layer-7,Token-last)": "is beyond the 2 layers",
        "ResidualStream(Layer-0,Token-S2)": "position 'S2' does not exist",
        "weights": "is no unit",
    }.items():
        other = folder / f"{stray}{FEATURIZER}"
        other.write_bytes(b"")
        with pytest.raises(BadInput, match=said):
            read_units(folder, config, ROLES, "last")
        other.unlink()

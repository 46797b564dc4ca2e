"""A folder in the published layout, written here: records become functions, and a bad record is named."""

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vesalius.errors import BadInput
from vesalius_functions.numeric import load_published, nets
from vesalius_functions.numeric.expressions import Atom, Pair


def record(number: int, name: str, params: Any, **fields: Any) -> dict[str, Any]:
    return {
        "type": "simple",
        "params": params,
        "name": f"{name}({params})",
        "dir": f"/some/where/f{number:05d}" if number % 2 else f"f{number:05d}",
        "approx_mse_error": 0.5,
        "corruption_type": "interval_inside",
        "corruption_params": {"std": 7.5, "boundary": [1.0, 9.25]},
        "domain": [-100, 100],
        "noise_type": "poisson",
        "noise_params": 1,
        "GPT_description": "",
        **fields,
    }


RECORDS = [
    record(0, "absolute", [2.0, 3.0]),
    record(1, "relu;linear;multiply_two", [[0.3, 5.6, 0.9], [7.6, 9.1]], type="relu"),
    record(2, "constant", 45),
    record(3, "constant;ceil;sum_two", [-93, None], type="constant"),
    record(4, "rational", [[1.0, 2.0], [3.0, 0.0, 1.0]]),
    record(5, "linear", [1.0, 1.1]),
]
SCRIPTS = ["function_code.py", "corrupted_function_code.py", "noised_function_code.py", "function_code.py"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nets, "train", partial(nets.train, steps=2, points=50))
    (tmp_path / "numeric").mkdir()
    write(tmp_path, RECORDS)
    return tmp_path


def write(folder: Path, records: Any) -> None:
    (folder / "numeric" / "data.json").write_text(json.dumps(records))
    names = {f"f{n:05d}": script for n, script in enumerate([*SCRIPTS, "function_code.py", "load_mlp.py"])}
    (folder / "numeric" / "func_name_dict.json").write_text(json.dumps(names))


def test_records_become_functions(folder: Path) -> None:
    absolute, product, constant, total, rational, line = load_published(folder)
    assert [f.kind for f in (absolute, product, constant, total, line)] == [
        "clean",
        "corrupted",
        "noised",
        "clean",
        "mlp",
    ]
    assert absolute.values(np.array([-4.0]))[0] == 8  # the scripts forget the bias
    assert product.id == "f00001"
    assert product.expression == Pair("product", Atom("relu", (0.3, 5.6, 0.9)), Atom("linear", (7.6, 9.1)))
    assert product.corruption is not None
    assert (product.corruption.mean, product.corruption.interval) == (7.5, (1.0, 9.25))
    assert product.mean(np.array([10.0]))[0] == pytest.approx((0.3 * 10 + 5.6) * (76 + 9.1))
    assert constant.noise == "poisson"
    assert constant.mean(np.array([0.0]))[0] == 46
    assert total.values(np.array([1.5]))[0] == -91
    assert rational.values(np.array([2.0]))[0] == pytest.approx(5 / 7)
    assert line.net is not None
    assert line.published_mse == 0.5


def test_mode_fixed_computes_what_the_records_say(folder: Path) -> None:
    assert load_published(folder, mode="fixed")[0].values(np.array([-4.0]))[0] == 11


def test_the_inner_folder_will_do(folder: Path) -> None:
    assert len(load_published(folder / "numeric")) == 6


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"params": [1.0]}, "absolute has 2 parameters, not 1"),
        ({"params": ["a", 1.0]}, "'a' should be a number"),
        ({"name": "cubic(1)"}, "family 'cubic' does not exist"),
        ({"name": "linear;linear;minus_two(1)"}, "neither a family nor"),
        ({"dir": "f00077"}, "names the script None"),
        ({"dir": 3}, "its name is 3, not a text"),
        ({"dir": "/"}, "names nothing"),
        ({"name": "sin((1, 0, 0, 0))", "params": [1, 0, 0, 0]}, "parameter 2 of sin is 0"),
        ({"name": "root((1, 0, 0))", "params": [1.0, 0.0, 0]}, "parameter 3 of root is 0"),
        ({"params": [math.nan, 1.0]}, "nan is not a finite number"),
        ({"params": [10**400, 1.0]}, "000000 is not a finite number"),
    ],
)
def test_a_malformed_record_is_left_out_and_named_in_one_line(folder: Path, change: dict[str, Any], said: str) -> None:
    write(folder, [{**RECORDS[0], **change}, *RECORDS[1:]])
    loaded = load_published(folder)
    assert [function.id for function in loaded] == [f"f{n:05d}" for n in range(1, 6)]
    ((name, reason),) = loaded.left_out.items()
    assert name.startswith("record 0 (")
    assert said in reason
    assert "\n" not in reason


def test_a_dataset_of_which_nothing_can_be_used_is_refused(folder: Path) -> None:
    write(folder, [{**RECORDS[0], "params": [1.0]}, 7])
    with pytest.raises(BadInput, match=r"none of 2 records can be used; the first, record 0 \(f00000\): abs"):
        load_published(folder)
    write(folder, [])
    with pytest.raises(BadInput, match="the list of records is empty"):
        load_published(folder)


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (1, {"corruption_params": {"boundary": [1.0, 2.0]}}, "has no 'std'"),
        (1, {"corruption_type": "outside"}, "'outside' does not exist"),
        (1, {"corruption_params": {"std": 1.0, "boundary": [1.0, math.inf]}}, "inf is not a finite number"),
        (1, {"params": 3}, "must be a list of two"),
        (2, {"noise_type": "pink"}, "'pink' does not exist"),
        (4, {"params": [1.0, 2.0]}, "two lists of numbers"),
    ],
)
def test_what_is_not_live_is_not_read_and_what_is_live_is(
    folder: Path, number: int, change: dict[str, Any], said: str
) -> None:
    if "params" not in change:
        write(folder, [{**RECORDS[0], **change}, *RECORDS[1:]])
        assert len(load_published(folder)) == 6
    write(folder, [*RECORDS[:number], {**RECORDS[number], **change}, *RECORDS[number + 1 :]])
    (reason,) = load_published(folder).left_out.values()
    assert said in reason


def test_missing_and_broken_files_are_named(folder: Path) -> None:
    with pytest.raises(BadInput, match="nowhere: no such directory"):
        load_published(folder / "nowhere")
    write(folder, {"not": "a list"})
    with pytest.raises(BadInput, match="must be a list of records, not a dict"):
        load_published(folder)
    write(folder, [RECORDS[0], RECORDS[0]])
    assert load_published(folder).left_out == {"record 1 (f00000)": "an earlier record has the same `dir`"}
    (folder / "numeric" / "data.json").write_text("[")
    with pytest.raises(BadInput, match="not readable as JSON"):
        load_published(folder)
    write(folder, RECORDS)
    (folder / "numeric" / "func_name_dict.json").write_text("[]")
    with pytest.raises(BadInput, match=r"func_name_dict\.json: must be an object"):
        load_published(folder)
    (folder / "numeric" / "func_name_dict.json").unlink()
    with pytest.raises(BadInput, match=r"func_name_dict\.json: cannot be read"):
        load_published(folder)


def test_files_of_other_machines_are_read(folder: Path) -> None:
    """Marks of editors, carriage returns, Windows paths in records and script names, a net without its error."""
    records = [{**one, "dir": rf"D:\find\{one['dir'][-6:]}"} for one in RECORDS]
    del records[5]["approx_mse_error"]
    text = json.dumps(records, indent=1).replace("\n", "\r\n")
    (folder / "numeric" / "data.json").write_bytes(b"\xef\xbb\xbf" + text.encode())
    names = json.loads((folder / "numeric" / "func_name_dict.json").read_text())
    moved = {f"/data/{name}": f"/data/{name}/{script}" for name, script in names.items()}
    (folder / "numeric" / "func_name_dict.json").write_text(json.dumps(moved))
    loaded = load_published(folder)
    assert [function.id for function in loaded] == [f"f{n:05d}" for n in range(6)]
    assert loaded[5].published_mse is None
    assert loaded.left_out == {}

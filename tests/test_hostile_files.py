"""Mutated and damaged files: every loader reads them or refuses them in one short line.

`benchmarks/hostile_files.py` attacks with hundreds per loader; here are a few of each, and those that once got through.
"""

import json
from pathlib import Path

import pytest
from benchmarks.hostile_files import (
    LOADERS,
    attack,
    load_huggingface,
    make_circuit,
    make_gguf,
    make_gpt2,
    make_interpbench,
    make_specimen,
)

from vesalius import files
from vesalius.api.loading import load
from vesalius.circuits.originals import load_original
from vesalius.circuits.specimens import load_specimen
from vesalius.documents.attribution_graph import convert
from vesalius.documents.circuit import Circuit
from vesalius.errors import LONGEST_MESSAGE, BadInput, Failed, quoted
from vesalius.files import MAX_DEPTH, parse_json, plain_json
from vesalius.model.gguf import GgufFile
from vesalius.runs.directory import read_run
from vesalius_backbones.untrusted_text import Unreadable
from vesalius_backbones.untrusted_text import read as read_untrusted
from vesalius_bench.mib.files import read_folder
from vesalius_bench.ratings.reading import read_ratings
from vesalius_functions.strings import load_published
from vesalius_workbench.start import find_place

LONG = "a whole number of more than 300 digits"


def refusal(load, *arguments: object) -> str:
    with pytest.raises(BadInput) as error:
        load(*arguments)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) <= 500
    text.encode()
    return text


@pytest.mark.parametrize("name", LOADERS)
def test_mutated_files_are_read_or_refused(name: str) -> None:
    if name == "gguf":
        pytest.importorskip("gguf")
    findings = attack(name, 5, seed=1)
    assert findings.clean, findings
    assert findings.loaded + findings.refused == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "Infinity is not"),
        ('{"a": 1e999}', "too large"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("[" * 100_000, "inside each other"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "inside each other"),
        ("1" * 10_000, "not readable as JSON"),
        ("{", "not readable as JSON"),
    ],
)
def test_json_that_could_not_be_written_back_is_refused(text: str, reason: str) -> None:
    assert reason in refusal(lambda: parse_json(text, source="file"))
    assert reason in refusal(lambda: parse_json(text.encode(), source="file"))


def test_a_file_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 21)
    assert "/dev/zero: has more than 2 MB" in refusal(files.read_json, Path("/dev/zero"))
    (tmp_path / "run.json").write_bytes(b" " * (1 << 21) + b"{}")
    assert refusal(read_run, tmp_path).endswith(
        "give another file; put back a good copy, or begin the run anew in another directory"
    )
    monkeypatch.undo()
    assert "says nothing about the settings; put back" in refusal(read_run, _run(tmp_path, b'{"schema": 1}'))
    assert "schema 99; this version reads schema 1; use the version" in refusal(
        read_run, _run(tmp_path, b'{"schema": 99}')
    )
    assert "not readable as JSON" in refusal(read_run, _run(tmp_path, b'{"schema": 1, "set'))


def _run(directory: Path, content: bytes) -> Path:
    (directory / "run.json").write_bytes(content)
    return directory


def test_json_at_the_limits_is_read() -> None:
    deep = "[" * (MAX_DEPTH - 1) + "1" + "]" * (MAX_DEPTH - 1)
    assert json.dumps(parse_json(deep, source="x")) == deep
    assert parse_json('"\\ud83d\\ude0a"', source="x") == "😊"
    assert parse_json(b'\xef\xbb\xbf{"a": 1e308}', source="x") == {"a": 1e308}


@pytest.mark.parametrize("value", ["NaN", '"\\ud800"', "[" * 940 + "]" * 940])
def test_a_circuit_that_could_not_be_written_back(tmp_path: Path, value: str) -> None:
    make_circuit(tmp_path)
    file = tmp_path / "circuit.json"
    file.write_text(file.read_text().replace('"text"', value))
    refusal(Circuit.read, file)


@pytest.mark.parametrize(
    "sizes",
    [
        {"n_layers": 2 * 10**9},
        {"n_heads": 2 * 10**9},
        {"d_model": 10**30},
        {"n_heads": 10**4000},
        {"n_layers": "x" * 10**6},
    ],
)
def test_sizes_of_a_circuit_are_checked_before_anything_is_listed(tmp_path: Path, sizes: dict[str, object]) -> None:
    make_circuit(tmp_path)
    data = json.loads((tmp_path / "circuit.json").read_text())
    folder = tmp_path / "ioi_gpt2"
    folder.mkdir()
    text = json.dumps({**data, "cfg": {**data["cfg"], **sizes}})
    for place in (tmp_path / "circuit.json", folder / "importances.json"):
        place.write_text(text)
    refusal(Circuit.read, tmp_path / "circuit.json")
    refusal(read_folder, folder)
    refusal(lambda: convert(tmp_path / "circuit.json", tmp_path / "graph.json"))


def test_very_many_layers_are_counted_before_they_are_listed(tmp_path: Path) -> None:
    make_gpt2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_layer": 2**31}))
    assert "config.json says 2147483648 layers, the weights hold 1" in refusal(load_huggingface, tmp_path)


def test_a_table_of_edges_that_would_not_fit_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "ioi_gpt2"
    folder.mkdir()
    cfg = {"n_layers": 1000, "n_heads": 1000, "d_model": 8, "parallel_attn_mlp": False}
    (folder / "importances.json").write_text(json.dumps({"cfg": cfg, "nodes": {}, "edges": {}}))
    assert "at most 67,108,864 are read" in refusal(read_folder, folder)


@pytest.mark.parametrize("name", ["x" * 499, "a/" * 3000, "é" * 200, "a\0b"])
def test_a_name_that_no_file_can_have_is_one_line(name: str) -> None:
    assert "no file can have this name" in refusal(load, name)
    assert "no file can have this name" in refusal(find_place, name)


def test_numbers_of_thousands_of_digits_are_no_end_of_a_run() -> None:
    sent = {"n": 10**5000, "list": [-(10**5000), 7, True]}
    assert plain_json(sent) == {"n": LONG, "list": [LONG, 7, True]}
    value, _ = read_untrusted("{'n': 1_0, 'm': 3}")
    assert value == {"n": 10, "m": 3}
    for text in ('{"n": ' + "1" * 5000 + "}", "{'n': " + "1" * 5000 + "}"):
        with pytest.raises(Unreadable, match="5,000 digits"):
            read_untrusted(text)


def test_a_circuit_that_names_a_node_twice(tmp_path: Path) -> None:
    make_circuit(tmp_path)
    file = tmp_path / "circuit.json"
    file.write_text(file.read_text().replace('"nodes": {', '"nodes": {"m0": {"in_graph": true, "score": 9}, '))
    assert "field 'm0' occurs more than once" in refusal(Circuit.read, file)


@pytest.mark.parametrize("weight_map", [["model.safetensors"], {"wte.weight": 5}, None])
def test_shards_that_are_not_named_by_weight(tmp_path: Path, weight_map: object) -> None:
    make_gpt2(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert "`weight_map` does not say which file" in refusal(load_huggingface, tmp_path)


def test_parts_of_a_run_that_are_not_tables(tmp_path: Path) -> None:
    for name in ("names", "places", "limits", "annotations"):
        content = json.dumps({"schema": 1, "settings": {}, name: [1]}).encode()
        texts = "" if name == "limits" else " of texts"
        assert f"{name} is not a table{texts}; put back a good copy" in refusal(read_run, _run(tmp_path, content))
    content = b'{"schema": 1, "settings": {"specimens": 3}}'
    assert "specimens is not a table" in refusal(read_run, _run(tmp_path, content))
    content = b'{"schema": 1, "settings": {}, "places": {"3": {"a": 1}}}'
    assert "places is not a table of texts" in refusal(read_run, _run(tmp_path, content))
    content = b'{"schema": 1, "settings": {"backbone": 1e300}}'
    assert "the setting backbone is not a text" in refusal(read_run, _run(tmp_path, content))


@pytest.mark.parametrize("measure", [["x"], {"a": 1}, "x" * 100_000, None])
def test_ratings_whose_measure_is_no_text(tmp_path: Path, measure: object) -> None:
    row = {"specimen": "3", "component": "L0_MLP", "rater": "ann", "measure": measure, "score": 1}
    (tmp_path / "ratings.json").write_text(json.dumps([row]))
    assert "is not known" in refusal(read_ratings, tmp_path / "ratings.json")


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"n_layers": 20_000}, "the config says 20000"),
        ({"d_model": 2**31}, "this model needs"),
        ({"d_mlp": 2**40}, "this model needs"),
        ({"d_vocab": 2**62, "d_model": 2**62}, "cannot be made"),
    ],
)
def test_sizes_are_held_against_the_weights_before_memory_is_taken(
    tmp_path: Path, sizes: dict[str, int], reason: str
) -> None:
    make_specimen(tmp_path)
    file = tmp_path / "model.json"
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "config": {**data["config"], **sizes}}))
    assert reason in refusal(load_specimen, tmp_path)


def test_gguf_metadata_that_is_no_text(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    make_gguf(tmp_path)
    file = tmp_path / "model.gguf"
    data = file.read_bytes()
    assert b"llama" in data
    file.write_bytes(data.replace(b"llama", b"\xff\xfe\xff\xfe\xff", 1))
    refusal(GgufFile, file)


def test_interpbench_weights_that_are_cut(tmp_path: Path) -> None:
    make_interpbench(tmp_path)
    file = tmp_path / "ll_model.pth"
    data = file.read_bytes()
    for size in (0, 1, 60, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        refusal(load_original, tmp_path)


def test_a_published_function_whose_name_no_file_can_have(tmp_path: Path) -> None:
    place = tmp_path / "strings"
    place.mkdir()
    tests = {"test_vec": [[["ab", "x", "y"], ["ba", "n", "m"]]] * 10, "correct_inx": [1] * 10}
    names = ["f00000", "n" * 5000, "a\0b"]
    (place / "unit_test_data.json").write_text(json.dumps([{"name": name, **tests} for name in names]))
    loaded = load_published(tmp_path)
    assert [function.id for function in loaded] == ["f00000"]
    assert len(loaded.left_out) == 2


@pytest.mark.parametrize("kind", [BadInput, Failed])
def test_messages_are_one_line_that_can_be_shown(kind: type[Exception]) -> None:
    text = str(kind(f"file x: {'y' * 100_000}\n  \ud800\x1b[2J\u202e; give another"))
    assert len(text) <= LONGEST_MESSAGE + 30  # escapes of control characters
    assert text.startswith("file x: yyy")
    assert text.endswith("; give another")
    assert not set(text) & {"\n", "\x1b", "\ud800", "\u202e"}
    assert str(kind("short")) == "short"


def test_quotes_are_short() -> None:
    assert quoted("abc") == "'abc'"
    assert len(quoted("x" * 10**6)) < 210
    assert len(quoted(["x" * 1000] * 10)) < 210

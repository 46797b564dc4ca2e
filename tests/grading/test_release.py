"""The benchmark as a release: our own loader and a second reader, which knows the published layout alone, read from the
files what the answer key has.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vesalius as ves
from vesalius.errors import BadInput
from vesalius.options import Published
from vesalius_truth.grading.key_check import key_statistics
from vesalius_truth.key import all_tasks, answer
from vesalius_truth.key.other_keys import annotation_file, read_annotation


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("release") / "there"
    made = ves.export_circuits(place, Published())
    assert (len(made.components), sum(made.components.values())) == (84, 163)
    return place


def test_our_loader_reads_the_key_back(release: Path) -> None:
    for known in all_tasks():
        file = annotation_file(release, known.id)
        assert file is not None
        assert read_annotation(file) == answer(known.id)


def second_reader(file: Path) -> dict[str, Any]:
    """Reads one record by the layout that the paper prints, with nothing of ours but JSON."""
    data = json.loads(file.read_text(encoding="utf-8"))
    tags: dict[str, str] = {}
    for part in data["components"]:
        head = re.fullmatch(r"L(\d+)H(\d+)_ATTN", part["id"])
        mlp = re.fullmatch(r"L(\d+)_MLP", part["id"])
        assert head or mlp
        hook = f"blocks.{head[1]}.attn.hook_result[{head[2]}]" if head else f"blocks.{mlp[1]}.mlp.hook_post"  # type: ignore[index]
        assert part["hook"] == hook
        assert part["role"]["note"].strip()
        tags[part["hook"]] = part["role"]["tag"]
    places: dict[str, set[str]] = {}
    for entry in data["correspondence"]:
        (low,) = entry["low_level"]
        index = re.fullmatch(r"\[:, :, (\d+), :\]", low["index"])
        places.setdefault(low["name"] + (f"[{index[1]}]" if index else ""), set()).add(entry["label"])
    labels = {part["hook"]: set(part["labels"]) for part in data["components"]}
    return {"tags": tags, "places": places, "labels": labels, **data}


def test_a_second_reader_finds_the_published_counts_and_the_correspondence(release: Path) -> None:
    files = sorted((release / "annotations").iterdir())
    assert len(files) == 84
    counts: Counter[str] = Counter()
    for file in files:
        record = second_reader(file)
        assert file.name == f"case_{record['id']}.json"
        assert record["places"] == record["labels"], "every component carries the labels that are mapped to it"
        assert len(record["examples"]) == 5
        assert record["task_summary"]
        assert record["program"]
        counts.update(record["tags"].values())
    assert counts == {tag: one.count for tag, one in key_statistics().tags.items()}
    assert counts == {"MAPPER": 72, "AGGREGATOR": 32, "COMBINER": 33, "ROUTER": 11, "INDICATOR": 15}


def test_frac_prevs_is_recorded_as_the_paper_derives_it(release: Path) -> None:
    """The compiled program has its head at 0; the trained model carries it in head 2."""
    record = second_reader(release / "annotations" / "case_3.json")
    assert record["tags"] == {"blocks.0.mlp.hook_post": "INDICATOR", "blocks.1.attn.hook_result[2]": "AGGREGATOR"}
    high = {
        entry["label"]: (entry["high_level"]["name"], entry["high_level"]["index"])
        for entry in record["correspondence"]
    }
    assert high == {
        "is_x": ("blocks.0.mlp.hook_post", "[:]"),
        "share_of_x": ("blocks.1.attn.hook_result", "[:, :, 0, :]"),
    }
    for example in record["examples"]:
        seen = [
            sum(token == "x" for token in example["input"][: n + 1]) / (n + 1) for n in range(len(example["input"]))
        ]
        assert example["output"] == pytest.approx(seen, abs=1e-5)


def test_some_circuits_and_refusals(tmp_path: Path) -> None:
    made = ves.export_circuits(tmp_path / "two", Published(ids="3,frac_prevs_long"))
    assert made.components == {"3": 2, "39": 2}
    assert str(made).startswith("The answer key of 2 circuits, 4 components is written")
    assert "Do not give them to an agent" in (tmp_path / "two" / "README.md").read_text()
    with pytest.raises(BadInput, match="holds files already; name an empty place"):
        ves.export_circuits(tmp_path / "two", Published(ids="3"))
    with pytest.raises(BadInput, match="leave `specimens` and `annotations` out"):
        ves.export_circuits(tmp_path / "other", Published(specimens=tmp_path))

"""The heads that the tables of a stand-in look for, by its established truth, and its files in half their size."""

import json
from pathlib import Path

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.model.states import fingerprint, read_tensors, write_tensors
from vesalius_mechrl.standin.network import Gpt2
from vesalius_mechrl.standin.packed import FILES, TRUTH, pack, unpack
from vesalius_mechrl.standin.roles import established_heads

SAID = {"L0H0": "matters alone", "L0H1": "works against", "L0H2": "nothing alone", "L1H0": "matters alone"}


def truth(model: str) -> dict:
    """L1H0 moves the name, L0H1 moves it the wrong way, L0H2 takes the mover's place, L0H0 is an induction head."""
    ioi = {
        "heads": {head: {"says": says} for head, says in SAID.items()},
        "roles": {"name mover": ["L0H1", "L1H0"], "duplicate-token head": []},
        "backups": [{"head": "L0H2", "of": "L1H0"}, {"head": "L1H1", "of": "L0H0"}],
    }
    roles = {"induction head": ["L0H0", "L0H2"], "previous-token head": ["L0H2"]}
    return {"model": model, "tasks": {"mechrl-induction": {"roles": roles}, "mechrl-ioi": ioi}}


def test_categories_follow_from_the_truth(tmp_path: Path) -> None:
    model = random_model(small_config())
    assert established_heads(tmp_path, model) is None
    assert established_heads(None, model) is None
    (tmp_path / TRUTH).parent.mkdir()
    write_json(tmp_path / TRUTH, truth(fingerprint(model)))
    known = established_heads(tmp_path, model)
    assert known is not None
    assert known.induction == ("L0H0", "L0H2")
    assert known.categories == {
        "S-Inhibition": None,
        "Induction-in-IOI": ("L0H0",),
        "Backup Name Movers": ("L0H2",),
        "Name Movers": ("L1H0",),
        "Negative Name Movers": ("L0H1",),
        "Duplicate Token": (),
        "Previous Token": (),
    }
    write_json(tmp_path / TRUTH, truth("another"))
    with pytest.raises(BadInput, match="other weights"):
        established_heads(tmp_path, model)


def test_half_the_size_is_the_same_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = Gpt2(50, layers=1, heads=2, width=8, context=16)
    weights = {f"transformer.{name}": value.half().float() for name, value in network.state_dict().items()}
    directory = tmp_path / "trained"
    directory.mkdir()
    write_tensors(directory / "model.safetensors", weights)
    for name in FILES:
        (directory / name).write_text(json.dumps({"file": name}))
    packed = pack(directory, tmp_path / "packed")
    again = unpack(tmp_path / "again", packed)
    read = read_tensors(again / "model.safetensors")
    assert all(torch.equal(read[name], weight) for name, weight in weights.items())
    assert {weight.dtype for weight in read.values()} == {torch.float32}
    assert {path.name for path in again.iterdir() if path.is_file()} == {*FILES, "model.safetensors"}
    size = [(place / "model.safetensors").stat().st_size for place in (packed, directory)]
    assert size[0] < 0.7 * size[1]
    with pytest.raises(BadInput, match="not empty"):
        unpack(again, packed)
    with pytest.raises(BadInput, match="no stand-in is packaged"):
        unpack(tmp_path / "new", tmp_path)
    write_tensors(directory / "model.safetensors", {name: weight + 1e-7 for name, weight in weights.items()})
    with pytest.raises(BadInput, match="float16 does not hold"):
        pack(directory, tmp_path / "other")

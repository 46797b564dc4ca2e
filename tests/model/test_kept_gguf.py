"""A GGUF file of a user's own: converted at the first start, read from the cache later, and never read wrongly."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from tests.model.tiny_gguf import write_tiny_gguf
from vesalius.errors import BadInput, Note
from vesalius.model import Transformer, conversions, kept_gguf, states
from vesalius.model.gguf import GgufFile
from vesalius.model.sources import read_model

TOKENS = torch.tensor([[0, 5, 17, 200, 3]])

#: Runs in another process: reads the file, and finishes its conversion when another one is under way as well.
AT_ONCE = """
import sys, time
from pathlib import Path
from vesalius.model import kept_gguf
from vesalius.model.sources import read_model

write, cache = kept_gguf._write, kept_gguf.cache_directory()

def wait_and_write(file, model, directory):
    write(file, model, directory)
    until = time.monotonic() + 60
    while len(list(cache.glob("*.partial-*"))) < 2 and not list(cache.glob("gguf-*[0-9a-f]")):
        assert time.monotonic() < until, "no other process came"
        time.sleep(0.01)

kept_gguf._write = wait_and_write
loaded = read_model(Path(sys.argv[1]))
import torch
print(loaded.model(torch.tensor([[0, 5, 17, 200, 3]])).sum().item(), loaded.tokenizer.encode("hi there"))
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Transformer]:
    """A GGUF file with the model that it holds, and an empty cache."""
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "my model.gguf"
    return path, write_tiny_gguf(path)


def cached() -> list[Path]:
    return sorted(conversions.cache_directory().glob("*"))


def never(*_: object) -> None:
    raise AssertionError("the GGUF file was read again")


def test_the_second_start_reads_the_conversion(written: tuple[Path, Transformer], monkeypatch) -> None:
    path, expected = written
    first = read_model(path)
    assert (first.model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5
    (kept,) = cached()
    assert kept.name.startswith("gguf-my_model-")
    assert sorted(file.name for file in kept.iterdir()) == [
        "model.json",
        "model.safetensors",
        "receipt.json",
        "tokenizer.json",
    ]
    monkeypatch.setattr(kept_gguf, "GgufFile", never)
    second = read_model(path)
    assert torch.equal(second.model(TOKENS), first.model(TOKENS))
    assert second.model.config == first.model.config
    for loaded in (first, second):
        assert loaded.tokenizer is not None
        assert loaded.tokenizer.decode(loaded.tokenizer.encode("hi there")) == "<|bos|>hi there"
        assert (loaded.family, loaded.gguf, loaded.directory) == ("llama", path, None)


def test_half_precision_is_that_of_the_file(written: tuple[Path, Transformer]) -> None:
    path, _ = written
    expected = GgufFile(path).load(dtype=torch.bfloat16)(TOKENS)
    for start in ("converted", "kept"):
        model = read_model(path, dtype="bfloat16").model
        assert model.W_E.dtype == torch.bfloat16, start
        assert model.ln_final.w is not None
        assert model.ln_final.w.dtype == torch.float32, start
        assert torch.equal(model(TOKENS), expected), start


def test_a_file_that_changes_is_converted_again_and_the_old_conversion_goes(written: tuple[Path, Transformer]) -> None:
    path, _ = written
    read_model(path)
    before = cached()
    write_tiny_gguf(path, kind="Q8_0")
    again = read_model(path).model(TOKENS)
    assert torch.equal(again, GgufFile(path).load()(TOKENS))
    assert len(cached()) == 1
    assert cached() != before
    shutil.copyfile(path, path.with_name("other.gguf"))
    read_model(path.with_name("other.gguf"))
    assert len(cached()) == 2, "another file's conversion is left alone"


def test_the_time_of_the_last_change_counts(written: tuple[Path, Transformer]) -> None:
    """A file of the same size whose samples are the same, written later: not taken for the one of before."""
    path, _ = written
    about = path.stat()
    read_model(path)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    assert kept_gguf._conversion(path).name not in [kept.name for kept in cached()]


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "tokenizer.json", "receipt.json"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "gone"])
def test_a_damaged_conversion_is_made_again(name: str, damage: str, written: tuple[Path, Transformer]) -> None:
    path, expected = written
    read_model(path)
    file = cached()[0] / name
    data = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(data[:-5] if damage == "truncated" else bytes([data[0] ^ 1]) + data[1:])
    again = read_model(path)
    assert (again.model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5
    assert file.read_bytes() == data


def test_two_processes_at_once_keep_one_conversion(written: tuple[Path, Transformer]) -> None:
    path, _ = written
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", "-c", AT_ONCE, str(path)]
    running = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0, 0], said
    assert said[0][0] == said[1][0] != ""
    assert len(cached()) == 1, "one conversion, and nothing half done"


def test_a_full_disk_costs_a_note_and_no_more(written: tuple[Path, Transformer], monkeypatch) -> None:
    path, expected = written
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10, 10, 1000))
    with pytest.warns(Note, match="my model.gguf is converted again at every start: .* 0.0 GB are free in .*; set VES"):
        loaded = read_model(path)
    assert (loaded.model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5
    assert not conversions.cache_directory().exists()


def test_a_disk_that_fills_up_meanwhile(written: tuple[Path, Transformer], monkeypatch) -> None:
    path, expected = written

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(states, "save_file", full)
    with pytest.warns(Note, match="cannot be written to .*No space left on device"):
        loaded = read_model(path, dtype="bfloat16")
    assert loaded.model.W_E.dtype == torch.bfloat16
    assert loaded.tokenizer is not None
    assert (loaded.model(TOKENS) - expected(TOKENS)).abs().max() <= 0.2
    assert cached() == []


def test_a_cache_that_cannot_be_written(written: tuple[Path, Transformer], tmp_path: Path, monkeypatch) -> None:
    path, expected = written
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.warns(Note, match=r"cannot be written to .*file/cache \("):
        loaded = read_model(path)
    assert (loaded.model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5


def test_a_conversion_that_takes_too_much_is_not_kept(written: tuple[Path, Transformer], monkeypatch) -> None:
    monkeypatch.setattr(kept_gguf, "MOST_BYTES", 1000)
    with pytest.warns(Note, match="takes 0 GB, more than the 0 that are kept; a directory"):
        read_model(written[0])
    assert not conversions.cache_directory().exists()


def test_without_a_known_tokenizer_every_start_needs_another(written: tuple[Path, Transformer], monkeypatch) -> None:
    """A rule for splitting that is not known is refused, also when a start with a tokenizer of one's own was kept."""
    path, _ = written
    own = read_model(path).tokenizer
    shutil.rmtree(conversions.cache_directory())

    def unknown(self: GgufFile) -> None:
        raise BadInput("rule 'martian' for splitting text is not known; give a tokenizer of your own")

    monkeypatch.setattr(GgufFile, "tokenizer", unknown)
    for _ in range(2):
        assert read_model(path, tokenizer=own).tokenizer is own
        with pytest.raises(BadInput, match="'martian' for splitting text is not known"):
            read_model(path)
    assert len(cached()) == 1

"""GGUF files: weights and tokenizer round trips; damaged and unsupported files are refused in one line."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.model.tiny_gguf import CONFIG, write_tiny_gguf
from vesalius.errors import BadInput
from vesalius.model.gguf_file import GgufFile
from vesalius.model.tokenizer import Tokenizer

gguf = pytest.importorskip("gguf")

TOKENS = torch.tensor([[0, 5, 17, 200, 3, 99, 42, 8]])


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_1"])
def test_weights_round_trip(tmp_path: Path, kind: str) -> None:
    expected = write_tiny_gguf(tmp_path / "tiny.gguf", kind=kind)
    reports: list[tuple[str, int, int]] = []
    model = GgufFile(tmp_path / "tiny.gguf").load(progress=lambda *report: reports.append(report))
    assert model.config.model_dump(exclude={"norm_eps"}) == CONFIG.model_dump(exclude={"norm_eps"})
    assert model.config.norm_eps == pytest.approx(1e-5)
    assert model.unembed_weight is model.W_E
    # Quantising what was rounded already moves Q4_1's scales by an ulp or so.
    assert (model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-3 * expected(TOKENS).abs().max()
    if kind == "F32":
        assert (model(TOKENS) - expected(TOKENS)).abs().max() <= 1e-5
    assert reports == [("reading", i, 20) for i in range(1, 21)]


def test_the_tokenizer_inside(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf")
    tokenizer = Tokenizer(GgufFile(tmp_path / "tiny.gguf").tokenizer(), bos=0)
    ids = tokenizer.encode("hi 12é\n<|bos|>")
    assert tokenizer.decode(ids) == "<|bos|>hi 12é\n<|bos|>"
    assert (ids[0], ids[-1], len(ids)) == (0, 0, 1 + 1 + 1 + 2 + 2 + 1 + 1)
    assert tokenizer.is_single("hi")
    assert not tokenizer.is_single("ih")
    with pytest.raises(BadInput, match="'ih' is 2 tokens here"):
        tokenizer.token("ih")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_one_line_wherever_it_is_cut(tmp_path: Path, share: float) -> None:
    whole = tmp_path / "whole.gguf"
    if not whole.exists():
        write_tiny_gguf(whole)
    data, cut = whole.read_bytes(), tmp_path / "cut.gguf"
    cut.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BadInput) as refusal:
        GgufFile(cut).load()
    assert str(refusal.value).startswith(str(cut))
    assert "\n" not in str(refusal.value)


def test_unsupported_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_tiny_gguf(path, architecture="mamba")
    with pytest.raises(BadInput, match="architecture 'mamba' is not supported; use llama or qwen2"):
        GgufFile(path)
    path.write_bytes(b"not a model at all, but long enough to be looked at")
    with pytest.raises(BadInput, match="not a complete GGUF file"):
        GgufFile(path)
    with pytest.raises(BadInput, match="no such file"):
        GgufFile(tmp_path / "none.gguf")


@pytest.mark.parametrize(
    ("missing", "reason"),
    [("token_embd.weight", "token_embd.weight is missing"), ("blk.1.attn_v.weight", "blocks.1.attn.W_V is missing")],
)
def test_a_missing_tensor(tmp_path: Path, missing: str, reason: str) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", skip=missing)
    with pytest.raises(BadInput, match=reason):
        GgufFile(tmp_path / "m.gguf").load()


def test_missing_metadata(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(BadInput, match=r"metadata 'llama.attention.head_count' is missing"):
        GgufFile(tmp_path / "m.gguf").load()

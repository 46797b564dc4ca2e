"""GPT-OSS as it is published: experts in four bits with a power of two for every 32 of them."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.model.references import MODELS, VOCAB, random_reference
from vesalius.errors import BadInput
from vesalius.model.families.experts import _four_bits
from vesalius.model.sources import load_huggingface

pytest.importorskip("transformers")


def test_a_block_by_hand() -> None:
    """0x21 holds 1 (low, 0.5) and 2 (high, 1.0); 0xF9 holds 9 (-0.5) and 15 (-6.0); a scale of 128 doubles."""
    blocks = torch.zeros(1, 1, 1, 16, dtype=torch.uint8)
    blocks[..., 0], blocks[..., 1] = 0x21, 0xF9
    state = {"x_blocks": blocks, "x_scales": torch.tensor([[[128]]], dtype=torch.uint8)}
    values = _four_bits(state, "x")
    assert values.shape == (1, 1, 32)
    assert values.flatten()[:5].tolist() == [1.0, 2.0, -1.0, -12.0, 0.0]
    assert state == {}


def quantised(directory: Path, *, method: str = "mxfp4") -> torch.nn.Module:
    """Write random experts in four bits; return transformers' module with what transformers makes of them."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    kind, settings = MODELS["gpt_oss"]
    reference = random_reference(kind, {**settings, "intermediate_size": 64})
    reference.save_pretrained(directory)
    weights, generator = load_file(directory / "model.safetensors"), torch.Generator().manual_seed(0)
    for name in [name for name in weights if name.endswith(("gate_up_proj", "down_proj"))]:
        experts, inner, outer = weights.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outer, inner // 32, 16), dtype=torch.uint8, generator=generator)
        scales = torch.randint(121, 124, (experts, outer, inner // 32), dtype=torch.uint8, generator=generator)
        weights |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        with torch.no_grad():
            made = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
            reference.get_parameter(name).copy_(made.view(experts, inner, outer))
    save_file(weights, directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "modules_to_not_convert": ["lm_head"]}
    (directory / "config.json").write_text(json.dumps(config))
    return reference


def test_experts_in_four_bits_are_those_of_transformers(tmp_path: Path) -> None:
    reference = quantised(tmp_path)
    tokens = torch.randint(3, VOCAB, (2, 60), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = reference(tokens).logits
    assert theirs.std() > 0.1
    assert (load_huggingface(tmp_path)(tokens) - theirs).abs().max() <= 1e-4


def test_other_quantisations_are_refused(tmp_path: Path) -> None:
    quantised(tmp_path, method="fp8")
    with pytest.raises(BadInput, match=r"quantised weights \(fp8\) are not supported"):
        load_huggingface(tmp_path)

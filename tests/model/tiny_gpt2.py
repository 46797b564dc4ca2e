"""A random GPT-2 of our own making in Hugging Face's layout, written by hand."""

import json
from pathlib import Path

from safetensors.torch import save_file

from tests.models import random_model, small_config
from vesalius.model import Transformer


def write_tiny_gpt2(directory: Path, *, d_vocab: int = 17, n_ctx: int = 16, bos: int | None = None) -> Transformer:
    """Write `config.json` and `model.safetensors` of a two-layer model with four heads; returns that model."""
    shape = {"n_kv_heads": 4, "d_head": 3, "d_vocab": d_vocab, "d_vocab_out": d_vocab, "n_ctx": n_ctx}
    model = random_model(
        small_config(**shape, norm="layer", rotary=None, activation="gelu_tanh", gated=False, bos_token=bos)
    )
    model.unembed_weight = model.W_E
    model.b_U.zero_()
    state = {"wte.weight": model.W_E, "wpe.weight": model.W_pos}
    state |= {"ln_f.weight": model.ln_final.w, "ln_f.bias": model.ln_final.b}
    for i, block in enumerate(model.blocks):
        layer = {
            "ln_1.weight": block.ln1.w,
            "ln_1.bias": block.ln1.b,
            "attn.c_attn.weight": block.attn.qkv,
            "attn.c_attn.bias": block.attn.b_qkv,
            "attn.c_proj.weight": block.attn.output,
            "attn.c_proj.bias": block.attn.b_O,
            "ln_2.weight": block.ln2.w,
            "ln_2.bias": block.ln2.b,
            "mlp.c_fc.weight": block.mlp.W_in,
            "mlp.c_fc.bias": block.mlp.b_in,
            "mlp.c_proj.weight": block.mlp.W_out,
            "mlp.c_proj.bias": block.mlp.b_out,
        }
        state |= {f"h.{i}.{name}": value for name, value in layer.items()}
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: value.detach().contiguous() for name, value in state.items()}, directory / "model.safetensors")
    sizes = {"n_embd": 12, "n_head": 4, "n_layer": 2, "n_inner": 20, "vocab_size": d_vocab, "n_positions": n_ctx}
    raw = {"model_type": "gpt2", "bos_token_id": bos, **sizes}
    (directory / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    return model

"""Which decoders of transformers load: tiny random models of 42 model types, native, wrapped or refused.

Each type gets a model of two or three layers with every weight random, written as transformers writes it and loaded as
a user's directory is. What loads is held to transformers' own logits, a padded row included.

    OMP_NUM_THREADS=1 python -m benchmarks.decoders --out benchmarks/results/decoders.json
    OMP_NUM_THREADS=1 python -m benchmarks.decoders --types mamba rwkv
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from vesalius.errors import BadInput, Failed
from vesalius.files import write_json
from vesalius.model.families import FAMILIES
from vesalius.model.sources import load_huggingface

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED = {**_EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT = {
    **_ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "head_dim": 8,
}
_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
}
_SHARED = {**_EXPERTS, "shared_expert_intermediate_size": 16}
#: Settings beside `SMALL`; None leaves one out.
TYPES: dict[str, dict[str, Any]] = {
    "gpt2": {"head_dim": None},
    "gpt_neox": {},
    "gptj": {"rotary_dim": 4, "head_dim": None},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "llama": {},
    "mistral": {"sliding_window": 5},
    "mixtral": {"num_local_experts": 4, "sliding_window": None},
    "qwen2": {"head_dim": None},
    "qwen3": {},
    "qwen3_moe": _EXPERTS,
    "smollm3": {"head_dim": None},
    "phi3": {"head_dim": None, "original_max_position_embeddings": 64},
    "gemma2": {"sliding_window": 5},
    "gemma3_text": {"sliding_window": 5},
    "olmo2": {"head_dim": None},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5, "swiglu_limit": 0.3},
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "qwen3_5_text": _DELTA,
    "qwen3_next": {**_DELTA, **_SHARED},
    "gemma4_text": {
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
        "num_global_key_value_heads": 2,
        "global_head_dim": 8,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "sliding_window": 5,
    },
    "gemma3n_text": {
        "vocab_size_per_layer_input": 97,
        "hidden_size_per_layer_input": 8,
        "num_kv_shared_layers": 0,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "intermediate_size": [48, 48, 48],
        "activation_sparsity_pattern": [0.0, 0.0, 0.0],
        "laurel_rank": 4,
    },
    "llama4_text": {
        "num_local_experts": 4,
        "intermediate_size_mlp": 40,
        "attention_chunk_size": 8,
        "no_rope_layers": [1, 0, 1],
        "moe_layers": [1, 2],
        "floor_scale": 4,
        "attn_scale": 0.5,
    },
    "ministral3": {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 8,
            "llama_4_scaling_beta": 0.4,
        }
    },
    "glm": {},
    "glm4": {},
    "glm4_moe": {**_ROUTED, "use_qk_norm": True, "routed_scaling_factor": 1.5, "n_group": 2, "topk_group": 1},
    "granite": {
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.3,
        "attention_multiplier": 0.2,
        "logits_scaling": 4.0,
        "head_dim": None,
    },
    "granitemoe": {
        "num_local_experts": 4,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.3,
        "attention_multiplier": 0.2,
        "logits_scaling": 4.0,
        "head_dim": None,
    },
    "olmoe": {**_EXPERTS, "head_dim": None},
    "qwen2_moe": {**_SHARED, "head_dim": None},
    "mamba": {"state_size": 4, "num_attention_heads": None, "head_dim": None},
    "mamba2": {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "num_attention_heads": None},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False, **_EXPERTS, "head_dim": None},
    "falcon": {"head_dim": None, "num_key_value_heads": None},
    "bloom": {"head_dim": None, "num_key_value_heads": None},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 3, "max_seq_len": 64, "head_dim": None},
    "cohere2": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    "stablelm": {"head_dim": None, "use_qkv_bias": True},
    "starcoder2": {"head_dim": None},
    "nemotron": {},
    "rwkv": {"attention_hidden_size": 32, "context_length": 64, "head_dim": None},
}


def make(kind: str, directory: Path) -> Any:
    """Write a random model of a type; its norms' weights, its biases and what corrects routers are random as well."""
    torch.manual_seed(0)
    settings = {name: value for name, value in {**SMALL, **TYPES[kind]}.items() if value is not None or name in KEPT}
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        corrections = [table for name, table in model.named_buffers() if name.endswith("correction_bias")]
        for weight in [*model.parameters(), *corrections]:
            weight.add_(torch.randn_like(weight) * 0.15)
    model.save_pretrained(directory)
    return model


#: Settings whose None is meant.
KEPT = ("pad_token_id",)


@torch.no_grad()
def tried(kind: str) -> dict[str, Any]:
    """How one type loads, and how far its logits are from transformers'."""
    native = {name for family in FAMILIES for name in family.model_types}
    with tempfile.TemporaryDirectory() as folder:
        try:
            reference = make(kind, Path(folder))
        except Exception as error:
            return {"type": kind, "loads": "not made", "reason": f"{type(error).__name__}: {str(error)[:200]}"}
        try:
            ours = load_huggingface(Path(folder))
        except (BadInput, Failed) as error:
            reason = str(error).replace(f"{folder}/config.json: ", "").partition("; use one of")[0]
            return {"type": kind, "loads": "refused", "reason": reason}
    tokens = torch.randint(3, 96, (4, 24), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[0, 15:] = False
    theirs, alone = reference(tokens).logits.float(), reference(tokens[:1, :15]).logits.float()
    got = ours(tokens, mask=mask)
    far = max(float((got[1:] - theirs[1:]).abs().max()), float((got[:1, :15] - alone).abs().max()))
    found = {"type": kind, "loads": "wrapped" if ours.config.wrapped else "native", "largest_difference": far}
    found["largest_logit"] = float(theirs.abs().max())
    if ours.config.wrapped:
        found |= {"reason": ours.reason, "layers": ours.kinds}
    assert (kind in native) == (found["loads"] == "native"), found
    return found


def main() -> None:
    """Try every type, print and write one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = []
    for kind in given.types:
        rows.append(tried(kind))
        print(rows[-1], flush=True)
    counts = {way: sum(one["loads"] == way for one in rows) for way in ("native", "wrapped", "refused", "not made")}
    print(counts)
    if given.out:
        write_json(
            given.out,
            {"benchmark": "decoders", "transformers": transformers.__version__, "counts": counts, "rows": rows},
        )


if __name__ == "__main__":
    main()

"""transformers' own modules with random weights, small: what the families are compared with."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.closeness import exactly
from vesalius.model import Transformer

VOCAB = 61
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GPT: dict[str, Any] = {
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "vocab_size": VOCAB,
    "n_positions": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEAD = {"head_dim": 12}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9}


def rope(kind: str, **settings: Any) -> dict[str, Any]:
    """Rope settings as transformers 5 takes them."""
    return {"rope_type": kind, "rope_theta": 500.0, **settings}


#: Half a rotated head of 8: two short and two long factors would not tell the pairs apart.
LONGROPE = rope(
    "longrope",
    short_factor=[1.0, 1.1, 1.3, 1.7],
    long_factor=[1.5, 2.0, 4.0, 9.0],
    original_max_position_embeddings=64,
)
LLAMA3 = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32)

EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 14}
ROUTED = {
    "n_routed_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.7,
}
#: Limits that are passed (SwiGLU), and a rotation that is scaled.
GPT_OSS = {
    **SIZES,
    **HEAD,
    **MIXED,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "swiglu_limit": 0.7,
    "rope_parameters": rope("yarn", factor=4.0, original_max_position_embeddings=32, truncate=False),
}
LLAMA4: dict[str, Any] = {
    **SIZES,
    **HEAD,
    "num_hidden_layers": 3,
    "intermediate_size_mlp": 40,
    "num_local_experts": 3,
    "attention_chunk_size": 16,
    "no_rope_layers": [1, 0, 1],
    "moe_layers": [1, 2],
    "floor_scale": 8,
    "attn_scale": 0.5,
}

#: Keys of 6 + 4 numbers, values of 7; three groups of two experts, two of them open.
DEEPSEEK = {
    **SIZES,
    **ROUTED,
    "num_key_value_heads": 4,
    "q_lora_rank": 14,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 7,
    "n_group": 3,
    "topk_group": 2,
    "n_shared_experts": 1,
    "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
}
SIX_HEADS = {"hidden_size": 48, "num_attention_heads": 6}
MPT = {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 128, "vocab_size": VOCAB}

#: Name of the case: class, settings.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT),
    "gpt2-untied-unscaled": ("GPT2", {**GPT, "tie_word_embeddings": False, "n_inner": 30, "scale_attn_weights": False}),
    "gpt_neo": (
        "GPTNeo",
        {
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 7,
            "vocab_size": VOCAB,
            "max_position_embeddings": 128,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "gpt_neox": ("GPTNeoX", SIZES),
    "gpt_neox-sequential": ("GPTNeoX", {**SIZES, "use_parallel_residual": False}),
    "gptj": ("GPTJ", {**GPT, "rotary_dim": 4}),
    "opt": ("OPT", {**SIZES, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    "llama": ("Llama", SIZES),
    "llama-tied-biased": ("Llama", {**SIZES, "tie_word_embeddings": True, "attention_bias": True, **HEAD}),
    "mistral": ("Mistral", {**SIZES, "sliding_window": 9}),
    "ministral3": (
        "Ministral3",
        {
            **SIZES,
            **HEAD,
            "sliding_window": 40,
            "rope_parameters": rope(
                "yarn",
                factor=4.0,
                original_max_position_embeddings=16,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.4,
            ),
        },
    ),
    "mistral-no-window": ("Mistral", {**SIZES, "sliding_window": None}),
    "mixtral": ("Mixtral", {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2": ("Qwen2", SIZES),
    "qwen2-windows": ("Qwen2", {**SIZES, **MIXED, "use_sliding_window": True}),
    "qwen3": ("Qwen3", {**SIZES, **HEAD}),
    "qwen3_moe": (
        "Qwen3Moe",
        {**SIZES, **HEAD, "num_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 20},
    ),
    "qwen3_moe-mixed": (
        "Qwen3Moe",
        {
            **SIZES,
            **HEAD,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 20,
            "mlp_only_layers": [0],
            "norm_topk_prob": True,
        },
    ),
    "qwen2_moe": ("Qwen2Moe", {**SIZES, **SHARED}),
    "qwen2_moe-mixed": (
        "Qwen2Moe",
        {
            **SIZES,
            **SHARED,
            **MIXED,
            "use_sliding_window": True,
            "mlp_only_layers": [0],
            "norm_topk_prob": True,
            "qkv_bias": False,
        },
    ),
    "glm4_moe": ("Glm4Moe", {**SIZES, **HEAD, **ROUTED, "use_qk_norm": True}),
    "glm4_moe-groups": (
        "Glm4Moe",
        {
            **SIZES,
            **HEAD,
            **ROUTED,
            "n_group": 3,
            "topk_group": 2,
            "num_experts_per_tok": 3,
            "n_shared_experts": 2,
            "norm_topk_prob": False,
            "attention_bias": True,
        },
    ),
    "llama4": ("Llama4", LLAMA4),
    "llama4-plain": (
        "Llama4",
        {
            **LLAMA4,
            "use_qk_norm": False,
            "attn_temperature_tuning": False,
            "num_experts_per_tok": 2,
            "attention_bias": True,
            "rope_parameters": LLAMA3,
        },
    ),
    "gpt_oss": ("GptOss", GPT_OSS),
    "gpt_oss-unbiased": ("GptOss", {**GPT_OSS, "attention_bias": False, "rope_parameters": rope("default")}),
    "stablelm": ("StableLm", {**SIZES, "use_qkv_bias": True}),
    "stablelm-parallel": (
        "StableLm",
        {**SIZES, "use_parallel_residual": True, "rope_parameters": rope("default", partial_rotary_factor=0.5)},
    ),
    "starcoder2": ("Starcoder2", {**SIZES, "sliding_window": 9}),
    "starcoder2-unbiased": ("Starcoder2", {**SIZES, "use_bias": False, "tie_word_embeddings": False}),
    "nemotron": ("Nemotron", {**SIZES, **HEAD}),
    "nemotron-biased": ("Nemotron", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    "cohere2": ("Cohere2", {**SIZES, **HEAD, **MIXED, "logit_scale": 0.3}),
    "cohere2-biased": (
        "Cohere2",
        {**SIZES, **MIXED, "attention_bias": True, "tie_word_embeddings": False, "logit_scale": 2.0},
    ),
    "bloom": ("Bloom", SIZES),
    "bloom-six-heads": ("Bloom", {**SIZES, **SIX_HEADS, "tie_word_embeddings": False}),
    "mpt": ("Mpt", MPT),
    "mpt-clipped-seven-heads": (
        "Mpt",
        {**MPT, "d_model": 56, "n_heads": 7, "attn_config": {"clip_qkv": 0.5, "softmax_scale": 0.4}},
    ),
    "falcon": ("Falcon", SIZES),
    "falcon-groups": ("Falcon", {**SIZES, "new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    "falcon-groups-one-norm": (
        "Falcon",
        {
            **SIZES,
            "new_decoder_architecture": True,
            "num_kv_heads": 2,
            "num_ln_in_parallel_attn": 1,
            "ffn_hidden_size": 40,
            "tie_word_embeddings": False,
        },
    ),
    "falcon-alibi": (
        "Falcon",
        {**SIZES, **SIX_HEADS, "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    ),
    "falcon-alibi-multi-query": ("Falcon", {**SIZES, **SIX_HEADS, "alibi": True}),
    "deepseek_v3": ("DeepseekV3", DEEPSEEK),
    "deepseek_v3-plain-queries-biased": (
        "DeepseekV3",
        {
            **DEEPSEEK,
            "q_lora_rank": None,
            "attention_bias": True,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": False,
            "n_shared_experts": 2,
            "rope_parameters": rope("default"),
        },
    ),
    "deepseek_v3-biased-queries": ("DeepseekV3", {**DEEPSEEK, "attention_bias": True, "first_k_dense_replace": 2}),
    "deepseek_v2": ("DeepseekV2", {**DEEPSEEK, "topk_method": "greedy", "v_head_dim": 14, "norm_topk_prob": True}),
    "deepseek_v2-groups": (
        "DeepseekV2",
        {
            **DEEPSEEK,
            "topk_method": "group_limited_greedy",
            "q_lora_rank": None,
            "rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707},
        },
    ),
    "gemma": ("Gemma", {**SIZES, **HEAD}),
    "gemma2": ("Gemma2", {**SIZES, **HEAD, **MIXED, "query_pre_attn_scalar": 9, "attn_logit_softcapping": 3.0}),
    "gemma3": ("Gemma3", {**SIZES, **HEAD, **MIXED, "query_pre_attn_scalar": 9}),
    "phi": ("Phi", SIZES),
    "phi3": ("Phi3", {**SIZES, "sliding_window": 9}),
    "olmo": ("Olmo", SIZES),
    "olmo-clipped": ("Olmo", {**SIZES, "clip_qkv": 0.5}),
    "olmo2": ("Olmo2", SIZES),
    "olmo3": (
        "Olmo3",
        {**SIZES, **MIXED, "rope_parameters": {"full_attention": YARN, "sliding_attention": rope("default")}},
    ),
    "olmoe": (
        "Olmoe",
        {**SIZES, "num_experts": 5, "num_experts_per_tok": 2, "norm_topk_prob": True, "num_key_value_heads": 2},
    ),
    "granite": (
        "Granite",
        {
            **SIZES,
            "tie_word_embeddings": True,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.5,
        },
    ),
    "granitemoe": (
        "GraniteMoe",
        {
            **SIZES,
            "num_local_experts": 5,
            "num_experts_per_tok": 3,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "logits_scaling": 2.5,
        },
    ),
    "glm": ("Glm", {**SIZES, **HEAD}),
    "glm4": ("Glm4", {**SIZES, **HEAD}),
    "smollm3": ("SmolLM3", {**SIZES, "no_rope_layers": [1, 0]}),
    "rope-linear": ("Llama", {**SIZES, "rope_parameters": rope("linear", factor=3.0)}),
    "rope-llama3": ("Llama", {**SIZES, "rope_parameters": LLAMA3}),
    "rope-yarn": ("Llama", {**SIZES, "rope_parameters": YARN}),
    "rope-yarn-mscale": ("Llama", {**SIZES, "rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}}),
    "rope-longrope": ("Llama", {**SIZES, "rope_parameters": LONGROPE}),
    "rope-longrope-phi3": (
        "Phi3",
        {**SIZES, "rope_parameters": LONGROPE, "original_max_position_embeddings": 64, "sliding_window": None},
    ),
    "rope-dynamic": (
        "Llama",
        {**SIZES, "max_position_embeddings": 48, "rope_parameters": rope("dynamic", factor=4.0)},
    ),
}


def random_reference(kind: str, settings: dict[str, Any]) -> Any:
    """A model of transformers with every weight random: biases and norms too, which start at 0 and 1 there."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(5)
    config_name = f"{kind}TextConfig" if kind in ("Gemma3", "Llama4") else f"{kind}Config"
    # transformers' eager attention adds Falcon's biases of scores twice, the one that it takes by default once.
    attention = "sdpa" if settings.get("alibi") else "eager"
    config = getattr(transformers, config_name)(**settings, attn_implementation=attention)
    model = getattr(transformers, "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        corrections = [part for part in model.named_buffers() if "correction_bias" in part[0]]
        for name, parameter in [*model.named_parameters(), *corrections]:
            parameter.normal_(0, 1.0 if "sinks" in name else 0.2)
            if "norm" in name or ".ln_" in name:
                stored_less_1 = kind.startswith(("Gemma", "Nemotron"))
                parameter.add_(1.0 if name.endswith("weight") and not stored_less_1 else 0.0)
    return model.eval()


def assert_same(
    model: Transformer, run: Callable[[Transformer], Sequence[Tensor]], theirs: Sequence[Tensor], *, draws: int = 4
) -> None:
    """What `run` gives in float32, and what transformers gave, are both what it gives in float64, up to rounding."""
    for exact, one, other in zip(exactly(model, run, draws=draws), run(model), theirs, strict=True):
        assert exact.holds(one), ("ours", exact.distance(one), exact.bound)
        assert exact.holds(other), ("theirs", exact.distance(other), exact.bound)


def logits_and_attention(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """The logits with a cache and without, then the attention of each layer."""
    logits, cache = model.run_with_cache(tokens)
    patterns = [cache[f"blocks.{layer}.attn.hook_pattern"] for layer in range(model.config.n_layers)]
    return [logits, model(tokens), *patterns]

"""Train the small arithmetic model that ships with the package.

The model reads `BOS A - B + C =` over whole-number tokens 0 to 99 and writes
the answer as one token. Whole heads are dropped at random while it trains, so
that no single head is needed and groups of heads back each other up. One
prompt in ten, chosen by a hash of its operands, is held out.

    python scripts/train_arithmetic.py OUT [--seed 0] [--device cuda]

writes a Hugging Face directory of the llama family (8,000 steps: one to two
minutes on one H200). The model that ships with the package is

    python scripts/train_arithmetic.py OUT --layers 3 --dropout 0.25

in float16; `scripts/study_arithmetic.py` establishes what its heads do.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

NUMBERS = 100
WORDS = [str(number) for number in range(NUMBERS)] + ["+", "-", "=", "<s>", "<unk>"]
PLUS, MINUS, EQUALS, BOS = range(NUMBERS, NUMBERS + 4)
HELD_OUT_IN_TEN = 1


def held_out(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Which prompts are kept from training: a hash that is not linear in the sum."""
    mixed = (a * 7919 + 13) * (b * 104729 + 7) * (c * 1299709 + 3)
    return (mixed >> 5) % 10 < HELD_OUT_IN_TEN


def draw(count: int, generator: torch.Generator, test: bool) -> tuple[Tensor, Tensor]:
    """Prompts and answers whose answer lies between 0 and 99."""
    device = generator.device
    tried = count * (80 if test else 8)
    operands = torch.randint(NUMBERS, (tried, 3), generator=generator, device=device)
    a, b, c = operands.unbind(1)
    answer = a - b + c
    keep = (answer >= 0) & (answer < NUMBERS) & (held_out(a, b, c) == test)
    operands, answer = operands[keep][:count], answer[keep][:count]
    row = torch.tensor([BOS, 0, MINUS, 0, PLUS, 0, EQUALS], device=device)
    tokens = row.repeat(len(operands), 1)
    tokens[:, [1, 3, 5]] = operands
    return tokens, answer


class Attention(nn.Module):
    """Attention with rotary positions; whole heads are dropped at random where `dropped` is not 0."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        nn.init.normal_(self.o_proj.weight, std=0.02 / math.sqrt(2 * layers))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, dropped: float) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            projection(x).view(batch, length, self.heads, self.size).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if dropped:
            z = z * (torch.rand(batch, self.heads, 1, 1, device=x.device) >= dropped)
        return self.o_proj(z.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each on a normed residual stream."""

    def __init__(self, width: int, heads: int, inner: int, layers: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.self_attn = Attention(width, heads, layers)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.mlp = Mlp(width, inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, dropped: float) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, dropped)
        return x + self.mlp(self.post_attention_layernorm(x))


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, halves as in Hugging Face's llama."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class Model(nn.Module):
    """The model at `=`: the logits after the last token."""

    cos: Tensor
    sin: Tensor

    def __init__(self, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(len(WORDS), width)
        nn.init.normal_(self.embed_tokens.weight, std=0.02)
        inner = 2 * width
        self.layers = nn.ModuleList(Layer(width, heads, inner, layers) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.lm_head = nn.Linear(width, len(WORDS), bias=False)
        size = width // heads
        speed = 1.0 / 10000.0 ** (torch.arange(0, size, 2) / size)
        angles = torch.outer(torch.arange(7), speed).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    @property
    def blocks(self) -> list[Layer]:
        """The layers, as what they are."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def forward(self, tokens: Tensor, dropped: float = 0.0) -> Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.blocks:
            x = layer(x, self.cos, self.sin, dropped)
        return self.lm_head(self.norm(x[:, -1]))


def save(model: Model, out: Path, seed: int, accuracy: float, dropped: float) -> None:
    """Write config, weights, tokenizer and how it was trained."""
    out.mkdir(parents=True, exist_ok=True)
    width = model.embed_tokens.embedding_dim
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(WORDS),
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": model.blocks[0].self_attn.heads,
        "num_key_value_heads": model.blocks[0].self_attn.heads,
        "hidden_act": "silu",
        "max_position_embeddings": 7,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": BOS,
        "torch_dtype": "float32",
    }
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights = {
        (name if name.startswith("lm_head") else f"model.{name}"): value.detach().cpu().contiguous()
        for name, value in model.state_dict().items()
    }
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": BOS, "content": "<s>", "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)},
                  "unk_token": "<unk>"},
    }  # fmt: skip
    (out / "tokenizer.json").write_text(json.dumps(tokenizer) + "\n")
    card = {"task": "A - B + C", "seed": seed, "head_dropout": dropped, "accuracy": accuracy}
    (out / "card.json").write_text(json.dumps(card, indent=1) + "\n")


def main() -> None:
    """Train and save."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--dropout", type=float, default=0.15)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    generator = torch.Generator(given.device).manual_seed(given.seed)
    model = Model(given.layers, given.heads, given.width).to(given.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    for step in range(given.steps):
        rate = 2e-3 * min(1.0, (step + 1) / 200) * (1 - step / given.steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        tokens, answer = draw(given.batch, generator, test=False)
        loss = F.cross_entropy(model(tokens, given.dropout), answer)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 1000 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    tokens, answer = draw(20000, generator, test=True)
    with torch.no_grad():
        accuracy = (model(tokens).argmax(-1) == answer).double().mean().item()
    print(f"{len(tokens)} held-out prompts: accuracy {accuracy:.4f}", flush=True)
    save(model, given.out, given.seed, accuracy, given.dropout)


if __name__ == "__main__":
    main()

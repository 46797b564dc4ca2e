"""GPT-2 in plain torch, with GPT-2's names: what is trained, and the second reading of its files in the tests.

Pre-norm blocks, learned positions, GELU in its tanh form, biases, and an unembedding tied to the embedding. GPT-2's
files have linear weights as [in, out]; they are kept so here.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn


class Conv1D(nn.Module):
    """A linear map with weights [in, out], as GPT-2 stores them."""

    def __init__(self, inputs: int, outputs: int, *, std: float = 0.02) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * std)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """x W + b."""
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width, std=0.02 / math.sqrt(2 * layers))

    def forward(self, x: Tensor) -> Tensor:
        """What all heads write."""
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(z.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear maps with a GELU between them."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width, std=0.02 / math.sqrt(2 * layers))

    def forward(self, x: Tensor) -> Tensor:
        """What the MLP writes."""
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Layer(nn.Module):
    """Attention and MLP, each on a normed residual stream and each dropped in part while training."""

    def __init__(self, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads, layers), Mlp(width, layers)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """The residual stream after the layer."""
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.drop(self.mlp(self.ln_2(x)))


class Gpt2(nn.Module):
    """Token ids to logits."""

    def __init__(
        self, vocabulary: int, *, layers: int, heads: int, width: int, context: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.context = heads, context
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)
        self.h = nn.ModuleList(Layer(width, heads, layers, dropout) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "row pos"]) -> Float[Tensor, "row pos vocabulary"]:
        """Logits at every position."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(places))
        for layer in self.h:
            x = layer(x)
        return self.ln_f(x) @ self.wte.weight.T

    def config(self) -> dict[str, object]:
        """GPT-2's config.json."""
        vocabulary, width = self.wte.weight.shape
        return {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "vocab_size": vocabulary,
            "n_positions": self.context,
            "n_ctx": self.context,
            "n_embd": width,
            "n_layer": len(self.h),
            "n_head": self.heads,
            "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "bos_token_id": vocabulary - 1,
            "eos_token_id": vocabulary - 1,
            "tie_word_embeddings": True,
            "torch_dtype": "float32",
        }

"""The two shapes everything is timed at, with random weights."""

import torch

from vesalius.model import Config, Transformer

GPT2_SMALL = Config(
    n_layers=12,
    n_heads=12,
    d_model=768,
    d_head=64,
    d_mlp=3072,
    d_vocab=50257,
    d_vocab_out=50257,
    n_ctx=1024,
    norm="layer",
    activation="gelu_tanh",
)
#: The commonest shape of the 84 benchmark circuits: 50 of them have it.
TINY = Config(n_layers=2, n_heads=4, d_model=4, d_head=1, d_mlp=16, d_vocab=13, d_vocab_out=11, n_ctx=10)


def random_transformer(config: Config, *, std: float, seed: int = 0) -> Transformer:
    """Normal weights of the given spread; norms at one."""
    model = Transformer(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(".w"):
                weight.fill_(1.0)
            else:
                weight.copy_(torch.randn(weight.shape, generator=generator) * std)
    return model.eval().requires_grad_(False)

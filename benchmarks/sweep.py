"""A sweep by the engine against a plain loop of hooked forwards, one forward per set of components over the whole
batch.

GPT-2-small shape: every head, zero ablation, logit difference at the last position. Tiny shape: every set of one,
two or three components, share of outputs that change at any position. The loop is what one writes today: hook, run,
read.
"""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.measure import agree, progress, report, rivals
from benchmarks.shapes import GPT2_SMALL, TINY, random_transformer
from vesalius.intervene import Batch, Readout, agreement, effects, logit_difference
from vesalius.model import Component, Transformer


def loop(
    model: Transformer, tokens: Tensor, sets: list[tuple[Component, ...]], read: Callable[[Tensor], Tensor]
) -> Tensor:
    """Scores [prompt, set] by one hooked forward per set."""
    columns = []
    with torch.no_grad():
        for members in sets:
            hooks = [_zero_hook(model, component) for component in members]
            columns.append(read(model.run_with_hooks(tokens, fwd_hooks=hooks)))
    return torch.stack(columns, 1)


def _zero_hook(model: Transformer, component: Component):
    if component.head is None:
        bias = model.blocks[component.layer].mlp.b_out
        return f"blocks.{component.layer}.hook_mlp_out", lambda out, hook: bias.expand_as(out)

    def zero_head(z: Tensor, hook: object) -> Tensor:
        z = z.clone()
        z[:, :, component.head] = 0
        return z

    return f"blocks.{component.layer}.attn.hook_z", zero_head


def compare(name: str, model: Transformer, tokens: Tensor, sets, readout: Readout, read, *, repeats: int) -> dict:
    """Agreement first, then time."""
    progress(f"{name}: do both agree?")
    batch = Batch(tokens)
    swept = effects(model, batch, readout, sets=sets)
    difference = (swept.baseline[:, None] - swept.matrix - loop(model, tokens, sets, read)).abs().max().item()
    agree(name, difference, 1e-5)
    timed = rivals(
        lambda: effects(model, batch, readout, sets=sets),
        lambda: loop(model, tokens, sets, read),
        repeats=repeats,
        warm_up=False,
    )
    progress(f"{name}: {timed['ratio']:.1f} times faster than a loop")
    shape = {"prompts": len(tokens), "tokens": tokens.shape[1], "sets": len(sets)}
    return {"name": name, **shape, "agreement": difference, "forwards": swept.forwards, **timed}


def gpt2_small() -> dict:
    """Every head of a GPT-2-small-shaped model on 4 prompts of 32 tokens."""
    model = random_transformer(GPT2_SMALL, std=0.02)
    n, width = 4, 32
    tokens = torch.randint(0, 50257, (n, width), generator=torch.Generator().manual_seed(0))
    right, wrong = torch.randint(0, 50257, (2, n), generator=torch.Generator().manual_seed(1))
    readout = logit_difference(torch.full((n,), width - 1), right, wrong)
    rows = torch.arange(n)

    def read(logits: Tensor) -> Tensor:
        return logits[rows, -1, right] - logits[rows, -1, wrong]

    heads = [(component,) for component in model.components if component.is_head]
    return compare("gpt2-small shape, 144 heads", model, tokens, heads, readout, read, repeats=1)


def tiny(n: int) -> dict:
    """Every set of up to three components of a benchmark-sized model."""
    model = random_transformer(TINY, std=0.7)
    tokens = torch.randint(0, 13, (n, 10), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        clean = model(tokens).argmax(-1)
    readout = agreement(clean, torch.ones_like(clean, dtype=torch.bool))

    def read(logits: Tensor) -> Tensor:
        return (logits.argmax(-1) == clean).float().mean(1)

    sets = [members for size in (1, 2, 3) for members in itertools.combinations(model.components, size)]
    return compare(
        f"tiny shape, sets of one to three components, {n} prompts", model, tokens, sets, readout, read, repeats=25
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    report("sweep", [tiny(4), tiny(8), tiny(32), gpt2_small()])

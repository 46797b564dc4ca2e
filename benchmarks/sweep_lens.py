"""The same head sweep by TransformerLens 4.3's bridge: one `run_with_hooks` per head, on the same
GPT-2-small-shaped weights.

Runs in an environment of its own (`make bench-lens`), because TransformerLens brings 80 packages.
"""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformer_lens
from torch import Tensor
from transformer_lens.model_bridge.sources import build_bridge_from_module
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.measure import agree, report, rivals
from vesalius.intervene import Batch, effects, logit_difference
from vesalius.model.sources import load_huggingface

PROMPTS, TOKENS = 4, 32


def main() -> None:
    """Agreement of every effect, then time."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = GPT2Config()
    config._attn_implementation = "eager"
    theirs = GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_huggingface(Path(folder))
    bridge = build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=config, tokenizer=None)
    tokens = torch.randint(0, 50257, (PROMPTS, TOKENS), generator=torch.Generator().manual_seed(0))
    right, wrong = torch.randint(0, 50257, (2, PROMPTS), generator=torch.Generator().manual_seed(1))
    readout = logit_difference(torch.full((PROMPTS,), TOKENS - 1), right, wrong)
    rows, heads = torch.arange(PROMPTS), [(c,) for c in ours.components if c.head is not None]

    def lens_sweep() -> Tensor:
        columns = []
        with torch.no_grad():
            for (component,) in heads:

                def zero(z: Tensor, hook: object, head: int = component.head or 0) -> Tensor:
                    z = z.clone()
                    z.view(*z.shape[:2], 12, 64)[:, :, head] = 0
                    return z

                name = f"blocks.{component.layer}.attn.hook_z"
                logits = bridge.run_with_hooks(tokens, fwd_hooks=[(name, zero)], return_type="logits")
                columns.append(logits[rows, -1, right] - logits[rows, -1, wrong])
        return torch.stack(columns, 1)

    def our_sweep() -> Tensor:
        found = effects(ours, Batch(tokens), readout, sets=heads)
        return found.baseline[:, None] - found.matrix

    difference = agree("sweep_lens", (our_sweep() - lens_sweep()).abs().max().item(), 1e-5)
    timed = rivals(our_sweep, lens_sweep, repeats=1)
    row = {
        "name": "gpt2-small shape, 144 heads",
        "peer": f"transformer-lens {transformer_lens.__version__}"
        if hasattr(transformer_lens, "__version__")
        else "transformer-lens 4.3.0",
    }
    report("sweep_lens", [{**row, "prompts": PROMPTS, "tokens": TOKENS, "agreement": difference, **timed}])


if __name__ == "__main__":
    main()

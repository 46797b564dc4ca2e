"""One clean forward against Hugging Face's own GPT-2 and Llama modules (eager attention), same weights, same tokens."""

import tempfile
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from benchmarks.measure import agree, report, rivals
from vesalius.model.sources import load_huggingface


def compare(name: str, theirs: PreTrainedModel, *, prompts: int, tokens: int, repeats: int = 5) -> dict:
    """Save, load into our decoder, check the logits, time both."""
    theirs.eval()
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        theirs.save_pretrained(folder)
        ours = load_huggingface(Path(folder))
        ids = torch.randint(0, theirs.config.vocab_size, (prompts, tokens), generator=torch.Generator().manual_seed(0))
        difference = agree(name, (ours(ids) - theirs(ids).logits).abs().max().item(), 1e-4)
        timed = rivals(lambda: ours(ids), lambda: theirs(ids), repeats=repeats)
    return {"name": name, "prompts": prompts, "tokens": tokens, "agreement": difference, **timed}


def main() -> None:
    """GPT-2-small shape, a Llama shape with grouped queries, and a tiny model."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    eager = {"attn_implementation": "eager"}
    tiny = GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=64, n_positions=16, bos_token_id=0, eos_token_id=0)
    llama = LlamaConfig(
        num_hidden_layers=6,
        num_attention_heads=9,
        num_key_value_heads=3,
        hidden_size=576,
        intermediate_size=1536,
        vocab_size=49152,
    )
    report(
        "forward",
        [
            compare("gpt2-small shape", GPT2LMHeadModel._from_config(GPT2Config(), **eager), prompts=4, tokens=32),
            compare(
                "llama shape, 6 layers, grouped queries",
                LlamaForCausalLM._from_config(llama, **eager),
                prompts=4,
                tokens=32,
            ),
            compare("tiny", GPT2LMHeadModel._from_config(tiny, **eager), prompts=32, tokens=8, repeats=50),
        ],
    )


if __name__ == "__main__":
    main()

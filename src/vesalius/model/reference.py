"""Our logits against those of transformers' own module, for one model.

Both run the same token ids in the same number format on the same device, one prompt at a time. Where transformers is
not installed, or does not read files of this kind, there is nothing to compare with and the answer says so.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from vesalius.errors import BadInput
from vesalius.model.sources import LoadedModel
from vesalius.model.transformer import Transformer

#: Ordinary sentences, code and numbers; models without a tokenizer get random ids instead.
PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "When Mary and John went to the store, John gave a drink to",
    "def add(a, b):\n    return a +",
    "1, 2, 3, 4, 5,",
    "Once upon a time there was a little girl who",
    "The opposite of hot is",
    "In 1969, the first people landed on the",
    'She said: "I will be back before',
)
RANDOM_LENGTH = 32


@dataclass(frozen=True)
class Agreement:
    """How far two implementations of a model are apart: the largest difference of any logit at any position.

    `compared_with` and `max_difference` are None where there was nothing to compare with.
    """

    family: str
    dtype: str
    device: str
    compared_with: str | None
    max_difference: float | None
    n: int

    def describe(self) -> str:
        """One line."""
        prompts = f"{self.dtype}, {self.n} prompts"
        if self.max_difference is None:
            return f"not compared: transformers cannot load this model here ({prompts})"
        return f"agrees to {self.max_difference:.0e} ({prompts})"


@torch.no_grad()
def compare(loaded: LoadedModel, reference: Any, *, n: int = len(PROMPTS), seed: int = 0) -> Agreement:
    """Compare a model with `reference`, transformers' module of the same weights (None: nothing to compare with)."""
    model = loaded.model
    prompts = prompt_ids(loaded, n, seed=seed)
    name = None if reference is None else f"transformers {_transformers().__version__}"
    worst = None
    if reference is not None:
        worst = max(_difference(model, reference, ids) for ids in prompts)
    dtype = str(model.W_E.dtype).removeprefix("torch.")
    return Agreement(loaded.family, dtype, str(model.device), name, worst, len(prompts))


def load_reference(source: Any, loaded: LoadedModel) -> Any:
    """transformers' own module with the same weights and number format, or None where it cannot be had."""
    if not isinstance(source, str) and hasattr(source, "state_dict"):
        return source
    if importlib.util.find_spec("transformers") is None or not (loaded.directory or loaded.gguf):
        return None
    transformers = _transformers()
    options = {"dtype": loaded.model.W_E.dtype, "attn_implementation": "eager", "local_files_only": True}
    place = loaded.directory
    if loaded.gguf is not None:
        place, options["gguf_file"] = loaded.gguf.parent, loaded.gguf.name
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(place, **options)
    except ImportError:
        if loaded.gguf is None:
            raise
        raise BadInput(
            f"{loaded.label}: to read a GGUF file, transformers needs accelerate as well; run: pip install accelerate"
        ) from None
    return model.to(loaded.model.device).eval()


def prompt_ids(loaded: LoadedModel, n: int, *, seed: int = 0) -> list[list[int]]:
    """Token ids to compare on: ordinary texts where there is a tokenizer, then random ids."""
    if n < 1:
        raise BadInput(f"a comparison on {n} prompts is not possible; ask for at least one")
    config, prompts = loaded.model.config, []
    if loaded.tokenizer is not None:
        for text in PROMPTS[:n]:
            try:
                prompts.append(loaded.tokenizer.encode(text)[: config.n_ctx])
            except BadInput:  # a small vocabulary does not have these words
                continue
    shape = (n - len(prompts), min(RANDOM_LENGTH, config.n_ctx))
    random = torch.randint(0, config.d_vocab, shape, generator=torch.Generator().manual_seed(seed))
    return [ids for ids in prompts if ids] + random.tolist()


def _difference(model: Transformer, reference: Any, ids: Sequence[int]) -> float:
    tokens = torch.tensor([ids], device=model.device)
    theirs = reference(tokens).logits.to(device=model.device, dtype=torch.float32)
    return float((model(tokens).float() - theirs).abs().max())


def _transformers() -> Any:
    return importlib.import_module("transformers")

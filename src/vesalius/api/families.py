"""Whether a model computes what transformers computes."""

from dataclasses import asdict
from typing import Any

import torch

from vesalius.errors import BadInput, Failed
from vesalius.model.devices import Devices, named_devices, place
from vesalius.model.reference import PROMPTS, Agreement, compare, load_references
from vesalius.model.sources import read_model
from vesalius.progress import Progress, shown


def check(
    model: Any,
    *,
    tokenizer: Any = None,
    dtype: str | torch.dtype = "auto",
    device: Devices = "auto",
    revision: str | None = None,
    n: int = len(PROMPTS),
    seed: int = 0,
    progress: Progress | bool | None = None,
) -> Agreement:
    """Load a model here and in transformers, and compare all logits of `n` prompts, and of a longer one where a window
    or a rotation needs it. `agrees` says whether rounding explains the difference (`tolerance`).

    `model` is a directory, a hub id, a GGUF file or a model of transformers in memory. In half precision both are held
    against transformers in float32. Without transformers `compared_with` is None. transformers reads GGUF files where
    accelerate is installed as well.
    """
    where = device if device == "auto" else named_devices(device)
    with shown(progress) as report:
        report("loading", 0, 3)
        loaded = read_model(model, tokenizer=tokenizer, dtype=dtype, revision=revision, device=where, progress=report)
        place(loaded.model, where)
        report("loading transformers' module", 1, 3)
        try:
            references = load_references(model, loaded)
        except BadInput:
            raise
        except Exception as error:  # another library reads files that may hold anything
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise Failed(f"{loaded.label}: transformers could not load this model ({reason})") from None
        report("comparing", 2, 3)
        return compare(loaded, references, n=n, seed=seed)


def check_document(model: Any, **options: Any) -> dict[str, Any]:
    """The same as plain data, with one line in words."""
    agreement = check(model, **options)
    return {**asdict(agreement), "summary": agreement.describe()}

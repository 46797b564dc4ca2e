"""transformers, where it is installed: the only module that imports it.

It reads models with their own modules, for the comparison (`reference.py`) and for families that are wrapped
(`wrapped.py`). Attention of a wrapped model runs through `watched`, an attention function registered with transformers:
each module's own eager function, with an observer that sees queries, keys, values and pattern.
"""

import copy
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.errors import BadInput

#: How transformers names the attention function below.
IMPLEMENTATION = "vesalius"
INSTALL = "pip install 'vesalius[transformers]'"
#: From a function that attends to queries, keys and values, and these: what attention puts out, and its pattern.
Attend = Callable[..., tuple[Tensor, Tensor | None]]
Observer = Callable[..., tuple[Tensor, Tensor | None]]
_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


def installed() -> bool:
    """Whether transformers can be imported."""
    return importlib.util.find_spec("transformers") is not None


def transformers() -> Any:
    """The package; one line where it is missing."""
    if not installed():
        raise BadInput(f"transformers is not installed; run: {INSTALL}")
    return importlib.import_module("transformers")


def read(
    place: Path, *, dtype: torch.dtype | str, label: str, gguf: str | None = None, attention: str = "eager"
) -> Any:
    """transformers' causal language model of a directory, or of a GGUF file in it. No code from the directory is
    run.
    """
    options: dict[str, object] = {"dtype": dtype, "attn_implementation": attention, "local_files_only": True}
    if gguf is not None:
        options["gguf_file"] = gguf
        if importlib.util.find_spec("accelerate") is None:  # transformers says so by one or another exception
            raise BadInput(
                f"{label}: to read a GGUF file, transformers needs accelerate, which is not installed; run: {INSTALL}"
            )
    return transformers().AutoModelForCausalLM.from_pretrained(place, **options)


def knows(model_type: object) -> bool:
    """Whether transformers has a causal language model of this type."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    return isinstance(model_type, str) and model_type in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def read_to_wrap(place: Path, *, dtype: torch.dtype | str) -> Any:
    """The same, ready to be watched. Weights that the files do not hold would be random numbers: they are refused."""
    _register()
    common: dict[str, object] = {"dtype": dtype, "local_files_only": True, "output_loading_info": True}
    auto = transformers().AutoModelForCausalLM
    try:
        try:
            model, loading = auto.from_pretrained(place, attn_implementation=IMPLEMENTATION, **common)
        except (ValueError, KeyError):  # modules that do not take attention functions
            model, loading = auto.from_pretrained(place, attn_implementation="eager", **common)
    except Exception as error:  # another library reads files that may hold anything
        raise ValueError(f"transformers cannot load it ({type(error).__name__}: {error})") from None
    if missing := sorted(loading["missing_keys"]):
        raise ValueError(f"weight {missing[0]!r} is missing from the model")
    return model


def copied_to_wrap(model: Any, *, dtype: torch.dtype | None) -> Any:
    """A copy of a model in memory, its attention watched where its modules take attention functions."""
    _register()
    model = copy.deepcopy(model) if dtype is None else copy.deepcopy(model).to(dtype)
    try:
        model.set_attn_implementation(IMPLEMENTATION)
    except (ValueError, KeyError, AttributeError):
        model.config._attn_implementation = "eager"
    return model


@contextmanager
def watched(observer: Observer | None) -> Iterator[None]:
    """Within this context `observer(attend, module, query, key, value, mask, ...)` stands in for attention."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def _register() -> None:
    package = transformers()
    masks = importlib.import_module("transformers.masking_utils")
    package.AttentionInterface.register(IMPLEMENTATION, _attention)
    package.AttentionMaskInterface.register(IMPLEMENTATION, masks.eager_mask)


def _attention(
    module: object, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: object
) -> tuple[Tensor, Tensor | None]:
    """Attention as the module's own file computes it (sinks, soft caps), watched."""
    own = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if own is None:
        own = importlib.import_module("transformers.models.llama.modeling_llama").eager_attention_forward
    observer = _OBSERVER.get()
    if observer is None:
        return own(module, query, key, value, attention_mask, **settings)
    return observer(own, module, query, key, value, attention_mask, **settings)

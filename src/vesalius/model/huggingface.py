"""Hugging Face model directories, hub ids and transformers models in memory, of the families in `model/families`.

`config.json` becomes a `Config`, the weights get TransformerLens' names. No code from the directory is run and
`transformers` is not needed.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json
from vesalius.model.devices import Devices
from vesalius.model.dtypes import stored_dtype
from vesalius.model.families import family
from vesalius.model.states import State, build, read_tensors
from vesalius.model.transformer import Transformer

HUB_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "vocab.json", "merges.txt")


def load_huggingface(
    directory: Path, *, dtype: torch.dtype | None = torch.float32, device: Devices = "cpu"
) -> Transformer:
    """Load a Hugging Face model directory (`config.json` and safetensors, one file or sharded); `dtype` None keeps the
    number format of the files. Files are mapped into memory and copied weight by weight to `device`.
    """
    where = directory / "config.json"
    return _load(read_json(where), lambda: _read_weights(directory), where=str(where), dtype=dtype, device=device)


def from_transformers(model: Any, *, dtype: torch.dtype | None = None) -> Transformer:
    """Our transformer with a copy of the weights of a transformers model in memory."""
    where = type(model).__name__
    if not hasattr(model, "config") or not hasattr(model, "state_dict"):
        raise BadInput(f"{where} is not a model; give a path, a hub id or a causal language model of transformers")
    if getattr(model, "get_output_embeddings", lambda: None)() is None:
        raise BadInput(
            f"{where} has no head that computes logits; give the causal language model (AutoModelForCausalLM)"
        )
    if any(weight.is_meta for weight in model.state_dict().values()):
        raise BadInput(f"{where} is on the meta device and has no numbers; load its weights first")
    return _load(model.config.to_dict(), model.state_dict, where=where, dtype=dtype)


def _load(
    raw: dict[str, Any],
    weights: Callable[[], Mapping[str, Tensor]],
    *,
    where: str,
    dtype: Any,
    device: Devices = "cpu",
) -> Transformer:
    kind = family(raw, where=where)
    config = kind.read_config(raw, where=where)
    stored = weights()
    try:
        state = kind.read_weights(stored, config, raw, where=where)
    except (RuntimeError, TypeError, IndexError) as error:
        raise BadInput(f"{where}: the weights do not have the sizes it says ({error})") from None
    return build(config, state, where=where, dtype=dtype or stored_dtype(state["embed.W_E"]), device=device)


def download(
    hub_id: str, *, revision: str | None = None, allow: Sequence[str] = HUB_FILES, dataset: bool = False
) -> Path:
    """Fetch the files of a hub model, or of a dataset, that match `allow` (config, weights and tokenizer) into the
    Hugging Face cache (honours HF_HUB_OFFLINE, HF_TOKEN).
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    what = "dataset" if dataset else "model"
    kind: dict[str, Any] = {"repo_type": what} if dataset else {}
    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(allow), **kind))
    except HFValidationError:
        raise BadInput(f"{what} {hub_id!r} is neither a directory nor a hub id such as openai-community/gpt2") from None
    except RepositoryNotFoundError:
        raise BadInput(f"{what} {hub_id!r} is not on the hub; check its spelling, or set HF_TOKEN if private") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Failed(
            f"{what} {hub_id!r} could not be fetched from the hub ({reason}); give a local directory instead"
        ) from None


def _read_weights(directory: Path) -> State:
    index = directory / "model.safetensors.index.json"
    if index.exists():
        files = read_json(index).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise BadInput(f"{index}: `weight_map` does not say which file each weight is in; fetch the model again")
        shards = sorted(set(files.values()))
        return {name: tensor for shard in shards for name, tensor in read_tensors(directory / shard).items()}
    return read_tensors(directory / "model.safetensors")

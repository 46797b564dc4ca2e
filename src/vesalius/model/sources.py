"""Where a model comes from: a name, a directory, a GGUF file, a hub id, or a transformers model in memory.

A plug-in of the group `vesalius.model_loaders` is one more source: `NAME` or `NAME:what` calls the loader of that name
with the text after the colon. It returns a `LoadedModel`, or a model of transformers, in a pair with its tokenizer
where it has one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model.arithmetic import NAME as ARITHMETIC
from vesalius.model.arithmetic import arithmetic_directory
from vesalius.model.devices import Devices
from vesalius.model.dtypes import dtype_named
from vesalius.model.families import family
from vesalius.model.gguf_file import GgufFile
from vesalius.model.huggingface import download, from_transformers, load_huggingface
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.smollm import installed_gguf, smollm_directory
from vesalius.model.states import CONFIG_FILE, load_model
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.plugins import MODEL_LOADERS, Plugin, find_plugin, plugin_names
from vesalius.progress import Progress, silent

#: The family of a directory in our own format, whose config is already a `Config`.
OWN = "vesalius"
#: Names that no plug-in may take.
BUILT_IN = (SMOLLM, ARITHMETIC)


@dataclass(frozen=True)
class LoadedModel:
    """A model with its tokenizer (None: inputs are token ids), a short name and its family. `directory` or `gguf` is
    set where transformers may load the same files.
    """

    model: Transformer
    tokenizer: Tokenizer | None
    label: str
    family: str
    directory: Path | None = None
    gguf: Path | None = None


def read_model(
    source: Any,
    *,
    tokenizer: Any = None,
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    device: Devices = "cpu",
    progress: Progress | None = None,
) -> LoadedModel:
    """Read a model. Weights of a Hugging Face directory or hub id go to `device` one by one; others are to be placed
    there. `dtype` "auto" keeps the number format of the weights (of the arithmetic model: float32). `tokenizer`
    replaces the model's own: a directory, or a tokenizer of the tokenizers or transformers library.
    """
    wanted = dtype_named(dtype)
    if not isinstance(source, str | Path):
        model = from_transformers(source, dtype=wanted)
        raw = source.config.to_dict()
        label = str(getattr(source, "name_or_path", "") or raw["model_type"])
        return LoadedModel(model, _given(tokenizer, model), Path(label).name, family(raw, where=label).name)
    if not str(source).strip():
        raise BadInput(f"model {str(source)!r} is not a name; give a directory, a GGUF file or a hub id")
    if isinstance(source, str) and (loader := loader_of(source)) is not None:
        return _from_loader(loader, source, tokenizer, wanted)
    name, path = str(source), Path(source).expanduser()
    label, report = path.name if path.exists() else name, progress or silent
    report(f"reading {label}", 0, 0)
    if path.suffix == ".gguf":
        file = GgufFile(path)
        model = file.load(dtype=wanted, progress=progress)
        own = None if tokenizer is not None else Tokenizer(file.tokenizer(), bos=model.config.bos_token)
        return LoadedModel(model, own or _given(tokenizer, model), label, file.architecture, gguf=path)
    if path.is_file():
        raise BadInput(f"{path}: not a model; give a model directory or a file whose name ends in .gguf")
    gguf = None
    if name == SMOLLM:
        path, gguf = smollm_directory(progress=progress), installed_gguf()
    elif name == ARITHMETIC:
        path, wanted = arithmetic_directory(), wanted or torch.float32
    elif not path.is_dir():
        path = download(name, revision=revision)
    ours = (path / CONFIG_FILE).exists()
    if not ours and not (path / "config.json").is_file():
        raise BadInput(
            f"{name}: holds no model (config.json: no such file); give a directory of transformers or of "
            "`vesalius train`, or a .gguf file"
        )
    report(f"reading {label}", 0, 0)
    model = load_model(path, dtype=wanted) if ours else load_huggingface(path, dtype=wanted, device=device)
    kind = OWN if ours else family(read_json(path / "config.json"), where=str(path / "config.json")).name
    own = _given(tokenizer, model) if tokenizer is not None else _beside(path, model)
    return LoadedModel(model, own, label, kind, None if ours else path, gguf)


def loader_of(name: str) -> Plugin | None:
    """The plug-in that loads `NAME` or `NAME:what`; None where no plug-in has that name."""
    return find_plugin(MODEL_LOADERS, name.partition(":")[0], BUILT_IN)


def loader_names() -> list[str]:
    """How models of plug-ins are named."""
    return [f"{name}:..." for name in plugin_names(MODEL_LOADERS, BUILT_IN)]


def _from_loader(loader: Plugin, name: str, tokenizer: Any, dtype: torch.dtype | None) -> LoadedModel:
    given = loader.load()(name.partition(":")[2], dtype=dtype)
    if isinstance(given, LoadedModel):
        return given if tokenizer is None else replace(given, tokenizer=_given(tokenizer, given.model))
    source, own = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    if not hasattr(getattr(source, "config", None), "to_dict"):
        raise loader.refused(f"returned a {type(source).__name__}, neither a LoadedModel nor a model of transformers")
    read = read_model(
        source, tokenizer=own if tokenizer is None else tokenizer, dtype="auto" if dtype is None else dtype
    )
    return replace(read, label=name.strip(":").replace(":", "-"))


def _beside(directory: Path, model: Transformer) -> Tokenizer | None:
    """The tokenizer in a model's directory; None where there is none."""
    if not any((directory / name).exists() for name in ("tokenizer.json", "vocab.json")):
        return None
    return Tokenizer.from_directory(directory, bos=model.config.bos_token)


def _given(tokenizer: Any, model: Transformer) -> Tokenizer | None:
    """A tokenizer that the caller chose, of any known kind."""
    if tokenizer is None or isinstance(tokenizer, Tokenizer):
        return tokenizer
    if isinstance(tokenizer, str | Path):
        return Tokenizer.from_directory(Path(tokenizer).expanduser(), bos=model.config.bos_token)
    bos = getattr(tokenizer, "bos_token_id", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(getattr(backend, "encode", None), Callable) or not hasattr(backend, "get_vocab_size"):
        raise BadInput(
            f"{type(tokenizer).__name__} is not a tokenizer that can be used; give a directory with tokenizer.json, or "
            "a fast tokenizer of transformers"
        )
    return Tokenizer(backend, bos=model.config.bos_token if bos is None else bos)

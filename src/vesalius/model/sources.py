"""Where a model comes from: a name, a directory, a GGUF file, a hub id, or a transformers model in memory.

A plug-in of the group `vesalius.model_loaders` is one more source: `NAME` or `NAME:what` calls the loader of that name
with the text after the colon. It returns a `LoadedModel`, or a model of transformers, in a pair with its tokenizer
where it has one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json
from vesalius.model import huggingface
from vesalius.model.config import Config
from vesalius.model.conversions import cache_directory
from vesalius.model.devices import Devices, dtype_named, stored_dtype
from vesalius.model.families import Unsupported, family
from vesalius.model.families.layout import BUFFERS
from vesalius.model.kept_gguf import read_gguf
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.smollm import installed_gguf, smollm_directory
from vesalius.model.states import CONFIG_FILE, NotFinite, State, build, load_model, read_tensors
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.plugins import MODEL_LOADERS, Plugin, find_plugin, plugin_names
from vesalius.progress import Progress, silent
from vesalius.values import JsonObject

# Hugging Face model directories, hub ids and transformers models in memory, of the families in `model/families`.
#
# `config.json` becomes a `Config`, the weights get TransformerLens' names. No code from the directory is run and
# `transformers` is not needed.

HUB_FILES = ("config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json", "vocab.json", "merges.txt")


def load_huggingface(
    directory: Path, *, dtype: torch.dtype | None = torch.float32, device: Devices = "cpu"
) -> Transformer:
    """Load a Hugging Face model directory (`config.json` and safetensors, one file or sharded); `dtype` None keeps the
    number format of the files. Files are mapped into memory and copied weight by weight to `device`.
    """
    where = directory / "config.json"
    raw = read_json(where)
    try:
        return _load(raw, lambda: _read_weights(directory), where=str(where), dtype=dtype, device=device)
    except Unsupported as error:
        _require_transformers(raw, error)
        return _wrapped(error, lambda: huggingface.read_to_wrap(directory, dtype=dtype or "auto"))


def from_transformers(model: object, *, dtype: torch.dtype | None = None) -> Transformer:
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
    raw = model.config.to_dict()
    try:
        return _load(raw, lambda: _Weights(model.state_dict(), where), where=where, dtype=dtype)
    except Unsupported as error:
        _require_transformers(raw, error)
        return _wrapped(error, lambda: huggingface.copied_to_wrap(model, dtype=dtype))


def _wrapped(error: Unsupported, module: Callable[[], Any]) -> Transformer:
    """transformers' module behind our hook names, because of what our transformer does not compute."""
    from vesalius.model.wrapped import WrappedTransformer
    from vesalius.model.wrapped_parts import CannotWrap

    try:
        made = module()
        for name, weight in made.named_parameters():
            if not torch.isfinite(weight.sum()) and not torch.isfinite(weight).all():
                raise NotFinite(f"{type(made).__name__}: weight {name!r} {NotFinite.SAID}")
        return WrappedTransformer(made, error.reason)
    except NotFinite:
        raise
    except CannotWrap as refusal:
        why = str(refusal)
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as failure:
        why = f"its modules ran into {type(failure).__name__}: {(str(failure).splitlines() or [''])[0][:120]}"
    said = str(error).partition("; use one of")[0]
    raise BadInput(f"{said}, and transformers' module cannot be wrapped: {why}") from None


def _require_transformers(raw: JsonObject, error: Unsupported) -> None:
    """Only what transformers knows can be wrapped, and only where it is installed."""
    if not huggingface.installed():
        raise BadInput(f"{error}; or wrap transformers' own module: {huggingface.INSTALL}") from None
    if not huggingface.knows(raw.get("model_type")):
        raise error


@dataclass(frozen=True)
class _Weights:
    """The tensors of a checkpoint under its own names, what is named where one is missing, and the file of each."""

    tensors: Mapping[str, Tensor]
    where: str
    files: Mapping[str, str] = field(default_factory=dict)

    def damaged(self) -> str | None:
        """The file and the name of a tensor that holds NaN or infinity; None where all are numbers."""
        for name, tensor in self.tensors.items():
            if not BUFFERS.search(name) and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                return f"{self.files.get(name, self.where)}: weight {name!r}"
        return None


def _load(
    raw: JsonObject, weights: Callable[[], _Weights], *, where: str, dtype: Any, device: Devices = "cpu"
) -> Transformer:
    """The model of a config that stands at `where`; what is wrong with a weight names the file that it is in."""
    kind = family(raw, where=where)
    config = kind.read_config(raw, where=where)
    stored = weights()
    try:
        state = kind.read_weights(stored.tensors, config, raw, where=stored.where)
    except (RuntimeError, TypeError, IndexError) as error:
        raise BadInput(f"{stored.where}: the weights do not have the sizes that {where} says ({error})") from None
    try:
        return build(config, state, where=stored.where, dtype=dtype or stored_dtype(state["embed.W_E"]), device=device)
    except NotFinite as error:
        damaged = stored.damaged()
        raise error if damaged is None else BadInput(f"{damaged} {NotFinite.SAID}") from None


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


def _read_weights(directory: Path) -> _Weights:
    index, one = directory / "model.safetensors.index.json", directory / "model.safetensors"
    if index.exists():
        files = read_json(index).get("weight_map")
        named = list(files.values()) if isinstance(files, dict) else [None]
        if not all(isinstance(file, str) and Path(file).name == file for file in named):
            raise BadInput(f"{index}: `weight_map` does not say which file each weight is in; fetch the model again")
        tensors, held = State(), dict[str, str]()
        for shard in sorted(set(named)):
            own = read_tensors(directory / shard)
            tensors |= own
            held |= dict.fromkeys(own, str(directory / shard))
        return _Weights(tensors, str(index), held)
    return _Weights(read_tensors(one), str(one))


# The arithmetic model that ships with the package: it reads `A - B + C =` over whole numbers and writes the answer.
#
# Three layers of six heads, trained here by `scripts/train_arithmetic.py` with whole heads dropped at random, so that
# heads back each other up as in large models. Weights are stored as float16 and loaded as float32.

ARITHMETIC = "arithmetic"
#: What it was trained for.
BEHAVIOUR = "addition:signs=-+,high=99,answers=0..99,shots=0"


def arithmetic_directory() -> Path:
    """The model's directory in the package."""
    return Path(str(files("vesalius.model").joinpath("data", ARITHMETIC)))


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

    @property
    def name(self) -> str:
        """The label; of a wrapped model it says so, here and in every result."""
        return f"{self.label} (wrapped)" if self.model.config.wrapped else self.label


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
        own_kind = model.config.wrapped or family(raw, where=label).name
        return LoadedModel(model, _given(tokenizer, model), Path(label).name, own_kind)
    if not str(source).strip():
        raise BadInput(f"model {str(source)!r} is not a name; give a directory, a GGUF file or a hub id")
    if isinstance(source, str) and (loader := loader_of(source)) is not None:
        return _from_loader(loader, source, tokenizer, wanted)
    name, path = str(source), Path(source).expanduser()
    label, report = path.name if path.exists() else name, progress or silent
    report(f"reading {label}", 0, 0)
    if path.suffix == ".gguf":
        file = read_gguf(path, dtype=wanted, progress=progress)
        own = _given(tokenizer, file.model) if tokenizer is not None else file.tokenizer()
        return LoadedModel(file.model, own, label, file.architecture, gguf=path)
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
    kind = OWN if ours else model.config.wrapped
    kind = kind or family(read_json(path / "config.json"), where=str(path / "config.json")).name
    own = _given(tokenizer, model) if tokenizer is not None else _beside(path, model)
    return LoadedModel(model, own, label, kind, None if ours else path, gguf)


def config_of(source: object) -> Config | None:
    """The config of a model that is named or lies in a directory, without its weights; None where only reading the
    model tells it, and where transformers' module would be wrapped.
    """
    if not isinstance(source, str | Path):
        return None
    own = {SMOLLM: cache_directory() / SMOLLM, ARITHMETIC: arithmetic_directory()}
    place = own.get(str(source), Path(source).expanduser())
    if (ours := place / CONFIG_FILE).is_file():
        return Config.read(read_json(ours).get("config") or {}, where=str(ours))
    if not (theirs := place / "config.json").is_file():
        return None
    raw = read_json(theirs)
    try:
        return family(raw, where=str(theirs)).read_config(raw, where=str(theirs))
    except Unsupported:
        return None


def loader_of(name: str) -> Plugin | None:
    """The plug-in that loads `NAME` or `NAME:what`; None where no plug-in has that name."""
    return find_plugin(MODEL_LOADERS, name.partition(":")[0], BUILT_IN)


def loader_names() -> list[str]:
    """How models of plug-ins are named."""
    return [f"{name}:..." for name in plugin_names(MODEL_LOADERS, BUILT_IN)]


def _from_loader(loader: Plugin, name: str, tokenizer: object, dtype: torch.dtype | None) -> LoadedModel:
    load = loader.load()
    with loader.running():
        given = load(name.partition(":")[2], dtype=dtype)
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

"""Sparse dictionaries beside a model: autoencoders and transcoders as SAELens and circuit-tracer write them.

A dictionary reads one activation of a layer and says it as a sum of few directions: `latents = f(x W_enc + b_enc)`,
`reconstruction = latents W_dec + b_dec`. An autoencoder reads and writes the same place, a transcoder reads what enters
an MLP and writes what leaves it. What is left over, the error, stays as it is wherever a latent is replaced, so that
replacing none changes nothing.

| layout         | files                                                                                        |
|----------------|----------------------------------------------------------------------------------------------|
| SAELens        | `cfg.json` and `sae_weights.safetensors`; several dictionaries are directories side by side  |
| circuit-tracer | `layer_0.safetensors`, ... and `config.yaml` with `feature_input_hook`, `feature_output_hook` |

Only settings that are computed exactly are read; any other is refused by name.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.errors import BadInput, choices, quoted
from vesalius.files import no_directory, read_json, read_text
from vesalius.model.config import Config
from vesalius.model.devices import weight_dtype
from vesalius.model.states import fingerprint, read_shapes, read_tensors
from vesalius.model.transformer import Transformer
from vesalius.values import JsonObject

Kind = Literal["relu", "topk", "jumprelu", "gated"]
#: Places of a layer that dictionaries read and write, in order of computation; `mlp.hook_in` is what an MLP reads after
#: its norm.
PLACES = (
    *("hook_resid_pre", "hook_attn_out", "hook_resid_mid", "hook_mlp_in", "mlp.hook_in", "hook_mlp_out"),
    "hook_resid_post",
)
#: Directories and files that are looked through at the most.
MOST_FILES = 1_000
CONFIG_FILE, WEIGHTS_FILE, SET_FILE = "cfg.json", "sae_weights.safetensors", "config.yaml"
_HOOK = re.compile(r"blocks\.(\d{1,9})\.([a-z0-9_.]+)")
_OF_LAYER = re.compile(r"layer_(\d{1,9})\.safetensors")
#: Architectures of SAELens and what they compute.
_KINDS: dict[str, Kind] = {
    "standard": "relu",
    "transcoder": "relu",
    "skip_transcoder": "relu",
    "topk": "topk",
    "jumprelu": "jumprelu",
    "jumprelu_transcoder": "jumprelu",
    "gated": "gated",
}
#: Weights of SAELens that change what is computed, where an architecture has them.
_DECISIVE = frozenset(("threshold", "log_threshold", "r_mag", "b_mag", "b_gate", "W_skip"))


@dataclass(frozen=True, eq=False)
class Dictionary:
    """One dictionary: where it reads and writes, and its weights in float32."""

    layer: int
    reads: str
    writes: str
    kind: Kind
    W_enc: Float[Tensor, "d_in latent"]
    b_enc: Float[Tensor, " latent"]
    W_dec: Float[Tensor, "latent d_out"]
    b_dec: Float[Tensor, " d_out"]
    #: The bias of the output is taken off the input first.
    centred: bool = False
    #: Of `topk`: how many latents are kept, and whether negative ones are cut to zero.
    k: int = 0
    positive: bool = True
    #: Of `jumprelu`: what a latent must exceed.
    threshold: Float[Tensor, " latent"] | None = None
    #: Of `gated`: the logarithm of the magnitudes' scale, and their bias; `b_enc` is the gates'.
    r_mag: Float[Tensor, " latent"] | None = None
    b_mag: Float[Tensor, " latent"] | None = None
    skip: Float[Tensor, "d_out d_in"] | None = None

    def __len__(self) -> int:
        return len(self.b_enc)

    @property
    def read_hook(self) -> str:
        """The hook point that is read."""
        return f"blocks.{self.layer}.{self.reads}"

    @property
    def write_hook(self) -> str:
        """The hook point that is written."""
        return f"blocks.{self.layer}.{self.writes}"

    def encode(
        self, x: Float[Tensor, "*batch d_in"], which: Int[Tensor, " some"] | None = None
    ) -> Float[Tensor, "*batch latent"]:
        """The latents of activations, or some of them."""
        x = x.to(torch.float32)
        x = x - self._on(self.b_dec, x) if self.centred else x
        if self.kind == "topk":
            pre = x @ self._on(self.W_enc, x) + self._on(self.b_enc, x)
            values, places = pre.topk(self.k, dim=-1)
            latents = torch.zeros_like(pre).scatter(-1, places, values.relu() if self.positive else values)
            return latents if which is None else latents[..., which.to(x.device)]
        some = slice(None) if which is None else which.to(self.W_enc.device)
        projected = x @ self._on(self.W_enc[:, some], x)
        pre = projected + self._on(self.b_enc[some], x)
        if self.kind == "gated":
            assert self.r_mag is not None
            assert self.b_mag is not None
            size = projected * self._on(self.r_mag[some], x).exp() + self._on(self.b_mag[some], x)
            return (pre > 0).to(size.dtype) * size.relu()
        if self.kind == "jumprelu":
            assert self.threshold is not None
            return pre * (pre > self._on(self.threshold[some], x)).to(pre.dtype)
        return pre.relu()

    def directions(self, which: Int[Tensor, " some"], like: Tensor) -> Float[Tensor, "some d_out"]:
        """What latents write, each at 1."""
        return self._on(self.W_dec[which.to(self.W_dec.device)], like)

    def reconstruct(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """What the dictionary makes of activations; the error is what it writes in the model, less this."""
        whole = self.encode(x) @ self._on(self.W_dec, x) + self._on(self.b_dec, x)
        return whole if self.skip is None else whole + x.to(torch.float32) @ self._on(self.skip, x).T

    @staticmethod
    def _on(weight: Tensor, like: Tensor) -> Tensor:
        return weight.to(like.device)


@dataclass(frozen=True)
class _File:
    """A file of weights, and how they are to be read."""

    path: Path
    layer: int
    reads: str
    writes: str
    settings: JsonObject | None


@dataclass(frozen=True)
class Stated:
    """The model that dictionaries say they are of: its name and, where they were trained here, its number format and
    the fingerprint of its weights.
    """

    name: str
    dtype: str = ""
    fingerprint: str = ""

    def differs(self, names: Iterable[str | None], model: Transformer) -> bool:
        """Whether a model is another one: by its weights where they are stated in its number format, else by its names,
        of which the last part counts, without case and signs.
        """
        if self.fingerprint and self.dtype == dtype_word(model):
            return self.fingerprint != fingerprint(model)
        return _plain(self.name) not in {_plain(name) for name in names if name}


def dtype_word(model: Transformer) -> str:
    """The number format of a model's weights in a word."""
    return str(weight_dtype(model)).removeprefix("torch.")


def _plain(name: str) -> str:
    """A model's name without its owner, case and signs; `gpt2-small` is the name of `gpt2` in TransformerLens."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2].casefold().removesuffix("(wrapped)")
    plain = re.sub(r"[^a-z0-9]", "", last.removesuffix(".gguf"))
    return "gpt2" if plain == "gpt2small" else plain


class Dictionaries:
    """The dictionaries of a directory, at most one a layer; the shapes of all are held against the model at once, and
    the numbers of each are read when they are first needed. `stated` are the models that they say they are of.
    """

    def __init__(self, files: list[_File], config: Config, where: str, stated: Iterable[Stated] = ()) -> None:
        self.where, self.config, self.stated = where, config, tuple(dict.fromkeys(stated))
        self._files: dict[int, _File] = {}
        for file in files:
            if file.layer >= config.n_layers:
                raise BadInput(f"{file.path}: reads layer {file.layer}, and this model has {config.n_layers} layers")
            if (other := self._files.get(file.layer)) is not None:
                raise BadInput(
                    f"{where}: {other.path} and {file.path} are both of layer {file.layer}, so that "
                    f"L{file.layer}F0 would be two latents; give a directory with one of them"
                )
            self._files[file.layer] = file
        self._at = cache(self._read)
        self.latents = {layer: len(self._of(self._files[layer], read_shapes)) for layer in self.layers}

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that have one."""
        return tuple(sorted(self._files))

    def at(self, layer: int) -> Dictionary:
        """The dictionary of a layer."""
        if layer not in self._files:
            raise BadInput(f"site L{layer}F...: {self.where} has dictionaries of layers {choices(self.layers)}")
        return self._at(layer)

    @property
    def writes(self) -> dict[int, str]:
        """The place that the dictionary of each layer writes."""
        return {layer: self._files[layer].writes for layer in self.layers}

    def bytes(self) -> int:
        """The bytes of all weights, about: what encodes and what decodes."""
        return sum(2 * 4 * self.config.d_model * latents for latents in self.latents.values())

    def _read(self, layer: int) -> Dictionary:
        return self._of(self._files[layer], read_tensors)

    def _of(self, file: _File, reader: Callable[[Path], dict[str, Tensor]]) -> Dictionary:
        """The dictionary of a file, with its numbers or with their shapes alone."""
        tensors = {name: value.float() for name, value in reader(file.path).items()}
        if file.settings is None:
            return _circuit_tracer(file, tensors, self.config)
        return _saelens(file, file.settings, tensors, self.config)


def read_dictionaries(path: str | Path, config: Config) -> Dictionaries:
    """Find the dictionaries of a directory and read what they say of themselves, not yet their weights."""
    place = Path(path).expanduser()
    if not place.is_dir():
        raise BadInput(f"features {quoted(str(path), 80)}: {no_directory(place)}")
    if config.wrapped:
        raise BadInput(f"features {place}: dictionaries are read beside models of our families, not wrapped ones")
    if (of_layers := [(_OF_LAYER.fullmatch(file.name), file) for file in _listed(place)]) and any(
        match for match, _ in of_layers
    ):
        files, stated = _set_of_layers(place, [(int(m[1]), file) for m, file in of_layers if m])
        return Dictionaries(files, config, str(place), stated)
    directories = [place, *(one for one in _listed(place) if one.is_dir())]
    directories += [inner for one in directories[1:] for inner in _listed(one) if inner.is_dir()]
    files = [_saelens_file(one) for one in directories[:MOST_FILES] if (one / CONFIG_FILE).is_file()]
    if not files:
        raise BadInput(
            f"features {place}: holds no dictionary; expected {CONFIG_FILE} with {WEIGHTS_FILE} (SAELens), or "
            f"layer_0.safetensors, ... with {SET_FILE} (circuit-tracer)"
        )
    named = (file.settings.get("model_name") for file in files if file.settings is not None)
    return Dictionaries(files, config, str(place), [Stated(name) for name in named if isinstance(name, str) and name])


def _listed(place: Path) -> list[Path]:
    try:
        return sorted(place.iterdir())[:MOST_FILES]
    except OSError as error:
        raise BadInput(f"features {place}: cannot be read ({error.strerror})") from None


def _saelens_file(place: Path) -> _File:
    where = place / CONFIG_FILE
    given = read_json(where)
    if not isinstance(given, dict):
        raise BadInput(f"{where}: not the settings of a dictionary (an object is expected)")
    metadata = given.get("metadata")
    settings = {**given, **(metadata if isinstance(metadata, dict) else {})}
    reads = settings.get("hook_name")
    writes = settings.get("hook_name_out") or settings.get("hook_name")
    layer, name = _place_of(reads, where)
    layer_out, name_out = _place_of(writes, where)
    if layer != layer_out:
        raise BadInput(f"{where}: reads layer {layer} and writes layer {layer_out}; one of a single layer is expected")
    weights = place / WEIGHTS_FILE
    if not weights.is_file():
        raise BadInput(f"{weights}: no such file")
    return _ordered(_File(weights, layer, name, name_out, settings))


def _set_of_layers(place: Path, files: list[tuple[int, Path]]) -> tuple[list[_File], list[Stated]]:
    where = place / SET_FILE
    if not where.is_file():
        raise BadInput(f"{where}: no such file; it names feature_input_hook and feature_output_hook")
    lines = (line.partition("#")[0].partition(":") for line in read_text(where).splitlines())
    settings = {name: value.strip().strip("'\"") for name, _, value in lines}
    reads, writes = (settings.get(key, "") for key in ("feature_input_hook", "feature_output_hook"))
    for hook in (reads, writes):
        if hook not in PLACES:
            raise BadInput(f"{where}: a hook {quoted(hook, 40)} is not read here; known are {choices(PLACES)}")
    name = settings.get("model_name")
    marks = (settings.get(key, "") for key in ("model_dtype", "model_fingerprint"))
    stated = [Stated(name, *marks)] if name else []
    return [_ordered(_File(file, layer, reads, writes, None)) for layer, file in files], stated


def _ordered(file: _File) -> _File:
    if PLACES.index(file.reads) > PLACES.index(file.writes):
        raise BadInput(f"{file.path}: reads {file.reads}, which comes after {file.writes} that it writes")
    return file


def _place_of(hook: object, where: Path) -> tuple[int, str]:
    match = _HOOK.fullmatch(hook) if isinstance(hook, str) else None
    if match is None or match[2] not in PLACES:
        known = choices([f"blocks.L.{place}" for place in PLACES])
        raise BadInput(f"{where}: hook_name {quoted(hook, 60)} is not read here; known are {known}")
    return int(match[1]), match[2]


def _saelens(file: _File, settings: JsonObject, tensors: dict[str, Tensor], config: Config) -> Dictionary:
    where = file.path.parent / CONFIG_FILE
    architecture, activation = settings.get("architecture", "standard"), settings.get("activation_fn_str", "relu")
    if not isinstance(architecture, str) or architecture not in _KINDS:
        raise BadInput(
            f"{where}: architecture {quoted(architecture, 40)} is not computed here; known: {choices(_KINDS)}"
        )
    kind = _KINDS[architecture]
    arguments = settings.get("activation_fn_kwargs")
    k = settings.get("k", arguments.get("k") if isinstance(arguments, dict) else None)
    plain = {
        "normalize_activations": ("none", None),
        "hook_head_index": (None,),
        "finetuning_scaling_factor": (False, None),
        "reshape_activations": ("none", None),
        "rescale_acts_by_decoder_norm": (False, None),
        "activation_fn_str": ("relu", "topk", None),
    }
    for name, allowed in plain.items():
        if settings.get(name) not in allowed:
            raise BadInput(f"{where}: {name} {quoted(settings.get(name), 40)} is not computed here")
    if activation == "topk" and kind not in ("relu", "topk"):
        raise BadInput(f"{where}: activation_fn_str 'topk' of architecture {architecture!r} is not computed here")
    kind = "topk" if activation == "topk" else kind
    names = {"gated": {"r_mag", "b_mag", "b_gate"}, "jumprelu": {"threshold"}}.get(kind, set())
    names |= {"W_enc", "W_dec", "b_dec"} | ({"b_enc"} if kind != "gated" else set())
    names |= {"W_skip"} if architecture == "skip_transcoder" else set()
    _require(names, tensors, file.path)
    if others := sorted(_DECISIVE & tensors.keys() - names):
        raise BadInput(f"{file.path}: holds {others[0]}, which architecture {quoted(architecture, 40)} does not use")
    subtract = settings.get(
        "apply_b_dec_to_input", architecture not in ("jumprelu_transcoder", "transcoder", "skip_transcoder")
    )
    if not isinstance(subtract, bool):
        raise BadInput(f"{where}: apply_b_dec_to_input {quoted(subtract, 40)} must be true or false")
    return _checked(
        Dictionary(
            file.layer,
            file.reads,
            file.writes,
            kind,
            tensors["W_enc"],
            tensors["b_gate" if kind == "gated" else "b_enc"],
            tensors["W_dec"],
            tensors["b_dec"],
            centred=subtract,
            k=_kept(k, len(tensors["W_dec"]), where) if kind == "topk" else 0,
            threshold=tensors.get("threshold"),
            r_mag=tensors.get("r_mag"),
            b_mag=tensors.get("b_mag"),
            skip=tensors.get("W_skip"),
        ),
        file.path,
        config,
    )


def _circuit_tracer(file: _File, tensors: dict[str, Tensor], config: Config) -> Dictionary:
    _require({"W_enc", "W_dec", "b_enc", "b_dec"}, tensors, file.path)
    threshold, k = tensors.get("activation_function.threshold"), tensors.get("k")
    latents = len(tensors["b_enc"])
    if k is not None and threshold is not None:
        raise BadInput(f"{file.path}: holds both k and activation_function.threshold; one of them is expected")
    if threshold is not None and threshold.numel() == 1:  # one for all latents
        threshold = threshold.reshape(1).expand(latents)
    return _checked(
        Dictionary(
            file.layer,
            file.reads,
            file.writes,
            "topk" if k is not None else "relu" if threshold is None else "jumprelu",
            tensors["W_enc"].T.contiguous(),  # so that both layouts give the same sums
            tensors["b_enc"],
            tensors["W_dec"],
            tensors["b_dec"],
            k=0 if k is None else _kept(k.flatten().tolist(), latents, file.path),
            positive=False,
            threshold=threshold,
            skip=tensors.get("W_skip"),
        ),
        file.path,
        config,
    )


def _kept(given: Any, latents: int, where: Path) -> int:
    """How many latents topk keeps: a whole number, of which files of tensors hold one as a float."""
    if given is None:
        raise BadInput(f"{where}: architecture topk needs k, how many latents are kept")
    one = given[0] if isinstance(given, list) and len(given) == 1 else given
    whole = isinstance(one, int | float) and not isinstance(one, bool) and one in range(1, latents + 1)
    if not whole:
        raise BadInput(f"{where}: k {quoted(one, 40)}: topk keeps a whole number of its {latents} latents, at least 1")
    return int(one)


def _require(names: set[str], tensors: dict[str, Tensor], where: Path) -> None:
    if missing := sorted(names - tensors.keys()):
        raise BadInput(f"{where}: weight {missing[0]} is missing; it holds {choices(sorted(tensors)[:8])}")
    for name in sorted(names):
        if tensors[name].ndim != (axes := 2 if name.startswith("W_") else 1):
            raise BadInput(f"{where}: {name} is {list(tensors[name].shape)}; {axes} axes are expected")


def _checked(one: Dictionary, where: Path, config: Config) -> Dictionary:
    """Refuse weights whose sizes do not fit each other or the model, or that are not numbers, where they are read."""
    latents, d = one.b_enc.shape[0] if one.b_enc.ndim == 1 else -1, config.d_model
    if not latents:
        raise BadInput(f"{where}: holds no latents; b_enc is empty")
    expected: dict[str, tuple[Tensor | None, tuple[int, ...]]] = {
        "W_enc": (one.W_enc, (d, latents)),
        "b_enc": (one.b_enc, (latents,)),
        "W_dec": (one.W_dec, (latents, d)),
        "b_dec": (one.b_dec, (d,)),
        "threshold": (one.threshold, (latents,)),
        "r_mag": (one.r_mag, (latents,)),
        "b_mag": (one.b_mag, (latents,)),
        "W_skip": (one.skip, (d, d)),
    }
    for name, (weight, shape) in expected.items():
        if weight is None:
            continue
        if tuple(weight.shape) != shape:
            raise BadInput(f"{where}: {name} is {list(weight.shape)}; for this model {list(shape)} is expected")
        if not weight.is_meta and not bool(weight.isfinite().all()):
            raise BadInput(f"{where}: {name} holds NaN or infinity")
    if one.r_mag is not None and not one.r_mag.is_meta and not bool(one.r_mag.exp().isfinite().all()):
        raise BadInput(f"{where}: r_mag is a logarithm, and the size that it says is beyond what numbers hold")
    if one.threshold is not None and not one.threshold.is_meta and bool((one.threshold < 0).any()):
        raise BadInput(f"{where}: a threshold is below 0, where the two layouts say different things")
    if one.centred and one.reads != one.writes:
        raise BadInput(
            f"{where}: a transcoder's output bias is not taken off its input; set apply_b_dec_to_input false"
        )
    return one

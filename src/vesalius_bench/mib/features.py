"""The files of MIB's causal variable localization track: one folder for each task, model and variable.

    TASK_MODEL_VARIABLE/
        ResidualStream(Layer-L,Token-POSITION)_featurizer            what goes from the residual stream into features,
        ResidualStream(Layer-L,Token-POSITION)_inverse_featurizer    back,
        ResidualStream(Layer-L,Token-POSITION)_indices               and which features are exchanged (JSON; null: all)
        AttentionHead(Layer-L,Head-H,Token-POSITION)_...             the same for what a head writes before W_O

`Layer-L` of a residual stream is the stream after block L, which MIB's evaluator exchanges: `resid{L+1}` of
`vesalius align`. A featurizer is a checkpoint of torch, read without unpickling anything but tensors and plain values:
`IdentityFeaturizerModule` (all of it) and `SubspaceFeaturizerModule` (orthonormal columns, `rotation_matrix`) are read;
any other class is code, which is not run.
"""

import io
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.behaviour import label_of
from vesalius.components import Component
from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.files import content_of, parse_json
from vesalius.intervene.exchanging import END, Place
from vesalius.model.config import Config
from vesalius.model.specimen import Specimen
from vesalius.model.states import PARSER_ERRORS
from vesalius_bench.mib.files import MODELS, word_of

FEATURIZER, INVERSE, INDICES = "_featurizer", "_inverse_featurizer", "_indices"
IDENTITY, SUBSPACE = "IdentityFeaturizerModule", "SubspaceFeaturizerModule"
INVERSES = {IDENTITY: "IdentityInverseFeaturizerModule", SUBSPACE: "SubspaceInverseFeaturizerModule"}
#: Names of units; MIB writes `-` and reads any one character there.
STREAM = re.compile(r"ResidualStream\(Layer.(\d{1,4}),Token.([^(),/]{1,60})\)")
HEAD = re.compile(r"AttentionHead\(Layer.(\d{1,4}),Head.(\d{1,4}),Token.([^(),/]{1,60})\)")
#: The track's tasks whose names hold underscores, and what MIB calls models: the classes of transformers.
TASK_NAMES = ("4_answer_MCQA", "ARC_easy", "ioi_task", "ravel_task", "arithmetic")
MODEL_CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "qwen2.5": "Qwen2ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "llama3": "LlamaForCausalLM",
}
#: Columns may be off being orthonormal by what half precision rounds: 2 ** -11 of each of their products.
ORTHONORMAL = 5e-3
#: The largest file that is read: two squares of the widest model of the track, in double precision.
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class FolderName:
    """What the name of a folder says."""

    task: str
    model: str
    variable: str

    def __str__(self) -> str:
        return f"{self.task}_{self.model}_{self.variable}"

    @classmethod
    def parse(cls, name: str) -> "FolderName":
        """`TASK_MODEL_VARIABLE`; a model's name has no underscore, a task's only where it is one of MIB's."""
        task = next((one for one in TASK_NAMES if name.startswith(f"{one}_")), name.partition("_")[0])
        model, _, variable = name[len(task) + 1 :].partition("_")
        if not (task and model and variable):
            raise BadInput(
                f"{quoted(name)}: is not named TASK_MODEL_VARIABLE, such as 4_answer_MCQA_Qwen2ForCausalLM_answer"
            )
        return cls(task, model, variable)


def task_name(behaviour: str) -> str:
    """A behaviour as a folder's name has it: one word, without the underscores that part task, model and variable."""
    return word_of(label_of(behaviour))


def model_name(specimen: Specimen) -> str:
    """What MIB calls one of its models, the class that transformers gives it; of another model its name."""
    name = Path(specimen.source or specimen.id).name
    known = (
        MODEL_CLASSES[short] for short, names in MODELS.items() if name.lower() in names and short in MODEL_CLASSES
    )
    return next(known, word_of(name))


@dataclass(frozen=True)
class Unit:
    """One triple of files: its name, and the place that it exchanges."""

    name: str
    place: Place


def unit_name(place: Place, last: str) -> str:
    """What MIB calls a place of one position; `last` is the task's name of the last position."""
    (role,) = place.roles
    position = last if role == END else role
    if place.layer is not None:
        if not place.layer:
            raise BadInput(f"place {place}: MIB names streams after a block, and has no name for the embedding")
        return f"ResidualStream(Layer-{place.layer - 1},Token-{position})"
    (head,) = place.components
    if head.head is None:
        raise BadInput(f"place {place}: MIB names residual streams and heads, not MLPs")
    return f"AttentionHead(Layer-{head.layer},Head-{head.head},Token-{position})"


def write_units(folder: Path, places: Sequence[Place], last: str) -> None:
    """Write every place as a triple of files, a set of heads as one for each; the folder appears with all of them."""
    if folder.exists():
        raise BadInput(f"{folder}: is there already; choose another `out`, or remove it")
    files = {}
    for place in places:
        for one in (
            [place] if place.layer is not None else [replace(place, components=(part,)) for part in place.components]
        ):
            name = unit_name(one, last)
            for ending, checkpoint in _checkpoints(one).items():
                content = io.BytesIO()
                torch.save(checkpoint, content)
                files[f"{name}{ending}"] = content.getvalue()
            files[f"{name}{INDICES}"] = b"null"
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        for name, content in files.items():
            (partial / name).write_bytes(content)
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise Failed(
            f"{folder}: could not be written ({error.strerror}); free some space or choose another place"
        ) from None


def _checkpoints(place: Place) -> dict[str, dict[str, Any]]:
    """Featurizer and inverse as MIB saves them: what they are, and the state of their module."""
    kind, config, module = IDENTITY, {}, torch.nn.Module()
    if place.directions is not None:
        # What pyvene's LowRankRotateLayer becomes in MIB's featurizer, so that its strict loading finds every key.
        rotate = torch.nn.Module()
        rotate.weight = torch.nn.Parameter(place.directions.detach().float().cpu().contiguous())
        module.rotate = torch.nn.utils.parametrizations.orthogonal(rotate)
        matrix = rotate.weight  # as the parametrization gives it back
        assert isinstance(matrix, Tensor)
        kind, config = SUBSPACE, {"rotation_matrix": matrix.detach().clone(), "requires_grad": True}
    info = {
        "featurizer_class": kind,
        "inverse_featurizer_class": INVERSES[kind],
        "n_features": None if place.directions is None else place.directions.shape[1],
        "additional_config": config,
    }
    checkpoint = {"model_info": info, "state_dict": dict(module.state_dict())}
    return {FEATURIZER: checkpoint, INVERSE: checkpoint}


def read_units(folder: Path, config: Config, roles: Sequence[str], last: str) -> list[Unit]:
    """The units of a folder, residual streams in order of layers; of heads, which MIB exchanges together, one unit."""
    if not folder.is_dir():
        raise BadInput(f"{folder}: is not a directory; give a folder such as arithmetic_Gemma2ForCausalLM_ones_carry")
    names = sorted(path.name for path in folder.iterdir())
    bases = [
        name.removesuffix(FEATURIZER) for name in names if name.endswith(FEATURIZER) and not name.endswith(INVERSE)
    ]
    if not bases:
        raise BadInput(f"{folder}: holds no file that ends in {FEATURIZER}; give one folder of a submission")
    streams: list[Unit] = []
    heads: dict[str, list[Component]] = {}
    for base in bases:
        if match := STREAM.fullmatch(base):
            layer, role = int(match[1]), _role(match[2], roles, last, base)
            if layer >= config.n_layers:
                raise BadInput(f"{folder}: {base} is beyond the {config.n_layers} layers of this model")
            directions = _directions(folder / base, config.d_model)
            streams.append(Unit(base, Place((role,), layer=layer + 1, directions=directions)))
        elif match := HEAD.fullmatch(base):
            role = _role(match[3], roles, last, base)
            if _directions(folder / base, config.d_value) is not None:
                raise BadInput(f"{folder}: {base} is a subspace of a head; whole heads are exchanged here ({IDENTITY})")
            head = Component(int(match[1]), int(match[2])).within(config)
            heads.setdefault(role, []).append(head)
        else:
            raise BadInput(f"{folder}: {quoted(base)} is no unit; MIB writes ResidualStream(Layer-3,Token-{last})")
    streams.sort(key=lambda unit: (unit.place.layer or 0, unit.name))
    joint = [Place((role,), components=tuple(sorted(parts))) for role, parts in heads.items()]
    return [*streams, *(Unit(str(place), place) for place in joint)]


def _role(position: str, roles: Sequence[str], last: str, unit: str) -> str:
    if position == last:
        return END
    if position not in roles:
        known = [last if role == END else role for role in roles]
        raise BadInput(
            f"{unit}: position {quoted(position)} does not exist in these rows; positions are {choices(known)}"
        )
    return position


def _directions(base: Path, width: int) -> Float[Tensor, "width k"] | None:
    """The directions that a triple of files exchanges; None: all of the place."""
    rotations: list[Tensor | None] = []
    for ending in (FEATURIZER, INVERSE):
        path = base.with_name(base.name + ending)
        info = _model_info(path)
        kind, inverse = info.get("featurizer_class"), info.get("inverse_featurizer_class")
        if not isinstance(kind, str) or INVERSES.get(kind) != inverse:
            raise BadInput(
                f"{path}: its class {quoted(kind)} with {quoted(inverse)} is not read, for it is code; {IDENTITY} and "
                f"{SUBSPACE} are"
            )
        rotations.append(None if kind == IDENTITY else _rotation(info, path, width))
    first, second = rotations
    if (first is None) != (second is None) or (
        first is not None and second is not None and not torch.equal(first, second)
    ):
        raise BadInput(f"{base}{INVERSE}: is not the inverse of its featurizer; write both again")
    chosen = _indices(base.with_name(base.name + INDICES), width if first is None else first.shape[1])
    if chosen is None:
        return first
    whole = torch.eye(width) if first is None else first
    return whole[:, torch.tensor(chosen)]


def _model_info(path: Path) -> Mapping[str, Any]:
    """What a checkpoint says it is; nothing but tensors and plain values is unpickled."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; a unit has files {FEATURIZER}, {INVERSE} and {INDICES}")
    if path.stat().st_size > MOST_BYTES:
        raise BadInput(f"{path}: has more than {MOST_BYTES >> 20:,} MB, the most that is read; give another file")
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except PARSER_ERRORS as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{path}: is not a plain checkpoint of tensors ({reason}); write it again") from None
    info = data.get("model_info") if isinstance(data, dict) else None
    if not isinstance(info, Mapping) or not isinstance(data.get("state_dict"), Mapping):
        raise BadInput(f"{path}: lacks model_info or state_dict; it is not a featurizer of MIB")
    return info


def _rotation(info: Mapping[str, Any], path: Path, width: int) -> Float[Tensor, "width k"]:
    more = info.get("additional_config")
    matrix = more.get("rotation_matrix") if isinstance(more, Mapping) else None
    if not isinstance(matrix, Tensor) or not matrix.is_floating_point():
        raise BadInput(f"{path}: has no rotation_matrix of numbers; write it again")
    if matrix.ndim != 2 or matrix.shape[0] != width or not 1 <= matrix.shape[1] <= width:
        raise BadInput(
            f"{path}: rotation_matrix has shape {list(matrix.shape)}, this model needs [{width}, 1 to {width}]"
        )
    matrix = matrix.detach().float()
    off = (matrix.T @ matrix - torch.eye(matrix.shape[1])).abs().max()
    if not off <= ORTHONORMAL:  # NaN too
        raise BadInput(
            f"{path}: the columns of rotation_matrix are not orthonormal (off by {float(off):.3g}); rotate again"
        )
    return matrix


def _indices(path: Path, n: int) -> list[int] | None:
    """Which features are exchanged; None: all."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file; write null where all features are exchanged")
    given = parse_json(content_of(path), source=path)
    if given is None:
        return None
    whole = isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)
    if not whole or not given or len(set(given)) < len(given) or min(given) < 0 or max(given) >= n:
        raise BadInput(f"{path}: {quoted(given, 60)} is not null or a list of different features from 0 to {n - 1}")
    return list(given)

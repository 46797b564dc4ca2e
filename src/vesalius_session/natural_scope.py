"""The names that every program about a natural model starts with: the model, the prompts and the instruments.

Weights and prompts cross into the warm process as files; the name of the model and of the behaviour stay behind. The
prompts come from the training split: claims are decided on others.
"""

import collections
import hashlib
import itertools
import json
import math
from dataclasses import asdict, fields
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from vesalius.behaviours.metrics import metric_name
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial, centred_readout
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.instruments import Instruments
from vesalius.files import read_json, write_json
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.model.states import load_model, save_model
from vesalius.sandbox import Limits

PRELOAD = "vesalius_session.natural_scope:build"
#: Runs of a natural model take longer and more memory than those of a small circuit.
LIMITS = Limits(cpu_seconds=120, wall_seconds=300.0, memory_bytes=4 << 30)
#: Prompts that programs find; drawn with a seed of their own.
PROMPTS, PROMPTS_SEED = 16, 5_000_011
PROMPTS_FILE, TOOLBOX_FILE = "prompts.json", "instruments.md"
#: What programs call: every public method of the instruments.
INSTRUMENTS = [name for name, value in vars(Instruments).items() if callable(value) and not name.startswith("_")]


def handed_over(specimen: Specimen, directory: Path, prompts: Prompts, *, seed: int = 0) -> dict[str, Any]:
    """Write weights and prompts to `directory` and return the argument for `build`."""
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, TextVocabulary)
    if callable(prompts.metric):
        raise BadInput("a metric that is a Python function cannot be used by HyVE; choose one by name")
    save_model(specimen.model, directory)
    pieces = [vocabulary.tokenizer.piece(token) for token in range(specimen.model.config.d_vocab)]
    write_json(directory / PROMPTS_FILE, {"prompts": plain(prompts), "pieces": pieces})
    return {"directory": str(directory), "seed": PROMPTS_SEED + seed}


def build(argument: dict[str, Any]) -> dict[str, Any]:
    """The names: model, prompts, tokens, roles, the instruments and the usual imports."""
    torch.set_grad_enabled(False)
    directory = Path(argument["directory"])
    data = read_json(directory / PROMPTS_FILE)
    model, prompts = load_model(directory).eval(), prompts_from(data["prompts"])
    readout = centred_readout(model, prompts)
    material = Trial.of(prompts, readout)
    lab = NaturalLab(model, material, seed=argument["seed"])
    pieces = data["pieces"]
    instruments = Instruments(lab, piece=lambda token: pieces[token])
    return {
        "model": model,
        "prompts": list(prompts.texts),
        "tokens": prompts.tokens,
        "roles": {role: where.tolist() for role, where in prompts.roles.items()},
        "text_of": lambda token: pieces[int(token)],
        "torch": torch,
        "np": numpy,
        "math": math,
        "itertools": itertools,
        "collections": collections,
        **{name: getattr(instruments, name) for name in INSTRUMENTS},
    }


def plain(prompts: Prompts) -> dict[str, Any]:
    """Prompts as JSON."""

    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: listed(part) for name, part in value.items()}
        return value.tolist() if isinstance(value, Tensor) else value

    return {name: listed(value) for name, value in asdict(prompts).items()}


def prompts_digest(prompts: Prompts) -> str:
    """What tells these prompts, with their metric, from others."""
    data = {**plain(prompts), "metric": metric_name(prompts.metric)}
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:32]


def prompts_from(data: dict[str, Any]) -> Prompts:
    """The prompts that `plain` wrote."""
    given = dict(data)
    for one in fields(Prompts):
        value = given[one.name]
        if one.name == "roles":
            given[one.name] = {role: torch.tensor(where) for role, where in value.items()}
        elif one.name in ("sources", "kinds"):
            given[one.name] = tuple(value)
        elif isinstance(value, list) and one.name != "texts":
            given[one.name] = torch.tensor(value)
    return Prompts(**given)


def instrument_lines() -> list[str]:
    """Every instrument: signature and what it returns, one line each."""
    return [
        f"{name}{_parameters(name)}: {' '.join((getdoc(getattr(Instruments, name)) or '').split())}"
        for name in INSTRUMENTS
    ]


def _parameters(name: str) -> str:
    given = list(signature(getattr(Instruments, name)).parameters.values())[1:]
    shown = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in given]
    return f"({', '.join(shown)})"

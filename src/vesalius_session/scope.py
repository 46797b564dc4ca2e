"""The names that every program in the sandbox starts with.

The specimen crosses into the warm process as a directory with its weights and a JSON description: tokens, outputs,
lengths, examples and inputs drawn from its distribution. Its name, its kind and whatever else could give the task away
stay behind.
"""

import collections
import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vesalius.model.specimen import FiniteVocabulary, Specimen, Token, Value, json_value
from vesalius.model.states import load_model, save_model
from vesalius.values import from_json
from vesalius_session.subject import Subject
from vesalius_session.toolbox.observation_tools import Observation
from vesalius_session.toolbox.validation_tools import Validation

TOOLBOX = Path(__file__).parent / "toolbox"
PRELOAD = "vesalius_session.scope:build"
#: Inputs from the specimen's distribution that programs find in `inputs`; drawn with a seed of their own.
INPUTS, INPUTS_SEED = 256, 5_000_011
LIBRARIES: dict[str, type[Observation] | type[Validation]] = {
    "observation_tools": Observation,
    "validation_tools": Validation,
}


def handed_over(specimen: Specimen, directory: Path, *, seed: int = 0) -> dict[str, Any]:
    """Write the specimen's weights to `directory` and return the argument for `build`."""
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    save_model(specimen.model, directory)
    outputs = vocabulary.outputs
    return {
        "directory": str(directory),
        "tokens": list(vocabulary.tokens),
        "outputs": None if outputs is None else [json_value(value) for value in outputs],
        "min_len": vocabulary.min_len,
        "max_len": vocabulary.max_len,
        "examples": list(specimen.examples),
        "inputs": specimen.sample(INPUTS, INPUTS_SEED + seed),
    }


def build(argument: dict[str, Any]) -> dict[str, Any]:
    """The names: model, tokenize, decode, vocab, examples, inputs, the helpers and the usual imports."""
    torch.set_grad_enabled(False)
    outputs = argument["outputs"]
    vocabulary = FiniteVocabulary(
        tuple(argument["tokens"]),
        None if outputs is None else from_json(outputs),
        argument["max_len"],
        argument["min_len"],
    )
    model = load_model(Path(argument["directory"])).eval()

    def tokenize(sequences: Sequence[Sequence[Token]]) -> Int[Tensor, "batch pos"]:
        """Token ids of a list of token lists, BOS first, padded on the right."""
        return vocabulary.tokenize(sequences)

    def decode(logits: Float[Tensor, "batch pos out"]) -> list[list[Value]]:
        """Outputs at every position after BOS; past the end of a shorter input they mean nothing."""
        return vocabulary.decode(logits)

    return {
        "model": model,
        "tokenize": tokenize,
        "decode": decode,
        "vocab": list(vocabulary.tokens),
        "max_len": vocabulary.max_len,
        "examples": argument["examples"],
        "inputs": argument["inputs"],
        "torch": torch,
        "np": numpy,
        "math": math,
        "itertools": itertools,
        "collections": collections,
        **helpers(Subject(model, vocabulary)),
    }


def helpers(subject: Subject) -> dict[str, Any]:
    """The helper functions by name; `import observation_tools` finds them too."""
    namespace: dict[str, Any] = {}
    for name, library in LIBRARIES.items():
        bound = library(subject)
        functions = {function: getattr(bound, function) for function in public(library)}
        module = ModuleType(name)
        vars(module).update(functions)
        sys.modules[name] = module
        namespace |= functions
    return namespace


def public(library: type) -> list[str]:
    """The names of a library's functions, in the order of the file."""
    return [name for name, value in vars(library).items() if callable(value) and not name.startswith("_")]

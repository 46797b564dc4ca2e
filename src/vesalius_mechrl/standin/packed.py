"""A stand-in in half its size, as it lies in the package, and its files from there.

Training rounds the weights to the numbers that float16 has, so the packed weights are the same model exactly.
"""

import shutil
from pathlib import Path

import torch

from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.errors import BadInput
from vesalius.model.states import read_tensors, write_tensors
from vesalius_truth.planted import TRUTH_FILE

PACKAGED = Path(__file__).parent / "packaged"
WEIGHTS = "model.safetensors"
#: What travels with the weights; the truth where it was established.
FILES = ("config.json", "tokenizer.json", "vocab.json", "merges.txt", "card.json")
TRUTH = Path(KEY_FOLDER) / TRUTH_FILE


def pack(directory: Path | str, target: Path | str) -> Path:
    """Write a trained stand-in in half its size to the directory `target`."""
    directory, target = Path(directory), Path(target)
    if not (directory / WEIGHTS).is_file():
        raise BadInput(f"{directory}: no stand-in is there; train one with `python -m vesalius_mechrl.standin train`")
    weights = read_tensors(directory / WEIGHTS)
    halved = {name: weight.half() for name, weight in weights.items()}
    for name, weight in weights.items():
        if not torch.equal(halved[name].float(), weight.float()):
            raise BadInput(f"{directory / WEIGHTS}: {name} has numbers that float16 does not hold; train it again")
    _copy(directory, target, halved)
    return target


def unpack(target: Path | str, source: Path | str = PACKAGED) -> Path:
    """Write the packaged stand-in to an empty directory `target`, as training writes it."""
    target, source = Path(target), Path(source)
    if not (source / WEIGHTS).is_file():
        raise BadInput(f"{source}: no stand-in is packaged; train one with `python -m vesalius_mechrl.standin train`")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target}: is not empty; choose a new directory")
    _copy(source, target, {name: weight.float() for name, weight in read_tensors(source / WEIGHTS).items()})
    return target


def _copy(source: Path, target: Path, weights: dict[str, torch.Tensor]) -> None:
    """The files beside the weights, then the weights, which come last."""
    (target / TRUTH).parent.mkdir(parents=True, exist_ok=True)
    for file in (*FILES, TRUTH):
        if (source / file).is_file():
            shutil.copyfile(source / file, target / file)
    write_tensors(target / WEIGHTS, weights)

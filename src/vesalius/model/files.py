"""Files on disk: JSON and safetensors read with one-line errors, written so that a half-written file is never seen."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.model.config import Config
from vesalius.model.states import build, to_state
from vesalius.model.transformer import Transformer

CONFIG_FILE, WEIGHTS_FILE = "model.json", "model.safetensors"
SCHEMA = 1


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or one line saying what is wrong with it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path}: not readable as JSON ({error})") from None
    except RecursionError:
        raise BadInput(f"{path}: not readable as JSON (too many brackets inside each other)") from None
    if not isinstance(data, dict):
        raise BadInput(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object in one step: readers see the old file or the new one."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8", newline="\n")
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise Failed(
            f"{path}: could not be written ({error.strerror}); free some space or choose another place"
        ) from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file; a missing, truncated or foreign file is one line."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (OSError, SafetensorError) as error:
        raise BadInput(f"{path}: not a whole safetensors file ({error}); download or make it again") from None


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file in one step."""
    partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
    try:
        save_file(tensors, partial)
        os.replace(partial, path)
    except (OSError, SafetensorError) as error:
        partial.unlink(missing_ok=True)
        raise Failed(f"{path}: could not be written ({error}); free some space or choose another place") from None


def sha256(path: Path) -> str:
    """Checksum of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_model(model: Transformer, directory: Path) -> None:
    """Write `model.json` and `model.safetensors`; the JSON comes last, so a directory that has it is whole."""
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / WEIGHTS_FILE, to_state(model))
    write_json(directory / CONFIG_FILE, {"schema": SCHEMA, "config": model.config.model_dump(exclude_defaults=True)})


def load_model(directory: Path) -> Transformer:
    """Read what `save_model` wrote."""
    data = read_json(directory / CONFIG_FILE)
    if data.get("schema") != SCHEMA:
        raise BadInput(f"{directory / CONFIG_FILE}: schema {data.get('schema')!r}; this version reads schema {SCHEMA}")
    config = Config.read(data.get("config") or {}, where=str(directory / CONFIG_FILE))
    return build(config, read_tensors(directory / WEIGHTS_FILE), where=str(directory / WEIGHTS_FILE))

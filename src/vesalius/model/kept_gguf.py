"""GGUF files of a user's own: de-quantised at the first start, and read from the cache at every later one.

De-quantising takes ten times as long as reading the result. A conversion belongs to a file by its size, the time of its
last change and samples of its bytes. Where it cannot be kept (the disk is full, the cache may only be read, the model
is very large) the file is converted in memory at every start, which a note says.
"""

import hashlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from vesalius.errors import BadInput, Failed, note
from vesalius.model.conversions import Conversion, cache_directory
from vesalius.model.gguf import ARCHITECTURES, GgufFile
from vesalius.model.states import load_model, narrowed, save_model
from vesalius.model.tokenizer import Tokenizer
from vesalius.model.transformer import Transformer
from vesalius.progress import Progress

#: To be raised when GGUF files are read in another way: conversions of before are not used any more.
FORMAT = 1
#: A conversion that takes more than this is not kept, nor one that leaves less than as much again.
MOST_BYTES = 20 * 2**30
#: How many places of a file are looked at, and how many bytes at each.
SAMPLES, SAMPLE = 64, 2**16
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class ReadGguf:
    """The model of a GGUF file with its architecture; `kept` is the directory of its conversion."""

    path: Path
    model: Transformer
    architecture: str
    kept: Path | None = None
    opened: GgufFile | None = None

    def tokenizer(self) -> Tokenizer:
        """The tokenizer from the vocabulary inside the file."""
        bos = self.model.config.bos_token
        if self.kept is not None and (self.kept / _TOKENIZER).is_file():
            return Tokenizer.from_directory(self.kept, bos=bos)
        return Tokenizer((self.opened or GgufFile(self.path)).tokenizer(), bos=bos)


def read_gguf(path: Path, *, dtype: torch.dtype | None = None, progress: Progress | None = None) -> ReadGguf:
    """Read a GGUF file in a number format (None: float32), from its conversion where there is one."""
    if not path.is_file():
        raise BadInput(f"{path}: no such file")
    conversion = _conversion(path)
    if (architecture := _architecture_of(conversion)) is not None:
        return ReadGguf(path, load_model(conversion.directory, dtype=dtype), architecture, conversion.directory)
    file = GgufFile(path)
    if reason := _why_not_kept(file):
        _say_not_kept(path, reason)
        return ReadGguf(path, file.load(dtype=dtype, progress=progress), file.architecture, opened=file)
    model, kept = file.load(progress=progress), None
    try:
        about = {"architecture": file.architecture, "path": str(path.resolve())}
        kept = conversion.make(lambda directory: _write(file, model, directory), about)
        _remove_outdated(conversion, about["path"])
    except (OSError, Failed) as error:
        why = getattr(error, "strerror", None) or str(error).partition(";")[0]
        _say_not_kept(path, f"cannot be written to {cache_directory()} ({why}); {_ELSEWHERE}")
    return ReadGguf(path, model if dtype is None else narrowed(model, dtype), file.architecture, kept, file)


def _conversion(path: Path) -> Conversion:
    """Where the conversion of a file is kept."""
    about = path.stat()
    digest = hashlib.sha256(f"{FORMAT} {about.st_size} {about.st_mtime_ns}".encode())
    with path.open("rb") as file:
        for place in range(0, about.st_size, max(about.st_size // SAMPLES, SAMPLE)):
            file.seek(place)
            digest.update(file.read(SAMPLE))
    key, stem = digest.hexdigest(), re.sub(r"[^\w.-]", "_", path.stem, flags=re.ASCII)[:60]
    return Conversion(f"gguf-{stem}-{key[:16]}", key)


def _architecture_of(conversion: Conversion) -> str | None:
    """The architecture of a complete conversion; None where there is none, or none that can be read."""
    try:
        known = conversion.receipt.get("architecture") if conversion.is_complete() else None
    except (OSError, BadInput):
        return None
    return known if isinstance(known, str) and known in ARCHITECTURES else None


def _write(file: GgufFile, model: Transformer, directory: Path) -> None:
    save_model(model, directory)
    try:
        file.tokenizer().save(str(directory / _TOKENIZER))
    except BadInput:  # a rule for splitting text that is not known: refused where no other tokenizer is given
        return


def _why_not_kept(file: GgufFile) -> str | None:
    """Why the conversion of a file is not kept, before it is made."""
    needed, cache = 4 * file.n_numbers, cache_directory()
    if needed > MOST_BYTES:
        most = f"more than the {MOST_BYTES / 2**30:.0f} that are kept"
        return f"takes {needed / 2**30:.0f} GB, {most}; a directory of safetensors files starts faster"
    free = shutil.disk_usage(next(part for part in (cache, *cache.absolute().parents) if part.exists())).free
    if free > 2 * needed:
        return None
    return f"takes {needed / 2**30:.1f} GB, and {free / 2**30:.1f} GB are free in {cache}; {_ELSEWHERE}"


_ELSEWHERE = "set VESALIUS_CACHE to another place"


def _say_not_kept(path: Path, reason: str) -> None:
    note(f"{path.name} is converted again at every start: its conversion {reason}")


def _remove_outdated(conversion: Conversion, path: str) -> None:
    """Remove conversions of what the same file held before."""
    for other in cache_directory().glob("gguf-*"):
        if other.name == conversion.name or ".partial-" in other.name:
            continue
        try:
            outdated = Conversion(other.name, "").receipt.get("path") == path
        except BadInput:
            continue
        if outdated:
            shutil.rmtree(other, ignore_errors=True)

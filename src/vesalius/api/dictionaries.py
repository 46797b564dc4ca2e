"""The sparse dictionaries that a verb is given: held against the model at the door, before its weights are read where
its config can be, and what is said where they are of another model.
"""

from pathlib import Path

from vesalius.circuits.specimens import benchmark_directory
from vesalius.errors import BadInput, note
from vesalius.files import no_directory
from vesalius.model.dictionaries import Dictionaries, read_dictionaries
from vesalius.model.sources import config_of
from vesalius.model.specimen import Specimen
from vesalius.options import Sparse


def require_fitting(specimen: object, sparse: Sparse) -> Dictionaries | None:
    """Refuse dictionaries whose layers or sizes are not those of the model; returns them where the model's config could
    be read. `specimen` is as it was given.
    """
    if sparse.features is None:
        return None
    if isinstance(specimen, Specimen):
        return read_dictionaries(sparse.features, specimen.model.config)
    named = isinstance(specimen, str | int | Path) and not isinstance(specimen, bool)
    config = config_of(benchmark_directory(str(specimen)) or specimen) if named else None
    if config is not None:
        return read_dictionaries(sparse.features, config)
    place = Path(sparse.features).expanduser()
    if not place.is_dir():
        raise BadInput(f"features {sparse.features}: {no_directory(place)}")
    return None


def dictionaries_of(specimen: Specimen, sparse: Sparse) -> Dictionaries | None:
    """The dictionaries for a loaded model; None where none are given."""
    return None if sparse.features is None else read_dictionaries(sparse.features, specimen.model.config)


def other_model(specimen: Specimen, dictionaries: Dictionaries | None) -> str | None:
    """The model that dictionaries say they are of, where that is not this one; a note says so. None where it is, or
    where they say nothing.
    """
    if dictionaries is None:
        return None
    names = (specimen.name, specimen.id, specimen.source)
    for stated in dictionaries.stated:
        if stated.differs(names, specimen.model):
            same = " with other weights" if stated.name == specimen.name else ""
            note(
                f"features {dictionaries.where}: made for {stated.name} by what their files say, and this is "
                f"{specimen.name}{same}; what their latents stand for may be something else here, or nothing"
            )
            return stated.name
    return None

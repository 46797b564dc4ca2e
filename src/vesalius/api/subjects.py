"""What calls on a specimen have in common: the keywords that load it, and the request that they write down."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from vesalius.api.loading import loaded
from vesalius.api.places import subject_options
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.trial import Trial
from vesalius.documents.request import Command, Request
from vesalius.model.devices import Devices
from vesalius.model.specimen import Specimen
from vesalius.options import Load
from vesalius.progress import Progress


@dataclass(frozen=True)
class Subject:
    """What is studied, and how it is read: the keywords of `ves.load` that calls on a specimen take as well."""

    behaviour: Any
    metric: BehaviourMetric | None
    tokenizer: Any
    revision: str | None
    dtype: str | torch.dtype
    device: Devices

    def keywords(self) -> dict[str, Any]:
        """The same as keywords of a call."""
        return dict(vars(self))

    def load(self, specimen: Specimen | str | int | Path, progress: Progress) -> Specimen:
        """The specimen, loaded where it is not."""
        return loaded(specimen, Load(**self.keywords()), progress=progress)


def request_on(
    specimen: Specimen,
    command: Command,
    *,
    options: dict[str, Any],
    seed: int | None,
    material: Trial | None = None,
    **fields: Any,
) -> Request:
    """The request of a command on a loaded specimen; `fields` are further ones of `Request`. Options that are None are
    left out.
    """
    given = {name: value for name, value in options.items() if value is not None}
    return Request(
        command=command,
        specimen=specimen.source or specimen.id,
        behaviour=specimen.behaviour,
        options={**given, **subject_options(specimen, material)},
        seed=seed,
        **fields,
    )

"""The options of calls that several functions take, as types: what each means is said where it is used."""

from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

import torch

from vesalius.api.places import Out
from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.behaviours.trial import Trial
from vesalius.components import Component
from vesalius.documents.rivals import By
from vesalius.model.devices import Devices
from vesalius.progress import Progress

Names = Iterable[str | Component] | str | Component


class SubjectOptions(TypedDict, total=False):
    """What is studied, and how the call is shown."""

    behaviour: Any
    metric: BehaviourMetric | None
    tokenizer: Any
    revision: str | None
    dtype: str | torch.dtype
    device: Devices
    progress: Progress | bool | None


class DiscoverOptions(SubjectOptions, total=False):
    """The options of `discover`, for methods that score components."""

    n: int
    seed: int
    checks: bool
    force: bool
    budget: int | None
    paper: bool
    seeds: int
    steps: int
    split: str
    material: Trial | None
    select: str | Sequence[str] | None
    size: int | None
    rivals: int
    rivals_by: By
    engine: str | None
    jobs: int | None
    out: Out


class SetOptions(SubjectOptions, total=False):
    """The options of `discover` with the method "sets"."""

    search: str | None
    pool: Names | None
    kind: str | None
    least: float | None
    budget: int | None
    n: int
    seed: int
    force: bool
    out: Out


class SurveyOptions(TypedDict, total=False):
    """What decides the cells of a survey."""

    kind: str
    n: int
    top: int
    seed: int
    discover: str | None
    metric: str | None
    dtype: str
    device: str

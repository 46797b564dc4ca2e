"""The options of calls that several functions take, as types: what each means is said where it is used."""

from collections.abc import Iterable
from typing import Any, TypedDict

import torch

from vesalius.behaviours.metrics import BehaviourMetric
from vesalius.components import Component
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

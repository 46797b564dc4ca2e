"""SIIT: makes a transformer that implements a RASP program in known components.

    from vesalius.training import fit, setting_of

    for event in fit(setting_of(program), device="cpu"):
        ...                                # Progress, Checked, Retrying; the last one is Trained
    event.model, event.gate.passed

A `Setting` says what is trained, `train` trains stacks of them, `fit` one until it is accepted, `train_group` many with
their files, and `measure` is the gate that accepts.
"""

from vesalius.training.fit import Retrying, Trained, fit
from vesalius.training.gate import THRESHOLDS, Gate, headroom, measure
from vesalius.training.group import Written, train_group
from vesalius.training.recipes import default_copies, default_recipe
from vesalius.training.setting import Setting, Size, default_size, model_config, model_tokens, setting_of
from vesalius.training.siit import Weights
from vesalius.training.stepper import Recipe
from vesalius.training.trainer import Candidate, Checked, Event, Finished, Progress, train

__all__ = [
    "THRESHOLDS",
    "Candidate",
    "Checked",
    "Event",
    "Finished",
    "Gate",
    "Progress",
    "Recipe",
    "Retrying",
    "Setting",
    "Size",
    "Trained",
    "Weights",
    "Written",
    "default_copies",
    "default_recipe",
    "default_size",
    "fit",
    "headroom",
    "measure",
    "model_config",
    "model_tokens",
    "setting_of",
    "train",
    "train_group",
]

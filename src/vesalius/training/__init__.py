"""SIIT: trains a transformer that implements a RASP program in known components.



    for event in fit(setting_of(program), device="cpu"):
        ...                                # StepReport, CheckReport, Retry; the last one is a FitResult
    event.model, event.gate.passed

A `Setting` describes one model to train. `train` trains stacks of them, `fit` one until it is accepted, `train_group`
many and writes their files; `measure` is the gate that accepts a model.
"""

from vesalius.training.fit import FitResult, Retry, SettingResult, fit, train_group
from vesalius.training.gate import THRESHOLDS, Gate, headroom, measure
from vesalius.training.setting import Setting, Size, default_size, model_config, model_tokens, setting_of
from vesalius.training.siit import Weights
from vesalius.training.stepper import Recipe, default_copies, default_recipe
from vesalius.training.trainer import Candidate, CheckReport, Event, StepReport, TrainingResult, train

__all__ = [
    "THRESHOLDS",
    "Candidate",
    "CheckReport",
    "Event",
    "FitResult",
    "Gate",
    "Recipe",
    "Retry",
    "Setting",
    "SettingResult",
    "Size",
    "StepReport",
    "TrainingResult",
    "Weights",
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

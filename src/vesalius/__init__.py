"""Vesalius finds, explains and checks the circuits inside transformer language models.

    import vesalius as ves

    specimen = ves.load("smollm2-135m", behaviour="induction")
    effects = ves.sweep(specimen, n=8)
    print(effects.ranked()[:5])

Names are imported when first used, so that `import vesalius` and `vesalius --help` stay quick.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vesalius.errors import BadInput, Failed, Note
from vesalius.version import __version__

if TYPE_CHECKING:
    from vesalius.api import (
        annotate,
        attention,
        behaviours,
        bench,
        check,
        compare,
        diff,
        discover,
        discover_sets,
        explain,
        explained_circuit,
        faithfulness,
        generate,
        grade,
        instruments,
        lens,
        load,
        look,
        models,
        neurons,
        plan,
        predict,
        ratings,
        register_claim,
        replay,
        report,
        rerun,
        results,
        retest,
        sample_functions,
        show,
        specimens,
        study,
        survey,
        sweep,
        train,
        verify_claim,
        watch,
        what_if,
    )
    from vesalius.behaviours import Behaviour
    from vesalius.components import Component, Edge
    from vesalius.discovery.attribution import EAP, EAPIG, RelP, RelPQK
    from vesalius.discovery.pruning import ACDC
    from vesalius.discovery.sweep import Sweep
    from vesalius.intervene.ablations import Mean, Resample, ValueBias, Zero

__all__ = [
    "ACDC",
    "EAP",
    "EAPIG",
    "RL",
    "BadInput",
    "Bandit",
    "Behaviour",
    "Component",
    "Edge",
    "Failed",
    "Mean",
    "Note",
    "RelP",
    "RelPQK",
    "Resample",
    "Sweep",
    "ValueBias",
    "Zero",
    "__version__",
    "annotate",
    "attention",
    "behaviours",
    "bench",
    "check",
    "compare",
    "diff",
    "discover",
    "discover_sets",
    "explain",
    "explained_circuit",
    "faithfulness",
    "generate",
    "grade",
    "instruments",
    "lens",
    "load",
    "look",
    "models",
    "neurons",
    "plan",
    "predict",
    "ratings",
    "register_claim",
    "replay",
    "report",
    "rerun",
    "results",
    "retest",
    "sample_functions",
    "show",
    "specimens",
    "study",
    "survey",
    "sweep",
    "train",
    "verify_claim",
    "watch",
    "what_if",
]
_HOMES = {
    **{name: "vesalius.api" for name in __all__ if name not in globals()},
    "Behaviour": "vesalius.behaviours",
    "Component": "vesalius.components",
    "Edge": "vesalius.components",
    **dict.fromkeys(("EAP", "EAPIG", "RelP", "RelPQK"), "vesalius.discovery.attribution"),
    "ACDC": "vesalius.discovery.pruning",
    "Sweep": "vesalius.discovery.sweep",
    **dict.fromkeys(("Mean", "Resample", "ValueBias", "Zero"), "vesalius.intervene.ablations"),
}
#: Discovery methods that come by entry point, by their class.
_METHODS = {"Bandit": "bandit", "RL": "rl"}


class _Package(ModuleType):
    """The package, in which a function keeps its name although a subpackage of that name is imported."""

    behaviours = property(lambda self: _api("behaviours"), lambda self, module: None)
    report = property(lambda self: _api("report"), lambda self, module: None)


def _api(name: str) -> Any:
    return getattr(import_module("vesalius.api"), name)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _METHODS:
        return import_module("vesalius.discovery.methods").method_class(_METHODS[name])
    if name not in _HOMES:
        raise AttributeError(f"module 'vesalius' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

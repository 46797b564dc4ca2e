"""Vesalius finds, explains and checks the circuits inside transformer language models.

    import vesalius as ves

    specimen = ves.load("smollm2-135m", behaviour="induction")
    effects = ves.sweep(specimen, n=8)
    print(effects.ranked()[:5])

Names are imported when first used, those of other packages (`ves.study`, `ves.survey`) by entry points, so that
`import vesalius` and `vesalius --help` stay quick.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from vesalius.errors import BadInput, Failed, Note
from vesalius.version import __version__

if TYPE_CHECKING:
    from vesalius.api import (
        align,
        atlas,
        attention,
        behaviours,
        bench,
        check,
        complete,
        diff,
        discover,
        explain,
        explained_circuit,
        faithfulness,
        instruments,
        ladder,
        lens,
        load,
        look,
        models,
        neurons,
        plan,
        predict,
        replay,
        report,
        rerun,
        results,
        retest,
        show,
        specimens,
        sweep,
        what_if,
        why_attends,
    )
    from vesalius.behaviours import Behaviour
    from vesalius.components import Component, Edge
    from vesalius.discovery.attribution import EAP, EAPIG, GIM, Best, RelP, RelPQK
    from vesalius.discovery.combining import Elimination, Ensemble
    from vesalius.discovery.masks import EdgeMasks, Masks
    from vesalius.discovery.pruning import ACDC
    from vesalius.discovery.sweep import Sweep
    from vesalius.explanations.scientists import Builtin
    from vesalius.intervene.ablations import Mean, Resample, ValueBias, Zero

__all__ = [
    "ACDC",
    "EAP",
    "EAPIG",
    "GIM",
    "BadInput",
    "Behaviour",
    "Best",
    "Builtin",
    "Component",
    "Edge",
    "EdgeMasks",
    "Elimination",
    "Ensemble",
    "Failed",
    "Masks",
    "Mean",
    "Note",
    "RelP",
    "RelPQK",
    "Resample",
    "Sweep",
    "ValueBias",
    "Zero",
    "__version__",
    "align",
    "atlas",
    "attention",
    "behaviours",
    "bench",
    "check",
    "complete",
    "diff",
    "discover",
    "explain",
    "explained_circuit",
    "faithfulness",
    "instruments",
    "ladder",
    "lens",
    "load",
    "look",
    "models",
    "neurons",
    "plan",
    "predict",
    "replay",
    "report",
    "rerun",
    "results",
    "retest",
    "show",
    "specimens",
    "sweep",
    "what_if",
    "why_attends",
]
_HOMES = {
    **{name: "vesalius.api" for name in __all__ if name not in globals()},
    "Behaviour": "vesalius.behaviours",
    "Component": "vesalius.components",
    "Edge": "vesalius.components",
    "Builtin": "vesalius.explanations.scientists",
    **dict.fromkeys(("EAP", "EAPIG", "GIM", "Best", "RelP", "RelPQK"), "vesalius.discovery.attribution"),
    "EdgeMasks": "vesalius.discovery.masks",
    "Elimination": "vesalius.discovery.combining",
    "Ensemble": "vesalius.discovery.combining",
    "Masks": "vesalius.discovery.masks",
    "ACDC": "vesalius.discovery.pruning",
    "Sweep": "vesalius.discovery.sweep",
    **dict.fromkeys(("Mean", "Resample", "ValueBias", "Zero"), "vesalius.intervene.ablations"),
}


class _Package(ModuleType):
    """The package, in which a function keeps its name although a subpackage of that name is imported."""

    behaviours = property(lambda self: _api("behaviours"), lambda self, module: None)
    report = property(lambda self: _api("report"), lambda self, module: None)


def _api(name: str) -> Any:
    return getattr(import_module("vesalius.api"), name)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if not name.startswith("_"):
        plugins = import_module("vesalius.plugins")
        if (verb := plugins.loaded_plugin(plugins.VERBS, name, __all__)) is not None:
            return verb
    raise AttributeError(f"module 'vesalius' has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__() -> list[str]:
    plugins = import_module("vesalius.plugins")
    return sorted(plugins.all_names(plugins.VERBS, __all__))

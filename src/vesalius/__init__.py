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


class _Package(ModuleType):
    """The package, in which a function keeps its name although a subpackage of that name is imported."""

    behaviours = property(lambda self: __getattr__("behaviours"), lambda self, module: None)
    report = property(lambda self: __getattr__("report"), lambda self, module: None)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    return import_module("vesalius.api.homes").named(name, of=__name__, beside=__all__)


def __dir__() -> list[str]:
    plugins = import_module("vesalius.plugins")
    return sorted(plugins.all_names(plugins.VERBS, __all__))

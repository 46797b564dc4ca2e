"""Where each name of `vesalius` and of `vesalius.api` is defined; its module is imported when the name is used."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from vesalius.plugins import VERBS, all_names, loaded_plugin

#: The verbs that each module defines.
_VERBS = {
    "vesalius.api.alignments": ("align",),
    "vesalius.api.atlases": ("atlas",),
    "vesalius.api.benchmarks": ("bench",),
    "vesalius.api.catalogue": ("behaviours", "bos_text", "next_tokens", "predict", "show"),
    "vesalius.api.continuing": ("complete",),
    "vesalius.api.discoveries": ("discover", "neurons"),
    "vesalius.api.explanations": ("explain", "ladder", "retest"),
    "vesalius.api.kept_circuits": ("explained_circuit", "faithfulness"),
    "vesalius.api.knockouts": ("save_what_if", "what_if"),
    "vesalius.api.listing": ("models", "specimens"),
    "vesalius.api.loading": ("check", "load"),
    "vesalius.api.looking": ("attention", "instruments", "lens", "look", "why_attends"),
    "vesalius.api.plans": ("plan",),
    "vesalius.api.plugin_listing": ("plugins",),
    "vesalius.api.runs": ("diff", "replay", "report", "rerun", "results", "what_if_again"),
    "vesalius.api.sweeps": ("sweep", "sweep_report"),
    "vesalius.documents.attribution_graph": ("convert",),
    "vesalius.documents.kinds": ("schema", "schema_names"),
}
#: The classes that stand beside the verbs in `import vesalius as ves`.
_CLASSES = {
    "vesalius.behaviours": ("Behaviour",),
    "vesalius.components": ("Component", "Edge"),
    "vesalius.discovery.attribution": ("EAP", "EAPIG", "GIM", "Best", "RelP", "RelPQK"),
    "vesalius.discovery.combining": ("Elimination", "Ensemble"),
    "vesalius.discovery.masks": ("EdgeMasks", "Masks"),
    "vesalius.discovery.pruning": ("ACDC",),
    "vesalius.discovery.sweep": ("Sweep",),
    "vesalius.errors": ("BadInput", "Failed", "Note"),
    "vesalius.explanations.scientists": ("Builtin",),
    "vesalius.intervene.ablations": ("Mean", "Resample", "ValueBias", "Zero"),
}
#: The verbs by name.
OFFERED = tuple(name for names in _VERBS.values() for name in names)
#: The module of each name; no verb of a plug-in takes one of them.
HOMES = {name: module for module, names in (*_VERBS.items(), *_CLASSES.items()) for name in names}


def named(name: str, *, of: str, beside: Iterable[str]) -> Any:
    """What has this name: of a module of the core, or else a verb of a plug-in. `of` is the package that was asked for
    it, `beside` what else it has.
    """
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    verb = None if name.startswith("_") else loaded_plugin(VERBS, name, HOMES)
    if verb is None:
        has = ", ".join(sorted(all_names(VERBS, beside)))
        raise AttributeError(f"module {of!r} has no attribute {name!r}; it has {has}")
    return verb

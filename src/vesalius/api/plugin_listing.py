"""The plug-ins of installed packages, and whether they can be used."""

from collections.abc import Mapping
from importlib import import_module

from vesalius.behaviours.registry import behaviours
from vesalius.discovery.discover import TAKEN as METHODS
from vesalius.documents.base import REGISTERED
from vesalius.documents.catalogue import Listing, PluginEntry
from vesalius.errors import BadInput
from vesalius.explanations.scientists import BUILTIN
from vesalius.model.sources import BUILT_IN as MODELS
from vesalius.plugins import GROUPS, Plugin, installed, why_hidden
from vesalius.runs.kinds import benchmark_named, benchmark_names


def plugins(*, check: bool = False) -> Listing[PluginEntry]:
    """Every plug-in of other installed packages: scientists, discovery methods, document kinds, commands and more.

    `check` imports each; `problem` says what is in the way of one.
    """
    built_in = {
        "vesalius.scientists": (BUILTIN,),
        "vesalius.discovery_methods": METHODS,
        "vesalius.behaviours": tuple(one.name for one in behaviours()),
        "vesalius.model_loaders": MODELS,
        "vesalius.documents": tuple(REGISTERED),
        "vesalius.verbs": tuple(import_module("vesalius").__all__),
    }
    for name in benchmark_names():
        built_in |= _built_in_of(name)
    found = [
        (plugin, tuple(built_in.get(group.entry_points, ())))
        for group in GROUPS
        for plugin in installed(group)
        if not plugin.built_in
    ]
    return Listing(_entry(plugin, known, check=check) for plugin, known in found)


def _built_in_of(benchmark: str) -> Mapping[str, tuple[str, ...]]:
    """The names that a benchmark has built in; a damaged plug-in has none."""
    try:
        return benchmark_named(benchmark).BUILT_IN
    except BadInput:
        return {}


def _entry(plugin: Plugin, known: tuple[str, ...], *, check: bool) -> PluginEntry:
    problem = why_hidden(plugin, known)
    if problem is None and check:
        try:
            plugin.load()
        except BadInput as error:
            problem = str(error)
    return PluginEntry(
        kind=plugin.group.role,
        name=plugin.name,
        package=plugin.package,
        version=plugin.version,
        target=plugin.target,
        problem=problem,
    )

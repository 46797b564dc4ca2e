"""The plug-ins of installed packages, and whether they can be used."""

from collections.abc import Callable, Mapping

from typer import Typer

from vesalius import consent
from vesalius.api.homes import HOMES
from vesalius.behaviours.registry import behaviour, behaviours
from vesalius.discovery.discover import TAKEN as METHODS
from vesalius.discovery.discover import method_class
from vesalius.documents.base import REGISTERED
from vesalius.documents.catalogue import Listing, PluginEntry
from vesalius.documents.kinds import kind_named, look_again
from vesalius.errors import BadInput, Failed, choices, quoted
from vesalius.explanations.scientists import BUILTIN
from vesalius.model.sources import BUILT_IN as MODELS
from vesalius.plugins import (
    BEHAVIOURS,
    BENCHMARKS,
    COMMANDS,
    DISCOVERY_METHODS,
    DOCUMENTS,
    GROUPS,
    OWN,
    OWN_COMMANDS,
    RUNS,
    Plugin,
    PluginGroup,
    installed,
    offers,
    why_hidden,
)
from vesalius.runs.kinds import benchmark_named, benchmark_names, offered_kind


def plugins(*, check: bool = False, trust: str | None = None, revoke: str | None = None) -> Listing[PluginEntry]:
    """Every plug-in of other installed packages: scientists, discovery methods, document kinds, commands and more.

    Args:
        check: import each of a trusted package; `problem` says what is in the way of one.
        trust: agree to a package: its plug-ins run with your rights from now on.
        revoke: take that back.
    """
    if trust is not None:
        _trust(trust)
    if revoke is not None:
        consent.revoke(revoke)
    built_in = {
        "vesalius.scientists": (BUILTIN,),
        "vesalius.discovery_methods": METHODS,
        "vesalius.behaviours": tuple(one.name for one in behaviours()),
        "vesalius.model_loaders": MODELS,
        "vesalius.documents": tuple(name for name, kind in REGISTERED.items() if _is_of_core(kind)),
        "vesalius.verbs": tuple(HOMES),
        "vesalius.commands": OWN_COMMANDS,
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


def _trust(package: str) -> None:
    foreign = {plugin.package for group in GROUPS for plugin in installed(group) if not plugin.built_in}
    if package not in foreign:
        none = f"choose one of {choices(sorted(foreign))}" if foreign else "no installed package offers any"
        raise BadInput(f"package {quoted(package, 80)} offers no plug-ins; {none}")
    consent.trust(package, offers(package))
    look_again()


def _is_of_core(kind: type) -> bool:
    """Kinds of other packages are registered as well once they are imported."""
    return kind.__module__.partition(".")[0] == OWN


def _built_in_of(benchmark: str) -> Mapping[str, tuple[str, ...]]:
    """The names that a benchmark has built in; a damaged plug-in has none."""
    try:
        return benchmark_named(benchmark).BUILT_IN
    except (BadInput, Failed):
        return {}


def _function(plugin: Plugin) -> None:
    """Refuse what cannot be called."""
    if not callable(plugin.load()):
        raise plugin.refused("is not a function")


def _command(plugin: Plugin) -> None:
    if not isinstance(plugin.load(), Typer):
        _function(plugin)


#: Who says what is wrong with a plug-in of a kind that is not just a function, as where it is used.
USABLE: Mapping[PluginGroup, Callable[[Plugin], object]] = {
    DISCOVERY_METHODS: lambda plugin: method_class(plugin.name),
    BEHAVIOURS: lambda plugin: behaviour(plugin.name),
    DOCUMENTS: lambda plugin: kind_named(plugin.name),
    COMMANDS: _command,
    BENCHMARKS: offered_kind,
    RUNS: offered_kind,
}


def _entry(plugin: Plugin, known: tuple[str, ...], *, check: bool) -> PluginEntry:
    problem = why_hidden(plugin, known)
    if problem is None and (check or not plugin.trusted):
        try:
            plugin.require_trusted()
            USABLE.get(plugin.group, _function)(plugin)
        except (BadInput, Failed) as error:
            problem = str(error)
    return PluginEntry(
        kind=plugin.group.role,
        name=plugin.name,
        package=plugin.package,
        version=plugin.version,
        target=plugin.target,
        trusted=plugin.trusted,
        problem=problem,
    )

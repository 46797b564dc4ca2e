"""The plug-ins of installed packages, and whether they can be used."""

from vesalius.behaviours.registry import behaviours
from vesalius.discovery.methods import TAKEN as METHODS
from vesalius.documents.catalogue import Listing, PluginEntry
from vesalius.errors import BadInput
from vesalius.explanations.scientists import SCIENTISTS
from vesalius.model.sources import BUILT_IN as MODELS
from vesalius.plugins import GROUPS, Plugin, installed, why_hidden
from vesalius_functions.interpreters import NAMES as INTERPRETERS


def plugins(*, check: bool = False) -> Listing[PluginEntry]:
    """Every plug-in of the installed packages: scientists, interpreters, discovery methods, behaviours, model loaders
    and judges. `check` imports each; `problem` says what is in the way of one.
    """
    built_in = {
        "vesalius.scientists": tuple(SCIENTISTS),
        "vesalius.interpreters": INTERPRETERS,
        "vesalius.discovery_methods": METHODS,
        "vesalius.behaviours": tuple(one.name for one in behaviours()),
        "vesalius.model_loaders": MODELS,
    }
    found = [(plugin, built_in.get(group.entry_points, ())) for group in GROUPS for plugin in installed(group)]
    return Listing(_entry(plugin, known, check=check) for plugin, known in found)


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
        target=plugin.entry.value,
        problem=problem,
    )

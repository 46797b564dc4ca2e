"""What other people bring: functions named as `package.module:function`, and plug-ins of installed packages.

A package offers plug-ins by entry points, one group per kind:

    [project.entry-points."vesalius.interpreters"]
    constant = "my_package:constant"

The name is then accepted wherever a built-in name of that kind is. A plug-in is imported when it is used, and only if
the user trusts its package (`vesalius.consent`). One that cannot be imported is refused in one line that names its
package, and no other is touched. A built-in name cannot be taken, nor a name that two packages claim. The packages that
come with this one (`vesalius_bench` and others) are found in the same way; their names count as built-in.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

from vesalius.consent import NotTrusted, is_trusted
from vesalius.errors import BadInput, Failed, choices, quoted, raised_where


class PluginGroup(NamedTuple):
    """A kind of plug-in: its entry points, what one is called, and whether `package.module:function` names one too."""

    entry_points: str
    role: str
    by_module: bool = False


SCIENTISTS = PluginGroup("vesalius.scientists", "scientist", by_module=True)
INTERPRETERS = PluginGroup("vesalius.interpreters", "interpreter", by_module=True)
DISCOVERY_METHODS = PluginGroup("vesalius.discovery_methods", "method")
BEHAVIOURS = PluginGroup("vesalius.behaviours", "behaviour")
MODEL_LOADERS = PluginGroup("vesalius.model_loaders", "model loader")
JUDGES = PluginGroup("vesalius.judges", "judge")
DOCUMENTS = PluginGroup("vesalius.documents", "document kind")
COMMANDS = PluginGroup("vesalius.commands", "command")
VERBS = PluginGroup("vesalius.verbs", "verb")
BENCHMARKS = PluginGroup("vesalius.benchmarks", "benchmark")
RUNS = PluginGroup("vesalius.runs", "kind of run")
GROUPS = (
    *(SCIENTISTS, INTERPRETERS, DISCOVERY_METHODS, BEHAVIOURS, MODEL_LOADERS, JUDGES),
    *(DOCUMENTS, COMMANDS, VERBS, BENCHMARKS, RUNS),
)
#: The distribution whose plug-ins are built in, and the packages in it.
OWN = "vesalius"
#: The commands that `vesalius.cli` declares; no plug-in takes their names.
OWN_COMMANDS = (
    *("check", "behaviours", "sweep", "discover", "explain", "show", "predict", "look", "atlas", "align", "what-if"),
    *("complete", "neurons", "faithfulness", "retest", "ladder", "improve", "report", "runs", "diff", "replay"),
    *("convert", "schema", "specimens", "models", "train", "generate", "plugins", "bench"),
)
_OWN_PACKAGE = re.compile(r"vesalius(_[a-z]+)?[.:]")
#: What a plug-in may be called: names stand in lists, options, file names and before colons.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")


class Plugin(NamedTuple):
    """One plug-in: the group and name it has, the package it is of, and the `module:object` it names there."""

    group: PluginGroup
    name: str
    package: str
    version: str
    target: str

    @property
    def built_in(self) -> bool:
        """True if it comes with this package."""
        return self.package == OWN and _OWN_PACKAGE.match(self.target) is not None

    @property
    def trusted(self) -> bool:
        """True if it is built in, or the user has agreed to what its package offers."""
        return self.built_in or is_trusted(self.package, offers(self.package))

    def require_trusted(self) -> None:
        """Refuse a plug-in of a package that the user has not agreed to."""
        if not self.trusted:
            raise NotTrusted(f"{self.group.role} {self.name!r}", self.package, self.version)

    def load(self) -> Any:
        """Import it; refused, with the name of the package, where that fails or the package is not trusted."""
        self.require_trusted()
        try:
            module, _, names = self.target.partition(":")
            return reduce(getattr, filter(None, names.split(".")), importlib.import_module(module))
        except (Exception, SystemExit) as error:  # an imported module may raise anything
            problem = " ".join(f"{type(error).__name__}: {error}".split())
            raise self.refused(f"cannot be loaded ({problem})") from error

    @contextmanager
    def running(self) -> Iterator[None]:
        """While its code runs: what it raises, other than our own errors, becomes one line that names the package."""
        try:
            yield
        except (BadInput, Failed, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # code of others may raise anything
            raise self.failed(error) from error

    def failed(self, error: BaseException) -> Failed:
        """The error for a plug-in whose code raised another."""
        return Failed(self._faulty(f"raised {raised_where(error)}"))

    def refused(self, problem: str) -> BadInput:
        """The error for a plug-in that is not what it should be."""
        return BadInput(self._faulty(problem))

    def _faulty(self, problem: str) -> str:
        who = f"{self.group.role} {self.name!r}: the plug-in of package {self.package} {self.version}"
        return f"{who} {problem}; fix or uninstall {self.package}"


@contextmanager
def running(group: PluginGroup, name: str, known: Iterable[str]) -> Iterator[None]:
    """While the code behind a name runs: what that of a plug-in, or of `package.module:function`, raises becomes one
    line; a built-in one is not touched.
    """
    known = list(known)
    plugin = find_plugin(group, name, known)
    if plugin is not None and not plugin.built_in:
        with plugin.running():
            yield
    elif plugin is not None or name in known or not group.by_module:
        yield
    else:
        try:
            yield
        except (BadInput, Failed, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            raise Failed(f"{group.role} {name!r}: raised {raised_where(error)}; fix that function") from error


def installed(group: PluginGroup) -> tuple[Plugin, ...]:
    """Every plug-in of a group, whatever it is called; nothing is imported."""
    return tuple(plugin for plugin in _installed(tuple(sys.path)) if plugin.group == group)


def offers(package: str) -> list[str]:
    """What a package offers, each as `group:name = target`: what a user agrees to."""
    plugins = [one for one in _installed(tuple(sys.path)) if one.package == package and not one.built_in]
    return [f"{one.group.entry_points}:{one.name} = {one.target}" for one in plugins]


def why_hidden(plugin: Plugin, known: Iterable[str]) -> str | None:
    """Why a plug-in cannot be used under its name; None where it can."""
    if plugin.built_in:
        return None
    same = [one for one in installed(plugin.group) if one.name == plugin.name]
    if plugin.name in set(known) or any(one.built_in for one in same):
        return f"{plugin.name} is a built-in name"
    if not _NAME.fullmatch(plugin.name):
        return "a name has letters, digits, '.', '_', '+' and '-' only"
    others = sorted({one.package for one in same} - {plugin.package})
    return f"{', '.join(others)} offers the same name" if others else None


def plugin_names(group: PluginGroup, known: Iterable[str]) -> list[str]:
    """The names of the plug-ins that can be used beside the built-in names `known`."""
    known = list(known)
    return [plugin.name for plugin in installed(group) if why_hidden(plugin, known) is None]


def all_names(group: PluginGroup, known: Iterable[str]) -> list[str]:
    """The built-in names, then those of plug-ins."""
    known = list(known)
    return [*known, *plugin_names(group, known)]


def find_plugin(group: PluginGroup, name: str, known: Iterable[str]) -> Plugin | None:
    """The plug-in of that name, None where there is none; refused where two packages claim the name."""
    known = list(known)
    found = [plugin for plugin in installed(group) if plugin.name == name and name not in known]
    found = [plugin for plugin in found if plugin.built_in] or found
    packages = sorted({plugin.package for plugin in found})
    if len(packages) > 1:
        raise BadInput(f"{group.role} {name!r}: packages {choices(packages)} both offer it; uninstall one of them")
    return found[0] if found and why_hidden(found[0], known) is None else None


def loaded_plugin(group: PluginGroup, name: str, known: Iterable[str]) -> Any:
    """What the plug-in of that name is, imported; None where there is none."""
    plugin = find_plugin(group, name, known)
    return None if plugin is None else plugin.load()


def named_function(group: PluginGroup, name: str, known: Iterable[str]) -> Callable[..., Any]:
    """The function that a plug-in's name or `package.module:function` names, where the group allows the latter."""
    known = list(known)
    plugin = find_plugin(group, name, known)
    if plugin is not None:
        function = plugin.load()
        if not callable(function):
            raise plugin.refused("is not a function")
        return function
    names = all_names(group, known)
    if not group.by_module:
        raise BadInput(f"{group.role} {quoted(name, 80)} does not exist; choose one of {choices(names)}")
    return function_named(name, role=group.role, known=names)


#: What stands before the colon of a name that is not of a module: confined programs, and answers in a directory.
_NOT_MODULES = ("command", "confined", "answers")


def names_a_module(name: object) -> bool:
    """Whether a name is `package.module:function`: code that runs with the rights of whoever uses the name."""
    return isinstance(name, str) and ":" in name and name.partition(":")[0] not in _NOT_MODULES


def function_named(name: str, *, role: str, known: Iterable[str]) -> Callable[..., Any]:
    """Import the function that `package.module:function` names; `role` and `known` are for the error message."""
    module, colon, function = name.partition(":")
    fix = f"use {choices(known)} or package.module:function"
    if not (colon and module and function):
        raise BadInput(f"{role} {name!r} does not exist; {fix}")
    try:
        target = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        raise BadInput(f"{role} {name!r}: {error}; put its folder on PYTHONPATH, or {fix}") from None
    except (ImportError, AttributeError) as error:
        raise BadInput(f"{role} {name!r}: {error}; {fix}") from None
    except (Exception, SystemExit) as error:  # an imported module may raise anything
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(f"{role} {name!r}: importing {module} raises {problem}; fix that module") from error
    if not callable(target):
        raise BadInput(f"{role} {name!r} is not a function; {fix}")
    return target


@lru_cache(maxsize=4)
def _installed(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """The plug-ins of all packages on the path, the first of packages of one name; damaged metadata is passed over."""
    groups = {group.entry_points: group for group in GROUPS}
    plugins: list[Plugin] = []
    seen: set[str] = set()
    for folder in _metadata_folders(path):
        try:
            if not (entries := list(_entry_points(folder, groups))):
                continue
            name, version = _name_and_version(folder)
        except (OSError, ValueError):
            continue
        same = re.sub(r"[-_.]+", "-", name).lower()
        if same not in seen:
            seen.add(same)
            plugins += [Plugin(groups[group], entry, name, version, target) for group, entry, target in entries]
    return tuple(sorted(plugins, key=lambda plugin: (plugin.group.entry_points, plugin.name, plugin.package)))


def _metadata_folders(path: Iterable[str]) -> Iterator[str]:
    """What installers leave of each package. It is read here, as the packaging specifications describe it, because
    `importlib.metadata` takes longer to import than all these files take to read.
    """
    for place in dict.fromkeys(path):
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:  # a zip file, or nothing
            continue
        yield from (os.path.join(place, name) for name in names if name.endswith((".dist-info", ".egg-info")))


def _entry_points(folder: str, groups: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The group, name and target of each entry point of a package in these groups."""
    try:
        text = Path(folder, "entry_points.txt").read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    group = ""
    for line in text.splitlines() if "[vesalius." in text else ():
        if line.startswith("["):
            group = line.strip(" []")
        elif group in groups and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            yield group, name.strip(), target.partition("[")[0].replace(" ", "")


def _name_and_version(folder: str) -> tuple[str, str]:
    """What the metadata of a package calls it."""
    file = "METADATA" if folder.endswith(".dist-info") else "PKG-INFO"
    head = Path(folder, file).read_text(encoding="utf-8").partition("\n\n")[0]
    name, version = (re.search(rf"^{key}: *(.*)$", head, re.MULTILINE) for key in ("Name", "Version"))
    if name is None or version is None:
        raise ValueError(f"{folder}: no name and version")
    return name[1].strip(), version[1].strip()

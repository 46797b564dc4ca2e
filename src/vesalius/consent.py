"""Which packages of others the user lets offer plug-ins.

A plug-in is imported into the process of its user, with that user's rights, and any package that is installed may
offer one, such as a dependency of a dependency. So none is imported before the user has agreed to its package, once.
What was agreed to is what the package offered then: an update that offers more is asked for again. The answer stands in
a private file of the user, or for one process in the environment, `VESALIUS_TRUST_PLUGINS=package,package`.
"""

import json
import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from vesalius.errors import BadInput, Failed, quoted
from vesalius.private import read_private, write_private

#: Names of packages, comma-separated, that are trusted in this process and those it starts.
VARIABLE = "VESALIUS_TRUST_PLUGINS"
SCHEMA = 1


class NotTrusted(BadInput):
    """A plug-in of a package that the user has not agreed to."""

    def __init__(self, who: str, package: str, version: str) -> None:
        super().__init__(
            f"{who}: package {package} {version} is not trusted to offer plug-ins, which run with your rights; "
            f"run: vesalius plugins --trust {package}"
        )
        self.package = package


def consent_file() -> Path:
    """Where the answers are kept."""
    try:
        home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    return home / "vesalius" / "plugins.json"


def is_trusted(package: str, offers: Collection[str]) -> bool:
    """Whether the user has agreed to a package with what it offers now, each as `group:name = target`."""
    named = os.environ.get(VARIABLE, "").split(",")
    if _plain(package) in {_plain(one.strip()) for one in named}:
        return True
    return bool(offers) and set(offers) <= set(_agreed().get(_plain(package), ()))


def trust(package: str, offers: Collection[str]) -> None:
    """Write down that the user agrees to a package with what it offers now."""
    _save({**_agreed(), _plain(package): sorted(offers)})


def revoke(package: str) -> None:
    """Take consent back; refused where there is none."""
    agreed = _agreed()
    if agreed.pop(_plain(package), None) is None:
        raise BadInput(f"package {quoted(package, 80)} is not trusted; `vesalius plugins` lists those that are")
    _save(agreed)


def _plain(package: str) -> str:
    """A package by the name that all its spellings share."""
    return re.sub(r"[-_.]+", "-", package).lower()


def _agreed() -> dict[str, list[str]]:
    """What each package offered when the user agreed to it; refused where others could have written it."""
    path = consent_file()
    if not path.is_file():
        return {}
    text = read_private(path, fix="remove it, and trust your packages again")
    try:
        packages: Any = json.loads(text)["packages"]
        if all(isinstance(one, list) and all(isinstance(each, str) for each in one) for one in packages.values()):
            return dict(packages)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise BadInput(f"{path}: does not say which packages are trusted; remove it, and trust your packages again")


def _save(packages: dict[str, list[str]]) -> None:
    path = consent_file()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(
            f"{path.parent}: cannot be made ({error.strerror}); set XDG_CONFIG_HOME, or {VARIABLE} for one process"
        ) from None
    write_private(path, json.dumps({"schema": SCHEMA, "packages": packages}, indent=2) + "\n")

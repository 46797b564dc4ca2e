"""Vesalius finds, explains and checks the circuits inside transformer language models.

    import vesalius as ves

    specimen = ves.load("smollm2-135m", behaviour="induction")
    effects = ves.sweep(specimen, n=8)
    print(effects.ranked()[:5])

Names are imported when first used, so that `import vesalius` and `vesalius --help` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vesalius.errors import BadInput, Failed
from vesalius.version import __version__

if TYPE_CHECKING:
    from vesalius.api import discover, explain, load, specimens, sweep
    from vesalius.components import Component, Edge
    from vesalius.grading import grade

_HOMES = {
    "discover": "vesalius.api",
    "explain": "vesalius.api",
    "grade": "vesalius.grading",
    "load": "vesalius.api",
    "specimens": "vesalius.api",
    "sweep": "vesalius.api",
    "Component": "vesalius.components",
    "Edge": "vesalius.components",
}
__all__ = [
    "BadInput",
    "Component",
    "Edge",
    "Failed",
    "__version__",
    "discover",
    "explain",
    "grade",
    "load",
    "specimens",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vesalius' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)

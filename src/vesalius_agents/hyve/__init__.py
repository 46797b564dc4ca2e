"""HyVE: a language model studies a circuit, one component after another.

Observe, hypothesise, validate, at most three times per component; then classify all components and summarise. Two
protocols: in `paper` the model writes free code and decides for itself, as published; in `typed` it writes claims in
the grammar of `explanations/claims`, and the engine decides.

Names are imported when first used: the sandbox imports this package to prepare its names, and needs none of the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vesalius_agents.hyve.explain import HyveResult, explain_hybrid, explain_hyve
    from vesalius_agents.hyve.tools import category_of

_HOMES = {
    "HyveResult": "vesalius_agents.hyve.explain",
    "category_of": "vesalius_agents.hyve.tools",
    "explain_hybrid": "vesalius_agents.hyve.explain",
    "explain_hyve": "vesalius_agents.hyve.explain",
}
__all__ = ["HyveResult", "category_of", "explain_hybrid", "explain_hyve"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)

"""One transformer with hooks, and its checkpoints in several file formats."""

from vesalius.components import Component, Edge, all_components, parse_components
from vesalius.model.config import Config, Rotary
from vesalius.model.hooks import Cache, HookPoint, Tap
from vesalius.model.transformer import Transformer

__all__ = [
    "Cache",
    "Component",
    "Config",
    "Edge",
    "HookPoint",
    "Rotary",
    "Tap",
    "Transformer",
    "all_components",
    "parse_components",
]

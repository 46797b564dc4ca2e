"""One transformer with hooks, and its checkpoints in several file formats."""

from vesalius.components import Component
from vesalius.model.config import Config
from vesalius.model.transformer import Transformer

__all__ = [
    "Component",
    "Config",
    "Transformer",
]

"""The All-for-One (AF1) circuit: ten components of Llama-3-8B that publications study for three-operand addition.

The subgraph is that of Mamidanna et al. 2025; the ten components are those that the HyVE paper (arXiv 2606.24026,
Appendix G) explains. Only names are here: what each component does is in the answer key. A model counts as Llama-3-8B
by its shape, since weights have no name: fine-tuned weights of that shape are taken for it as well. Llama-3.1-8B has
the same sizes, and is told apart by its longer context and scaled rotation.
"""

from vesalius.components import Component
from vesalius.model.config import Config

LLAMA_3_8B = "Llama-3-8B"
SHAPE = {
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "d_model": 4096,
    "d_mlp": 14336,
    "d_vocab": 128256,
    "n_ctx": 8192,
}
SOURCE = "HyVE paper, arXiv 2606.24026, Appendix G"
_NAMES = "L15H3 L15H13 L15H31 L16H1 L16H21 L20_MLP L26H3 L28H18 L29_MLP L31_MLP"
COMPONENTS: tuple[Component, ...] = tuple(map(Component.parse, _NAMES.split()))


def is_llama_3_8b(config: Config) -> bool:
    """Whether a model has the shape of Llama-3-8B."""
    scaled = config.rotary is not None and config.rotary.scaling != "none"
    return not scaled and all(getattr(config, name) == value for name, value in SHAPE.items())

"""A copy of a model in which some components write nothing."""

import copy
from collections.abc import Iterable

import torch

from vesalius.components import Component
from vesalius.model.transformer import Transformer


@torch.no_grad()
def silenced(model: Transformer, components: Iterable[Component]) -> Transformer:
    """The model with the output weights of some components at zero; the model that is given stays as it is."""
    quiet = copy.deepcopy(model)
    for component in components:
        block = quiet.blocks[component.layer]
        if component.head is not None:
            block.attn.W_O[component.head] = 0
        else:
            block.mlp.W_out.zero_()
            block.mlp.b_out.zero_()
    return quiet

"""Count the forward passes of a model while others run it, and stop them from outside.

Every way of running a layer calls its MLP as a module, so a hook there sees all work: whole passes, passes that start
half way, and rows of which only some tokens are computed.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from vesalius.model.transformer import Transformer


@contextmanager
def metered(model: Transformer, spend: Callable[[float], None]) -> Iterator[None]:
    """Call `spend` before each layer with the passes of one prompt that it costs; what it raises stops the work."""
    layers, width = model.config.n_layers, 1

    def count(layer: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def before(module: nn.Module, given: tuple[Any, ...]) -> None:
            nonlocal width
            shape = given[0].shape
            if layer == 0 and len(shape) > 2 and shape[1] > 1:
                width = shape[1]
            tokens = shape[:-1].numel()
            spend(tokens / width / layers)

        return before

    with ExitStack() as stack:
        for layer, block in enumerate(model.blocks):
            stack.callback(block.mlp.register_forward_pre_hook(count(layer)).remove)
        yield

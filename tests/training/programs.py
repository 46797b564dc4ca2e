"""Small programs and settings that the training tests share."""

import torch

from vesalius.rasp import Map, Program, SequenceMap, compile_program, frac_prevs, indices, tokens
from vesalius.rasp.grammar import shift_by
from vesalius.training.setting import Setting, Size, setting_of
from vesalius.training.stack import Copy, Stack

CPU = torch.device("cpu")


def fraction() -> Program:
    """The running fraction of x: a flag in L0_MLP, its mean in L1H0."""
    flag = Map(lambda token: token == "x", tokens, name="is_x")
    return compile_program(frac_prevs(flag), ["a", "b", "c", "x"], 4, causal=True, name="fraction")


def lookup() -> Program:
    """The next letter: one look-up in L0_MLP."""
    following = dict(zip("abcde", "bcdea", strict=True))
    return compile_program(Map(following.get, tokens), list("abcde"), 6, causal=False, name="lookup")


def odd_places() -> Program:
    """Add one at odd positions: a position flag in L0_MLP, where an interchange at the same position has no effect, and
    a sum in L1_MLP.
    """
    is_odd = Map(lambda position: position % 2, indices, name="is_odd")
    total = SequenceMap(lambda token, odd: token + odd, tokens, is_odd, name="total")
    return compile_program(total, [0, 1, 2, 3], 5, causal=False, name="odd_places")


def shift() -> Program:
    """The token before: one head."""
    return compile_program(shift_by(1, tokens), list("abc"), 7, causal=False, name="shift")


def small(program: Program, *, n_layers: int = 2, d_head: int = 2) -> Setting:
    """A setting of a given width with four heads."""
    return setting_of(program, size=Size(n_layers, 4, 4 * d_head, d_head, 16 * d_head))


def mixed_stack() -> Stack:
    """Four tasks of different depth, width, length, mask and output kind, one copy each, one twice."""
    settings = [small(fraction(), d_head=3), small(lookup()), small(odd_places(), d_head=1), small(shift(), n_layers=3)]
    return Stack(
        settings, [Copy(0, 5, 1e-2), Copy(1, 6, 1e-2), Copy(2, 7, 1e-2), Copy(3, 8, 1e-2), Copy(1, 9, 5e-3)], device=CPU
    )

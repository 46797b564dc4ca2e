"""The three components whose work no interchange between two inputs can show.

An interchange puts a component's value from one input, position by position, into the run of another. A
component whose value depends on the position alone, or on nothing, has the same value in every run, so the
exchange changes nothing. Reading the source at a different position still shows a position flag; a constant is
shown by no interchange at all, only by ablation.
"""

from typing import Literal

from vesalius.components import Component

Reason = Literal["position_only", "constant"]

INERT: dict[tuple[str, Component], Reason] = {
    ("53", Component(0)): "position_only",
    ("56", Component(0)): "position_only",
    ("130", Component(0)): "constant",
}


def is_interchange_inert(task_id: str, component: Component) -> bool:
    """True where patching this component from any other input, position by position, leaves the output as it is."""
    return (task_id, component) in INERT


def shows_across_positions(task_id: str, component: Component) -> bool:
    """True for every component that some interchange shows once the source may be read at another position."""
    return INERT.get((task_id, component)) != "constant"

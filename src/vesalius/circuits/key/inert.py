"""The three components whose function no interchange between two inputs can detect.

An interchange patches a component's value from one input, position by position, into the run of another. A
component whose value depends on the position alone, or on nothing, has the same value in every run, so patching changes
nothing. Reading the source at a different position still detects a position flag; a constant is detected by no
interchange, only by ablation.
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
    """True if patching this component from any other input, position by position, does not change the output."""
    return (task_id, component) in INERT


def shows_across_positions(task_id: str, component: Component) -> bool:
    """True if an interchange that reads the source at another position can detect this component."""
    return INERT.get((task_id, component)) != "constant"

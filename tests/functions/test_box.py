"""The door: budget, log, and replies that harm nobody but themselves."""

from collections.abc import Sequence
from typing import Any

import pytest

from vesalius.errors import BadInput
from vesalius_functions import Box, OutOfQueries, Reply
from vesalius_functions.box import Category


class Halves:
    """x / 2 plus the number of the call, which stands for seeded noise."""

    id, family = "f0", "linear"
    category: Category = "numeric"

    def truth(self) -> dict[str, Any]:
        return {"family": "linear"}

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        return [Reply(value / 2 + first_call + i) for i, value in enumerate(inputs)]


class Odd(Halves):
    """Returns whatever it is asked."""

    def replies(self, inputs: Sequence[Any], *, first_call: int = 0) -> list[Reply]:
        return [Reply(value) for value in inputs]


def test_calls_are_numbered_through() -> None:
    box = Box(Halves(), budget=5)
    assert [reply.value for reply in box.ask([2, 4])] == [1, 3]
    assert [reply.value for reply in box.ask([2])] == [3]
    assert (box.asked, box.left) == (3, 2)
    assert [asked.input for asked in box.log] == [2, 4, 2]


def test_asking_too_much_asks_nothing() -> None:
    box = Box(Halves(), budget=2)
    with pytest.raises(OutOfQueries, match=r"3 inputs asked, 2 of the budget of 2 left"):
        box.ask([1, 2, 3])
    assert box.asked == 0
    box.ask([1, 2])
    with pytest.raises(OutOfQueries):
        box.ask([1])


@pytest.mark.parametrize("budget", [0, -3])
def test_a_budget_of_nothing_is_refused(budget: int) -> None:
    with pytest.raises(BadInput, match="budget"):
        Box(Halves(), budget=budget)


def test_unreadable_outputs_cost_their_own_reply() -> None:
    inputs = ["a" * 10_000_000, object(), 1 + 0j, 1 + 2j, float("inf"), "fine"]
    huge, thing, real, imaginary, infinite, fine = Box(Odd()).ask(inputs)
    assert huge.value is None
    assert "10000000 characters" in (huge.error or "")
    assert "neither a number nor a text" in (thing.error or "")
    assert (real.value, imaginary.value, infinite.value) == (1.0, 1 + 2j, float("inf"))
    assert isinstance(real.value, float)
    assert fine == Reply("fine")


def reachable(box: Box) -> list[object]:
    """What the attributes of a box hold, and what those are bound to."""
    held = [getattr(box, name) for name in dir(box) if not name.startswith("__")]
    return held + [getattr(value, "__self__", None) for value in held]


def test_no_attribute_of_a_box_leads_to_its_function() -> None:
    assert not any(isinstance(value, Halves) for value in reachable(Box(Halves())))


def test_budget_and_log_cannot_be_changed() -> None:
    box = Box(Halves(), budget=2)
    box.ask([1])
    for name, value in {"budget": None, "log": [], "asked": 0, "category": "strings", "spare": 1}.items():
        with pytest.raises(AttributeError):
            setattr(box, name, value)
    assert isinstance(box.log, tuple)
    with pytest.raises(OutOfQueries):
        box.ask([1, 2])


def test_every_way_to_ask_is_counted_and_written_down() -> None:
    box = Box(Halves(), budget=3)
    for way in [value for value in reachable(box) if callable(value)]:
        try:
            way([1])  # type: ignore[operator]
        except TypeError:
            continue
    assert 1 <= box.asked <= 3
    assert box.left == 3 - box.asked
    with pytest.raises(OutOfQueries):
        box.ask([1] * 3)


def test_inputs_are_taken_as_they_are_when_asked() -> None:
    box, inputs = Box(Halves()), [2.0]
    box.ask(inputs)
    inputs.append(4.0)
    assert [asked.input for asked in box.log] == [2.0]

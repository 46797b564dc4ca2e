"""What is known by name is listed from its descriptions, and the lists say what loading would."""

import subprocess
import sys

import pytest

import vesalius as ves
from vesalius.api.listing import MODEL_TYPES, NATURAL
from vesalius.circuits.specimens import benchmark_cards
from vesalius.model.families import FAMILIES
from vesalius.model.smollm import NAME as SMOLLM
from vesalius.model.sources import ARITHMETIC


@pytest.mark.parametrize("command", ["specimens", "models"])
def test_lists_are_printed_without_torch(command: str) -> None:
    code = (
        "import sys; from vesalius.cli import app\n"
        f"app([{command!r}], standalone_mode=False); app([{command!r}, '--json'], standalone_mode=False)\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_the_list_of_specimens_is_that_of_their_cards() -> None:
    listed = {one.id: one.as_data() for one in ves.specimens()}
    cards = benchmark_cards()
    assert len(cards) == 84
    assert [listed[card.id] for card in cards] == [card.describe() for card in cards]
    assert set(NATURAL) == {SMOLLM, ARITHMETIC} == set(listed) - {card.id for card in cards}


def test_a_natural_model_has_the_shape_that_is_listed() -> None:
    config, shape = ves.load(ARITHMETIC).model.config, NATURAL[ARITHMETIC]
    assert (config.n_layers, config.n_heads, config.d_model) == (shape.n_layers, shape.n_heads, shape.d_model)


def test_the_families_listed_are_those_that_are_read() -> None:
    assert {family.name: list(family.model_types) for family in FAMILIES} == MODEL_TYPES

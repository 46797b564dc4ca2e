"""The instruments through the front door, and their page."""

import re
from pathlib import Path

import pytest

import vesalius as ves
from vesalius_session.natural_scope import INSTRUMENTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "instruments.md"


def test_the_page_lists_every_instrument() -> None:
    assert re.findall(r"^\| `(\w+)\(", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == INSTRUMENTS


def test_a_circuit_has_no_instruments() -> None:
    with pytest.raises(ves.BadInput, match="instruments measure a natural model"):
        ves.instruments("frac_prevs")

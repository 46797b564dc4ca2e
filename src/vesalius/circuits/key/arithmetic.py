"""What every component of the arithmetic model does, established by `scripts/study_arithmetic.py`.

`components` has for each a role, a note and the figures behind them; `groups` has the heads that move one operand.
Nothing that proposes explanations may read it.
"""

from pathlib import Path
from typing import Any

from vesalius.files import read_json

FILE = Path(__file__).with_suffix(".json")


def established_roles() -> dict[str, Any]:
    """Roles and figures of the arithmetic model."""
    return read_json(FILE)

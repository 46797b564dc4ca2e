"""What each of the ten AF1 components of Llama-3-8B does, by Tables 13 and 14 of the HyVE paper, in our own words.

Nothing that proposes explanations may read it; the names of the components alone are in `discovery.af1`.
"""

from pathlib import Path
from typing import Any

from vesalius.files import read_json

FILE = Path(__file__).with_suffix(".json")


def af1_roles() -> dict[str, Any]:
    """The task, and a role and a note for each component."""
    return read_json(FILE)

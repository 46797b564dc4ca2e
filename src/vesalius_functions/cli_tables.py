"""Black-box functions."""

from typing import Any

from rich.table import Table

from vesalius.cli.console import stdout
from vesalius_functions.suite import in_words

#: The least reliable functions that are printed.
WORST = 10


def print_functions(rows: list[dict[str, Any]]) -> None:
    """One line per function: what it hides, and a few inputs and outputs."""
    table = Table("id", "family", "truth", "examples", box=None, pad_edge=False)
    for row in rows:
        examples = ", ".join(example["text"] for example in row["examples"][:3])
        table.add_row(row["id"], row["family"], in_words(row["truth"])[:160], examples)
    stdout.print(table, markup=False)

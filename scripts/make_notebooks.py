"""Writes the tutorials as notebooks: `python scripts/make_notebooks.py`.

The pages under docs/tutorials are the source. A ```python block becomes a code cell, the text between blocks a Markdown
cell. A test compares the notebooks with the pages and runs them.
"""

import json
import re
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
BLOCK = re.compile(r"^```python\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Every tutorial that has code."""
    return [page for page in sorted(TUTORIALS.glob("*.md")) if BLOCK.search(page.read_text(encoding="utf-8"))]


def notebook(page: Path) -> dict[str, Any]:
    """A page as a notebook (format 4.5), without outputs."""
    cells: list[dict[str, Any]] = []
    for number, piece in enumerate(BLOCK.split(page.read_text(encoding="utf-8"))):
        text = piece.strip("\n")
        if not text:
            continue
        cell: dict[str, Any] = {"cell_type": "code" if number % 2 else "markdown", "id": f"cell-{number}"}
        cell |= {"metadata": {}, "source": text.splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if number % 2 else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    for one in pages():
        one.with_suffix(".ipynb").write_text(json.dumps(notebook(one), indent=1) + "\n", encoding="utf-8")

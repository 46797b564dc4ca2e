"""Tables agree with the files in `benchmarks/results`: rows are written again from the file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import tables

BACKGROUND = Path(__file__).parents[1] / "docs" / "background"
#: The rows that a page shows of the recorded tables.
SHOWN = {
    "which-circuit": lambda: [
        *tables.hard_figures(["hard", "strict0"]),
        *tables.false_circuits("best_false", [8], ["hard", "strict0.1", "strict0"]),
        *tables.stability(summed=True),
    ],
    "discovery": lambda: [
        *tables.chosen_components(),
        *tables.estimates_of_components(),
        *tables.estimates_of_edges_and_neurons(["edges", "neurons"]),
        *tables.smallest_by_method(),
        *tables.smallest_by_default(),
    ],
    "mechrl": lambda: [*tables.regrets_at(10), *tables.standin_transfer(), *tables.standin_best()],
    "neurons": lambda: [*tables.neurons_that_keep()],
}


@pytest.mark.parametrize("page", SHOWN)
def test_tables_of_a_page_agree_with_the_recorded_files(page: str) -> None:
    text = (BACKGROUND / f"{page}.md").read_text(encoding="utf-8")
    written = SHOWN[page]()
    assert written
    assert [line for line in written if line not in text] == []


def test_the_file_of_all_tables_agrees_with_the_recorded_files() -> None:
    """`python -m benchmarks.tables` makes it again."""
    assert tables.PAGE.read_text(encoding="utf-8") == tables.page()
    assert set(headings()) >= {"Regret on ioi (best 2.39)", "The 84 circuits: components chosen"}


def headings() -> Iterator[str]:
    return (line[3:] for line in tables.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## "))

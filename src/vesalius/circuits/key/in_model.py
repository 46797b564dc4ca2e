"""What holds in the trained weights where it is not quite what the program says.

A note in `tasks` says what the RASP program does. A trained model may do something equivalent: attend to the larger
values and not to the smaller ones, or unevenly over positions, and still carry the same variable. `in_model.json` holds
the measurements (`python -m vesalius.grading.key_check` makes it); the note that grading uses is `note_in_model`.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

IN_MODEL_FILE = "in_model.json"
#: Attention on the selected tokens, relative to that on all tokens, from which a head reads where its note says.
READS_THERE = 0.6
#: Total variation from even attention up to which a head attends to its positions alike.
EVEN = 0.1
#: Share of changed answers, after moving an output to another position, from which it acts there as the program says.
MOVES = 0.7
#: Fewer changed answers than this say nothing.
FEWEST_CHANGED = 24

#: Notes for components whose way of doing it was looked at one by one.
NOTES: dict[tuple[str, str], str] = {
    ("97", "L1H0"): (
        "Compares the tie-free value here with that of every position. The trained head attends to the positions with "
        "larger values (and to this one), not to those with smaller or equal ones: the share left on the start token "
        "falls with the number of larger values, which tells the same as the rank. L1_MLP decodes it."
    ),
    ("113", "L0H0"): (
        "Its output tells the sequence length, which L0_MLP decodes and from which the middle to turn around is found. "
        "The trained head attends by position alone, unevenly and differently at each position; tokens play no part."
    ),
    ("21", "L1H0"): (
        "Attends to earlier positions with the same letter, and to the start token where there is none: it tells "
        "whether the letter here occurred before. The trained head does not attend to its own position, and the share "
        "of attention does not grow with the number of occurrences."
    ),
    ("21", "L2_MLP"): (
        "Marks first occurrences, as L1_MLP tells them, so that L3H0 finds only those. In the trained model the mark "
        "is the same at every position: moved to another position it is a mark there, and the position itself is "
        "matched by L3H0."
    ),
}


@cache
def measurements() -> dict[str, dict[str, dict[str, Any]]]:
    """The figures of every component, by circuit and component; empty where they were never measured."""
    place = files("vesalius.circuits.key").joinpath(IN_MODEL_FILE)
    return json.loads(place.read_text(encoding="utf-8"))["circuits"] if place.is_file() else {}


def note_in_model(id_: str, component: str, note: str) -> str:
    """The note on a component, amended by what was measured in the trained model."""
    written = NOTES.get((id_, component))
    return written or " ".join([note, *remarks(measurements().get(id_, {}).get(component, {}))])


def remarks(figures: dict[str, Any]) -> list[str]:
    """Sentences on what was measured, where it differs from what a program would show."""
    said = []
    on_selected, chance, uneven = (figures.get(name) for name in ("on_selected", "by_chance", "uneven"))
    if on_selected is not None and on_selected < READS_THERE:
        said.append(
            f"In the trained model {on_selected:.0%} of its attention on tokens falls on those positions "
            f"({chance:.0%} by chance); it carries the same variable all the same."
        )
    elif on_selected is None and uneven is not None and uneven > EVEN:
        said.append("In the trained model its attention is not even; it carries the same variable all the same.")
    moved = figures.get("moved")
    if moved is not None and moved < MOVES and figures.get("n_moved", 0) >= FEWEST_CHANGED:
        said.append(
            "In the trained model its output, moved to another position, acts there as the program says in only "
            f"{moved:.0%} of the changed answers."
        )
    return said

"""The canonical heads of a stand-in: those that its exhaustive ablation (`truth`) established, as Tables 2 and 3 name
them.

Only the tables read them, after every policy has played. A category may be empty, where no head of the model has that
part alone; S-inhibition was distinguished by path patching and stays unknown (None).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vesalius.circuits.specimens import KEY_FOLDER
from vesalius.errors import BadInput
from vesalius.files import read_json
from vesalius.model.states import fingerprint
from vesalius.model.transformer import Transformer
from vesalius_truth.planted import TRUTH_FILE

#: What the tables say of where their heads come from.
ESTABLISHED = "established: every head and every pair ablated, and where each attends"
ALONE, AGAINST = "matters alone", "works against"


@dataclass(frozen=True)
class EstablishedHeads:
    """The induction heads, and the heads of IOI by the published names of their categories."""

    induction: tuple[str, ...]
    categories: dict[str, tuple[str, ...] | None]


def established_heads(directory: str | Path | None, model: Transformer) -> EstablishedHeads | None:
    """What was established for the stand-in of a directory; None where there is no such file."""
    file = None if directory is None else Path(directory).expanduser() / KEY_FOLDER / TRUTH_FILE
    if file is None or not file.is_file():
        return None
    data = read_json(file)
    tasks = data.get("tasks")
    if not isinstance(tasks, dict) or not {"mechrl-induction", "mechrl-ioi"} <= tasks.keys():
        return None
    if data.get("model") != fingerprint(model):
        raise BadInput(f"{file}: was established for other weights; establish it again, or remove it")
    return EstablishedHeads(*_named(tasks["mechrl-induction"], tasks["mechrl-ioi"]))


def _named(induction: dict[str, Any], ioi: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...] | None]]:
    """Heads that have a part in IOI as well count for its induction and previous-token categories."""
    says = {head: row["says"] for head, row in ioi["heads"].items()}
    acting = {head for head, said in says.items() if said in (ALONE, AGAINST)}
    copying = ioi["roles"]["name mover"]
    movers = tuple(head for head in copying if says[head] == ALONE)
    categories: dict[str, tuple[str, ...] | None] = {
        "S-Inhibition": None,
        "Induction-in-IOI": tuple(head for head in induction["roles"]["induction head"] if head in acting),
        "Backup Name Movers": tuple(row["head"] for row in ioi["backups"] if row["of"] in movers),
        "Name Movers": movers,
        "Negative Name Movers": tuple(head for head in copying if says[head] == AGAINST),
        "Duplicate Token": tuple(ioi["roles"]["duplicate-token head"]),
        "Previous Token": tuple(head for head in induction["roles"]["previous-token head"] if head in acting),
    }
    return tuple(induction["roles"]["induction head"]), categories

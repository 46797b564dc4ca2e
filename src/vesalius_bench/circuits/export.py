"""`vesalius bench circuits --export DIR`: the benchmark's own answers as a release, made by `grading.release`."""

from pathlib import Path

from vesalius.api.door import verb
from vesalius.documents.base import FrozenMap, ResultDocument
from vesalius.documents.view import Answer, Facts, View
from vesalius.errors import BadInput
from vesalius.options import Published

README = "README.md"
TEXT = """# Annotations of the 84 circuits

One file a circuit, `annotations/case_ID.json`, in the layout of AgenticInterpBench: task summary, five examples, RASP
program, model, components (`id`, `hook`, `role` with `tag` and `note`, `labels`) and the correspondence from nodes of
the compiled program to hooks of the trained model. Circuits, programs and notes are Vesalius' own, for the same tasks.

These files are the answer key. Do not give them to an agent that is to be graded.
"""


class Release(ResultDocument, kind="release"):
    """Where the answers of the benchmark's circuits were written; `components` counts those of each circuit."""

    RANK = None
    REMEDY = "run `vesalius bench circuits --export DIR` again"

    directory: str
    components: FrozenMap[str, int]

    def view(self) -> View:
        """How many circuits and components there are, and where."""
        said = f"{len(self.components)} circuits, {sum(self.components.values())} components"
        return View(
            "Release of the circuits benchmark",
            Answer(f"The answer key of {said} is written"),
            [Facts([("files", f"{self.directory}/annotations/case_ID.json")])],
        )


@verb
def export_circuits(directory: str | Path, chosen: Published) -> Release:
    """Write the answers of benchmark circuits in the layout of AgenticInterpBench; of all 84, or of `ids`."""
    from vesalius_bench.circuits.selection import chosen_circuits
    from vesalius_truth.grading.release import write_release

    if chosen.specimens is not None or chosen.annotations is not None:
        raise BadInput("`export` writes the answers of the 84 circuits; leave `specimens` and `annotations` out")
    place = Path(directory).expanduser()
    circuits = chosen_circuits(None, chosen.names, chosen.limit)
    components = write_release(place, [circuit.id for circuit in circuits])
    (place / README).write_text(TEXT, encoding="utf-8")
    return Release(directory=str(place), components=components)

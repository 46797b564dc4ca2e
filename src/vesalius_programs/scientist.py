"""What the built-in scientist asks where the vocabulary is listed, found by its entry point as that of a plug-in is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.scientists import PROGRAMS, Backbone, Explained, Scientist, Task
from vesalius.options.records import option

if TYPE_CHECKING:
    from vesalius.intervene.estimate import Workload
    from vesalius.model.specimen import Specimen

#: Passes of one prompt that explanations took at all, and for each component (34,000 to 65,000 for circuits of 1 and 2
#: components: what the first programs leave open decides).
BASE, PER_COMPONENT = 30_000, 8_000


@dataclass(frozen=True)
class Programs(Scientist):
    """Programs for listed vocabularies."""

    name = PROGRAMS
    meaning = "Programs for listed vocabularies, decided by experiments."
    asks = "never"
    leave_out: str | None = option(None, "A family of hypotheses to do without.")

    @property
    def _without(self) -> frozenset[str]:
        return frozenset() if self.leave_out is None else frozenset({self.leave_out})

    def require(self, specimen: "Specimen", *, force: bool = False) -> None:
        """Refuse a specimen whose tokens are not listed, and a family that does not exist."""
        from vesalius.model.specimen import listed_tokens
        from vesalius_programs.explain import require_families

        listed_tokens(specimen, "the built-in scientist of circuits")
        if force:
            raise BadInput(f"specimen {specimen.name!r} has a listed vocabulary; force is for natural models")
        require_families(self._without)

    def explain(self, task: Task, backbone: Backbone | None) -> Explained:
        """Observe, hypothesise, assemble a program, and let the laboratory judge claims about it."""
        import vesalius_programs

        explanation = vesalius_programs.explain_specimen(
            task.specimen(),
            components=task.components,
            seed=task.seed,
            without=self._without,
            progress=task.progress,
        )
        return Explained(explanation)

    def cost(self, work: "Workload", components: Sequence[Component] | None) -> float:
        """What is found decides how many passes there really are."""
        studied = len(work.circuit if components is None else components)
        return (BASE + PER_COMPONENT * studied) / work.sizes.n

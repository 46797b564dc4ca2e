"""What a circuit does: claims with evidence, verdicts by rule, explanations.

`vesalius.explain` is this package and also the function of the README, `ves.explain(specimen)`: Python gives a
package and a function of one name the same place, so the package can be called (docs/decisions/0007).
"""

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vesalius.explain.explanation import Explanation
    from vesalius.model.components import Component
    from vesalius.model.specimen import Specimen


class _CallablePackage(ModuleType):
    def __call__(
        self,
        specimen: "Specimen",
        components: "Iterable[str | Component] | None" = None,
        *,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> "Explanation":
        """Say what each component of a circuit does, with evidence: the built-in scientist, for listed vocabularies."""
        from vesalius.explain.scientist import explain_specimen

        return explain_specimen(specimen, components=components, seed=seed, progress=progress)


sys.modules[__name__].__class__ = _CallablePackage

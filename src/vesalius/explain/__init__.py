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
        n: int | None = None,
        top: int | None = None,
        force: bool = False,
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> "Explanation":
        """Say what each component of a circuit does, with evidence.

        Listed vocabularies go to the built-in scientist, natural models to the causal profile for the behaviour they
        were loaded with; `n` (held-out prompts), `top` (components) and `force` (go on although the model does not
        perform the behaviour) are for natural models.
        """
        from vesalius.explain.either import explain_either

        return explain_either(specimen, components, n=n, top=top, force=force, seed=seed, progress=progress)


sys.modules[__name__].__class__ = _CallablePackage

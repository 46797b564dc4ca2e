"""What a circuit does: claims with evidence, verdicts by rule, explanations.

`vesalius.explain` is this package and also the function of the README, `ves.explain(specimen)`: Python gives a
package and a function of one name the same place, so the package can be called (docs/decisions/0007).
"""

import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from vesalius.backbones import Backbone
    from vesalius.discovery.circuit import Circuit
    from vesalius.discovery.methods import Discovery
    from vesalius.explain.explanation import Explanation
    from vesalius.model.components import Component
    from vesalius.model.specimen import Specimen


class CallablePackage(ModuleType):
    def __call__(
        self,
        specimen: "Specimen",
        components: "Circuit | Discovery | Iterable[str | Component] | None" = None,
        *,
        n: int | None = None,
        top: int | None = None,
        force: bool = False,
        backbone: "str | Backbone | None" = None,
        protocol: Literal["typed", "paper"] = "typed",
        seed: int = 0,
        progress: Callable[[str], None] | None = None,
    ) -> "Explanation":
        """Say what each component of a circuit does, with evidence.

        `components` is what `ves.discover` found or a circuit read from its file (of both, the components that score
        at least a tenth of the largest are explained), or names; by default the specimen's own. Listed vocabularies go
        to the built-in scientist, natural models to the causal profile for the behaviour they were loaded with; `n`
        (held-out prompts), `top` (components) and `force` (go on although the model does not perform the behaviour)
        are for natural models. With `backbone`, such as "openai:gpt-5.4", a language model proposes (docs/hyve.md), by
        the `protocol` "typed" or "paper".
        """
        from vesalius.explain.circuits import explained_components

        named = explained_components(specimen, components)
        if backbone is not None:
            from vesalius.backbones import open_backbone
            from vesalius.explain.hyve import explain_hyve

            options: dict[str, Any] = {"protocol": protocol, "components": named, "seed": seed}
            if not isinstance(backbone, str):
                return explain_hyve(specimen, backbone=backbone, progress=progress, **options).explanation
            with open_backbone(backbone) as opened:
                return explain_hyve(specimen, backbone=opened, progress=progress, **options).explanation
        from vesalius.explain.either import explain_either

        return explain_either(specimen, named, n=n, top=top, force=force, seed=seed, progress=progress)


sys.modules[__name__].__class__ = CallablePackage

"""What the components of a circuit do, with evidence."""

from collections.abc import Iterable
from typing import Any, Literal

from vesalius.backbones import Backbone, open_backbone
from vesalius.components import Component
from vesalius.discovery.methods import Discovery
from vesalius.documents.circuit import Circuit
from vesalius.documents.explanation import Explanation
from vesalius.explanations.circuits import explained_components
from vesalius.explanations.either import explain_either
from vesalius.model.specimen import Specimen
from vesalius.progress import Progress


def explain(
    specimen: Specimen,
    components: Circuit | Discovery | Iterable[str | Component] | None = None,
    *,
    n: int | None = None,
    top: int | None = None,
    force: bool = False,
    backbone: str | Backbone | None = None,
    protocol: Literal["typed", "paper"] = "typed",
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Say what each component of a circuit does, with evidence.

    `components` is what `ves.discover` returned or a circuit read from its file (of both, the components that score
    at least a tenth of the largest are explained), or names; by default the specimen's own. Listed vocabularies go
    to the built-in scientist, natural models to the causal profile for the behaviour they were loaded with; `n`
    (held-out prompts), `top` (components) and `force` (go on although the model does not perform the behaviour)
    are for natural models. With `backbone`, such as "openai:gpt-5.4", a language model proposes (docs/how-to/hyve.md),
    by the `protocol` "typed" or "paper".
    """
    named = explained_components(specimen, components)
    if backbone is None:
        return explain_either(specimen, named, n=n, top=top, force=force, seed=seed, progress=progress)
    from vesalius.explanations.hyve import explain_hyve

    options: dict[str, Any] = {"protocol": protocol, "components": named, "seed": seed, "progress": progress}
    if not isinstance(backbone, str):
        return explain_hyve(specimen, backbone=backbone, **options).explanation
    with open_backbone(backbone) as opened:
        return explain_hyve(specimen, backbone=opened, **options).explanation

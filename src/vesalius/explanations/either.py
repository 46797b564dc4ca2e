"""One door for both kinds of specimen: programs for listed vocabularies, the causal profile for natural models."""

from collections.abc import Iterable

from vesalius.components import Component
from vesalius.documents.explanation import Explanation
from vesalius.errors import BadInput
from vesalius.explanations.natural import PROMPTS, TOP, explain_natural
from vesalius.explanations.scientist import explain_specimen
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.progress import Progress


def explain_either(
    specimen: Specimen,
    components: Iterable[str | Component] | None = None,
    *,
    n: int | None = None,
    top: int | None = None,
    force: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Explain a specimen; `n`, `top` and `force` are for natural models only and refused elsewhere."""
    if isinstance(specimen.vocabulary, TextVocabulary):
        return explain_natural(
            specimen,
            components=components,
            n=PROMPTS if n is None else n,
            top=TOP if top is None else top,
            force=force,
            seed=seed,
            progress=progress,
        )
    if n is not None or top is not None or force:
        raise BadInput(f"specimen {specimen.name!r} has a listed vocabulary; n, top and force are for natural models")
    return explain_specimen(specimen, components=components, seed=seed, progress=progress)

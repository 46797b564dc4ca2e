"""Where a model holds the variables of an algorithm: a program's variables, aligned with places by interchange."""

from functools import partial

from vesalius.api.door import note_unperformed, place_for, removed_if_empty, request_on, verb, with_page
from vesalius.behaviours.natural import require_performance
from vesalius.behaviours.registry import behaviour_of
from vesalius.documents.alignment import Alignment
from vesalius.errors import BadInput
from vesalius.explanations.variables.algorithms import Algorithm, find_algorithm
from vesalius.explanations.variables.align import Asked, align_variables
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.options import ALIGNED, Aligned, Force, Out, Sample, Sandboxed
from vesalius.progress import Progress, silent


def require_algorithms(aligned: Aligned) -> None:
    """Refuse programs that cannot be read before the model is."""
    for given in (aligned.algorithm, aligned.against):
        if given is not None:
            find_algorithm(given, behaviour="")


def algorithms_on(specimen: Specimen, aligned: Aligned) -> tuple[Algorithm, Algorithm | None]:
    """The algorithm and its rival, for a specimen that has a behaviour."""
    if not isinstance(specimen.vocabulary, TextVocabulary) or specimen.behaviour is None:
        raise BadInput(
            f"specimen {specimen.name!r} has no behaviour whose prompts could be varied; name a natural model and a "
            "behaviour, such as smollm2-135m with --behaviour ioi"
        )
    behaviour = behaviour_of(specimen)
    rival = None if aligned.against is None else find_algorithm(aligned.against, behaviour=behaviour.name)
    return find_algorithm(aligned.algorithm, behaviour=behaviour.name), rival


def asked_of(aligned: Aligned, draw: Sample, sandboxed: Sandboxed) -> Asked:
    """How much is tried, from the options."""
    return Asked(
        n=draw.n,
        held_out=aligned.held_out,
        seed=draw.seed,
        layers=aligned.layers,
        together=aligned.together,
        directions=aligned.directions,
        roles=tuple(aligned.roles),
        at=tuple(aligned.at),
        unsafe=sandboxed.unsafe_sandbox,
    )


@partial(verb, check=require_algorithms)
def align(
    specimen: Specimen,
    *,
    aligned: Aligned,
    draw: Sample = ALIGNED,
    sandboxed: Sandboxed,
    force: Force,
    out: Out = None,
    progress: Progress = silent,
) -> Alignment:
    """Find the places of a model that carry the variables of an algorithm (`.variables`, `.variable("difference")`).

    `algorithm` is a program file whose functions are the variables, or the name of one that ships (default: that of
    the behaviour); `against` a rival. Places are chosen on `n` prompts with all their sources, and graded on
    `held_out` prompts of other templates and words. With `out` (a directory, or True for one under `vesalius-runs`)
    `alignment.json` is written with its page `alignment.html`.
    """
    algorithm, rival = algorithms_on(specimen, aligned)
    records = (aligned, draw, force)
    request = request_on(specimen, "align", *records)
    directory = place_for(out, specimen, request, *records)
    with removed_if_empty(directory):
        performed = require_performance(specimen, seed=draw.seed, force=force.force, early=True)
        note_unperformed(specimen.name, specimen.behaviour, performed, force=force.force)
        asked = asked_of(aligned, draw, sandboxed)
        result = align_variables(specimen, algorithm, asked, rival=rival, request=request, progress=progress)
    return with_page(result, directory)

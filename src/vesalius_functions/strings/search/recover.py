"""A program for stored pairs: not an interpretation, because no query is made.

The published string functions of the second generation came without their sources. A program that agrees with all
their pairs shows that the pairs are read rightly and what a correct answer scores on them, and can stand in for the
source.
"""

from collections.abc import Sequence

from vesalius_functions.answer import Mode
from vesalius_functions.strings.program import StringProgram
from vesalius_functions.strings.search.chance import possible
from vesalius_functions.strings.search.evidence import Observations, attempt
from vesalius_functions.strings.search.solve import solved
from vesalius_functions.strings.search.space import Space, space


def recover(pairs: Sequence[tuple[str, str]], *, mode: Mode = "published") -> StringProgram | None:
    """The simplest program of up to two operations that agrees with all pairs, if there is one.

    A random program agrees if it can give every output; it is taken only where no other agrees.
    """
    evidence = Observations([s for s, _ in pairs], [out for _, out in pairs])
    searched = space(mode)
    return (
        _one_step(searched, evidence)
        or _two_steps(searched, evidence)
        or next(iter(solved(searched, evidence)), None)
        or next(possible(searched, evidence), None)
    )


def _one_step(searched: Space, evidence: Observations) -> StringProgram | None:
    return next((program for program in searched.steps if evidence.fits(program)), None)


def _two_steps(searched: Space, evidence: Observations) -> StringProgram | None:
    """Tries all of them on the pair with the longest output, and those that are right there on the others."""
    key, wanted = max(zip(evidence.inputs, evidence.outputs, strict=True), key=lambda pair: len(pair[1] or ""))
    right: dict[str, list[StringProgram]] = {}
    for first, middle in zip(searched.steps, searched.outputs(key), strict=True):
        if middle is None:
            continue
        if middle not in right:
            right[middle] = [then for then in searched.steps if attempt(then, middle) == wanted]
        for then in right[middle]:
            if evidence.fits(candidate := StringProgram(first.steps + then.steps)):
                return candidate
    return None

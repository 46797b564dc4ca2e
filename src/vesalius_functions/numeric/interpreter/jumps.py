"""Telling waves apart that differ by whole periods: they are the same function but for rounding at their own jumps.

Jumps lie on decimals, and so do many points that are asked; there a square wave is +1 or -1 by the last digit of a
sine. The formula whose rounding agrees with the answers is the one to give.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from vesalius_functions.numeric.expressions import Reals
from vesalius_functions.numeric.interpreter.candidates import Candidate
from vesalius_functions.numeric.interpreter.session import EDGE, Session

Allowed = Callable[[Reals], Bool[ndarray, " points"]]
_QUESTIONS = 12


def distinguished(
    session: Session, candidates: list[Candidate], waves: list[tuple[float, float]], allowed: Allowed
) -> list[Candidate]:
    """The candidate that agrees best at the jumps of its waves (period, shift); all of them if there is one or none."""
    if len(candidates) < 2:
        return candidates
    jumps = np.concatenate([np.arange(-256, 257) * period / 2 + shift for period, shift in waves[:4]])
    jumps = np.unique(np.round(jumps[np.abs(jumps) < EDGE], 1))
    jumps = jumps[allowed(jumps)]
    values = np.array([candidate.predict(jumps) for candidate in candidates])
    size = np.abs(values).max(axis=0)
    telling = jumps[(np.abs(values - values[0]) > 1e-6 * size).any(axis=0)]
    asked = session.ask(session.rng.permutation(telling)[:_QUESTIONS])
    if not len(asked):
        return candidates[:1]
    misses = [float(np.abs(candidate.predict(asked.x) - asked.y).sum()) for candidate in candidates]
    return [candidates[int(np.argmin(misses))]]

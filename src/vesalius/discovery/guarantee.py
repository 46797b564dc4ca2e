"""What a circuit keeps at least: bounds that hold for new prompts of the same distribution with 95 % confidence.

Two quantities, each guaranteed with 95 % confidence on its own (not both at once), over prompts drawn after the circuit
was chosen:

- `answers`: of the prompts that the model gets right, the share that the circuit gets right with everything else
  ablated. Right is a positive score for a behaviour whose metric has a zero (the right answer above the wrong one), and
  every output unchanged for a specimen with a listed vocabulary. The bound is the exact binomial one (Clopper-Pearson).
  Many prompts can stay right with everything ablated: that share stands beside it.
- `kept`: the mean over prompts of the share of the score kept, (circuit - ablated) / (model - ablated), each clipped to
  0 and 1, over the prompts on which the model scores above the ablated model. Bounded values of any distribution: the
  bound is by betting (`statistics.mean_lower_bound`).

The second is a mean of shares, not the faithfulness of the curves, which is a ratio of means and has no such bound:
scores have no limits there. What exceeds 1 on one prompt does not make up for what is missing on another.

Specimens with a listed vocabulary are asked new independent inputs of their own distribution; an input can repeat one
that the discovery saw, as in the distribution itself. Natural behaviours are asked prompts of the validation split that
the discovery has not seen; for rows of a file the guarantee holds as far as the rows are independent draws.
"""

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vesalius.behaviours.metrics import has_zero
from vesalius.behaviours.trial import Trial, trial
from vesalius.components import Component, Edge
from vesalius.discovery.faithfulness import scores_without
from vesalius.discovery.pruning import MAX_EDGES
from vesalius.documents.checks import Bound, Guarantee
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius.statistics import mean_lower_bound, share_lower_bound

PROMPTS, SEED, LEVEL = 100, 2_000_003, 0.95
#: A share of outputs counts as all of them from here on.
_ALL = 1 - 1e-6


def guarantee_prompts(specimen: Specimen, seen: Trial, n: int = PROMPTS, *, seed: int = 0) -> Trial:
    """Prompts that had no part in choosing the circuit."""
    if isinstance(specimen.vocabulary, TextVocabulary):
        return trial(specimen, n, seed=SEED + seed, split="validation", apart_from=seen)
    return trial(specimen, n, seed=SEED + seed)


def guarantee(
    specimen: Specimen,
    seen: Trial,
    kept: Collection[Component | Edge],
    candidates: Sequence[Component | Edge],
    *,
    n: int = PROMPTS,
    seed: int = 0,
) -> Guarantee:
    """The bounds of the circuit `kept` out of `candidates`, on `n` prompts of their own."""
    by_edges = any(isinstance(part, Edge) for part in candidates)
    if by_edges and len(candidates) > MAX_EDGES:
        raise BadInput(
            f"this model has {len(candidates):,} edges and up to {MAX_EDGES:,} are cut; choose a circuit of components"
        )
    material, whole = guarantee_prompts(specimen, seen, n, seed=seed), frozenset(candidates)
    removed = [whole, whole - frozenset(kept), frozenset()]
    scores, forwards = scores_without(specimen.model, material, removed)
    natural = material.prompts is not None
    return Guarantee(
        by="edges" if by_edges else "components",
        size=len(kept),
        level=LEVEL,
        n=len(material.batch),
        answers=_answers(scores, 0.0 if natural else _ALL) if _has_answers(material) else None,
        kept=kept_bound(scores),
        rows=forwards * len(material.batch),
    )


def _has_answers(material: Trial) -> bool:
    return material.prompts is None or has_zero(material.prompts.metric)


def _answers(scores: Float[Tensor, "prompt 3"], least: float) -> Bound | None:
    """Of the prompts that the model gets right, how many the circuit gets right, beside the ablated model."""
    ablated, right = (scores[scores[:, 2] > least, :2] > least).T
    if not len(right):
        return None
    successes = int(right.sum())
    low = share_lower_bound(successes, len(right), level=LEVEL)
    return Bound(value=successes / len(right), low=low, n=len(right), baseline=float(ablated.double().mean()))


def kept_bound(scores: Float[Tensor, "prompt 3"]) -> Bound | None:
    """The mean share of the score that the circuit keeps; columns are everything ablated, the circuit, the model."""
    nothing, own, everything = scores.double().T
    usable = everything > nothing
    if not bool(usable.any()):
        return None
    shares: Float[Tensor, " prompt"] = torch.clamp((own - nothing) / (everything - nothing), 0, 1)[usable]
    low = float(mean_lower_bound(shares.numpy(), level=LEVEL))
    return Bound(value=float(shares.mean()), low=low, n=len(shares))

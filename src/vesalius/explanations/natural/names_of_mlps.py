"""What a necessary MLP is called: what its output stands for, where it acts, by which neurons, and by which paths.

looks up the answer from X   it was shown to look it up (`looks_up`); the figure is how far its output alone, from
                             prompts with another X, brings their answer
carries X                    its output stands for X, the token of a role or the answer (`carries`)
writes the answer            it acts mostly on its direct path to the logits
supplies a constant          zeros in its place cost something, its values on other prompts nothing
necessary at X               none of these was shown; where most of its effect arises, which inputs it needs and
                             what it feeds, as far as that was decided
"""

from collections.abc import Sequence

from vesalius.documents.explanation import TOKENS, ClaimRecord
from vesalius.explanations.claims.base import join_names
from vesalius.explanations.laboratory import END
from vesalius.explanations.laboratory.exchanges import ANSWER

#: Senders and receivers that a name lists.
LISTED = 3
SHARED = "supplies what the prompts share"
NOT_FOUND = "necessary, by a way that was not found"


def name_of_mlp(claims: Sequence[ClaimRecord], fed: Sequence[str]) -> str:
    """The name of an MLP that is necessary, from the claims about it and the components it feeds."""
    supported = [claim for claim in claims if claim.verdict == "supported"]
    kinds = {claim.kind for claim in supported}
    carried = [claim for claim in supported if claim.kind in ("looks_up", "carries")]
    direct = "acts_directly" in kinds
    if carried:
        name = _carried(carried[-1], direct=direct)
    elif direct:
        name = "writes the answer"
    else:
        name = SHARED if is_shared(claims) else "necessary"
        name += place_words(supported)
    name += "".join(f", through {_neurons(claim)}" for claim in supported if claim.kind == "few_neurons")
    name = by_ways(name, supported, () if direct or "looks_up" in kinds else fed)
    return NOT_FOUND if name == "necessary" else name


def place_words(supported: Sequence[ClaimRecord]) -> str:
    """Where most of a component's effect arises, as the end of a name."""
    if any(claim.kind == "acts_at_answer" for claim in supported):
        return " at the answer"
    roles = [str((claim.prediction or {}).get("role")) for claim in supported if claim.kind == "acts_at"]
    return f" at {roles[0]}" if roles else ""


def by_ways(name: str, supported: Sequence[ClaimRecord], fed: Sequence[str]) -> str:
    """A name with what the component was shown to need and to feed."""
    needed = senders_of(supported)
    return name + (f", reads {_listed(needed)}" if needed else "") + (f", feeds {_listed(fed)}" if fed else "")


def senders_of(supported: Sequence[ClaimRecord]) -> list[str]:
    """The inputs that an MLP was shown to need."""
    names = [str((claim.prediction or {}).get("sender")) for claim in supported if claim.kind == "needs_input"]
    return ["the tokens" if name == TOKENS else name for name in names]


def variable_of(claim: ClaimRecord) -> tuple[str, str]:
    """The variable that a claim of interchange is about, and the position."""
    prediction = claim.prediction or {}
    return str(prediction.get("variable")), str(prediction.get("at", END))


def is_shared(claims: Sequence[ClaimRecord]) -> bool:
    """Whether another replacement was shown to cost something, and more than its values on other prompts do."""
    shown = {one.experiment: one for claim in claims if claim.kind == "necessary" for one in claim.evidence}
    other = shown.pop("resample replacement", None)
    if other is None or other.high is None or other.passed:
        return False
    return any(one.passed and one.low is not None and one.low > other.high for one in shown.values())


def _carried(claim: ClaimRecord, *, direct: bool) -> str:
    variable, at = variable_of(claim)
    place = "the answer" if at == END else at
    figure = f"(interchange {claim.evidence[0].value:.2f})"
    if claim.kind == "looks_up":
        return f"looks up the answer from {variable} at {place} {figure}"
    if variable != ANSWER:
        return f"{'writes the answer, ' if direct else ''}carries {variable} at {place} {figure}"
    if direct:
        return f"writes the answer {figure}"
    return f"carries the answer{'' if at == END else f' at {at}'} {figure}"


def _neurons(claim: ClaimRecord) -> str:
    """How many of its neurons, from the experiment's name."""
    few, _, width = claim.evidence[0].experiment.removeprefix("all but ").partition(" of its ")
    return f"{few} of its {int(width.split()[0]):,} neurons"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return join_names(names) if more <= 0 else f"{', '.join(names[:LISTED])} and {more} more"

"""Typed claims about components, each with its experiment, its controls and a verdict by rule.

    lab = Lab(specimen)
    record = check(Necessary(component="L0_MLP"), lab)
    idea = Hypothesis(program=program, carriers={"L0_MLP": ("is_x",), "L1H2": ("share",)})
    record = check(Computes(component="L0_MLP", hypothesis=idea), lab, tried=3)

A claim predicts what an experiment must show if the claim is true; `check` runs the experiment. The verdict follows
from the evidence by rule, never from the opinion of the claim's author.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from vesalius.documents.explanation import ClaimRecord, Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims.ablation import BackupOf, Necessary, Redundant, Sufficient
from vesalius.explanations.claims.aggregating import BESIDE, Aggregates
from vesalius.explanations.claims.base import Claim, Hypothesis, level_for
from vesalius.explanations.claims.dependence import Combines, DependsOnlyOn, IndependentOf
from vesalius.explanations.claims.inputs import input_words, unsupported_inputs
from vesalius.explanations.claims.interchange import Computes
from vesalius.explanations.claims.laboratory import Lab
from vesalius.explanations.claims.moved import scoped
from vesalius.explanations.claims.prediction import prediction_of
from vesalius.explanations.claims.reading import Copies, ReadsFrom

__all__ = [
    "Aggregates",
    "BackupOf",
    "Claim",
    "Combines",
    "Computes",
    "Copies",
    "DependsOnlyOn",
    "Hypothesis",
    "IndependentOf",
    "Lab",
    "Necessary",
    "ReadsFrom",
    "Redundant",
    "Sufficient",
    "check",
    "claim_from",
    "worded",
]

AnyClaim = Annotated[
    Aggregates
    | BackupOf
    | Combines
    | Computes
    | Copies
    | DependsOnlyOn
    | IndependentOf
    | Necessary
    | ReadsFrom
    | Redundant
    | Sufficient,
    Field(discriminator="kind"),
]
_READER: TypeAdapter[Any] = TypeAdapter(AnyClaim)


def claim_from(data: Any) -> Claim:
    """Read a claim from JSON data, as `claim.model_dump(mode="json")` writes it."""
    try:
        return _READER.validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "claim"
        raise BadInput(f"claim cannot be read: {where}: {' '.join(first['msg'].split())}") from None


def check(
    claim: Claim, lab: Lab, *, tried: int = 1, carriers: Mapping[str, tuple[str, ...]] | None = None
) -> ClaimRecord:
    """Run a claim's experiment. `tried` counts the claims of this kind tried on the component, including this one: the
    more claims, the wider every interval of the rule. `carriers` says which variables of the claim's program each
    component carries, for claims without a hypothesis: inputs that they name are then checked as well.
    """
    verdict, evidence = claim.examine(lab, level=level_for(tried))
    if verdict == "supported":
        evidence += unsupported_inputs(claim, lab, carriers or {})
    text = worded(claim.text, verdict, evidence)
    return ClaimRecord(
        kind=claim.kind,
        text=text,
        verdict=verdict,
        evidence=evidence,
        tried=tried,
        prediction=prediction_of(claim),
    )


def worded(text: str, verdict: Verdict, evidence: tuple[Evidence, ...]) -> str:
    """A claim's sentence, no wider than what its evidence covers."""
    text = scoped(text, evidence, verdict=verdict)
    if verdict != "supported":
        return text
    if any(one.outcome == BESIDE for one in evidence):
        text += " It carries something beside: swaps where this value is equal change outputs too."
    return text + input_words(evidence)

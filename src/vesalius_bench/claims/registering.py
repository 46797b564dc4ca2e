"""Typed claims that are registered before their test: how one is read, on which inputs it is tested, and by which bars.

A claim about a circuit of a finite vocabulary may hold its program in the short notation that language models write
(`hyve.notation`) or as a whole document; one about a natural model has no program.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord
from vesalius.errors import BadInput
from vesalius.explanations.claims import CIRCUIT_KINDS, NATURAL_KINDS, Claim, check, claim_from
from vesalius.explanations.claims.base import ALPHA, MIN_CUT_EFFECT, MIN_EFFECT, MIN_MASS, MIN_SAMPLES, MIN_WORST_CELL
from vesalius.explanations.claims.dependence import MIN_CHANGED, MIN_UNCHANGED
from vesalius.explanations.claims.interchange import MIN_AGREEMENT, MIN_CHANGED_ACCURACY, MIN_LEAD_OVER_SHUFFLED
from vesalius.explanations.claims.joint import MIN_KEPT_NATURAL
from vesalius.explanations.claims.moved import MIN_RIVAL_LEAD, MIN_TRAVELS
from vesalius.explanations.hyve.grammar import read_claim
from vesalius.explanations.laboratory import CLAIM_SEED, CircuitLab, Lab, NaturalLab
from vesalius.explanations.laboratory.base import own_circuit
from vesalius.explanations.natural import PROMPTS
from vesalius.explanations.scientist.explain import blinded
from vesalius.model.specimen import FiniteVocabulary, Specimen

#: The bars that rules compare interval ends with.
THRESHOLDS: dict[str, float] = {
    "alpha": ALPHA,
    "least_samples": MIN_SAMPLES,
    "least_effect": MIN_EFFECT,
    "least_kept": MIN_KEPT_NATURAL,
    "least_cut_effect": MIN_CUT_EFFECT,
    "least_attention": MIN_MASS,
    "least_agreement": MIN_AGREEMENT,
    "least_changed_accuracy": MIN_CHANGED_ACCURACY,
    "least_lead_over_shuffled": MIN_LEAD_OVER_SHUFFLED,
    "least_worst_cell": MIN_WORST_CELL,
    "least_unchanged": MIN_UNCHANGED,
    "least_changed": MIN_CHANGED,
    "least_travels": MIN_TRAVELS,
    "least_lead_over_rival": MIN_RIVAL_LEAD,
}


def typed_claim(specimen: Specimen, given: Any) -> Claim:
    """The claim that the data stand for, about a component that the model has."""
    if not isinstance(given, Mapping) or not isinstance(given.get("component"), str):
        raise BadInput('claim: give an object such as {"kind": "necessary", "component": "L0_MLP"}')
    component = Component.parse(given["component"]).within(specimen.model.config)
    vocabulary = specimen.vocabulary
    if not isinstance(vocabulary, FiniteVocabulary):
        return claim_from(dict(given), NATURAL_KINDS)
    whole = _program_in(given)
    if isinstance(whole, Mapping) and "vocab" in whole:
        return claim_from(dict(given), CIRCUIT_KINDS)
    return read_claim(dict(given), component, vocabulary, causal=specimen.model.config.causal)


def _program_in(given: Mapping[str, Any]) -> Any:
    nested = given.get("hypothesis")
    return (nested if isinstance(nested, Mapping) else given).get("program")


def claim_as_data(claim: Claim) -> dict[str, Any]:
    """The claim as plain data that `typed_claim` reads again, programs whole."""
    return claim.model_dump(mode="json")


def experiment_of(claim: Claim) -> str:
    """What the claim's experiment does and compares, in the words of its rule."""
    said = " ".join((type(claim).__doc__ or "").split())
    rule = " ".join((type(claim).examine.__doc__ or "").split())
    return f"{said} {rule}".strip()


def inputs_seed(specimen: Specimen, seed: int) -> int:
    """The seed of the held-out inputs. Base and source inputs of a circuit have seeds of their own, two apart."""
    finite = isinstance(specimen.vocabulary, FiniteVocabulary)
    return CLAIM_SEED + (2 * seed if finite else seed)


def held_out_laboratory(specimen: Specimen, circuit: Sequence[str], *, n: int | None, seed: int) -> Lab:
    """The laboratory on the held-out inputs of a seed; components of the circuit are no controls."""
    parts = [Component.parse(name).within(specimen.model.config) for name in circuit]
    drawn = inputs_seed(specimen, seed)
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        return NaturalLab.draw(specimen, n or PROMPTS, seed=drawn, circuit=sorted(set(parts)))
    circuit_and_own = sorted({*parts, *own_circuit(specimen)})
    return CircuitLab(blinded(specimen), n=n, seed=drawn, circuit=circuit_and_own)


def decide_registered(claim: Claim, lab: Lab, *, tried: int) -> ClaimRecord:
    """Run the test."""
    return check(claim, lab, tried=tried)

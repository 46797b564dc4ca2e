"""Laboratories: one model, one set of held-out inputs, and the experiments that claims are decided by."""

from vesalius.explanations.laboratory.base import CLAIM_SEED, FIRST_LOOK, SECOND_LOOK, Lab, Replacement
from vesalius.explanations.laboratory.circuits import CircuitLab, blinded, circuit_lab
from vesalius.explanations.laboratory.looks import GrowingLab, growing_lab
from vesalius.explanations.laboratory.natural import END, REPORTED, How, NaturalLab

__all__ = [
    "CLAIM_SEED",
    "END",
    "FIRST_LOOK",
    "REPORTED",
    "SECOND_LOOK",
    "CircuitLab",
    "GrowingLab",
    "How",
    "Lab",
    "NaturalLab",
    "Replacement",
    "blinded",
    "circuit_lab",
    "growing_lab",
]

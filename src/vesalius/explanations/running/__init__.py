"""Explanations of natural models that run: attention programs, and the ladder that says what they keep."""

from vesalius.explanations.running.explained import fitted_prompts, put_in_place, run_again
from vesalius.explanations.running.programs import Program, parse_program

__all__ = ["Program", "fitted_prompts", "parse_program", "put_in_place", "run_again"]

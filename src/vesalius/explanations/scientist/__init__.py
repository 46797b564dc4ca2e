"""The built-in scientist for specimens with a finite vocabulary."""

from vesalius.explanations.scientist.explain import explain_specimen

__all__ = ["explain_specimen"]

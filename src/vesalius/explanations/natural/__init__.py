"""Explanations of natural models: roles of heads and MLPs for one behaviour, each backed by claims."""

from vesalius.explanations.natural.explain import PROMPTS, explain_natural

__all__ = ["PROMPTS", "explain_natural"]

"""Causal variables of an algorithm, and the places of a model that carry them."""

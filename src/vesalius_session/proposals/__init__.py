"""Explanations of natural models as data: read, run in the model's place, and made from what was measured."""

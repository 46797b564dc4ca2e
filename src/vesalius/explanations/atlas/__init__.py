"""What every head and MLP of a model is by a battery of standard tests and by its weights, once a model."""

from vesalius.explanations.atlas.measure import atlas_of, require_atlas, standard_names

__all__ = ["atlas_of", "require_atlas", "standard_names"]

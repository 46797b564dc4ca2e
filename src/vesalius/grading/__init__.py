"""Right or wrong: the one floor that opens the answer key."""

from vesalius.grading.tags import Grade, Metric, grade

__all__ = ["Grade", "Metric", "grade"]

"""Right or wrong: the one floor that opens the answer key.

Tags are compared with the key (`tags`), programs are run against the model (`programs`), and explanations that must not
earn credit go the same way (`nulls`). What can only be read is judged by language models (`judges`) and by people
(`ratings`), with their agreement (`agreement`); how an explanation came about is counted from traces (`diagnostics`).
"""

from vesalius_truth.grading.circuits import grade

__all__ = [
    "grade",
]

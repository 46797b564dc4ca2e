"""Ground truth: what trains specimens with a known answer, the answer key of the 84 circuits, and what grades with it.

The core imports nothing of this package, so that neither what proposes explanations nor what runs submitted programs
can see an answer: `train`, `generate`, `grade` and `circuit_areas` are found by entry points, as those of plug-ins are.
Only `grading` opens the key.
"""

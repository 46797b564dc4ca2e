"""Submissions to the Mechanistic Interpretability Benchmark: written, checked, scored."""

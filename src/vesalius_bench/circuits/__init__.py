"""`bench circuits`: circuits with known answers explained, graded and judged."""

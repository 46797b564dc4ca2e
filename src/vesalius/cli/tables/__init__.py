"""Results as tables and lines for people."""

"""`bench discovery`: methods on circuits with known answers."""

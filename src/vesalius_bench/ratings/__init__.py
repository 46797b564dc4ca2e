"""Ratings by people: blind packages, agreement, tables."""

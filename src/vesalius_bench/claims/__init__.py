"""Registered claims: signed, published, verified again."""

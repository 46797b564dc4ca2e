"""The algorithms that ship with the behaviours, each a program as a user would write it."""

"""The documents that pass between rooms and onto the disk."""

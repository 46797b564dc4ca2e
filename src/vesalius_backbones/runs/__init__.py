"""Runs that ask language models: access within one cap, what calls used, and what they said, while it is made."""

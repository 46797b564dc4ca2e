"""Program search: which composition of known operations does what a box was seen to do.

`space.py` finds listed compositions by table; `solve.py` finds the parameters that cannot be listed, spends the queries
and finds a program for stored pairs.
"""

"""Program search: which composition of known operations does what a box was seen to do.

`probes.py` is what is always asked, `evidence.py` what was seen; `space.py` finds listed compositions by table,
`solve.py` the parameters that cannot be listed; `interpret.py` spends the queries and `recover.py` finds a program for
stored pairs.
"""

"""Sets of heads: what ablating several together does beyond ablating each alone.

`sources` measures the effect of a set on the prompts (from tables on disk or by running the model) and counts what was
measured, `searches` are the search strategies under a budget, `policy` is the same search as an environment for PPO,
`synergy` tests which heads are backups of each other, and `discover` joins all of it.
"""

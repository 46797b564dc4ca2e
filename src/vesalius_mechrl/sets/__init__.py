"""Sets of heads: what ablating several together does beyond ablating each alone.

`sources` measures the effect of a set on the prompts (from tables on disk or by running the model), `queries` counts
what was measured, `searches` are the search strategies under a budget, `environment`, `effect_models` and `policy` the
same search as an environment for PPO, `synergy` and `backups` test which heads are backups of each other, and
`discover` joins all of it.
"""

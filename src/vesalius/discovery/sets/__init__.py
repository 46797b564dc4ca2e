"""Sets of heads: what removing several together does that removing each alone does not show.

`sources` says what a set does to the prompts (from tables on disk or by running the model), `queries` counts what was
asked, `searches` are the ways of looking for a good set under a budget, `environment`, `worlds`, `network` and `policy`
the same as a game for PPO, `synergy` and `backups` say which heads back each other up, and `discover` puts it together.
"""

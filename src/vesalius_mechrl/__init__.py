"""MechRL: reinforcement learning that searches for the heads a behaviour needs, as published and corrected.

`matrices` measures effects, `tables` turns them into episodes, `environment` plays them, `ppo` trains a policy on them,
`strategies` are searches that learn nothing, `study` compares all of them, `methods` runs a search on a model itself,
and `sets` looks for heads that matter together.
"""

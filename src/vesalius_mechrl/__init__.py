"""MechRL: reinforcement learning that searches for the heads a behaviour needs, as published and corrected.

`tables` turns effect matrices into episodes, `environment` plays them, `ppo` trains a policy on them, `evaluate`
compares it with other search strategies.
"""

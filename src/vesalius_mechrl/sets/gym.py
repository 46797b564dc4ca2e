"""`Vesalius/Sets-v0`: the search for a set as a Gymnasium environment (extra `rl`).

Importing this module registers it. Training and searches play `environment.SetGames` and do not need it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from vesalius.errors import BadInput
from vesalius_mechrl.sets.policy import FEATURES, EffectModels, Rules, SetGames

ENVIRONMENT = "Vesalius/Sets-v0"

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError:
    raise BadInput(f"{ENVIRONMENT}: gymnasium is not installed; run: pip install 'vesalius[rl]'") from None


class SetsEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One game with the Gymnasium interface; `worlds` gives the world of a seed. Legal actions are in
    `info["action_mask"]` and `action_masks()`.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's name for it)

    def __init__(
        self, models: EffectModels, *, heads: int, rules: Rules | None = None, render_mode: None = None
    ) -> None:
        self.models, self.render_mode = models, render_mode
        self._game = SetGames(1, heads, rules)
        self.action_space = spaces.Discrete(heads + 1)
        self.observation_space = spaces.Box(-np.inf, np.inf, (heads + 1, len(FEATURES)), np.float32)

    def action_masks(self) -> Bool[np.ndarray, " action"]:
        """Which actions are legal."""
        return self._game.legal[0]

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> tuple[np.ndarray, dict]:
        """Begin a game on the world of this seed, or of a random one."""
        super().reset(seed=seed)
        game_seed = int(self.np_random.integers(0, 2**31 - 1)) if seed is None else seed
        self._game.begin(0, self.models(game_seed))
        return self._game.observe()[0], {"seed": game_seed, **self._info()}

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Toggle a head, or stop."""
        if not self.action_space.contains(action):
            raise BadInput(f"action {action!r} does not exist; choose 0 to {self._game.heads}")
        reward = float(self._game.step(np.array([int(action)]))[0])
        stopped = bool(self._game.stopped[0])
        return self._game.observe()[0], reward, stopped, bool(self._game.finished[0]) and not stopped, self._info()

    def _info(self) -> dict[str, Any]:
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "set": np.flatnonzero(self._game.inside[0]).tolist(),
            "value": float(self._game.value[0]),
            "best": float(self._game.best[0]),
        }


if ENVIRONMENT not in gymnasium.registry:
    gymnasium.register(ENVIRONMENT, entry_point="vesalius_mechrl.sets.gym:SetsEnv")

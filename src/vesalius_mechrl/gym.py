"""`Vesalius/Heads-v0`: the search for a head as a Gymnasium environment (extra `rl`).

Importing this module registers it. Training, evaluation and searches play `environment.Episodes` and do not need it.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool

from vesalius.errors import BadInput, choices
from vesalius_mechrl.environment import PAPER_QUIRKS, STEPS, Episodes, next_episode
from vesalius_mechrl.tables import Tables

ENVIRONMENT = "Vesalius/Heads-v0"

try:
    import gymnasium
    from gymnasium import spaces
except ModuleNotFoundError:
    raise BadInput(f"{ENVIRONMENT}: gymnasium is not installed; run: pip install 'vesalius[rl]'") from None


class HeadsEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One game with the Gymnasium interface. Legal heads are in `info["action_mask"]` and in `action_masks()`."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 (Gymnasium's name for it)

    def __init__(self, tables: Tables, *, paper: bool = False, steps: int = STEPS, render_mode: None = None) -> None:
        self.tables, self.paper, self.render_mode = tables, paper, render_mode
        self._game = Episodes(tables, 1, paper=paper, steps=steps)
        heads, features = len(tables.heads), self._game.observe().shape[1]
        self.action_space = spaces.Discrete(heads)
        self.observation_space = spaces.Box(-np.inf, np.inf, (features,), np.float32)

    @property
    def quirks(self) -> dict[str, str]:
        """The quirks of the published code that are reproduced."""
        return PAPER_QUIRKS if self.paper else {}

    def action_masks(self) -> Bool[np.ndarray, " head"]:
        """Which heads may be tried."""
        return self._game.legal[0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """Begin an episode; `options` may name a `task` or give its `task_index`."""
        super().reset(seed=seed)
        episode_seed, task = next_episode(
            self.np_random, self.tables.names, seed=seed, task=self._requested_task(options or {})
        )
        self._game.begin(0, episode_seed, task)
        return self._game.observe()[0], {"seed": episode_seed, "task": task, **self._info()}

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Ablate one head."""
        if not self.action_space.contains(action):
            raise BadInput(f"head number {action!r} does not exist; choose 0 to {len(self.tables.heads) - 1}")
        reward, _ = self._game.step(np.array([[int(action)]]))
        return self._game.observe()[0], float(reward[0]), False, bool(self._game.finished[0]), self._info()

    def _requested_task(self, options: dict[str, Any]) -> str | None:
        names = self.tables.names
        if "task_index" in options:
            index = int(options["task_index"])
            if not 0 <= index < len(names):
                raise BadInput(f"task_index {index} does not exist; choose 0 to {len(names) - 1}")
            return names[index]
        if "task" in options and options["task"] not in names:
            raise BadInput(f"task {options['task']!r} does not exist; choose one of {choices(names)}")
        return options.get("task")

    def _info(self) -> dict[str, Any]:
        best = float(self._game.best[0])
        return {
            "action_mask": self.action_masks().astype(np.int8),
            "running_max": best if np.isfinite(best) else 0.0,
            "queries": int(self._game.queries[0]),
            "unit": self.tables.unit,
        }


if ENVIRONMENT not in gymnasium.registry:
    gymnasium.register(ENVIRONMENT, entry_point="vesalius_mechrl.gym:HeadsEnv")

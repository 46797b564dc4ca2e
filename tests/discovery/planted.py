"""Tables with a head that is best by construction."""

import numpy as np

from vesalius.discovery.mechrl.tables import Tables


def planted_tables(
    *, best: dict[str, int], heads: int = 20, seed: int = 0, rows: int = 64, noise: float = 0.3
) -> Tables:
    """One task per entry of `best`; that head is worth 3, the others about 0."""
    rng = np.random.default_rng(seed)
    tasks = {}
    for name, head in best.items():
        tasks[name] = rng.normal(0, noise, (rows, heads)).astype(np.float32)
        tasks[name][:, head] += 3
    control = rng.normal(0, 0.05, (rows, heads)).astype(np.float32)
    return Tables(tuple(f"L{i // 4}H{i % 4}" for i in range(heads)), tasks, control)

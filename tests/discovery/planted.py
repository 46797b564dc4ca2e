"""Tables with a head that is best by construction."""

import numpy as np

from vesalius_mechrl.tables import Tables


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


def by_hand() -> Tables:
    """Two rows, all drawn: means 2, -1, 0.5 on the task and 0.25, 0, 1 on the control."""
    task = np.array([[1, -2, 0.5], [3, 0, 0.5]], np.float32)
    control = np.array([[0.5, 0, 0], [0, 0, 2]], np.float32)
    return Tables(("L0H0", "L0H1", "L0H2"), {"t": task}, control, rows=2, unit="logits - 1 * nats")

"""PPO on a made-up table of 144 heads: how long training takes, and regret against queries paid.

    OMP_NUM_THREADS=1 python benchmarks/mechrl_planted.py --steps 40000 --seeds 3

Two tasks. The best head of `b`, worth 3, is the second best of `a`; other heads are worth 0 give or take 0.3, and
single prompts differ from that by 0.5. Three pools of 512 rows with noise of their own.
"""

import argparse
import time

import numpy as np

from vesalius_mechrl.ppo import Settings, train
from vesalius_mechrl.study import compare
from vesalius_mechrl.tables import Tables

HEADS, ROWS = 144, 512


def planted(seed: int) -> Tables:
    """One pool of rows."""
    worth = np.random.default_rng(0).normal(0, 0.3, (2, HEADS))
    worth[0, 22], worth[0, 9], worth[1, 9] = 3, 1.5, 3
    tasks = {
        name: (worth[i] + np.random.default_rng(seed + i).normal(0, 0.5, (ROWS, HEADS))).astype(np.float32)
        for i, name in enumerate("ab")
    }
    control = np.random.default_rng(seed + 9).normal(0, 0.05, (ROWS, HEADS)).astype(np.float32)
    return Tables(tuple(f"L{i // 12}H{i % 12}" for i in range(HEADS)), tasks, control)


def main() -> None:
    """Train for each K and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    training, validation, test = planted(0), planted(100), planted(200)
    for k in (1, 5):
        start, cpu = time.perf_counter(), time.process_time()
        settings = [Settings(seed=1 + seed, k=k, total_steps=given.steps) for seed in range(given.seeds)]
        policies = [train(training, each, validation=validation) for each in settings]
        took, used = time.perf_counter() - start, time.process_time() - cpu
        print(f"K={k}: {given.seeds} runs of {given.steps} steps, {took:.1f} s, {used:.1f} s of CPU")
        found = compare(policies, test, "b", ranking=training, k=k, seeds=given.seeds)
        for regret in found.methods:
            print(f"  {regret.method:7}", *(f"{q}: {r:.2f}" for q, r in zip(regret.budgets, regret.mean, strict=True)))


if __name__ == "__main__":
    main()

"""Train the nets of two suites of numeric functions and put them into the package.

    python -m benchmarks.numeric_nets                # train all, write the package's nets and the figures
    python -m benchmarks.numeric_nets --measure 20   # the figures of the package's nets; train 20 of them for the time

Writes src/vesalius_functions/numeric/nets.safetensors (one net per approximating function of `sample(1000, seed=0)`
and of the reported suite) and benchmarks/results/numeric_nets.json: for every net its training error relative to the
variance of what it learned, and the processor time of training one.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vesalius_functions.numeric import nets
from vesalius_functions.numeric.expressions import Expression, family
from vesalius_functions.numeric.sampling import suite_expressions
from vesalius_functions.suite import SEED

SEEDS = (0, SEED)
RESULTS = Path(__file__).parent / "results" / "numeric_nets.json"


def main() -> None:
    """Train or read, and write down how well each net learned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=int, metavar="N", help="train only N nets, and leave the package as it is")
    asked = parser.parse_args()
    expressions = [found for seed in SEEDS for found in suite_expressions(1000, seed=seed, kind="mlp")]
    start = time.process_time()
    trained = nets.train(expressions[: asked.measure])
    seconds = (time.process_time() - start) / len(trained)
    packaged = trained
    if asked.measure is None:
        nets.save(nets.PACKAGED, expressions, trained)
    else:
        packaged = nets.trained(expressions)
    again = [abs(net.mse / kept.mse - 1) if kept.mse else 0.0 for net, kept in zip(trained, packaged, strict=False)]
    summary = {"cpu_seconds_each": round(seconds, 2), "largest_difference_trained_again": max(again)}
    figures = learned(expressions, packaged)
    RESULTS.write_text(json.dumps({**summary, **figures}, indent=1) + "\n")
    print(json.dumps({**summary, **{name: value for name, value in figures.items() if name != "each"}}, indent=1))


def learned(expressions: Sequence[Expression], trained: Sequence[nets.Net]) -> dict[str, Any]:
    """The errors of nets relative to the variance of what they were to learn."""
    variances = [float(np.var(nets.target_points(expression)[1])) for expression in expressions]
    shares = [net.mse / variance if variance else None for net, variance in zip(trained, variances, strict=True)]
    known = [share for share in shares if share is not None]
    return {
        "nets": len(trained),
        "median_share_of_variance": float(np.median(known)),
        "below_1_percent": float(np.mean([share < 0.01 for share in known])),
        "constants": len(shares) - len(known),
        "each": [
            {"family": family(expression), "mse": net.mse, "share_of_variance": share}
            for expression, net, share in zip(expressions, trained, shares, strict=True)
        ],
    }


if __name__ == "__main__":
    main()

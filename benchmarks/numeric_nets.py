"""Train the nets of the default suite of numeric functions and put them into the package.

    python -m benchmarks.numeric_nets

Writes src/vesalius/functions/numeric/nets.safetensors (one net per approximating function of `sample(1000, seed=0)`
and of the reported suite) and benchmarks/results/numeric_nets.json: for every net its training error relative to the
variance of what it learned.
"""

import json
import time
from pathlib import Path

import numpy as np

from vesalius.functions.numeric import nets
from vesalius.functions.numeric.expressions import family
from vesalius.functions.numeric.sampling import suite_expressions
from vesalius.functions.suite import SEED

SEEDS = (0, SEED)
RESULTS = Path(__file__).parent / "results" / "numeric_nets.json"


def main() -> None:
    """Train, save, and write down how well each net learned."""
    expressions = [found for seed in SEEDS for found in suite_expressions(1000, seed=seed, kind="mlp")]
    start = time.perf_counter()
    trained = nets.train(expressions)
    seconds = time.perf_counter() - start
    nets.save(nets.PACKAGED, expressions, trained)
    variances = [float(np.var(nets.target_points(expression)[1])) for expression in expressions]
    shares = [net.mse / variance if variance else None for net, variance in zip(trained, variances, strict=True)]
    rows = [
        {"family": family(expression), "mse": net.mse, "share_of_variance": share}
        for expression, net, share in zip(expressions, trained, shares, strict=True)
    ]
    known = [share for share in shares if share is not None]
    summary = {
        "nets": len(trained),
        "seconds": round(seconds, 1),
        "median_share_of_variance": float(np.median(known)),
        "below_1_percent": float(np.mean([share < 0.01 for share in known])),
        "constants": len(shares) - len(known),
    }
    RESULTS.write_text(json.dumps({**summary, "each": rows}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()

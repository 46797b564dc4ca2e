"""What more steps of integration do for EAP-IG on the models of `vesalius bench discovery --hard` written by hand.

    python -m benchmarks.hard_steps --models 64 --steps 5 20 --out benchmarks/results/hard_steps.json

`discover --method eap-ig` takes 5 steps where `--steps` does not say otherwise. Prints the median of each figure over
models with its 95 % interval, and the passes.
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

from vesalius.behaviours.trial import trial
from vesalius.circuits.specimens import load_specimen
from vesalius.discovery.attribution import EAPIG
from vesalius.discovery.discover import discover
from vesalius.discovery.faithfulness import NothingToKeep, faithfulness_curve
from vesalius.files import write_json
from vesalius_bench.discovery.cases import HELD_OUT, hard_circuits
from vesalius_truth.grading.discovery import grade_circuit_scores, median_and_mean, precision_at_size, true_circuit

PROMPTS = 8


def figures(folder: Path, name: str, steps: int) -> dict[str, float | None]:
    """The figures of one model."""
    specimen, truth = load_specimen(folder), true_circuit(name, folder)
    material = trial(specimen, PROMPTS, seed=0)
    held_out = trial(specimen, PROMPTS, seed=HELD_OUT, apart_from=material)
    result = discover(specimen, EAPIG(steps), material=material)
    circuit = result.circuit
    areas = grade_circuit_scores(circuit, truth)
    judged = {edge: score for edge, score in circuit.edge_scores.items() if truth.judges(edge)}
    measured = {
        "node_auroc": areas.node_auroc,
        "edge_auroc": areas.edge_auroc,
        "node_precision": precision_at_size(circuit.components, truth.components),
        "edge_precision": precision_at_size(judged, truth.edges),
        "forward-equivalents": result.forwards,
    }
    try:
        measured["cmd"] = faithfulness_curve(specimen.model, held_out, [part for part, _ in circuit.ranked()]).cmd
        measured["edge_cmd"] = faithfulness_curve(specimen.model, held_out, [e for e, _ in circuit.ranked_edges()]).cmd
    except NothingToKeep:
        pass
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--steps", type=int, nargs="+", default=[EAPIG().steps, 20])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        cases = [case for case in hard_circuits(Path(place), arguments.models) if not case.wrong_answers]
        for steps in arguments.steps:
            values: dict[str, list[float]] = defaultdict(list)
            for case in cases:
                for name, value in figures(case.directory, case.id, steps).items():
                    if value is not None:
                        values[name].append(value)
            for name, measured in values.items():
                summary = median_and_mean(measured)
                assert summary is not None
                median = summary[0]
                rows.append({"steps": steps, "figure": name, **median.as_data()})
                print(f"{steps} steps: {name} {median.value:.3f} ({median.low:.3f} to {median.high:.3f}), n {median.n}")
    if arguments.out:
        write_json(arguments.out, {"benchmark": "hard_steps", "prompts": PROMPTS, "seed": 0, "rows": rows})


if __name__ == "__main__":
    main()

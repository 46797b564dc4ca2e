"""The smallest connected circuit of a model by each method, and by the default, which takes the smallest of three.

    python -m benchmarks.whole_circuits induction ioi greater-than capitals successor addition ROWS.jsonl
    python -m benchmarks.whole_circuits ioi capitals --model gemma-3-270m-q4_k_m.gguf --out gemma.json

32 prompts rank, others choose the size, a third set reports (a file of rows is divided by three). Every ranking goes
through the same search: the share asked for is read with a margin of two standard errors, circuits are trimmed by
leaving out each member once, and a component on no path from tokens to logits is dropped. Passes are those of the
search and, for the default, of the exact sweep where no ranking gives a circuit; those of the ranking are beside them.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.behaviours.contrast import measure_contrast
from vesalius.behaviours.trial import trial
from vesalius.discovery.attribution import EAP, EAPIG, GIM, RelP, RelPQK
from vesalius.discovery.combining import Elimination, Ensemble
from vesalius.discovery.masks import Masks
from vesalius.discovery.method import Method, MethodInput
from vesalius.discovery.sweep import Sweep
from vesalius.discovery.whole import Search, prompt_sets, whole_circuit
from vesalius.documents.whole import answer
from vesalius.files import write_json

PROMPTS = 32
METHODS: tuple[Method, ...] = (
    EAPIG(steps=5),
    RelPQK(),
    RelP(),
    EAP(),
    GIM(),
    Masks(),
    Sweep(),
    Elimination(),
    Ensemble(),
)
DEFAULT = ("eap-ig", "relp", "relp-qk")


def rows_of(model: str, behaviour: str, seed: int, shares: Sequence[float], device: str) -> list[dict[str, Any]]:
    """One row for each method and share."""
    specimen = ves.load(model, behaviour=behaviour, device=device)
    rank = trial(specimen, PROMPTS, seed=seed)
    sets = prompt_sets(specimen, rank, seed=seed)
    contrast = measure_contrast(specimen.model, sets.report)
    scores = {method.name: method.score(MethodInput(specimen, rank)) for method in METHODS}
    rankings = {name: (found, found.forwards) for name, found in scores.items()}
    per_prompt = scores["eap-ig"].per_prompt
    assert per_prompt is not None
    edges = per_prompt.mean(0)
    rows = list[dict[str, Any]]()
    for keep in shares:
        for names in [*((name,) for name in scores), DEFAULT]:
            begun = time.perf_counter()
            exact = (lambda: scores["sweep"]) if names == DEFAULT else None
            asked = {name: rankings[name] for name in names}
            whole, _, _ = whole_circuit(Search(specimen, sets, asked=keep), asked, exact=exact, edges=edges)
            told = answer(whole, behaviour, weak=contrast.doubt)
            rows.append(
                {
                    "behaviour": behaviour,
                    "seed": seed,
                    "keep": keep,
                    "methods": list(names),
                    "answer": str(told),
                    "size": whole.size,
                    "kept": whole.kept.model_dump(),
                    "elsewhere": None if whole.elsewhere is None else whole.elsewhere.model_dump(),
                    "ranking_passes": sum(scores[name].forwards for name in names),
                    "search_passes": whole.forwards,
                    "seconds": time.perf_counter() - begun,
                }
            )
            print(keep, "+".join(names), told, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+", help="Names, or files of rows.")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--keep", type=float, nargs="+", default=[0.8, 0.9])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/whole_circuits.json"))
    given = parser.parse_args()
    rows = [
        row
        for behaviour in given.behaviours
        for seed in given.seeds
        for row in rows_of(given.model, behaviour, seed, given.keep, given.device)
    ]
    write_json(given.out, {"model": Path(given.model).name, "prompts": PROMPTS, "rows": rows})


if __name__ == "__main__":
    main()

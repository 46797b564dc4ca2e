"""The smallest connected circuit of a model by each method, and by the default, which takes the smallest of three.

    python -m benchmarks.whole_circuits induction ioi greater-than capitals successor addition ROWS.jsonl
    python -m benchmarks.whole_circuits ioi capitals --model gemma-3-270m-q4_k_m.gguf --out gemma.json
    python -m benchmarks.whole_circuits examples/agreement.jsonl --methods eap-ig --device cpu --out agreement.json

32 prompts rank, others choose the size, a third set reports (a file of rows is divided by three). Every ranking goes
through the same search: the share asked for is read with a margin of two standard errors, circuits are trimmed by
leaving out each member once, and a component on no path from tokens to logits is dropped. Passes are those of the
search and, for the default, of the exact sweep where no ranking gives a circuit; those of the ranking are beside them.
`seconds` are of the clock and of the search alone, `cpu_seconds` of the processor. The two files have one template
each; what a circuit of theirs keeps on another is read on the rows of `OTHER_TEMPLATES`, of which a third is drawn.
"""

import argparse
import itertools
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import vesalius as ves
from vesalius.behaviours.natural import require_performance
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
NOUNS = ("artist", "guard", "soldier", "sailor", "visitor", "player", "worker", "dancer")
BESIDE = ("with the map", "under the roof", "at the gate")
VERBS = ("walk", "play", "talk", "work", "cook", "jump", "call", "paint", "clean", "smile", "climb", "push")
WHO = ("they", "we", "you")


def agreement_elsewhere() -> list[dict[str, str]]:
    """Subject-verb agreement inside a longer sentence, with words that `examples/agreement.jsonl` does not have."""
    rows = list[dict[str, str]]()
    for noun, beside in itertools.product(NOUNS, BESIDE):
        one, many = (f"We were told that the {word} {beside}" for word in (noun, f"{noun}s"))
        rows.append({"prompt": one, "answer": " is", "wrong": " are", "counterfactual": many})
        rows.append({"prompt": many, "answer": " are", "wrong": " is", "counterfactual": one})
    return rows


def past_elsewhere() -> list[dict[str, str]]:
    """The past tense in other sentences than those of `examples/past-contrast.jsonl`."""
    return [
        {
            "prompt": f"Now {who} {verb}. Last week {who}",
            "answer": f" {verb}{'d' if verb.endswith('e') else 'ed'}",
            "wrong": f" {verb}",
            "counterfactual": f"Now {who} {verb}. Each week {who}",
        }
        for verb, who in itertools.product(VERBS, WHO)
    ]


#: Rows with another template for the behaviours that are a file of rows of one, by the file's name.
OTHER_TEMPLATES = {"agreement": agreement_elsewhere, "past-contrast": past_elsewhere}


def rows_of(
    model: str, behaviour: str, seed: int, shares: Sequence[float], device: str, methods: Collection[str]
) -> Iterator[dict[str, Any]]:
    """One row for each method and share."""
    specimen = ves.load(model, behaviour=behaviour, device=device)
    rank = trial(specimen, PROMPTS, seed=seed)
    sets = prompt_sets(specimen, rank, seed=seed)
    if other := OTHER_TEMPLATES.get(Path(behaviour).stem):
        there = ves.load(model, behaviour=ves.Behaviour.from_rows(other()), device=device)
        sets = replace(sets, elsewhere=trial(there, PROMPTS, seed=seed))
    weak = require_performance(specimen, seed=seed, force=True).weak
    given, by_name = MethodInput(specimen, rank), {method.name: method for method in METHODS}
    scores = {name: by_name[name].score(given) for name in by_name if name in {*methods, *DEFAULT}}
    rankings = {name: (found, found.forwards) for name, found in scores.items()}
    per_prompt = scores["eap-ig"].per_prompt
    assert per_prompt is not None
    edges = per_prompt.mean(0)
    for keep in shares:
        for names in [*((name,) for name in scores if name in methods), DEFAULT]:
            begun, begun_cpu = time.perf_counter(), time.process_time()
            exact = (lambda: scores.get("sweep") or by_name["sweep"].score(given)) if names == DEFAULT else None
            asked = {name: rankings[name] for name in names}
            whole, _, _ = whole_circuit(Search(specimen, sets, asked=keep), asked, exact=exact, edges=edges)
            told = answer(whole, Path(behaviour).stem, weak=weak)
            print(keep, "+".join(names), told, flush=True)
            yield {
                "behaviour": Path(behaviour).stem,
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
                "cpu_seconds": time.process_time() - begun_cpu,
                "device": str(specimen.model.device),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("behaviours", nargs="+", help="Names, or files of rows.")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--keep", type=float, nargs="+", default=[0.8, 0.9])
    parser.add_argument("--methods", nargs="*", metavar="METHOD", help="Rankings that are tried alone. Default: all.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/whole_circuits.json"))
    given = parser.parse_args()
    asked = [method.name for method in METHODS] if given.methods is None else given.methods
    rows = list[dict[str, Any]]()
    for behaviour, seed in itertools.product(given.behaviours, given.seeds):
        for row in rows_of(given.model, behaviour, seed, given.keep, given.device, asked):
            rows.append(row)
            write_json(given.out, {"model": Path(given.model).name, "prompts": PROMPTS, "rows": rows})


if __name__ == "__main__":
    main()

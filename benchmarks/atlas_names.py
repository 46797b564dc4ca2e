"""Are the names of an atlas true? Every named head measured again by plain hooks and weights, without the atlas's code.

    python -m benchmarks.atlas_names smollm2-135m=atlas-smollm2 models/gemma-3-270m-q4_k_m.gguf=atlas-gemma \\
        --out benchmarks/results/atlas_names.json

takes models with the directories of their atlases. An explanation gives a head a standard name only where the atlas has
it, so these are all such names that any behaviour of the model can give. The prompts are other random tokens, from the
whole vocabulary and of one more seed, and the figures are made another way: attention of the second half only, copying
over all tokens instead of a sample, and for *positional* the share of a prompt's pattern that the mean pattern of the
other prompts predicts. A name is *false* where its figure misses the bar of `benchmarks.head_names`: a quarter of the
attention for places, half for BOS, any copying and any suppression, half of the pattern.

Heads that were missed are counted as well: those without a name of `PLACES` although more than 0.6 of their attention
goes there, where the atlas names a head from 0.5.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import vesalius as ves
from benchmarks.head_names import LEAST_PLACE, LEAST_ROLE, LENGTH, StandardTests
from vesalius.components import Component
from vesalius.files import write_json
from vesalius.model.specimen import Specimen, TextVocabulary

#: Names about a place, and how many tokens back it lies in the second half of repeated tokens.
PLACES = {
    "previous-token head": 1,
    "duplicate-token head": LENGTH,
    "prefix-matching head": LENGTH - 1,
    "induction head": LENGTH - 1,
    "current-token head": 0,
}
MISSED = 0.6
#: Names about what is written, and the sign that copying has.
WRITES = {"copy-suppression head": -1, "induction head": 1, "copying head": 1}
LEAST_EXPLAINED = 0.5


def bos(head: Component, tests: StandardTests) -> float:
    """Mean attention of the second half on the first token."""
    return float(tests.patterns[head.layer][:, head.head, LENGTH + 1 :, 0].mean())


def positional(head: Component, tests: StandardTests) -> float:
    """How much of each prompt's pattern the mean of the others predicts, on the first half and without BOS."""
    pattern = tests.patterns[head.layer][:, head.head, : LENGTH + 1, 1 : LENGTH + 1]
    others = (pattern.sum(0) - pattern) / (len(pattern) - 1)
    return 1 - float((pattern - others).square().sum() / pattern.square().sum())


def figures(name: str, head: Component, tests: StandardTests) -> dict[str, tuple[float, float]]:
    """What a name is about: each figure with the least that it must reach."""
    shown: dict[str, tuple[float, float]] = {}
    if name in PLACES:
        shown["attention"] = tests.place(head, PLACES[name]), LEAST_PLACE
    if name in WRITES:
        shown["copying, by its sign"] = WRITES[name] * tests.copying(head), 0.0
    if name == "BOS head":
        shown["attention on BOS"] = bos(head, tests), LEAST_ROLE
    if name == "positional head":
        shown["explained by position"] = positional(head, tests), LEAST_EXPLAINED
    return shown


def audit(atlas: dict[str, Any], tests: StandardTests) -> tuple[list[dict[str, Any]], list[str]]:
    """The figures of every named head, and the heads that were missed."""
    rows, missed = [], []
    for entry in atlas["heads"]:
        head = Component.parse(entry["id"])
        for name in entry["names"]:
            found = figures(name, head, tests)
            rows.append(
                {
                    "head": entry["id"],
                    "name": name,
                    "figures": {figure: round(value, 4) for figure, (value, _) in found.items()},
                    "false": [figure for figure, (value, least) in found.items() if value < least],
                }
            )
        named = {place for name, place in PLACES.items() if name in entry["names"]}
        missed += [f"{head} at {back} back" for back in {*PLACES.values()} - named if tests.place(head, back) > MISSED]
    return rows, missed


def first_token(specimen: Specimen) -> int:
    """The token that texts of this model begin with: BOS, or one that is in the vocabulary of every tokenizer here."""
    assert isinstance(specimen.vocabulary, TextVocabulary)
    bos_token = specimen.vocabulary.tokenizer.bos
    return 0 if bos_token is None else bos_token


def main() -> None:
    """Print the names and the false ones of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("atlases", nargs="+", metavar="MODEL=DIRECTORY")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    models = []
    for model, directory in (one.rsplit("=", 1) for one in given.atlases):
        atlas = json.loads((Path(directory) / "atlas.json").read_text())
        specimen = ves.load(model)
        with torch.no_grad():
            rows, missed = audit(atlas, StandardTests(specimen.model, first_token(specimen)))
        wrong = [row for row in rows if row["false"]]
        heads = len(atlas["heads"])
        print(f"{Path(model).stem}: {len(rows)} names of {len({row['head'] for row in rows})} of {heads} heads")
        print(f"  {dict(Counter(row['name'] for row in rows))}; false: {len(wrong)}; missed: {len(missed)}", missed)
        for row in wrong:
            print(" ", row["head"], row["name"], row["figures"])
        models.append({"model": Path(model).stem, "heads": heads, "rows": rows, "missed": missed})
    if given.out:
        write_json(given.out, {"benchmark": "atlas_names", "models": models})


if __name__ == "__main__":
    main()

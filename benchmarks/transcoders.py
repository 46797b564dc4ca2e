"""Transcoders of every layer of SmolLM2, trained on plain text within minutes of a GPU, and what the model keeps.

The text is what a machine with Python has: the reference manual of Python, docstrings of its library, licences of
installed packages, and where it is installed the CIA World Factbook (public domain). `--write-text FILE` writes it, so
that another machine trains on the same. An article never has blank lines inside; every third one is held out.

As many steps are taken as fit into `--budget` seconds. Then every behaviour is measured on prompts of its test split:
the share that survives with one layer spliced, and with all. Nothing is tuned on either.

    python -m benchmarks.transcoders --write-text build/plain.txt
    python -m benchmarks.transcoders smollm2-135m --text build/plain.txt --device cuda
"""

import argparse
import ast
import json
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import vesalius as ves
from vesalius.behaviours.controls import FACTBOOK, corpus_named
from vesalius.behaviours.trial import trial
from vesalius.documents.metric import Metric
from vesalius.errors import BadInput
from vesalius.files import sha256
from vesalius.model.dictionaries import read_dictionaries
from vesalius.progress import silent
from vesalius_features.measuring import Splicing, mean_writes, surviving
from vesalius_features.rows import read_corpora, rows_of
from vesalius_features.verb import transcoders, transcoders_plan

#: Letters of the shortest article, and of the longest: a longer one is cut.
SHORTEST, LONGEST = 400, 20_000


def articles() -> Iterator[str]:
    """The plain text of this machine, article by article."""
    try:
        yield from (article.text for article in corpus_named(FACTBOOK).articles)
    except BadInput as error:
        print(error)
    from pydoc_data.topics import topics

    yield from topics.values()
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        if not {"test", "tests", "site-packages", "dist-packages", "idlelib"} & set(file.parts):
            yield docstrings(file)
    for file in sorted(Path(sysconfig.get_path("purelib")).glob("*.dist-info/**/LICEN[CS]E*")):
        yield file.read_text(encoding="utf-8", errors="replace")


def docstrings(file: Path) -> str:
    """All docstrings of a file, in order."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return ""
    parts = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return "\n".join(filter(None, (ast.get_docstring(one) for one in ast.walk(tree) if isinstance(one, parts))))


def write_text(place: Path) -> None:
    """Write the articles, each once, without blank lines inside."""
    lined = ("\n".join(line.rstrip() for line in text.splitlines() if line.strip()) for text in articles())
    kept = dict.fromkeys(text[:LONGEST] for text in lined if len(text) >= SHORTEST)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("\n\n".join(kept) + "\n", encoding="utf-8", errors="replace")
    print(f"{place}: {len(kept):,} articles, {place.stat().st_size:,} bytes")


def figures(metric: Metric | None) -> list[float | None] | None:
    """A figure with the ends of its interval, rounded."""
    return None if metric is None else [None if x is None else round(x, 4) for x in metric.ends]


def kept_of(model: str, behaviour: str, given: argparse.Namespace, directory: Path, n: int) -> dict[str, Any]:
    """The share of a behaviour that survives in each layer, and in all of them."""
    specimen = ves.load(model, behaviour=behaviour, device=given.device)
    texts = rows_of(specimen, read_corpora(given.text), context=given.context)
    dictionaries = read_dictionaries(directory, specimen.model.config)
    means = mean_writes(specimen.model, texts.held_out.take(slice(0, 64)), dictionaries)
    splicing, layers = Splicing(dictionaries, means), dictionaries.layers
    material = trial(specimen, n, seed=given.seed)
    found = surviving(specimen.model, material, splicing, [*((layer,) for layer in layers), layers], silent)
    shares = {name: [figures(one[name]) for one in found] for name in ("spliced", "mean", "zero")}
    alone = {name: values[:-1] for name, values in shares.items()}
    return {"n": len(material.batch), "together": {k: v[-1] for k, v in shares.items()}, "alone": alone}


def main() -> None:
    """Write the text, or train and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--write-text", type=Path)
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument("--behaviours", default="induction,ioi,greater-than")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", default="all")
    parser.add_argument("--latents", type=int, default=4096)
    parser.add_argument("--k", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=4000, help="at most")
    parser.add_argument("--budget", type=float, default=110.0, help="seconds of training, about")
    parser.add_argument("--n", type=int, default=64, help="prompts of each behaviour")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="where the transcoders go; default: a temporary directory")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/transcoders.json"))
    given = parser.parse_args()
    if given.write_text is not None:
        return write_text(given.write_text)
    begun = time.perf_counter()
    specimen = ves.load(given.model, device=given.device)
    named = ("text", "layers", "latents", "k", "batch", "context", "seed")
    asked = {name: getattr(given, name) for name in named}
    plan = transcoders_plan(specimen, **asked, steps=100)
    steps = max(100, min(given.steps, int(100 * given.budget / max(plan.seconds, 1e-9))))
    print(f"{plan.seconds / 100:.3f} s a step with its share of collecting: {steps} steps", flush=True)
    directory = given.directory or Path(tempfile.mkdtemp())
    trained = time.perf_counter()
    document = transcoders(specimen, **asked, steps=steps, out=directory)
    seconds = {"loading": trained - begun, "training and text": time.perf_counter() - trained}
    layers = [
        {
            "layer": one.layer,
            "explained": round(one.explained, 4),
            "dead": one.dead,
            "active": round(one.active, 2),
            "loss": {kind: figures(getattr(one.spliced, f"loss_{kind}")) for kind in ("spliced", "mean", "zero")},
        }
        for one in document.layers
    ]
    behaviours = {}
    for behaviour in given.behaviours.split(","):
        behaviours[behaviour] = kept_of(given.model, behaviour, given, directory, given.n)
        print(behaviour, behaviours[behaviour]["together"], flush=True)
    seconds["all"] = time.perf_counter() - begun
    together = document.together
    result = {
        "model": given.model,
        "device": torch.cuda.get_device_name() if given.device.startswith("cuda") else given.device,
        "torch": torch.__version__,
        "text": {"name": document.text, "sha256": [sha256(Path(file)) for file in given.text if Path(file).is_file()]},
        **{name: value for name, value in asked.items() if name != "text"},
        "steps": steps,
        "trained_on": document.trained_on,
        "times": round(steps * given.batch / document.trained_on, 2),
        "held_out_tokens": document.tokens,
        "intact": figures(document.intact),
        "guess": document.guess,
        "together": {
            **{kind: figures(getattr(together, f"loss_{kind}")) for kind in ("spliced", "mean", "zero")},
            "recovered": together.recovered(document.intact, document.guess),
        },
        "layers": layers,
        "behaviours": behaviours,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(document)


if __name__ == "__main__":
    main()

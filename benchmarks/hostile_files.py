"""Mutated files for every loader: each is read, or refused in one short line, and nothing hangs.

    OMP_NUM_THREADS=1 python -m benchmarks.hostile_files --n 500 --out benchmarks/results/hostile_files.json

For each loader a good file, or folder of files, is made and must load. Then one of its files is changed at random:
bytes flipped, cut, doubled or inserted; numbers made huge, negative or no numbers; brackets nested, texts made long,
half characters put in, values of JSON exchanged for others of another type. The loader must return, or raise `BadInput`
or `Failed` with one line of at most 500 characters, within `SECONDS` of processor time, and without waiting longer than
`PATIENCE` on a busy machine. Anything else is counted and shown.
"""

import argparse
import json
import os
import pickle
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch

from benchmarks.hostile_own import OWN
from benchmarks.hostile_results import RESULTS
from vesalius import consent
from vesalius.behaviours.files import read_behaviour
from vesalius.circuits.originals import load_original
from vesalius.circuits.specimens import benchmark_root, load_specimen
from vesalius.components import Component, Edge
from vesalius.documents.attribution_graph import convert, write_graph
from vesalius.documents.circuit import Circuit
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.scorecard import Scorecard
from vesalius.errors import BadInput, Failed
from vesalius.files import write_json
from vesalius.intervene.edges import EdgeGraph
from vesalius.intervene.exchanging import Place
from vesalius.model import Config, Transformer
from vesalius.model.gguf import GgufFile
from vesalius.model.sources import load_huggingface
from vesalius.model.states import to_state, write_tensors
from vesalius.runs.ledger import Ledger
from vesalius_backbones.messages import Prices
from vesalius_backbones.records import Records, Redactor
from vesalius_backbones.scripted import read_script
from vesalius_bench.claims.verify import show_claim
from vesalius_bench.mib.features import read_units, write_units
from vesalius_bench.mib.files import read_folder, write_importances
from vesalius_bench.ratings.reading import read_ratings
from vesalius_bench.sealing import with_seal
from vesalius_functions.entities import load_published as load_entities
from vesalius_functions.numeric import load_published as load_numeric
from vesalius_functions.strings import load_published as load_strings
from vesalius_serving.clients import Clients
from vesalius_truth.key.other_keys import read_annotation
from vesalius_workbench.jobs import JOB, LOG, Jobs, RunQuestion

SECONDS, PATIENCE = 20, 300
LONGEST_REFUSAL = 500
SEED = 1311
#: Address space of the process: a loader that takes what a file says is stopped here.
MEMORY = 6 << 30
HUGE = ("1e999", "-1", "2147483648", "9" * 400, "20000", "0", "1e-320", "NaN", "null", '"x"', "[]", "{}", "true")


class Hang(BaseException):
    """A loader took longer than `SECONDS`, or waited longer than `PATIENCE`."""


@dataclass(frozen=True)
class Loader:
    """A loader with a good example: `make` writes it into a folder, `load` reads it from there."""

    make: Callable[[Path], None]
    load: Callable[[Path], object]


@dataclass
class Findings:
    """What became of the files of one loader."""

    loaded: int = 0
    refused: int = 0
    longest_refusal: int = 0
    tracebacks: Counter[str] = field(default_factory=Counter)
    hangs: int = 0
    long_refusals: int = 0

    def as_data(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {**vars(self), "tracebacks": dict(self.tracebacks)}

    @property
    def clean(self) -> bool:
        """Whether every file was read or refused as it should be."""
        return not (self.tracebacks or self.hangs or self.long_refusals)


# --- good files


def tiny_config(**changes: Any) -> Config:
    """A transformer of one layer."""
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "d_mlp": 8, "d_vocab": 5, "d_vocab_out": 5}
    return Config.model_validate({**sizes, "n_ctx": 5, **changes})


def tiny_model(**changes: Any) -> Transformer:
    """A random transformer of one layer."""
    torch.manual_seed(SEED)
    model = Transformer(tiny_config(**changes))
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    return model.eval().requires_grad_(False)


def make_circuit(folder: Path) -> None:
    """A circuit in the format of MIB, with fields of its own."""
    shape = tiny_config()
    edge = Edge.parse("a0.h1->m0")
    Circuit.scored(shape, 8, {Component(0, 1): 0.5, Component(0): -2.0}, {edge: 0.25}).write(folder / "circuit.json")
    data = json.loads((folder / "circuit.json").read_text())
    data["nodes"]["m0"]["neurons"] = [1, 0.5, "text"]
    write_json(folder / "circuit.json", data)


def load_circuit(folder: Path) -> None:
    """Read and write back."""
    Circuit.read(folder / "circuit.json").write(folder / "again.json")


RATINGS = [
    {"specimen": "3", "component": "L0_MLP", "rater": rater, "measure": "description_quality", "score": 1}
    for rater in ("ann", "ben")
]


def make_ratings_json(folder: Path) -> None:
    """Two ratings as JSON."""
    (folder / "ratings.json").write_text(json.dumps(RATINGS))


def make_ratings_csv(folder: Path) -> None:
    """Two ratings as CSV."""
    lines = [",".join(RATINGS[0]), *(",".join(map(str, row.values())) for row in RATINGS)]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")


def make_specimen(folder: Path) -> None:
    """A shipped circuit."""
    for name in ("model.json", "model.safetensors", "specimen.json"):
        shutil.copy(benchmark_root() / "3" / name, folder / name)


def use_specimen(folder: Path) -> None:
    """Load a specimen and run it."""
    specimen = load_specimen(folder)
    specimen.predict(specimen.sample(2))


def make_gpt2(folder: Path) -> None:
    """A GPT-2 of one layer in a Hugging Face directory."""
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 8, "n_inner": 8, "n_positions": 5, "vocab_size": 5}
    write_json(folder / "config.json", {"model_type": "gpt2", "activation_function": "gelu_new", **sizes})
    shapes = {
        "wte.weight": (5, 8), "wpe.weight": (5, 8), "ln_f.weight": (8,), "ln_f.bias": (8,),
        "h.0.ln_1.weight": (8,), "h.0.ln_1.bias": (8,), "h.0.ln_2.weight": (8,), "h.0.ln_2.bias": (8,),
        "h.0.attn.c_attn.weight": (8, 24), "h.0.attn.c_attn.bias": (24,),
        "h.0.attn.c_proj.weight": (8, 8), "h.0.attn.c_proj.bias": (8,),
        "h.0.mlp.c_fc.weight": (8, 8), "h.0.mlp.c_fc.bias": (8,),
        "h.0.mlp.c_proj.weight": (8, 8), "h.0.mlp.c_proj.bias": (8,),
    }  # fmt: skip
    write_tensors(folder / "model.safetensors", {name: torch.ones(shape) for name, shape in shapes.items()})


def make_gguf(folder: Path) -> None:
    """A Llama of one layer in a GGUF file."""
    import gguf

    words = ["<bos>", "h", "i", "hi", "x"]
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    writer.add_block_count(1)
    writer.add_context_length(8)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_head_count(4)
    writer.add_head_count_kv(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([3, 1, 1, 1, 1])
    writer.add_token_merges(["h i"])
    writer.add_bos_token_id(0)
    square = [f"blk.0.{name}.weight" for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate")]
    tensors = {name: torch.ones(32, 32) for name in [*square, "blk.0.ffn_down.weight"]}
    tensors |= {
        name: torch.ones(32) for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight")
    }
    for name, value in {**tensors, "token_embd.weight": torch.ones(5, 32)}.items():
        writer.add_tensor(name, value.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_gguf(folder: Path) -> None:
    """The model and the tokenizer of a GGUF file."""
    file = GgufFile(folder / "model.gguf")
    file.load()
    file.tokenizer()


def make_interpbench(folder: Path) -> None:
    """A case of InterpBench."""
    model = tiny_model(norm="none")
    torch.save({name: value.clone() for name, value in to_state(model).items()}, folder / "ll_model.pth")
    names = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "d_vocab_out", "n_ctx")
    fields = {name: getattr(model.config, name) for name in names} | {"act_fn": "gelu", "normalization_type": None}
    (folder / "ll_model_cfg.pkl").write_bytes(pickle.dumps(fields))
    edges = [("blocks.0.attn.hook_result[1]", "blocks.0.mlp.hook_post"), ("hook_embed", "blocks.0.hook_q_input[0]")]
    (folder / "edges.pkl").write_bytes(pickle.dumps(edges))
    write_json(folder / "meta.json", {"vocab": ["a", "b", "c"], "outputs": [1, 2, 3, 4, 5]})


def make_strings(folder: Path) -> None:
    """Two string functions as published."""
    place = folder / "strings"
    place.mkdir()
    tests = [[["ab", "x", "y"], ["ba", "n", "m"]]] * 10
    records = [{"name": f"f0000{i}", "test_vec": tests, "correct_inx": [1] * 10} for i in range(2)]
    (place / "unit_test_data.json").write_text(json.dumps(records))
    (place / "f00000").mkdir()
    (place / "f00000" / "function_code.py").write_text("def function(x):\n    return x[::-1]\n")


def make_numeric(folder: Path) -> None:
    """Two numeric functions as published."""
    place = folder / "numeric"
    place.mkdir()
    common = {"type": "simple", "corruption_type": "interval_inside", "domain": [-100, 100], "noise_params": 1}
    common |= {"corruption_params": {"std": 7.5, "boundary": [1.0, 9.25]}, "noise_type": "poisson"}
    kinds = (("absolute", [2.0, 3.0]), ("linear", [1.0, 1.1]))
    records = [
        {**common, "params": params, "name": f"{name}({params})", "dir": f"f0000{i}"}
        for i, (name, params) in enumerate(kinds)
    ]
    (place / "data.json").write_text(json.dumps(records))
    (place / "func_name_dict.json").write_text(json.dumps({f"f0000{i}": "function_code.py" for i in range(2)}))


def make_entities(folder: Path) -> None:
    """Two entity functions as published."""
    place = folder / "neurons_entities"
    place.mkdir()
    data = [{"dir": f"f0000{i}", "concept1": "horses", "concept2": None, "initial": ["saddle"]} for i in range(2)]
    tests = [{"name": f"f0000{i}", "test_vec": [["rice", "sea", "pony"]], "correct_inx": [3]} for i in range(2)]
    (place / "data.json").write_text(json.dumps(data))
    (place / "unit_test_data.json").write_text(json.dumps(tests))


def make_scorecard(folder: Path) -> None:
    """A scorecard."""
    metric = Metric(value=0.5, low=0.4, high=0.6, n=10)
    card = Scorecard(
        benchmark="circuits",
        subject="builtin",
        seed=0,
        request=Request(command="bench circuits"),
        n=10,
        n_error=0,
        metrics={"tag_accuracy": metric},
        cost=0.0,
        seconds=1.0,
    )
    card.write(folder / "scorecard.json")


def make_ledger(folder: Path) -> None:
    """Three events."""
    with Ledger(folder / "events.jsonl") as ledger:
        for number in range(3):
            ledger.append("graded", case=str(number), metrics={"success": 1.0})


def load_ledger(folder: Path) -> None:
    """Open and close a ledger."""
    Ledger(folder / "events.jsonl").close()


def make_prices(folder: Path) -> None:
    """A price table."""
    table = {"schema": 1, "date": "2026-11-01", "models": {"a:b": {"input": 1.0, "output": 2.0}}}
    write_json(folder / "prices.json", table)


def make_script(folder: Path) -> None:
    """A scripted model."""
    write_json(folder / "script.json", {"replies": ["yes", {"text": "no"}], "faults": {"p": 0.3, "seed": 0}})


def make_annotation(folder: Path) -> None:
    """An answer key of the published dataset."""
    component = {"id": "L0H1_ATTN", "tag": "AGGREGATOR", "note": "counts x"}
    data = {"id": "3", "name": "frac_prevs", "task_summary": "the share of x", "components": [component]}
    write_json(folder / "case_3.json", data)


def make_calls(folder: Path) -> None:
    """A record of calls with a line that has no outcome yet."""
    records = Records(folder / "calls.jsonl", Redactor(environment={}), writable=True)
    records._write({"kind": "asked", "key": "0" * 64, "most": 0.5})


ROWS = [
    {"prompt": "The capital of France is", "answer": " Paris", "wrong": [" Rome"], "roles": {"country": "France"}},
    {
        "prompt": "The capital of Italy is",
        "answer": " Rome",
        "split": "test",
        "counterfactual": "The capital of Spain is",
    },
]


def make_rows_jsonl(folder: Path) -> None:
    """Two rows of a behaviour, one a line."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def make_rows_json(folder: Path) -> None:
    """Two rows of a behaviour as a list."""
    (folder / "rows.json").write_text(json.dumps(ROWS))


TEMPLATES = """
templates = ["The capital of {place.country} is", "{place.country} has its capital in"]
answer = " {place.capital}"
wrong = " {other.capital}"
counterfactual = { place = "other" }
rows = 4

[slots]
place = "countries"
other = "countries"

[words]
countries = [{ country = "France", capital = "Paris" }, { country = "Italy", capital = "Rome" }]
"""


def make_templates(folder: Path) -> None:
    """Templates of a behaviour."""
    (folder / "templates.toml").write_text(TEMPLATES)


def make_rows_csv(folder: Path) -> None:
    """Two rows of a behaviour as CSV."""
    (folder / "rows.csv").write_text('prompt,answer,wrong\nThe capital of France is, Paris,"["" Rome""]"\nA B,C,D\n')


def make_mib(folder: Path) -> None:
    """A folder of a MIB submission as JSON."""
    shape = tiny_config()
    scores = dict.fromkeys(EdgeGraph.of(shape).edges, 0.5)
    write_importances(Circuit.scored(shape, 8, {}, scores), folder / "ioi_gpt2")


def make_mib_units(folder: Path) -> None:
    """A folder of MIB's causal variable track: a subspace of the residual stream, and its inverse."""
    directions = torch.linalg.qr(torch.randn(8, 2, generator=torch.Generator().manual_seed(0)))[0]
    write_units(folder / "a_b_c", [Place(("end",), layer=1, directions=directions)], "last")


def make_mib_tensors(folder: Path) -> None:
    """A folder of a MIB submission as tensors."""
    shape = tiny_config()
    graph = EdgeGraph.of(shape)
    (folder / "ioi_gpt2").mkdir()
    cfg = {"n_layers": shape.n_layers, "n_heads": shape.n_heads, "d_model": 8, "parallel_attn_mlp": False}
    tables = {"edges_scores": graph.real.float(), "edges_in_graph": graph.real}
    nodes = {"nodes_in_graph": torch.ones(len(graph.senders), dtype=torch.bool)}
    torch.save({"cfg": cfg, **tables, **nodes}, folder / "ioi_gpt2" / "importances.pt")


def make_graph(folder: Path) -> None:
    """An attribution graph."""
    make_circuit(folder)
    write_graph(Circuit.read(folder / "circuit.json"), folder / "graph.json", slug="a", scan="model", prompt="text")
    (folder / "circuit.json").unlink()


def make_verdict(folder: Path) -> None:
    """A verdict on a registered claim."""
    write_json(
        folder / "verdict.json",
        with_seal(
            {
                "schema": 1,
                "document": "verdict",
                "result": "PASS",
                "reason": "as predicted",
                "registration": "0" * 64,
                "checks": [{"name": "digest", "passed": True, "detail": "as registered"}],
                "verified": "2026-11-01T00:00:00+00:00",
                "code": {"vesalius": "0.1.0"},
                "seconds": 1.0,
            }
        ),
    )


def make_clients(folder: Path) -> None:
    """Secrets of clients."""
    Clients(folder / "clients.json").require(["1", "2"])


def load_consents(folder: Path) -> None:
    """Whether a package is trusted, as the user's file says."""
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder)}):
        consent.is_trusted("a-package", ["vesalius.judges:one = module:f"])


def make_consents(folder: Path) -> None:
    """Consent to one package."""
    with mock.patch.dict(os.environ, {"XDG_CONFIG_HOME": str(folder)}):
        consent.trust("a-package", ["vesalius.judges:one = module:f"])


def make_job(folder: Path) -> None:
    """A run that the page started, and its log."""
    (folder / "mine").mkdir()
    asked = RunQuestion(specimen="frac_prevs", components=["L0_MLP"], backbone="openai:x", n=8)
    write_json(folder / "mine" / JOB, {"schema": 1, **asked.model_dump()})
    (folder / "mine" / LOG).write_text("vesalius: interrupted\n")


LOADERS: dict[str, Loader] = {
    "mib": Loader(make_mib, lambda folder: read_folder(folder / "ioi_gpt2")),
    "mib_units": Loader(make_mib_units, lambda folder: read_units(folder / "a_b_c", tiny_config(), ("end",), "last")),
    "mib_tensors": Loader(make_mib_tensors, lambda folder: read_folder(folder / "ioi_gpt2")),
    "convert_circuit": Loader(make_circuit, lambda folder: convert(folder / "circuit.json", folder / "out.json")),
    "convert_graph": Loader(make_graph, lambda folder: convert(folder / "graph.json", folder / "out.json")),
    "verdict": Loader(make_verdict, lambda folder: show_claim(folder / "verdict.json")),
    "clients": Loader(make_clients, lambda folder: Clients(folder / "clients.json").revoke("1")),
    "consents": Loader(make_consents, load_consents),
    "job": Loader(make_job, lambda folder: Jobs(folder, specimens=["frac_prevs"]).about(folder / "mine")),
    "circuit": Loader(make_circuit, load_circuit),
    "ratings_json": Loader(make_ratings_json, lambda folder: read_ratings(folder / "ratings.json")),
    "ratings_csv": Loader(make_ratings_csv, lambda folder: read_ratings(folder / "ratings.csv")),
    "specimen": Loader(make_specimen, use_specimen),
    "huggingface": Loader(make_gpt2, load_huggingface),
    "gguf": Loader(make_gguf, load_gguf),
    "interpbench": Loader(make_interpbench, load_original),
    "find_strings": Loader(make_strings, load_strings),
    "find_numeric": Loader(make_numeric, load_numeric),
    "find_entities": Loader(make_entities, load_entities),
    "scorecard": Loader(make_scorecard, lambda folder: Scorecard.read(folder / "scorecard.json")),
    "ledger": Loader(make_ledger, load_ledger),
    "prices": Loader(make_prices, lambda folder: Prices.load(folder / "prices.json")),
    "script": Loader(make_script, lambda folder: read_script(folder / "script.json")),
    "annotation": Loader(make_annotation, lambda folder: read_annotation(folder / "case_3.json")),
    "behaviour_jsonl": Loader(make_rows_jsonl, lambda folder: read_behaviour(folder / "rows.jsonl")),
    "behaviour_json": Loader(make_rows_json, lambda folder: read_behaviour(folder / "rows.json")),
    "behaviour_toml": Loader(make_templates, lambda folder: read_behaviour(folder / "templates.toml")),
    "behaviour_csv": Loader(make_rows_csv, lambda folder: read_behaviour(folder / "rows.csv")),
    "calls": Loader(
        make_calls, lambda folder: Records(folder / "calls.jsonl", Redactor(environment={}), writable=False)
    ),
    **{name: Loader(*pair) for name, pair in {**OWN, **RESULTS}.items()},
}


# --- mutations


def mutate(data: bytes, dice: random.Random, *, is_json: bool) -> bytes:
    """The bytes of a file, changed."""
    if is_json and dice.random() < 0.6:
        try:
            return _mutate_json(json.loads(data), dice)
        except (ValueError, UnicodeDecodeError):
            pass
    for _ in range(dice.choice((1, 1, 1, 2, 8))):
        data = dice.choice((_flip, _cut, _double, _insert, _number))(data, dice)
    return data


def _flip(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return b"\0"
    # Headers come first and are where the damage is: half of the flips are there.
    at = dice.randrange(min(len(data), 400)) if dice.random() < 0.5 else dice.randrange(len(data))
    return data[:at] + bytes([dice.choice((0, 255, data[at] ^ (1 << dice.randrange(8)), 10, 34))]) + data[at + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _double(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.randrange(200))
    return data[:end] + data[start:end] + data[end:]


def _insert(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    pieces = (b"[" * 5000, b"\xed\xa0\x80", b"\0", b"\\ud800", b"x" * 100_000, "\u202e".encode(), b'"', b"\n", b"1e999")
    return data[:at] + dice.choice(pieces) + data[at:]


def _number(data: bytes, dice: random.Random) -> bytes:
    digits = [i for i, byte in enumerate(data[:5000]) if 48 <= byte < 58]
    if not digits:
        return _flip(data, dice)
    at = dice.choice(digits)
    return data[:at] + dice.choice(HUGE).encode() + data[at + 1 :]


def _mutate_json(document: Any, dice: random.Random) -> bytes:
    places = list(_places(document))
    if not places:
        return dice.choice(HUGE).encode()
    parent, key = dice.choice(places)
    change = dice.randrange(5)
    mark = "@@@"
    if change == 0:
        parent[key] = [[parent[key]]]
    elif change == 1:
        del parent[key]
    elif change == 2 and isinstance(parent, dict):
        parent[dice.choice(("\ud800", "x" * 100_000, "", "\0", "../../x", "y" * 5000))] = parent.pop(key)
    else:
        parent[key] = mark
    texts = (*HUGE, '"\\ud800"', '"' + "x" * 100_000 + '"', "[" * 940 + "]" * 940, '"\\u0000"', '"/' + "n" * 5000 + '"')
    return json.dumps(document).replace(f'"{mark}"', dice.choice(texts)).encode()


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, (dict, list)):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _places(node[key])


# --- the measurement


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `Hang` after so many seconds of processor time, or `PATIENCE` without an end."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, PATIENCE))
    previous = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for (timer, number, _), before in zip(timers, previous, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, before)


def attempt(loader: Loader, folder: Path, findings: Findings, *, label: str = "") -> None:
    """Load a folder and note what happened."""
    try:
        with time_limit(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader.load(folder)
        findings.loaded += 1
    except (BadInput, Failed) as refusal:
        text = str(refusal)
        findings.refused += 1
        findings.longest_refusal = max(findings.longest_refusal, len(text))
        findings.long_refusals += len(text) > LONGEST_REFUSAL or "\n" in text
    except Hang:
        findings.hangs += 1
        print(f"{label}: hang", file=sys.stderr)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        findings.tracebacks[f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"] += 1
        print(f"{label}: {type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})", file=sys.stderr)


def attack(name: str, n: int, *, seed: int = SEED) -> Findings:
    """`n` mutated files of one loader."""
    loader, findings = LOADERS[name], Findings()
    with tempfile.TemporaryDirectory(prefix="vesalius-hostile-") as place:
        good = Path(place, "good")
        good.mkdir()
        loader.make(good)
        loader.load(good)
        files = sorted(path.relative_to(good) for path in good.rglob("*") if path.is_file())
        for number in range(n):
            dice = random.Random(f"{seed}:{name}:{number}")
            folder = Path(place, "bad")
            shutil.copytree(good, folder)
            file = folder / dice.choice(files)
            file.write_bytes(mutate(file.read_bytes(), dice, is_json=file.suffix == ".json"))
            attempt(loader, folder, findings, label=f"{name} {number} {file.name}")
            shutil.rmtree(folder)
    return findings


def main() -> None:
    """Attack every loader and write the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=500)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--loaders", default=",".join(LOADERS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    rows = {}
    for name in options.loaders.split(","):
        rows[name] = attack(name, options.n, seed=options.seed).as_data()
        print(name, json.dumps(rows[name]), flush=True)
    totals = {
        key: sum(row[key] for row in rows.values()) for key in ("loaded", "refused", "hangs", "long_refusals")
    } | {"tracebacks": sum(sum(row["tracebacks"].values()) for row in rows.values())}
    totals["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    document = {"benchmark": "hostile_files", "seed": options.seed, "n": options.n, "totals": totals, "loaders": rows}
    print(json.dumps(totals))
    if options.out:
        write_json(options.out, document)


if __name__ == "__main__":
    main()

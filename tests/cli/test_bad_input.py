"""Every bad input: exit code 2, one clear line on stderr, nothing on stdout."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.cli.conftest import Vesalius
from tests.model.tiny_gguf import write_tiny_gguf
from vesalius.circuits.specimens import benchmark_directory

INDUCTION = ("--behaviour", "induction")
#: The shape of frac_prevs, as its circuit files have it.
SHAPE = {"n_layers": 2, "n_heads": 4, "d_model": 12}
SETS = ["sets", "TINY", *INDUCTION, "--force"]


def refused(vesalius: Vesalius, arguments: Sequence[object], reason: str) -> None:
    got = vesalius(*arguments)
    assert (got.code, got.out) == (2, ""), got
    lines = got.err.splitlines()
    assert len(lines) == 1, got.err
    assert lines[0].startswith("vesalius: ")
    assert reason in lines[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "Missing argument 'SPECIMEN'"),
        (["nosuch", *INDUCTION], "specimen 'nosuch' is not known; use smollm2-135m, arithmetic, 2 (reverse)"),
        (["/nowhere/at/all", *INDUCTION], "neither a directory nor a hub id"),
        (["nowhere.gguf", *INDUCTION], "nowhere.gguf: no such file"),
        (["TINY", "--behaviour", "juggling"], "behaviour 'juggling' does not exist; choose one of induction"),
        (["TINY"], "name a behaviour, such as --behaviour induction"),
        (["TINY", *INDUCTION, "--kind", "noise"], "kind 'noise' does not exist; choose one of zero, mean, resample"),
        (["TINY", *INDUCTION, "-c", "L9H0"], "component L9H0 is not in this model; it has layers 0 to 1"),
        (["TINY", *INDUCTION, "-c", "L0H4"], "with heads 0 to 3"),
        (["TINY", *INDUCTION, "-c", "banana"], "component 'banana' is not a name; expected a head such as L1H2"),
        (["TINY", *INDUCTION, "-c", ""], "a sweep over 0 components is empty"),
        (["TINY", *INDUCTION, "-c", "L0H0", "--pairs"], "a sweep over 1 components in pairs is empty"),
        (["TINY", *INDUCTION, "--n", "0"], "--n"),
        (["TINY", *INDUCTION, "--n", "many"], "--n"),
        (["TINY", *INDUCTION, "--split", "exam"], "exam"),
        (["TINY", *INDUCTION, "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["TINY", *INDUCTION, "--out", "FILE"], "cannot be used as a directory"),
        (["FILE", *INDUCTION], "not a model; give a model directory or a file whose name ends in .gguf"),
        (["TINY", *INDUCTION, "--sideways"], "--sideways"),
        (["TINY", "--behaviour", "docstring"], "the model's context holds 48"),
    ],
)
def test_sweep(vesalius: Vesalius, tiny: Path, arguments: list[str], reason: str) -> None:
    file = tiny.parent / "notes.txt"
    file.write_text("no model")
    places = {"TINY": str(tiny), "FILE": str(file)}
    refused(vesalius, ["sweep", *(places.get(a, a) for a in arguments), "--json"], reason)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ["discover", "TINY", *INDUCTION, "--method", "magic"],
            "method 'magic' does not exist; choose one of sweep, best, eap",
        ),
        (["discover", "TINY", *INDUCTION, "--n", "0"], "--n"),
        (["discover", "TINY"], "name a behaviour, such as --behaviour induction"),
        (["discover", "frac_prevs", *INDUCTION], "leave out the behaviour 'induction'"),
        (["discover", "nosuch"], "specimen 'nosuch' is not known"),
        (["discover", "TINY", *INDUCTION, "--search", "beam", "--force"], "--search"),
        ([*SETS, "--search", "luck"], "choose one of pairs, greedy, beam, prune, group, growth, rl"),
        ([*SETS, "--kind", "half"], "kind 'half' does not exist"),
        ([*SETS, "--budget", "0"], "a budget of 0 queries is too small"),
        ([*SETS, "--pool", "L0H0,L0H1", "--budget", "4"], "2 heads have 3 sets"),
        ([*SETS, "--pool", "L0H0"], "name at least two heads"),
        ([*SETS, "--pool", "L0H0,L7H0"], "L7H0 is not in this model"),
        ([*SETS, "--pool", "L0H0,somewhere"], "component 'somewhere' is not a name"),
        ([*SETS, "--pool", ","], "the list of components is empty"),
        ([*SETS, "--search", "pairs", "--budget", "9"], "cost 36 queries and the budget is 9"),
        ([*SETS, "--n", "4"], "use at least 8"),
        ([*SETS, "--least", "0"], "least 0 must be shares of the clean score"),
        ([*SETS, "--quick"], "--quick"),
        (["discover", "TINY", *INDUCTION, "--method", "sets"], "use `vesalius sets`"),
        ([*SETS, "--kind", ""], "kind '' does not exist"),
        (["discover", "frac_prevs", "--n", "1000000000000"], "request 1 to 100,000"),
        (["discover", "frac_prevs", "--seed", "-1"], "seed -1 cannot be used"),
        (["discover", "frac_prevs", "--seed", str(2**64)], "choose one from 0 to"),
        (["discover", ""], "specimen '' is not a name"),
        (["discover", "TINY", *INDUCTION], "tiny does not perform induction: prefers the right answer on 0."),
        (["discover", "TINY", *INDUCTION, "--method", "rl", "--budget", "0"], "the model has 8 heads; choose 1 to 8"),
        (["discover", "TINY", *INDUCTION, "--method", "bandit", "--budget", "9"], "--budget 9: the model has 8 heads"),
        (
            ["discover", "TINY", *INDUCTION, "--method", "eap", "--budget", "3"],
            "--budget cannot be given with",
        ),
        (["discover", "frac_prevs", "--method", "rl", "--budget", "3"], "give at least 4"),
        (["discover", "frac_prevs", "--method", "bandit", "--paper"], "--paper cannot be given with --method bandit"),
        (["bench", "mechrl", "frac_prevs"], "has a finite vocabulary; these behaviours need a natural model"),
        (["bench", "mechrl", "TINY", "--training", "juggling"], "behaviour 'juggling' does not exist"),
        (["bench", "mechrl", "TINY", "--training", "ioi", "--held-out", "ioi"], "ioi is named twice"),
        (["bench", "mechrl", "TINY", "--matrices", "TINY/config.json"], "config.json: not a directory"),
        (["bench", "mechrl", "TINY", "--reward", "bits"], "reward 'bits' does not exist; choose one of logits, nats"),
        (["bench", "mechrl", "TINY", "--paper", "--context", "rewards"], "go beyond what was published; leave them"),
        (["bench", "mechrl", "TINY", "--context", "titles"], "--context 'titles': no encoder reads that"),
        (["bench", "mechrl", "TINY", "--batches", "fresh"], "only policies as published are trained on them"),
        (["bench", "mechrl", "TINY", "--control", "wikitext"], "control wikitext: say where the file is"),
        (["bench", "mechrl", "TINY", "--control", "none.txt"], "none.txt: no such file; choose factbook"),
        (["bench", "discovery", "--n", "1000000000000"], "request 1 to 100,000"),
        (["bench", "discovery", "--seed", "-1"], "seed -1 cannot be used"),
        (["report", "nowhere"], "nowhere: no such directory"),
        (["report", "TINY/config.json"], "config.json: is a file, not a directory"),
        (
            ["bench", "mechrl", "smollm2-135m", "--size", "huge"],
            "size 'huge' does not exist; choose one of laptop, full",
        ),
        (
            ["bench", "discovery", "--methods", "magic"],
            "--methods: magic; choose from sweep, best, eap, eap-ig, relp, relp-qk, gim, masks, edge-masks",
        ),
        (["bench", "discovery", "--methods", ""], "--methods: none named"),
        (["bench", "discovery", "--ids", "nosuch"], "benchmark circuit 'nosuch' does not exist"),
        (["bench", "discovery", "--limit", "0"], "--limit"),
        (["bench", "discovery", "--jobs", "0"], "--jobs"),
        (["bench", "discovery", "--methods", "eap,eap"], "names one twice"),
        (["bench", "discovery", "--n", "0"], "--n"),
        (["bench", "discovery", "--specimens", "/nowhere"], "--specimens /nowhere: no such directory"),
        (["bench", "discovery", "--specimens", "TINY"], "holds no specimen"),
        (["bench", "discovery", "--specimens", "TINY", "--ids", "3"], "leave it out with --specimens"),
        (
            ["bench", "circuits", "--circuit-from", "magic"],
            "--circuit-from 'magic' does not exist; use sweep, best, eap",
        ),
    ],
)
def test_discovery(vesalius: Vesalius, tiny: Path, arguments: list[str], reason: str) -> None:
    refused(vesalius, [a.replace("TINY", str(tiny)) for a in arguments], reason)


def test_out_is_looked_at_before_anything_is_measured(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no directory")
    for command in ("discover", "sets"):
        refused(vesalius, [command, "3", "--out", "notes.txt"], "cannot be used as a directory")


def test_a_refusal_leaves_no_directory_behind(vesalius: Vesalius, tmp_path: Path) -> None:
    refused(vesalius, ["discover", "3", "-m", "bandit", "--budget", "0"], "choose 1 to 8")
    refused(vesalius, ["sets", "3", "--budget", "0"], "a budget of 0 queries is too small")
    assert not list((tmp_path / "vesalius-runs").iterdir())


def test_damaged_sets_have_no_page(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "sets.json").write_text("{}")
    refused(vesalius, ["report", "."], "sets.json: ")


def test_specimens_without_a_key(vesalius: Vesalius, tmp_path: Path) -> None:
    shipped = benchmark_directory("3")
    assert shipped is not None
    shutil.copytree(shipped, tmp_path / "many" / "keyless", ignore=shutil.ignore_patterns("answer_key"))
    for benchmark in ("circuits", "discovery"):
        refused(vesalius, ["bench", benchmark, "--specimens", "many"], "keyless: holds no answer_key/spec.py")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "circuit.json"),
        ("no JSON", "circuit.json"),
        ("[1]", "circuit.json"),
        ("[" * 100_000, "too many brackets"),
        ("{}", "circuit.json: is neither a circuit nor a discovery; give a circuit in MIB form (cfg, nodes and edges)"),
        ('{"nodes": {}}', "'cfg' is missing or not an object; a MIB circuit has cfg, nodes and edges"),
        (json.dumps({"cfg": SHAPE, "nodes": {"m9": {"in_graph": True}}, "edges": {}}), "not in this model"),
        (json.dumps({"cfg": SHAPE, "nodes": {"m0": {"in_graph": True, "score": "high"}}, "edges": {}}), "'high'"),
        (
            json.dumps({"cfg": SHAPE, "nodes": {"m0": {"in_graph": True, "score": math.nan}}, "edges": {}}),
            "not a JSON number",
        ),
        (json.dumps({"cfg": SHAPE | {"d_model": 99}, "nodes": {}, "edges": {}}), "and d_model 99, the specimen has"),
    ],
)
def test_circuit_files(vesalius: Vesalius, tmp_path: Path, text: str | None, reason: str) -> None:
    if text is not None:
        (tmp_path / "circuit.json").write_text(text)
    refused(vesalius, ["explain", "frac_prevs", "--circuit", "circuit.json"], reason)


def test_a_circuit_and_components(vesalius: Vesalius) -> None:
    refused(vesalius, ["explain", "3", "--circuit", "c.json", "-c", "L0_MLP"], "choose one")


def test_pages_of_a_discovery_run(vesalius: Vesalius, tmp_path: Path) -> None:
    settings = {"benchmark": "discovery"}
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "settings": settings}))
    refused(vesalius, ["report", "."], "the run has no result with a page; the command that began it continues it")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("[]", "must be a non-empty JSON list"),
        ("{}", "must be a non-empty JSON list"),
        ('"the"', "must be a non-empty JSON list"),
        ("the cat", "--input is not JSON"),
        ("[" * 100_000, "--input is not JSON"),
        ("@nowhere.json", "nowhere.json: cannot be read"),
        ("[1]", "input 1 is neither a text nor a list of tokens"),
        ("[null]", "input None is neither a text nor a list of tokens"),
        ('[{"a": 1}]', "neither a text nor a list of tokens"),
        ('[["the the"]]', "'the the' is 2 tokens here"),
        (json.dumps([" the" * 48]), "a prompt of 49 tokens does not fit: this model takes 1 to 48"),
        (json.dumps([[" the"] * 60]), "a prompt of 61 tokens does not fit"),
    ],
)
def test_predict(vesalius: Vesalius, tiny: Path, given: str, reason: str) -> None:
    refused(vesalius, ["predict", tiny, "--input", given, "--json"], reason)


def test_damaged_models(vesalius: Vesalius, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VESALIUS_CACHE", str(tmp_path / "cache"))
    sweep = ["sweep", tiny, *INDUCTION, "--json"]
    weights = tiny / "model.safetensors"
    state = load_file(weights)
    save_file(state | {"h.1.mlp.c_fc.weight": torch.full_like(state["h.1.mlp.c_fc.weight"], torch.nan)}, weights)
    refused(vesalius, sweep, f"{weights}: weight 'h.1.mlp.c_fc.weight' holds NaN or infinity")
    weights.write_bytes(weights.read_bytes()[:1000])
    refused(vesalius, sweep, "model.safetensors: not a complete safetensors file")
    weights.unlink()
    refused(vesalius, sweep, "model.safetensors: no such file")
    save_file(state, weights)
    (tiny / "tokenizer.json").write_text("{")
    refused(vesalius, sweep, "the tokenizer files are damaged")
    (tiny / "tokenizer.json").unlink()
    refused(vesalius, sweep, "no tokenizer.json")
    (tiny / "config.json").write_text("{")
    refused(vesalius, sweep, "config.json: not readable as JSON")
    (tiny / "config.json").unlink()
    refused(vesalius, sweep, "config.json: no such file")
    gguf = tmp_path / "m.gguf"
    write_tiny_gguf(gguf)
    assert vesalius("predict", gguf, "--input", '["hi"]', "--json").code == 0
    gguf.write_bytes(gguf.read_bytes()[:-1000])
    refused(vesalius, ["sweep", gguf, *INDUCTION], "m.gguf: not a complete GGUF file")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["swep"], "No such command 'swep'"),
        (["predict", "smollm2-135m"], "Missing option"),
        (["show"], "Missing argument"),
        (["behaviours", "nosuch"], "specimen 'nosuch' is not known"),
        (["check", "frac_prevs"], "model 'frac_prevs' is a specimen that was trained here"),
        (["behaviours", "--n", "0"], "--n"),
        (["--sideways"], "--sideways"),
    ],
)
def test_other_commands(vesalius: Vesalius, arguments: list[str], reason: str) -> None:
    refused(vesalius, arguments, reason)


def run_installed(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("vesalius")
    start = [str(command)] if command.exists() else [sys.executable, "-m", "vesalius"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    return subprocess.run([*start, *map(str, arguments)], capture_output=True, text=True, check=False, env=environment)


def test_the_installed_command(tiny: Path) -> None:
    got = run_installed("sweep", tiny, *INDUCTION, "-c", "L9H0", "--json")
    assert (got.returncode, got.stdout) == (2, "")
    assert got.stderr.strip() == (
        "vesalius: component L9H0 is not in this model; it has layers 0 to 1 with heads 0 to 3 and an MLP each"
    )


@pytest.mark.slow
def test_a_hub_id_that_cannot_be_fetched_is_a_failure_not_a_bad_input() -> None:
    got = run_installed("sweep", "org/nothing-of-this-name", *INDUCTION)
    assert (got.returncode, got.stdout) == (1, "")
    assert len(got.stderr.splitlines()) == 1
    assert "could not be fetched from the hub" in got.stderr

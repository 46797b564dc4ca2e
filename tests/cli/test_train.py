"""`train` and `generate`: what they print, what they leave behind, how they go on after a kill, what they refuse."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.forked import forked
from vesalius.api import load
from vesalius.errors import BadInput
from vesalius.rasp import load_spec
from vesalius_truth import specimens as training
from vesalius_truth.training.gate import measure
from vesalius_truth.training.setting import setting_of
from vesalius_truth.training.stepper import Recipe, Stepper

pytestmark = pytest.mark.slow

FRAC_PREVS = Path(__file__).parents[2] / "examples" / "frac_prevs.py"
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
#: Runs in another process: the command, which kills itself right after its first checkpoint.
KILLED = """
import os, signal
from vesalius.cli import main
from vesalius_truth.training.stepper import Checkpoint

saves, save = [], Checkpoint.save

def save_and_die(self, tensors, **options):
    save(self, tensors, **options)
    saves.append(options)
    if len(saves) == 1:
        os.kill(os.getpid(), signal.SIGKILL)

Checkpoint.save = save_and_die
main()
"""
LOOKUP = """
from vesalius.rasp import Map, tokens

vocab = ["a", "b", "c"]
max_len = 4
causal = True


def program():
    return Map({"a": "one", "b": "two", "c": "three"}.get, tokens, name="spelt")
"""


@dataclass(frozen=True)
class Made:
    """A finished training: its directory and what it printed."""

    directory: Path
    document: dict


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """`vesalius train examples/frac_prevs.py`, run once as a user runs it."""
    directory = tmp_path_factory.mktemp("made") / "frac_prevs"
    command = forked("-m", "vesalius", "train", FRAC_PREVS, "--out", directory, "--json")
    got = subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD)
    assert got.returncode == 0, got.stderr
    return Made(directory, json.loads(got.stdout))


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.py"
    path.write_text(LOOKUP)
    return path


def test_the_document_keeps_its_fields(made: Made) -> None:
    document = made.document
    assert set(document["iia"]) == {"L0_MLP", "L1H0"}
    for name, bar in {"accuracy": 0.99, "strict_worst": 0.99, "strict_all": 0.99, "mean_ablated": 0.98}.items():
        assert bar <= document[name] <= 1, name
    assert all(0.99 <= share <= 1 for share in document["iia"].values())
    assert document["accepted"] is True
    assert document["seconds"] > 0
    # Tokens and positions; per layer q, k, v and o with biases and the MLP with its two; the unembedding with its bias.
    embedding, attention, mlp = (6 + 5) * 12, 4 * (12 * 12 + 12), 2 * 12 * 48 + 48 + 12
    assert document["params"] == embedding + 2 * (attention + mlp) + 12 + 1
    assert document["params"] == sum(w.numel() for w in load_file(made.directory / "model.safetensors").values())


def test_the_directory_holds_a_specimen_and_its_answer_apart(made: Made) -> None:
    names = sorted(str(path.relative_to(made.directory)) for path in made.directory.rglob("*") if path.is_file())
    expected = ["answer_key/program.json", "answer_key/spec.py", "model.json", "model.safetensors", "specimen.json"]
    assert names == expected
    assert (made.directory / "answer_key" / "spec.py").read_text() == FRAC_PREVS.read_text()
    card = (made.directory / "specimen.json").read_text()
    assert "is_x" not in card
    assert "share_of_x" not in card


def test_the_gate_holds_on_other_inputs(made: Made) -> None:
    gate = measure(load(made.directory).model, setting_of(load_spec(FRAC_PREVS)), n=512, seed=86_420_117)
    assert gate.passed, gate.shortfalls


def test_the_directory_is_a_specimen_for_the_other_commands(made: Made, vesalius: Vesalius) -> None:
    shown = json.loads(vesalius("show", made.directory, "--json").out)
    assert (shown["id"], shown["name"], shown["kind"]) == ("frac_prevs", "frac_prevs", "trained")
    assert (shown["components"], shown["vocab"], shown["max_len"]) == (["L0_MLP", "L1H0"], ["a", "b", "c", "x"], 4)
    assert len(shown["examples"]) == 5
    given = '[["x", "a", "x", "b"], ["c", "c", "x"]]'
    outputs = json.loads(vesalius("predict", made.directory, "--input", given, "--json").out)["outputs"]
    assert outputs[0] == pytest.approx([1, 1 / 2, 2 / 3, 2 / 4], abs=0.05)
    assert outputs[1] == pytest.approx([0, 0, 1 / 3], abs=0.05)
    swept = json.loads(vesalius("sweep", made.directory, "--kind", "resample", "--json").out)
    effects = {row["id"]: row["effect"] for row in swept["components"]}
    assert swept["baseline"] == 1
    assert min(effects["L0_MLP"], effects["L1H0"]) > 0.2
    assert max(abs(effect) for name, effect in effects.items() if name not in ("L0_MLP", "L1H0")) < 0.02


def test_a_directory_in_use_is_refused(made: Made, vesalius: Vesalius) -> None:
    before = (made.directory / "model.safetensors").read_bytes()
    refused(vesalius, ["train", FRAC_PREVS, "--out", made.directory, "--json"], "holds a specimen already; choose")
    assert (made.directory / "model.safetensors").read_bytes() == before


def test_a_killed_training_continues_from_its_checkpoint(
    vesalius: Vesalius, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam scales up rounding error, so a resumed training reaches the gate and not the same weights."""
    first_steps, advance = [], Stepper.advance

    def recorded(self: Stepper, steps: int) -> torch.Tensor:
        first_steps.append(self.step)
        return advance(self, steps)

    arguments = ["train", str(spec), "--out", "killed", "--json"]
    killed = subprocess.run(
        forked("-c", KILLED, *arguments), capture_output=True, text=True, check=False, env=ONE_THREAD
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, ""), killed.stderr
    first = tmp_path / "killed" / "checkpoint" / "attempt-1"
    saved = json.loads((first / "checkpoint.json").read_text())["step"]
    assert saved > 0
    assert not (tmp_path / "killed" / "specimen.json").exists()
    refused(vesalius, ["train", FRAC_PREVS, "--out", "killed", "--json"], "another run")
    monkeypatch.setattr(Stepper, "advance", recorded)
    got = vesalius(*arguments)
    assert got.code == 0, got.err
    assert first_steps[0] == saved
    assert json.loads(got.out)["accepted"] is True
    gate = measure(load(tmp_path / "killed").model, setting_of(load_spec(spec)), n=512, seed=86_420_117)
    assert gate.passed, gate.shortfalls
    assert not (tmp_path / "killed" / "checkpoint").exists()


def test_a_program_that_is_not_learnt_is_a_failure(
    vesalius: Vesalius, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = sys.modules["vesalius_truth.training.fit"]  # the package offers the function of that name
    monkeypatch.setattr(fitting, "default_recipe", lambda *_, **__: Recipe(2, 4, pairs=64, checks=1, validation=16))
    got = vesalius("train", spec, "--out", "here", "--attempts", 2, "--json")
    assert (got.code, got.out) == (1, "")
    lines = got.err.splitlines()
    assert lines[-1].startswith("vesalius: ")
    assert "not accepted after 2 tries: accuracy 0." in lines[-1]
    assert "try --attempts 4, another --seed, or a simpler program" in lines[-1]
    assert not Path("here/specimen.json").exists()


IMPORTS = "from vesalius.rasp import *\nvocab, max_len, causal = ['a', 'b'], 4, False\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def program():\n    x = Map(ord, tokens, name='x')\n    y = Map(str, hist(x), name='y')\n"
            "    x.inputs = (y,)\n    return y\n",
            "program has a cycle: y -> hist -> select -> x -> y; a variable cannot depend on itself",
        ),
        (
            "def program():\n    return SelectorWidth(Select(tokens, indices, Comparison.LT))\n",
            "Select(keys='tokens', queries='indices'): LT compares strings with numbers; both must be of one type",
        ),
        (
            "def program():\n    return SelectorWidth(Select('a', indices, Comparison.LT))\n",
            "Select: keys must be a variable",
        ),
        (
            "vocab = list(range(60))\ndef program():\n    x = tokens\n    for i in range(6):\n"
            "        x = SequenceMap(lambda a, b: (a, b), x, Map(str, tokens), name=f'pair_{i}')\n    return x\n",
            "SequenceMap 'pair_1' takes more than 5,000 values; use a smaller vocabulary or a coarser function",
        ),
        (
            "def program():\n    return Map(lambda token: 10**5000 + ord(token), tokens)\n",
            "a token or an output cannot be written to a file; use strings, numbers of at most 4,300 digits",
        ),
        (
            "def program():\n    return Map(lambda token: frozenset(token), tokens)\n",
            "a token or an output cannot be written to a file",
        ),
        ("raise RuntimeError('not\\ntoday')\n", "running the file failed (RuntimeError: not today); fix it so that"),
        ("def program():\n    return 1 / 0\n", "program() failed (ZeroDivisionError: division by zero)"),
        ("def program(:\n", "running the file failed (SyntaxError"),
        ("import sys; sys.exit(0)\n", "running the file failed (SystemExit: 0)"),
        ("", "does not define program; a spec defines program, vocab, max_len, causal"),
        ("def program():\n    return tokens\n", "program outputs 'tokens' itself and computes nothing"),
        ("max_len = 0\ndef program():\n    return hist(tokens)\n", "max_len=0 is not a whole number from 1"),
        ("vocab = ['a', 'a']\ndef program():\n    return hist(tokens)\n", "vocab"),
    ],
)
def test_a_bad_spec(vesalius: Vesalius, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.py").write_text(IMPORTS + text)
    refused(vesalius, ["train", "bad.py", "--out", "new", "--json"], f"bad.py: {reason}")
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.py", "--out", "new"], "missing.py: cannot be read (FileNotFoundError"),
        ([".", "--out", "new"], ".: cannot be read (IsADirectoryError"),
        (["spec.py"], "Missing option '--out'"),
        ([], "Missing argument 'SPEC.py...'"),
        (["spec.py", "--out", "spec.py"], "--out spec.py: cannot be used as a directory (File exists)"),
        (["spec.py", "--out", "new", "--device", "abacus"], "device 'abacus' cannot be used here"),
        (["spec.py", "--out", "new", "--attempts", "0"], "--attempts"),
        (["spec.py", "--out", "new", "--seed", "first"], "--seed"),
    ],
)
def test_bad_arguments_of_train(vesalius: Vesalius, spec: Path, arguments: list[str], reason: str) -> None:
    refused(vesalius, ["train", *arguments, "--json"], reason)
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('[["a", "q"]]', "token 'q' is not in this specimen's vocabulary: 'a', 'b', 'c', 'x'"),
        ('[["a", ["b"]]]', "token ['b'] is not in this specimen's vocabulary"),
        ('[["a", "a", "a", "a", "a"]]', "an input of 5 tokens does not fit: this specimen takes 1 to 4"),
        ("[[]]", "an input of 0 tokens does not fit: this specimen takes 1 to 4"),
        ('["ax"]', "input 'ax' is not a list of tokens"),
        ("[]", "must be a non-empty JSON list"),
    ],
)
@pytest.mark.parametrize("name", ["3", "frac_prevs"])
def test_bad_inputs_of_predict(vesalius: Vesalius, name: str, given: str, reason: str) -> None:
    refused(vesalius, ["predict", name, "--input", given, "--json"], reason)


@pytest.mark.parametrize("command", [["show"], ["predict", "--input", '[["a"]]'], ["sweep"]])
def test_damaged_weights(made: Made, vesalius: Vesalius, tmp_path: Path, command: list[str]) -> None:
    copied = shutil.copytree(made.directory, tmp_path / "copied")
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    refused(vesalius, [command[0], copied, *command[1:], "--json"], f"{weights}: not a complete safetensors file")


def test_generate_is_settled_by_its_seed(vesalius: Vesalius) -> None:
    documents = [
        json.loads(vesalius("generate", "--seed", seed, "--count", 5, "--depth", 3, "--out", out, "--json").out)
        for seed, out in ((7, "one"), (7, "two"), (8, "three"))
    ]
    texts = [{path.name: path.read_text() for path in sorted(Path(out).iterdir())} for out in ("one", "two", "three")]
    assert texts[0] == texts[1]
    assert set(texts[0].values()).isdisjoint(texts[2].values())
    assert (documents[0]["seed"], documents[0]["depth"], len(documents[0]["tasks"])) == (7, 3, 5)
    for row in documents[0]["tasks"]:
        program = load_spec(row["path"])
        assert [str(placed.component) for placed in program.components] == row["components"]
        assert (list(program.vocab), program.max_len, program.name) == (row["vocab"], row["max_len"], row["name"])
        assert 1 <= len(row["components"]) <= 6


def test_generated_kinds_take_turns(vesalius: Vesalius) -> None:
    kinds = ("--kind", "pointer", "--kind", "mean")
    tasks = json.loads(vesalius("generate", "--seed", 7, "--count", 4, *kinds, "--out", "tasks", "--json").out)["tasks"]
    assert [row["kind"] for row in tasks] == ["pointer", "mean", "pointer", "mean"]
    assert [load_spec(row["path"]).numerical for row in tasks] == [False, True, False, True]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--seed", "1", "--count", "0", "--out", "new"], "Invalid value for '--count'"),
        (["--seed", "1", "--depth", "0", "--out", "new"], "Invalid value for '--depth'"),
        (["--seed", "1", "--depth", "6", "--out", "new"], "Invalid value for '--depth'"),
        (
            ["--seed", "1", "--kind", "sorts", "--out", "new"],
            "kind 'sorts' of task does not exist; give one or more of ",
        ),
        (["--seed", "1"], "Missing option '--out'"),
        (["--out", "new"], "Missing option '--seed'"),
        (["--seed", "1", "--out", "spec.py"], "--out spec.py: cannot be used as a directory (File exists)"),
    ],
)
def test_bad_arguments_of_generate(vesalius: Vesalius, spec: Path, arguments: list[str], reason: str) -> None:
    refused(vesalius, ["generate", *arguments, "--json"], reason)
    assert not Path("new").exists()


@pytest.mark.parametrize("number", [0, 1])
def test_a_generated_task_is_trained_on_the_cpu(vesalius: Vesalius, number: int) -> None:
    tasks = json.loads(vesalius("generate", "--seed", 5, "--count", 2, "--depth", 1, "--out", "tasks", "--json").out)
    row = tasks["tasks"][number]
    got = vesalius("train", row["path"], "--out", "here", "--json")
    assert got.code == 0, got.err
    assert set(json.loads(got.out)["iia"]) == set(row["components"])
    program = load_spec(row["path"])
    specimen = load("here")
    gate = measure(specimen.model, setting_of(program), n=512, seed=86_420_117)
    assert gate.passed, gate.shortfalls
    inputs = specimen.sample(300, seed=86_420_117)
    codes, lengths = program.encode(inputs)
    wanted = [value for outputs in program.decode(program.run(codes, lengths).output, lengths) for value in outputs]
    given = [value for outputs in specimen.predict(inputs) for value in outputs]
    assert sum(a == b for a, b in zip(given, wanted, strict=True)) >= 0.99 * len(wanted)


def test_several_programs_are_trained_together(
    vesalius: Vesalius, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = sys.modules["vesalius_truth.training.fit"]
    default = group.default_recipe
    # A sixth of the steps: a look-up is learnt in a tenth.
    monkeypatch.setattr(group, "default_recipe", lambda *args, **options: replace(default(*args, **options), steps=250))
    other = tmp_path / "other.py"
    other.write_text(LOOKUP.replace('"two"', '"zwei"'))
    arguments = ["train", spec, other, "--out", tmp_path / "both", "--json"]
    document = json.loads(vesalius(*arguments).out)
    assert (document["n"], document["accepted"]) == (2, 2)
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["other", "spec"]
    outputs = json.loads(vesalius("predict", tmp_path / "both" / "other", "--input", '[["b", "a"]]', "--json").out)
    assert outputs["outputs"] == [["zwei", "one"]]
    again = json.loads(vesalius(*arguments).out)
    assert [row["was_there"] for row in again["specimens"]] == [True, True]


def test_programs_of_one_name_are_refused(vesalius: Vesalius, spec: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    twin = Path(shutil.copy(spec, tmp_path / "elsewhere" / spec.name))
    refused(vesalius, ["train", spec, twin, "--out", tmp_path / "both"], "have the same name")


def test_a_training_killed_after_its_card_was_written_can_be_repeated(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "made"
    with monkeypatch.context() as patch:
        patch.setattr(training.shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            training.train(spec, out=out)
    assert (out / "specimen.json").exists()
    again = training.train(spec, out=out)
    assert again.accepted
    assert sorted(path.name for path in out.iterdir()) == [
        "answer_key",
        "model.json",
        "model.safetensors",
        "specimen.json",
    ]
    assert sorted(path.name for path in (out / "answer_key").iterdir()) == ["program.json", "spec.py"]
    with pytest.raises(BadInput, match="holds a specimen already"):
        training.train(spec, out=out)


def interrupted(*arguments: object, **options: object) -> None:
    raise KeyboardInterrupt

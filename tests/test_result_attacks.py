"""Attacks on what is read last: sparse dictionaries, trained evaluators and their checkpoints, proposals, the programs
in them, queries of served functions. Each is refused in one line; those that hung are refused before they are read.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from benchmarks.hostile_results import (
    PROPOSAL,
    SHAPE,
    SOURCE,
    STATE,
    D,
    make_checkpoint,
    make_dictionary,
    make_dictionary_set,
    make_evaluator,
    make_evaluator_data,
    make_explanation,
    make_queries,
    use_checkpoint,
    use_dictionaries,
    use_evaluator,
    use_explanation,
)
from torch import Tensor

from vesalius.errors import BadInput, Failed
from vesalius.explanations.running.programs import LONGEST_PROGRAM, parse_program
from vesalius.explanations.variables.algorithms import parse_algorithm
from vesalius.model import Config
from vesalius.model.states import read_tensors, write_tensors
from vesalius_functions.evaluators.data import read_splits
from vesalius_functions.evaluators.naming import ADAPTER_FILE, EVALUATOR_FILE
from vesalius_functions.serving import LEDGER, ServedFunctions, answer_in
from vesalius_session.proposals.reading import read_proposal

NAN = float("nan")
Change = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises((BadInput, Failed)) as error:
        act()
    text = str(error.value)
    assert "\n" not in text
    assert len(text) <= 500
    return text


def change(path: Path, made: Change) -> None:
    tensors = {name: tensor.clone() for name, tensor in read_tensors(path).items()}
    write_tensors(path, {name: tensor.contiguous() for name, tensor in {**tensors, **made(tensors)}.items()})


def test_blanks_in_the_settings_of_dictionaries_are_read_once(tmp_path: Path) -> None:
    """A pattern went back over them again and again: 6,000 of them took hours."""
    make_dictionary_set(tmp_path)
    settings = tmp_path / "config.yaml"
    settings.write_text(f"a:{' ' * 100_000}'x'y\n{settings.read_text()}")
    use_dictionaries(tmp_path)


def test_a_latent_larger_than_numbers(tmp_path: Path) -> None:
    make_dictionary(tmp_path)
    settings = json.loads((tmp_path / "cfg.json").read_text())
    (tmp_path / "cfg.json").write_text(json.dumps({**settings, "architecture": "gated"}))
    tensors = read_tensors(tmp_path / "sae_weights.safetensors")
    names = ("r_mag", "b_mag", "b_gate")
    for size in (1.0, 1000.0):
        more = {name: torch.full_like(tensors["b_enc"], size) for name in names}
        kept = {name: tensors[name] for name in ("W_enc", "W_dec", "b_dec")}
        write_tensors(tmp_path / "sae_weights.safetensors", kept | more)
        if size > 1:
            assert "r_mag is a logarithm" in refusal(lambda: use_dictionaries(tmp_path))
        else:
            use_dictionaries(tmp_path)


@pytest.mark.parametrize("name", ["layer_0.safetensors", "config.yaml"])
def test_a_pipe_among_dictionaries_is_not_waited_for(name: str, tmp_path: Path) -> None:
    make_dictionary_set(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert "no such file" in refusal(lambda: use_dictionaries(tmp_path))


@pytest.mark.parametrize(
    "text", [f"a {'1' * 200_000}x", " + ".join(["BOS"] * 50_000), f"if {'x' * 100_000}: BOS; else: BOS"]
)
def test_a_program_of_attention_without_end(text: str) -> None:
    assert f"at most {LONGEST_PROGRAM:,} are read" in refusal(lambda: parse_program(text))
    given = {**PROPOSAL, "programs": {"L0H0": text}}
    assert "are read" in refusal(lambda: read_proposal(given, Config.model_validate(SHAPE)))


@pytest.mark.parametrize("others", [[1], [["L0H1"]], [{"a": 1}], 5, "L0H1", {"L0H1": 1}, [None]])
def test_a_claim_that_names_no_components_beside_its_own(others: object, tmp_path: Path) -> None:
    make_explanation(tmp_path)
    data = json.loads((tmp_path / "explanation.json").read_text())
    data["components"][0]["claims"][-1]["prediction"]["others"] = others
    (tmp_path / "explanation.json").write_text(json.dumps(data))
    assert "a list of names is expected" in refusal(lambda: use_explanation(tmp_path))


LADDERS = {
    "is no step of a ladder": lambda running: running["rungs"][0].update(step="\0"),
    "or at least two": lambda running: running.update(rungs=running["rungs"][:1]),
    "on which it was decided": lambda running: running["heads"][0].update(decided_on="nothing"),
}


@pytest.mark.parametrize("said", LADDERS)
def test_a_ladder_of_other_steps_is_refused_when_it_is_read(said: str, tmp_path: Path) -> None:
    """It was read, and its page could not be drawn."""
    make_explanation(tmp_path)
    data = json.loads((tmp_path / "explanation.json").read_text())
    LADDERS[said](data["running"])
    (tmp_path / "explanation.json").write_text(json.dumps(data))
    assert said in refusal(lambda: use_explanation(tmp_path))


def test_a_trained_evaluator_without_its_accuracy_is_refused_when_it_is_read(tmp_path: Path) -> None:
    make_evaluator(tmp_path)
    data = json.loads((tmp_path / EVALUATOR_FILE).read_text())
    del data["trained"]["accuracy"]["all"]
    (tmp_path / EVALUATOR_FILE).write_text(json.dumps(data))
    assert "the accuracy over 'all' categories together is missing" in refusal(lambda: use_evaluator(tmp_path))


_FRAME = "__import__('sys')._getframe(2).f_locals['job']['variables']"
HARNESSES = {
    "choices that are a number": f"{SOURCE}def choices(first_A): return 5",
    "choices that are a text": f"{SOURCE}def choices(first_A): return 'ab'",
    "choices that are a table": f"{SOURCE}def choices(first_A): return {{'a': 1}}",
    "another variable": SOURCE.replace("return copied", f"{_FRAME}.append('x'); return copied"),
    "no variables": SOURCE.replace("return copied", f"{_FRAME}.clear(); return copied"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HARNESSES)
def test_a_program_that_says_something_else_of_a_pair(kind: str) -> None:
    """It reaches what asks it, for both are in the sandbox; what it says then is not taken for a prediction."""
    algorithm = parse_algorithm(HARNESSES[kind], name="of the proposal")
    with algorithm.runner() as runner:
        said = refusal(lambda: runner.predicted([({"first_A": "x"}, {"first_A": "y"})] * 3))
    assert said.startswith("algorithm of the proposal: ")


ADAPTERS: dict[str, Callable[[Tensor], Tensor]] = {
    "a number": lambda one: torch.zeros(()),
    "a row": lambda one: one[0],
    "another rank": lambda one: torch.zeros(one.shape[0], 5),
    "a third axis": lambda one: one[..., None],
    "no rank": lambda one: torch.zeros(one.shape[0], 0),
    "whole numbers": lambda one: one.to(torch.int64),
    "not a number": lambda one: one * NAN,
    "infinity": lambda one: one * torch.inf,
}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_an_adapter_that_does_not_fit_its_base(kind: str, tmp_path: Path) -> None:
    """Its document can name the digest of any file, so that the digest does not keep it out."""
    make_evaluator(tmp_path)
    change(
        tmp_path / ADAPTER_FILE,
        lambda tensors: {name: ADAPTERS[kind](one) for name, one in tensors.items() if name.endswith(".down")},
    )
    assert "train it again" in refusal(lambda: use_evaluator(tmp_path))


CHECKPOINTS: dict[str, Change] = {
    "several steps": lambda tensors: {"step": torch.zeros(3)},
    "a step that is not a number": lambda tensors: {"step": torch.tensor(NAN)},
    "a step before the first": lambda tensors: {"step": torch.tensor(-5)},
    "a step after the last": lambda tensors: {"step": torch.tensor(10**9)},
    "no checks": lambda tensors: {"checks": torch.zeros(0, 2, dtype=torch.float64)},
    "checks in a row": lambda tensors: {"checks": torch.zeros(4)},
    "checks of three": lambda tensors: {"checks": torch.zeros(4, 3)},
    "checks that are not numbers": lambda tensors: {"checks": torch.full((1, 2), NAN)},
    "other sizes": lambda tensors: {name: torch.zeros(1, 2) for name in tensors if name.startswith("now/")},
    "other moments": lambda tensors: {name: torch.zeros(1, 7) for name in tensors if name.startswith("first/")},
    "weights that are not numbers": lambda tensors: {
        name: one * NAN for name, one in tensors.items() if name.startswith("best/")
    },
}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_checkpoint_of_something_else(kind: str, tmp_path: Path) -> None:
    make_checkpoint(tmp_path)
    use_checkpoint(tmp_path)
    change(tmp_path / STATE, CHECKPOINTS[kind])
    assert "remove it to begin again" in refusal(lambda: use_checkpoint(tmp_path))


def test_tests_of_evaluators_without_an_end_and_with_a_text_as_groups(tmp_path: Path) -> None:
    """The letters of a text as groups let one program into two splits."""
    make_evaluator_data(tmp_path)
    train = tmp_path / "train.jsonl"
    rows = [{**json.loads(line), "group": "program 3"} for line in train.read_text().splitlines()]
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "says no list `group`" in refusal(lambda: read_splits(tmp_path))
    train.unlink()
    train.symlink_to("/dev/zero")
    assert "no such file" in refusal(lambda: read_splits(tmp_path))
    train.unlink()
    os.mkfifo(train)
    assert "no such file" in refusal(lambda: read_splits(tmp_path))


@pytest.mark.parametrize(
    "line", [b'{"function": "\xff"}\n', b'{"function": 3}\n', b'[{"a": 1}]}\n', b"[" * 9_000 + b"}\n"]
)
def test_queries_of_served_functions_that_are_none(line: bytes, tmp_path: Path) -> None:
    make_queries(tmp_path)
    (tmp_path / LEDGER).write_bytes(line)
    refusal(lambda: answer_in(tmp_path, "f00000"))
    refusal(lambda: ServedFunctions({}, tmp_path))


def test_an_answer_that_leads_elsewhere_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "served").mkdir()
    make_queries(tmp_path / "served")
    secret = tmp_path / "secret.txt"
    secret.write_text("of the user")
    for name in ("code.py", "domain.txt"):
        (tmp_path / "served" / "f00000" / name).unlink()
    (tmp_path / "served" / "f00000" / "code.py").symlink_to(secret)
    os.mkfifo(tmp_path / "served" / "f00000" / "domain.txt")
    answer = answer_in(tmp_path / "served", "f00000")
    assert (answer.code, answer.domain) == (None, None)


@pytest.mark.parametrize(
    "algorithm",
    [
        "../../etc/passwd",
        "/etc/passwd",
        f"def answer({'(' * 7_000}",
        "def answer(x): return " + "-" * 7_900 + "1",
        "def answer(answer): return 1",
        "def \ud800(): pass",
        "def answer(x): return 1\0",
        f"def answer(x): return 1\nVARIABLES = {'[' * 90}{']' * 90}",
        "def answer(x): return 1\nVARIABLES = {[]: 1}",
        "def answer(*x): return 1",
    ],
)
def test_a_program_of_a_claim_that_is_none(algorithm: str) -> None:
    """No file is read for it, and nothing of it runs while it is read."""
    given = {"kind": "runs", "algorithm": algorithm, "variables": {"answer": "resid1@end"}}
    refusal(lambda: read_proposal(given, Config.model_validate({**SHAPE, "d_model": D})))

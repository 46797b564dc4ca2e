"""A sweep that was killed continues and ends with the same numbers."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius
from tests.closeness import assert_same_document
from tests.forked import forked
from vesalius.api import sweeps

pytestmark = pytest.mark.slow

#: Runs in another process: the command, which kills itself after its second save.
KILLED = """
import os, signal, sys
from vesalius.api import sweeps
from vesalius.cli import main

sweeps.ROWS_BETWEEN_SAVES = 8
saves, write = [], sweeps.write_tensors

def write_and_die(path, tensors):
    write(path, tensors)
    saves.append(path)
    if len(saves) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

sweeps.write_tensors = write_and_die
main()
"""


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sets each sweep really computed."""
    counts: list[int] = []
    original = sweeps.effect_columns

    def counted(recordings, replacement, sets, **options):
        counts.append(len(sets))
        return original(recordings, replacement, sets, **options)

    monkeypatch.setattr(sweeps, "effect_columns", counted)
    return counts


def sweep(vesalius: Vesalius, tiny: Path, out: str, *more: object) -> dict:
    got = vesalius("sweep", tiny, "-b", "induction", "--n", 4, "--force", "--out", out, "--json", *more)
    assert got.code == 0, got.err
    return json.loads(got.out)


def test_after_a_kill(vesalius: Vesalius, tiny: Path, computed: list[int]) -> None:
    arguments = ["sweep", str(tiny), "-b", "induction", "--n", "4", "--force", "--out", "killed", "--json"]
    killed = subprocess.run(
        forked("-c", KILLED, *arguments), capture_output=True, text=True, check=False, cwd=Path.cwd()
    )
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, ""), killed.stderr
    assert sorted(path.name for path in Path("killed").iterdir()) == ["scores.safetensors"]
    resumed, whole = sweep(vesalius, tiny, "killed"), sweep(vesalius, tiny, "whole")
    # Two saves of 8 rows, which are 2 components on 4 prompts each: 4 of the 10 components were kept.
    assert computed == [6, 10]
    effects = [{row["id"]: row["effect"] for row in swept["components"]} for swept in (resumed, whole)]
    assert effects[0] == pytest.approx(effects[1], abs=1e-6)
    assert resumed["baseline"] == pytest.approx(whole["baseline"], abs=1e-6)
    assert resumed["forwards"] == pytest.approx(whole["forwards"] + 1)  # the clean run had to be made twice


def test_a_finished_sweep_is_not_computed_again(vesalius: Vesalius, tiny: Path, computed: list[int]) -> None:
    first, second = (sweep(vesalius, tiny, "here") for _ in range(2))
    assert computed == [10]
    assert first["components"] == second["components"]


def test_other_questions_do_not_reuse_the_answers(vesalius: Vesalius, tiny: Path, computed: list[int]) -> None:
    sweep(vesalius, tiny, "here")
    for more in (["--seed", 1], ["--kind", "mean"], ["--split", "train"], ["-b", "induction-out"]):
        sweep(vesalius, tiny, "here", *more)
    assert computed == [10] * 5


def test_other_weights_do_not_reuse_the_answers(vesalius: Vesalius, tiny: Path, computed: list[int]) -> None:
    from safetensors.torch import load_file, save_file

    sweep(vesalius, tiny, "here")
    state = load_file(tiny / "model.safetensors")
    state["h.0.ln_1.bias"][3] += 0.5
    save_file(state, tiny / "model.safetensors")
    sweep(vesalius, tiny, "here")
    assert computed == [10, 10]


@pytest.mark.parametrize("damage", ["truncated", "empty", "foreign"])
def test_a_damaged_file_of_scores_counts_as_absent(
    vesalius: Vesalius, tiny: Path, computed: list[int], damage: str
) -> None:
    first = sweep(vesalius, tiny, "here")
    scores = Path("here/scores.safetensors")
    data = scores.read_bytes()
    if damage == "foreign":
        scores.write_bytes((tiny / "model.safetensors").read_bytes())
    else:
        scores.write_bytes(data[: len(data) // 2 if damage == "truncated" else 0])
    again = sweep(vesalius, tiny, "here")
    assert computed == [10, 10]
    assert_same_document(again["components"], first["components"])

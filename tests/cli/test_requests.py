"""The command that a result prints is one that the command line takes."""

import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from vesalius.cli import app
from vesalius.documents import Request
from vesalius_bench.circuits.selection import CircuitCase, benchmark_circuits
from vesalius_bench.circuits.settings import BenchmarkSettings
from vesalius_bench.discovery.benchmark import DiscoverySettings
from vesalius_bench.survey.run import SurveySettings
from vesalius_functions.agents import DialogueLimits
from vesalius_functions.bench.settings import FunctionSettings
from vesalius_functions.own_prompts import FunctionPrompts
from vesalius_functions.suite import Suite

CIRCUITS = tuple(benchmark_circuits(["3", "4"]))


def parsed(command_line: str) -> dict:
    """The options that the command line reads; nothing is run."""
    words = shlex.split(command_line)[1:]
    command = typer.main.get_command(app)
    while isinstance(command, TyperGroup):
        command, words = command.commands[words[0]], words[1:]
    return command.make_context("vesalius", words).params


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            Request(
                command="discover",
                specimen="smollm2-135m",
                behaviour="ioi",
                method="rl",
                options={"n": 4, "budget": 9, "paper": True, "seeds": 2, "steps": 10, "quick": True, "force": True},
                seed=1,
            ),
            {"behaviour": "ioi", "method": "rl", "n": 4, "budget": 9, "paper": True, "seeds": 2, "quick": True},
        ),
        (
            Request(
                command="sweep",
                specimen="3",
                components=("L0H0", "L1_MLP"),
                options={"kind": "mean", "pairs": True, "n": 4, "split": "train"},
                seed=2,
            ),
            {"components": "L0H0,L1_MLP", "kind": "mean", "pairs": True, "split": "train", "seed": 2},
        ),
        (
            Request(
                command="explain",
                specimen="3",
                circuit="a b/circuit.json",
                method="hyve",
                backbone="openai:gpt-5.4",
                protocol="paper",
                options={"n": 8, "top": 3, "force": True},
                seed=0,
            ),
            {"circuit": "a b/circuit.json", "backbone": "openai:gpt-5.4", "protocol": "paper", "top": 3},
        ),
        (
            BenchmarkSettings(circuits=CIRCUITS, seed=5, leave_out="count", circuit_from="eap").request(),
            {"ids": "3,4", "seed": 5, "leave_out": "count", "circuit_from": "eap", "scientist": "builtin"},
        ),
        (
            BenchmarkSettings(
                circuits=CIRCUITS, scientist="hyve", backbone="a:b", protocol="paper", judges=("c:d", "e:f")
            ).request(),
            {"backbone": "a:b", "protocol": "paper", "judge": ["c:d", "e:f"]},
        ),
        (
            Request(
                command="study af1",
                behaviour="addition:high=99",
                circuit="c.json",
                method="hyve",
                options={"model": "m", "n": 8, "top": 9, "quick": True, "judge": ["c:d", "e:f"], "roles": "r.csv"},
                seed=2,
                backbone="a:b",
            ),
            {"name": "af1", "model": "m", "scientist": "hyve", "judge": ["c:d", "e:f"], "roles": "r.csv", "top": 9},
        ),
        (
            DiscoverySettings(CIRCUITS, ("sweep", "eap"), 8, 3).request(),
            {"methods": "sweep,eap", "ids": "3,4", "n": 8, "seed": 3, "steps": 0},
        ),
        (
            DiscoverySettings(CIRCUITS, ("eap-ig",), 8, 3, steps=20).request(),
            {"methods": "eap-ig", "ids": "3,4", "steps": 20},
        ),
        (
            SurveySettings(("a b", "c"), ("ioi", "d.jsonl"), "zero", 8, 5, seed=2, discover="eap").request(),
            {"models": ["a b", "c"], "behaviour": ["ioi", "d.jsonl"], "kind": "zero", "top": 5, "discover": "eap"},
        ),
        (
            FunctionSettings(suite=Suite("strings", seed=7, count=4), budget=50).request(),
            {"category": "strings", "seed": 7, "count": 4, "budget": 50, "mode": "fixed", "interpreter": "builtin"},
        ),
        (
            FunctionSettings(suite=Suite("strings", seed=7, ids=("42", "f00107"))).request(),
            {"category": "strings", "seed": 7, "count": None, "ids": "f00042,f00107"},
        ),
        (
            FunctionSettings(
                suite=Suite("strings", mode="published", count=2),
                interpreter="aia",
                backbone="a:b",
                talk=DialogueLimits(system="llama-2"),
            ).request(),
            {"mode": "published", "system_prompt": "llama-2", "interpreter": "aia", "rounds": 20},
        ),
        (
            FunctionSettings(
                suite=Suite("strings", mode="published", prompts=FunctionPrompts((("system.md", "x"),), "own words")),
                interpreter="aia",
                backbone="a:b",
            ).request(),
            {"mode": "published", "prompts": "own words", "interpreter": "aia"},
        ),
    ],
)
def test_the_command_line_takes_it(request_: Request, expected: dict) -> None:
    options = parsed(request_.command_line())
    # Click gives repeated options as lists or, in other versions, as tuples.
    found = {name: list(options[name]) if isinstance(options[name], tuple) else options[name] for name in expected}
    assert found == expected


def test_trained_circuits_are_named_by_their_folder(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "specimen.json").write_text("{}")
    circuits = tuple(CircuitCase(name, name, tmp_path / name, trained=True) for name in "abc")

    def options(*chosen: CircuitCase) -> dict:
        return DiscoverySettings(chosen, ("sweep",), 8, 3).request().options

    assert options(*circuits) == {"specimens": str(tmp_path), "n": 8}
    assert options(*circuits[:2]) == {"specimens": str(tmp_path), "limit": 2, "n": 8}
    assert options(circuits[1]) == {"specimens": str(tmp_path / "b"), "n": 8}
    assert DiscoverySettings(tuple(benchmark_circuits()), ("sweep",), 8, 3).request().options == {"n": 8}

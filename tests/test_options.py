"""An option is declared once: the keyword of the verb, the flag of the command and the request agree on it."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import pytest
import typer

import vesalius as ves
from vesalius.api.door import VERBS
from vesalius.cli import app
from vesalius.errors import BadInput
from vesalius.model.specimen import Specimen
from vesalius.options import Cut, Draw, Flat, Knockout, Load, OptionRecord, Scoring, Who, options_of


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("frac_prevs")


def flags(command: str) -> dict[str, Any]:
    """The options of a command by their flag."""
    found: Any = typer.main.get_command(app)
    for word in command.split():
        found = found.commands[word]
    return {name: option for option in found.params for name in option.opts}


def test_keywords_and_records_ask_the_same(specimen: Specimen) -> None:
    flat = ves.api.sweep_report(specimen, kind="mean", n=3, seed=2)
    recorded = ves.api.sweep_report(specimen, Draw(n=3, seed=2), Knockout("mean"))
    mixed = ves.api.sweep_report(specimen, draw=Draw(n=3), kind="mean", seed=2)
    assert flat.request == recorded.request == mixed.request
    assert flat.components == recorded.components == mixed.components


def test_a_misspelt_keyword_is_refused_with_the_nearest(specimen: Specimen) -> None:
    with pytest.raises(TypeError, match=r"sweep\(\) has no option 'sede'; did you mean 'seed'\?"):
        ves.sweep(specimen, sede=1)
    with pytest.raises(TypeError, match="missing a required argument: 'specimen'"):
        ves.sweep(n=4)


def test_options_are_refused_before_a_model_is_loaded() -> None:
    with pytest.raises(ves.BadInput, match="kind 'half' does not exist; choose one of zero, mean"):
        ves.sweep("no/such-model", kind="half")
    with pytest.raises(ves.BadInput, match="an experiment on 0 prompts"):
        ves.sweep("no/such-model", n=0)


def test_the_signature_lists_the_fields_of_every_record() -> None:
    parameters = inspect.signature(ves.sweep).parameters
    assert next(iter(parameters)) == "specimen"
    assert {"kind", "pairs", "components", "n", "seed", "split", "behaviour", "dtype", "engine", "out"} <= set(
        parameters
    )
    assert (parameters["n"].default, parameters["progress"].default) == (16, None)


@pytest.mark.parametrize("verb", ["sweep", "what_if", "neurons", "faithfulness", "explain"])
def test_every_field_of_a_verb_is_a_flag_of_its_command_with_the_same_default(verb: str) -> None:
    getattr(ves, verb)
    offered = flags(verb.replace("_", "-"))
    for _, option in VERBS[verb].options():
        flag = offered[f"--{option.key.replace('_', '-')}"]
        assert flag.help == option.flag.help
        assert flag.default == (not option.default if option.flag.off else option.default)


def test_two_records_with_one_field_are_refused_when_a_verb_is_declared() -> None:
    def twice(specimen: Specimen, *, draw: Draw, n: int = 3) -> None: ...

    with pytest.raises(AssertionError, match="two options have one name"):
        Flat.of(twice)


@pytest.mark.parametrize("record", OptionRecord.__subclasses__())
def test_every_field_has_a_help_text(record: type[OptionRecord]) -> None:
    for option in options_of(record):
        assert option.flag.help.endswith(".")


def test_records_are_read_without_torch_and_typer() -> None:
    code = "import sys, vesalius.options; sys.exit(any(name in sys.modules for name in ('torch', 'typer', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_loading_options_are_those_of_load() -> None:
    keywords = inspect.signature(ves.load).parameters
    assert {option.name for option in options_of(Load)} == set(keywords) - {"name", "progress"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Scoring(keep=cast(Any, None)), "keep=None is not a number"),
        (lambda: Scoring(keep=cast(Any, "much")), "keep='much' is not a number"),
        (lambda: Cut(keep=cast(Any, "much")), "keep='much' is not a number"),
        (lambda: Knockout(pairs=cast(Any, "yes")), "pairs='yes' is not true or false"),
        (lambda: Who(scientist=cast(Any, 5)), "scientist=5 is not a text"),
        (lambda: Draw(n=cast(Any, "8")), "n='8' is not a whole number"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_every_record(make: Callable[[], Any], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        make()

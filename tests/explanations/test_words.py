"""What notes say is read: what exchanges of inputs showed, or else what the program says, in so many words."""

from types import SimpleNamespace
from typing import Any

from tests.explanations.test_scientist_search import L0M, L1M, facts_of, table
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, Evidence
from vesalius.explanations.claims.wiring import Wired, Wiring
from vesalius_programs.classify import Facts, Reading
from vesalius_programs.words import information_flow, note
from vesalius_programs.writing import _both_readings


def said_of(component: Component, facts: Facts, wired: Wired) -> str:
    """The sentences of a note about what a component reads and what reads it."""
    evidence = Evidence(
        experiment="zero replacement", measure="m", value=0.5, low=0.4, high=0.6, n=9, rule="> 0.1", seed=0
    )
    necessary = ClaimRecord(kind="necessary", text="t", verdict="supported", evidence=(evidence,))
    names: Any = SimpleNamespace(words=lambda name: "v")
    text = note(component, facts, (necessary,), names, wired)
    return text.removeprefix(f"{component} computes v. ").split(" This could not be run")[0]


def test_what_a_note_says_is_read_is_what_exchanges_showed() -> None:
    facts = facts_of({L0M: table("tokens"), L1M: table("L0_MLP", "tokens")})
    same: Wired = {
        "L0_MLP": (Wiring({"tokens": 0.5}),),
        "L1_MLP": (Wiring({"tokens": 0.2, "L0_MLP": 0.5}),),
        "output": (Wiring({"L1_MLP": 1.0}),),
    }
    assert said_of(L0M, facts, same) == "It reads the token. It is read by L1_MLP."
    assert said_of(L1M, facts, same) == "It reads L0_MLP and the token. It is read by the output."
    assert information_flow(facts, same).endswith(
        "L1_MLP reads L0_MLP and the tokens and works at each position. The output is read off L1_MLP."
    )
    other = same | {"L1_MLP": (Wiring({"L0H0": 0.5}),)}
    assert said_of(L1M, facts, other).startswith("It reads L0H0; in the program it reads L0_MLP and the token.")
    assert said_of(L0M, facts, other) == "It reads the token. In the program it is read by L1_MLP."
    assert "L1_MLP reads L0H0 and works" in information_flow(facts, other)


def test_a_note_says_where_exchanges_do_not_decide_what_is_read() -> None:
    facts = facts_of({L0M: table("tokens"), L1M: table("L0_MLP", "indices")})
    either: Wired = {"L1_MLP": (Wiring({"L0_MLP": 0.5}), Wiring({"tokens": 0.5}))}
    program = "In the program it reads L0_MLP and the position. In the program it is read by the output."
    assert said_of(L1M, facts, {}) == program
    assert said_of(L1M, facts, either) == f"What it reads is not decided: L0_MLP or the token fit. {program}"
    assert said_of(L0M, facts, either) == "In the program it reads the token. It may be read by L1_MLP."
    nothing: Wired = {"L1_MLP": ()}
    undecided = "What it reads is not decided: no set of inputs that was tried fits."
    assert said_of(L1M, facts, nothing) == f"{undecided} {program}"
    assert "In the program, L1_MLP reads L0_MLP and the position" in information_flow(facts, nothing)


def test_a_note_blames_the_conventions_only_for_their_own_tag() -> None:
    rule = Reading("COMBINER", "a rule")
    text = _both_readings(rule, ("COMBINER", "MAPPER"))
    assert "the conventions of the compiled family make it a COMBINER" in text
    assert text.endswith(" The rule of the convention: a rule.")
    for convention in (Reading("INDICATOR"), rule):
        text = _both_readings(convention, ("MAPPER", "INDICATOR"))
        assert text.startswith(" By experiment alone it is a INDICATOR; its supported claims make it a MAPPER.")
        assert "conventions of the compiled family" not in text
    assert _both_readings(Reading("MAPPER"), ("MAPPER", "MAPPER")) == ""

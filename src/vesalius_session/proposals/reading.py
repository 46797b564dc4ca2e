"""Read a proposal: what can be wrong with it is said in one line before anything runs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vesalius.components import Component
from vesalius.documents.base import FrozenDict
from vesalius.documents.proposal import RUNS, Proposal
from vesalius.errors import BadInput, choices, quoted
from vesalius.explanations.running import parse_program
from vesalius.explanations.variables.algorithms import Algorithm, find_algorithm, parse_algorithm, shipped
from vesalius.model.config import Config

#: The most heads with a program, variables, and groups of stand-ins that a proposal may name.
MOST_PROGRAMS, MOST_VARIABLES, MOST_STAND_INS, LONGEST_ALGORITHM = 64, 12, 64, 8_000
FIELDS = ("programs", "mlps", "algorithm", "variables", "stand_ins")
#: What an agent is told of the claim.
GRAMMAR = (
    '{"kind": "runs", "programs": {"L5H1": "if seen before: after earlier copy 0.9 + BOS 0.1; else: BOS"}, '
    '"mlps": ["L0_MLP"], "algorithm": TEXT, "variables": {"copied": "resid3@end"}, "stand_ins": [["L5H1", "L6H0"]]}: '
    "the explanation as data, run in the model's place. programs say where heads look; algorithm is Python whose "
    "functions are variables (a lookup is a table in it) and runs in the sandbox, and variables say at which place "
    "each is: resid3@ROLE, L5H1+L6H0@ROLE or L3_MLP@ROLE; stand_ins are components that can stand in for each other. "
    "All fields but kind may be left out."
)
_NAME = re.compile(r"[A-Za-z_]\w{0,63}")


def read_proposal(given: Any, config: Config) -> Proposal:
    """A proposal from plain data; components are written in the usual way."""
    if not isinstance(given, Mapping):
        raise BadInput(f"proposal: must be an object, not {quoted(given, 60)}")
    unknown = [str(name) for name in given if name not in (*FIELDS, "kind", "component")]
    if unknown:
        raise BadInput(f"proposal: {unknown[0]!r:.60} is not one of its fields; they are {choices(FIELDS)}")
    programs = _texts(given.get("programs"), "programs", MOST_PROGRAMS)
    variables = _texts(given.get("variables"), "variables", MOST_VARIABLES)
    for name in variables:
        if not _NAME.fullmatch(name):
            raise BadInput(f"variables: {name!r:.60} is not the name of a variable of a program")
    algorithm = given.get("algorithm")
    if algorithm is not None and (not isinstance(algorithm, str) or len(algorithm) > LONGEST_ALGORITHM):
        raise BadInput(f"algorithm: must be a program as text, of at most {LONGEST_ALGORITHM} characters, or a name")
    if variables and algorithm is None:
        raise BadInput("variables: they are of an algorithm; give `algorithm` too")
    proposal = Proposal(
        programs=FrozenDict({_head(name, config): str(parse_program(text)) for name, text in programs.items()}),
        mlps=tuple(dict.fromkeys(_mlp(name, config) for name in _names(given.get("mlps"), "mlps"))),
        algorithm=algorithm,
        variables=FrozenDict(variables),
        stand_ins=_groups(given.get("stand_ins"), config),
    )
    if proposal.empty:
        raise BadInput(f"proposal of the kind {RUNS}: says nothing; give programs, variables or stand_ins")
    if algorithm is not None:
        known = algorithm_of(algorithm)
        if strangers := [name for name in variables if name not in known.variables]:
            raise BadInput(f"variables: {strangers[0]!r} is not in the algorithm; it has {choices(known.variables)}")
    return proposal


def algorithm_of(text: str) -> Algorithm:
    """A program that ships, by name, or one from its text, which runs in the sandbox. A path is neither: an agent may
    not have files read.
    """
    if text in shipped():
        return find_algorithm(text, behaviour="")
    if "def " not in text:
        raise BadInput(f"algorithm {quoted(text, 60)} does not exist; name one of {choices(shipped())}, or write one")
    return parse_algorithm(text, name="of the proposal")


def _texts(given: Any, what: str, most: int) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(one, str) for pair in given.items() for one in pair):
        raise BadInput(f"{what}: must be an object of names and texts, not {quoted(given, 60)}")
    if len(given) > most:
        raise BadInput(f"{what}: {len(given)} are given; at most {most} are run")
    return dict(given)


def _names(given: Any, what: str) -> Sequence[str]:
    if given is None:
        return []
    if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise BadInput(f"{what}: must be a list of components, not {quoted(given, 60)}")
    return given


def _head(name: str, config: Config) -> str:
    head = Component.parse(name).within(config)
    if not head.is_head:
        raise BadInput(f"programs: {head} is an MLP, which looks nowhere; name it in `mlps`")
    return str(head)


def _mlp(name: str, config: Config) -> str:
    part = Component.parse(name).within(config)
    if part.is_head:
        raise BadInput(f"mlps: {part} is a head; give it a program in `programs`")
    return str(part)


def _groups(given: Any, config: Config) -> tuple[tuple[str, ...], ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) > MOST_STAND_INS:
        raise BadInput(f"stand_ins: must be a list of at most {MOST_STAND_INS} groups of components")
    groups = []
    for one in given:
        parts = sorted({Component.parse(name).within(config) for name in _names(one, "stand_ins")})
        if len(parts) < 2:
            raise BadInput(f"stand_ins: {quoted(one, 60)} has fewer than two components; each group names some")
        groups.append(tuple(map(str, parts)))
    return tuple(dict.fromkeys(groups))

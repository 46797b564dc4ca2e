"""Entries of tables that make answers wrong on natural inputs, with the class that makes them right.

A table is read off fingerprints, a few for each of its entries. What is rare in an input is met mostly by exchanges, in
which a trained model errs now and then, so that a rare entry may be put into a wrong class: 35 of 21,324 answers are
then wrong, and no average shows it. So the program is run on many more inputs, half of them made of rare values. An
entry with which answers are wrong at half of its places or more is given the class with which the fewest inputs are
wrong, where exchanges are predicted as well as before.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from vesalius.components import Component
from vesalius_programs.program import CircuitProgram, Table
from vesalius_programs.runs import RecordedRun
from vesalius_programs.yardstick import Yardstick, agreement

#: Programs that are wrong on more inputs than this are wrong in more than an entry.
MOST_WRONG = 0.1
#: An entry is looked at where so many inputs are wrong with it, and so large a share of its places.
FEWEST_WRONG, SHARE_WRONG = 2, 0.5
#: Entries of one table that are looked at, and classes that are tried for each.
MOST_ENTRIES, MOST_CLASSES = 8, 32


def repaired(program: CircuitProgram, recorded: RecordedRun, yardstick: Yardstick) -> CircuitProgram:
    """The program with entries put right that make answers to the recorded inputs wrong."""
    wrong = _inputs_wrong(program, recorded)
    if not 0 < wrong <= MOST_WRONG * len(recorded.sequences):
        return program
    quality = yardstick.quality(program)
    for component in program.variables:
        for entry in list(_suspects(program, recorded, component)):
            best = program
            for candidate in _with_other_classes(program, component, entry):
                fewer = _inputs_wrong(candidate, recorded)
                if fewer < wrong and quality.is_kept_by(yardstick.quality(candidate)):
                    best, wrong = candidate, fewer
            program = best
    return program


def _inputs_wrong(program: CircuitProgram, recorded: RecordedRun) -> int:
    return int((~agreement(program, recorded)).sum())


def _suspects(program: CircuitProgram, recorded: RecordedRun, component: Component) -> Iterator[tuple[int, ...]]:
    """The entries of a table with which answers are wrong, those with the most wrong inputs first."""
    table = program.variables[component]
    if not isinstance(table, Table) or not table.reads:
        return
    env = program.environment(recorded.sequences)
    wrong = ~program.agrees(program.predict(env), recorded.outputs) & env.real
    arguments = torch.stack([env[name] for name in table.reads], -1)
    keys, label = arguments[env.real].unique(dim=0, return_inverse=True)
    row = env.real.nonzero()[:, 0]
    places = torch.bincount(label, minlength=len(keys))
    wrong_places = torch.bincount(label[wrong[env.real]], minlength=len(keys))
    inputs = torch.stack([label, row], -1)[wrong[env.real]].unique(dim=0)[:, 0]
    wrong_inputs = torch.bincount(inputs, minlength=len(keys))
    order = wrong_inputs.argsort(descending=True, stable=True)[:MOST_ENTRIES].tolist()
    for place in order:
        if wrong_inputs[place] >= FEWEST_WRONG and wrong_places[place] >= SHARE_WRONG * places[place]:
            yield tuple(keys[place].tolist())


def _with_other_classes(
    program: CircuitProgram, component: Component, entry: tuple[int, ...]
) -> Iterator[CircuitProgram]:
    table = program.variables[component]
    assert isinstance(table, Table)
    for code in range(min(table.n_classes, MOST_CLASSES)):
        if table.codes.get(entry) != code:
            changed = replace(table, codes={**table.codes, entry: code})
            yield replace(program, variables={**program.variables, component: changed})

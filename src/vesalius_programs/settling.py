"""From the program that was found to the one that is claimed: positions where they belong, no needless distinctions.

The search looks at one position at a time and cannot tell a value from the value combined with the position. Outputs
that are moved to other positions can. Four steps, each kept only if agreement and exchanges stay as good:

1. *Position-only variables*: a component that shows nothing when it is exchanged in place, but does when moved, is
   read off by where its output came from: `table(indices)`.
2. *In place of the position*: a later table, route or output that reads the position reads such a variable instead,
   where it is a function of it and moved outputs are then predicted better.
3. *Absorption*, last component first: where the model follows the position a value came from, the position is inside
   the value: its table gets the position as an argument, and its readers lose it.
4. *Merging*, last component first: classes that all readers treat alike are one, arguments that do nothing are dropped.
   Classes that a head compares in an order are numbered in that order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vesalius.components import Component
from vesalius_programs.gathering import Copy, Mean, Width, matched, places
from vesalius_programs.investigate import feeds
from vesalius_programs.program import INDICES, CircuitProgram, Hypothesis, Table
from vesalius_programs.runs import Edit
from vesalius_programs.simplify import in_order, merged, without_argument, without_constant_arguments
from vesalius_programs.yardstick import Quality, Yardstick, moved_environment

#: A component whose moved outputs change fewer outputs than this is not a position-only variable.
MOVED_EFFECT = 0.01
#: A position-only variable takes the place of the position if moved outputs are predicted better by this, and so well.
BETTER_MOVED, GOOD_MOVED = 0.3, 0.7
#: Runs from which each origin is observed, inputs it is put into, and positions of these.
ORIGIN_RUNS, TARGET_INPUTS, TARGET_POSITIONS = 4, 14, 12
#: Two origins are one class if moving one or the other differs in fewer outputs than this.
SAME_ORIGIN = 0.02
#: Larger tables are not extended by the position.
MOST_ENTRIES = 1500
#: Heads whose routes depend on the own position alone.
_OWN_ROUTES = ("self", "next", "previous", "next_but_one", "previous_but_one", "half")


def settled(program: CircuitProgram, yardstick: Yardstick) -> CircuitProgram:
    """The program with positions where moved outputs say they are, and merged."""
    steps = Steps(program, yardstick)
    for component in list(program.variables):
        steps.find_position_variable(component)
    for component in reversed(list(program.variables)):
        steps.absorb(component)
    for component in reversed(list(program.variables)):
        steps.merge(component)
    settled_program = steps.program
    for component in settled_program.variables:
        settled_program = in_order(settled_program, component)
    return settled_program


class Steps:
    """A program while it is settled, and what it is measured by."""

    def __init__(self, program: CircuitProgram, yardstick: Yardstick) -> None:
        self.program, self.yardstick = program, yardstick
        self.quality: Quality = yardstick.quality(program)

    def find_position_variable(self, component: Component) -> None:
        """Step 1 and 2 for one component about which nothing was found in place."""
        if self.program.variables[component].family != "nothing":
            return
        if self.yardstick.moved_effect(component) < MOVED_EFFECT:
            return
        table = position_table(self.yardstick, component)
        if table is None or component.is_head:
            return
        start = replace(self.program, variables={**self.program.variables, component: table})
        before = self.yardstick.moved(start, component).accuracy
        best, best_accuracy = start, before
        for candidate in _in_place_of_position(start, component):
            candidate = _with_moved_entries(candidate, self.yardstick, component)
            accuracy = self.yardstick.moved(candidate, component).accuracy
            better = accuracy >= max(GOOD_MOVED, best_accuracy + (BETTER_MOVED if best is start else 0.01))
            if better and self.quality.is_kept_by(self.yardstick.quality(candidate)):
                best, best_accuracy = candidate, accuracy
        if best is not start:
            self._take(best)

    def absorb(self, component: Component) -> None:
        """Step 3 for one component."""
        before = self.yardstick.moved(self.program, component) if self._may_hold_position(component) else None
        if before is None or not before.is_inside:
            return
        best, best_accuracy = None, before.accuracy
        for place in (INDICES, *self._position_variables(component)):
            candidate = with_position_inside(self.program, component, place, self._occurring(component, place))
            if candidate is None:
                continue
            candidate = merged(candidate, component)
            accuracy = self.yardstick.moved(candidate, component).accuracy
            if accuracy > best_accuracy:
                best, best_accuracy = candidate, accuracy
        if best is not None:
            self._try(best)

    def _position_variables(self, component: Component) -> list[str]:
        """Position-only variables that a component can read."""
        return [
            str(other)
            for other, variable in self.program.variables.items()
            if variable.reads == (INDICES,) and isinstance(variable, Table) and feeds(other, component)
        ]

    def _occurring(self, component: Component, place: str) -> set[tuple[int, ...]]:
        """Arguments of a table with the position, as they occur in runs and in exchanges."""
        table, sequences = self.program.variables[component], self.yardstick.recorded.sequences
        cells: set[tuple[int, ...]] = set()
        for env in (self.program.environment(sequences), self.program.exchanged(sequences, self.yardstick.pairings)):
            arguments = torch.stack([env[name][env.real] for name in (*table.reads, place)], -1)
            cells |= {tuple(key) for key in arguments.unique(dim=0).tolist()}
        return cells

    def merge(self, component: Component) -> None:
        """Step 4 for one component."""
        variable = self.program.variables[component]
        if not isinstance(variable, Table):
            return
        self._try(without_constant_arguments(merged(self.program, component), component))
        variable = self.program.variables[component]
        assert isinstance(variable, Table)
        for name in variable.reads:
            if name == INDICES:
                continue  # exchanges in place cannot say that a position is not needed
            env = self.program.environment(self.yardstick.recorded.sequences)
            candidate = without_argument(self.program, component, name, env)
            if candidate is not None:
                self._try(candidate)

    def _try(self, candidate: CircuitProgram) -> None:
        if candidate is self.program:
            return
        quality = self.yardstick.quality(candidate)
        if self.quality.is_kept_by(quality):
            self.program = candidate

    def _take(self, candidate: CircuitProgram) -> None:
        self.program = candidate
        self.quality = self.yardstick.quality(candidate)

    def _may_hold_position(self, component: Component) -> bool:
        variable = self.program.variables[component]
        return isinstance(variable, Table) and INDICES not in variable.reads and not component.is_head


def with_position_inside(
    program: CircuitProgram, component: Component, place: str, occurring: set[tuple[int, ...]]
) -> CircuitProgram | None:
    """The program with `place` (the position, or a variable of it) as an argument of one table and no longer of its
    readers; None where no reader reads it, a reader cannot be written so, or the table would be too large.
    """
    name, table = str(component), program.variables[component]
    assert isinstance(table, Table)
    keys = sorted(key for key in occurring if key[:-1] in table.codes)
    if not keys or len(keys) > MOST_ENTRIES:
        return None
    pairs = sorted({(table.codes[key[:-1]], key[-1]) for key in keys})
    inside = {pair: code for code, pair in enumerate(pairs)}
    codes = {key: inside[table.codes[key[:-1]], key[-1]] for key in keys}
    wider = replace(table, reads=(*table.reads, place), codes=codes, n_classes=len(inside))
    variables: dict[Component, Hypothesis] = {**program.variables, component: wider}
    lost = False
    for other, variable in program.variables.items():
        if other == component or name not in variable.reads:
            continue
        reader = _reading_inside(variable, name, place, inside)
        if reader is None:
            return None
        lost |= place in variable.reads or (isinstance(variable, Copy) and not variable.anywhere)
        variables[other] = reader
    output = program.output
    if output is not None and name in output.reads:
        if output.line is not None:
            return None
        lost |= place in output.reads
        reads, rows = _rows_inside(output.reads, output.table, name, place, inside)
        output = replace(output, reads=reads, table=rows)
    return replace(program, variables=variables, output=output) if lost else None


#: The new code of a value together with a position.
Inside = dict[tuple[int, int], int]


def _reading_inside(variable: Hypothesis, name: str, place: str, inside: Inside) -> Hypothesis | None:
    """A reader of the table, for its new codes; None where it cannot be written."""
    if isinstance(variable, Table):
        reads, codes = _rows_inside(variable.reads, variable.codes, name, place, inside)
        return replace(variable, reads=reads, codes=codes)
    if isinstance(variable, Copy) and variable.by == name and variable.of != name:
        if not variable.anywhere and place != INDICES:
            return None
        routes = {}
        for (value, at), code in inside.items():
            target = variable.table.get((0 if variable.anywhere else at, value))
            if target is not None:
                routes[0, code] = target
        return replace(variable, table=routes, anywhere=True)
    if isinstance(variable, Mean) and variable.of == name:
        value, *others = _codes_of((variable.value, *variable.others), inside) or [-2]
        return replace(variable, value=value, others=tuple(others))
    if isinstance(variable, Width) and variable.selector.kind == "constant":
        constant, *others = _codes_of((variable.selector.constant, *variable.selector.others), inside) or [-2]
        return replace(variable, selector=replace(variable.selector, constant=constant, others=tuple(others)))
    return None


def _codes_of(values: tuple[int, ...], inside: Inside) -> list[int]:
    return [code for (value, _), code in inside.items() if value in values]


def _rows_inside(
    reads: tuple[str, ...], table: Mapping[tuple[int, ...], Any], name: str, place: str, inside: Inside
) -> tuple[tuple[str, ...], dict[tuple[int, ...], Any]]:
    """Rows of a reader whose argument `name` now holds the position, which it no longer reads itself."""
    slot = reads.index(name)
    place_slot = reads.index(place) if place in reads else None
    rows: dict[tuple[int, ...], Any] = {}
    for (value, at), code in inside.items():
        for key, result in table.items():
            if key[slot] == value and (place_slot is None or key[place_slot] == at):
                changed = (*key[:slot], code, *key[slot + 1 :])
                rows[tuple(part for i, part in enumerate(changed) if i != place_slot)] = result
    return tuple(read for read in reads if read != place), rows


def position_table(yardstick: Yardstick, component: Component) -> Table | None:
    """Positions in classes by what an output that came from them does elsewhere; None if they do the same."""
    answers = _answers_by_origin(yardstick, component)
    n = len(answers)
    class_of: dict[int, int] = {}
    for origin in range(n):
        like = (other for other in range(origin) if _apart(yardstick, answers[origin], answers[other]) < SAME_ORIGIN)
        class_of[origin] = class_of.get(next(like, -1), len(set(class_of.values())))
    n_classes = len(set(class_of.values()))
    if n_classes < 2:
        return None
    return Table((INDICES,), {(origin,): code for origin, code in class_of.items()}, n_classes)


def _apart(yardstick: Yardstick, first: Tensor, second: Tensor) -> float:
    differs = (first - second).abs() > 0.02 if yardstick.runs.numeric else first != second
    return float(differs.float().mean())


def _answers_by_origin(yardstick: Yardstick, component: Component) -> list[Tensor]:
    """For each position the usual outputs when its output is put at the positions of some long inputs."""
    runs, recorded = yardstick.runs, yardstick.recorded
    lengths = recorded.sequences.lengths
    longest = lengths.argsort(descending=True, stable=True)
    targets = longest[:TARGET_INPUTS]
    n = int(lengths[targets].min())
    stride = max(1, n // TARGET_POSITIONS)
    base = targets.repeat_interleave(len(range(0, n, stride)))
    place = torch.arange(0, n, stride).repeat(len(targets))
    written = recorded.component_outputs[component]
    where = torch.arange(written.shape[1]) == place[:, None] + 1
    real = recorded.sequences.real[base]
    answers = []
    for origin in range(int(lengths.max())):
        sources = longest[lengths[longest] > origin][:ORIGIN_RUNS]
        heard = []
        for source in sources.tolist():
            values = written[source, origin + 1].expand(len(base), written.shape[1], -1)
            outputs, _ = runs.patched(recorded, base, Edit(component, values, where))
            heard.append(outputs[real])
        stacked = torch.stack(heard)
        answers.append(stacked.mean(0) if runs.numeric else stacked.mode(0).values)
    return answers


def _in_place_of_position(program: CircuitProgram, component: Component) -> Iterator[CircuitProgram]:
    """Programs in which later readers of the position read the position-only variable of a component instead."""
    table = program.variables[component]
    assert isinstance(table, Table)
    class_of = {key[0]: code for key, code in table.codes.items()}
    later = list(program.variables)[list(program.variables).index(component) + 1 :]
    for other in later:
        for variable, own_classes in _reading_variable(program.variables[other], str(component), class_of):
            variables = {**program.variables, other: variable}
            if own_classes is not None:
                codes: dict[tuple[int, ...], int] = {(place,): code for place, code in own_classes.items()}
                variables[component] = Table((INDICES,), codes, max(codes.values()) + 1)
            yield replace(program, variables=variables)
    output = program.output
    if output is not None and INDICES in output.reads and output.line is None:
        rows = _rows_by_class(output.reads, output.table, str(component), class_of)
        if rows is not None:
            yield replace(program, output=replace(output, reads=rows[0], table=rows[1]))


def _reading_variable(
    variable: Hypothesis, name: str, class_of: dict[int, int]
) -> Iterator[tuple[Hypothesis, dict[int, int] | None]]:
    """A reader of the position as a reader of a position-only variable, and the classes it needs, if others."""
    if isinstance(variable, Table) and INDICES in variable.reads:
        rows = _rows_by_class(variable.reads, variable.codes, name, class_of)
        if rows is not None:
            yield replace(variable, reads=rows[0], codes=rows[1]), None
    if isinstance(variable, Copy):
        route = _own_route(variable, len(class_of))
        if route is None:
            return
        by_class: dict[int, set[int]] = {}
        for place, target in route.items():
            by_class.setdefault(class_of[place], set()).add(target)
        if all(len(targets) == 1 for targets in by_class.values()):
            routes = {(0, code): next(iter(targets)) for code, targets in by_class.items()}
            yield Copy(variable.of, "table", routes, name, anywhere=True, size=variable.size), None
        # The key says who may read it: the query whose route leads there.
        reader_of = {target: place for place, target in sorted(route.items(), reverse=True) if target in class_of}
        spare = max(class_of) + 1
        classes = {place: reader_of.get(place, spare) for place in class_of}
        if len(reader_of) > 1:
            yield matched(variable.of, name, INDICES), classes


def _own_route(copy: Copy, n: int) -> dict[int, int] | None:
    """Where a route leads from each position, if that depends on the position alone."""
    if copy.by == INDICES:
        return {place: target for (_, place), target in copy.table.items() if place < n}
    if copy.by is not None or copy.route not in _OWN_ROUTES:
        return None
    targets = places(copy.route, torch.ones(1, n, dtype=torch.bool))[0].tolist()
    return dict(enumerate(targets))


def _rows_by_class(
    reads: tuple[str, ...], table: Mapping[tuple[int, ...], Any], name: str, class_of: dict[int, int]
) -> tuple[tuple[str, ...], dict[tuple[int, ...], Any]] | None:
    """Rows with the position replaced by its class; None where a class has two results."""
    slot = reads.index(INDICES)
    rows: dict[tuple[int, ...], Any] = {}
    for key, value in table.items():
        place = class_of.get(key[slot])
        if place is None:
            continue
        changed = (*key[:slot], place, *key[slot + 1 :])
        if rows.setdefault(changed, value) != value:
            return None
    return (*reads[:slot], name, *reads[slot + 1 :]), rows


def _with_moved_entries(program: CircuitProgram, yardstick: Yardstick, component: Component) -> CircuitProgram:
    """The program with entries of its output map that only moved outputs reach, as the model answers there."""
    output = program.output
    if output is None or output.line is not None:
        return program
    heard: dict[tuple[int, ...], list[float]] = {}
    for runs in yardstick.moved_runs(component):
        env = moved_environment(program, yardstick.recorded, runs)
        keys = torch.stack([env[name][env.real] for name in output.reads], -1).tolist()
        for key, answer in zip(map(tuple, keys), runs.outputs[env.real].tolist(), strict=True):
            if key not in output.table:
                heard.setdefault(key, []).append(float(answer))
    usual = {
        key: sum(answers) / len(answers) if program.numeric else max(sorted(set(answers)), key=answers.count)
        for key, answers in heard.items()
    }
    return replace(program, output=replace(output, table={**output.table, **usual}))

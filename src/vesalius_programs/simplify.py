"""A program without what makes no difference: distinctions that no reader draws, arguments, needless decimals.

A table is read off fingerprints, argument by argument, so values that were only seen where nothing varies stay apart
although no experiment separates them. Here the program itself decides: two classes are one when every reader (a table,
the output, a counted set, a route) does the same with both wherever it knows both.

A fit gives 1.00014 where the circuit means 1, and other digits on another machine. So the numbers of a program
(weights, offsets, outputs read off) are rounded to the fewest decimals at which, on inputs that nothing was fitted on,
no output moves noticeably and as many inputs agree with the model as before.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from vesalius.components import Component
from vesalius_programs.gathering import Copy, Gated, Gathered, Mean, Selector, Width, passes_on
from vesalius_programs.program import (
    TOLERANCE,
    CircuitProgram,
    Environment,
    Hypothesis,
    Linear,
    OutputMap,
    Table,
)
from vesalius_programs.runs import RecordedRun
from vesalius_programs.yardstick import agreement

#: What a reader does with each class, by the context in which it reads it.
Uses = dict[Any, Any]


def merged(program: CircuitProgram, component: Component) -> CircuitProgram:
    """The program with those classes of one table merged that all readers treat alike."""
    table = program.variables[component]
    if not isinstance(table, Table):
        return program
    codes = sorted(set(table.codes.values()))
    uses = {code: _uses(program, str(component), code) for code in codes}
    group_of = _grouped(codes, uses, program.numeric)
    n_groups = len(set(group_of.values()))
    if n_groups == len(codes):
        return program
    rename = {**group_of, table.n_classes: n_groups}  # the class of arguments that were never seen
    smaller = replace(table, codes={key: rename[code] for key, code in table.codes.items()}, n_classes=n_groups)
    renamed = renamed_codes(program, str(component), rename)
    return replace(renamed, variables={**renamed.variables, component: smaller})


def _grouped(codes: list[int], uses: dict[int, Uses], numeric: bool) -> dict[int, int]:
    """Groups numbered by their first member; a class joins the first group it is like in every common context."""
    groups: list[Uses] = []
    group_of: dict[int, int] = {}
    # Classes that are used in the most contexts come first: they say the most about who is like them.
    for code in sorted(codes, key=lambda code: (-len(uses[code]), code)):
        place = next((i for i, group in enumerate(groups) if _alike(uses[code], group, numeric)), len(groups))
        if place == len(groups):
            groups.append({})
        groups[place] = {**uses[code], **groups[place]}
        group_of[code] = place
    order = list(dict.fromkeys(group_of[code] for code in codes))
    number = {place: n for n, place in enumerate(order)}
    return {code: number[place] for code, place in group_of.items()}


def _alike(first: Uses, second: Uses, numeric: bool) -> bool:
    """Whether two classes are used alike; classes without a common context are not known to be."""
    common = first.keys() & second.keys()
    return bool(common) and all(_same(first[context], second[context], numeric) for context in common)


def _same(first: object, second: object, numeric: bool) -> bool:
    if numeric and isinstance(first, float) and isinstance(second, float):
        return abs(first - second) < TOLERANCE / 2
    return first == second


def _uses(program: CircuitProgram, name: str, code: int) -> Uses:
    """What every reader does with one class of a variable."""
    uses: Uses = {}
    for reader, variable in program.variables.items():
        for context, use in _uses_by(variable, name, code):
            uses[(str(reader), *context)] = use
        if name == getattr(variable, "of", None) and passes_on(variable):
            uses |= _uses(program, str(reader), code)  # handed on as it is: who reads it there decides
    output = program.output
    if output is not None and name in output.reads and output.line is None:
        for rest, value in _rows(output.table, output.reads, name, code):
            uses["output", rest] = value
    return uses


def _uses_by(variable: Hypothesis, name: str, code: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(variable, Table):
        if name in variable.reads:
            yield from ((("row", rest), value) for rest, value in _rows(variable.codes, variable.reads, name, code))
    elif isinstance(variable, Mean):
        if variable.of == name:
            yield ("among",), code in (variable.value, *variable.others)
    elif isinstance(variable, Width) and variable.selector.kind == "constant":
        if variable.selector.keys == name:
            yield ("among",), code in (variable.selector.constant, *variable.selector.others)
    elif isinstance(variable, Copy) and variable.by == name:
        yield from ((("place", own), place) for (own, value), place in variable.table.items() if value == code)
    elif isinstance(variable, Gated) and variable.by == name:
        yield ("open",), code == variable.value
    elif isinstance(variable, Gathered) and variable.numbers and name not in variable.selector.reads:
        if variable.of == name and code < len(variable.numbers):
            yield ("number",), variable.numbers[code]
    elif (
        isinstance(variable, Gathered | Width) and variable.selector.kind == "pairs" and name in variable.selector.reads
    ):
        pairs, own = variable.selector.pairs, name == getattr(variable, "of", None)
        if variable.selector.keys == name:
            yield from ((("there", here), (code, here) in pairs) for _, here in pairs)
        if variable.selector.queries == name:
            yield from ((("here", there), (there, code) in pairs) for there, _ in pairs)
        if own and not passes_on(variable):
            yield ("compared",), code
    elif name in variable.reads and not (name == getattr(variable, "of", None) and _hands_on(variable, name)):
        yield ("compared",), code  # equality and order tell every class apart


def _hands_on(variable: Hypothesis, name: str) -> bool:
    """A head that passes the value on and does nothing else with it."""
    return passes_on(variable) and not (isinstance(variable, Gathered) and name in variable.selector.reads)


def _rows(
    table: Mapping[tuple[int, ...], Any], reads: tuple[str, ...], name: str, code: int
) -> Iterator[tuple[tuple[int, ...], Any]]:
    slot = reads.index(name)
    return ((key[:slot] + key[slot + 1 :], value) for key, value in table.items() if key[slot] == code)


def renamed_codes(program: CircuitProgram, name: str, rename: Mapping[int, int]) -> CircuitProgram:
    """The program with every reader of a variable written for new codes; several old codes may have one new one."""
    variables = {c: _renamed(variable, name, rename) for c, variable in program.variables.items()}
    output = program.output
    if output is not None and name in output.reads and output.line is None:
        output = replace(output, table=_renamed_table(output.table, output.reads, name, rename))
    renamed = replace(program, variables=variables, output=output)
    for component, variable in program.variables.items():
        if name == getattr(variable, "of", None) and passes_on(variable):
            renamed = renamed_codes(renamed, str(component), rename)
    return renamed


def _renamed(variable: Hypothesis, name: str, rename: Mapping[int, int]) -> Hypothesis:
    if name not in variable.reads:
        return variable
    if isinstance(variable, Table):
        return replace(variable, codes=_renamed_table(variable.codes, variable.reads, name, rename))
    if isinstance(variable, Mean) and variable.of == name:
        value, *others = _renamed_set((variable.value, *variable.others), rename)
        return replace(variable, value=value, others=tuple(others))
    if isinstance(variable, Width) and variable.selector.kind == "constant":
        constant, *others = _renamed_set((variable.selector.constant, *variable.selector.others), rename)
        return replace(variable, selector=replace(variable.selector, constant=constant, others=tuple(others)))
    if isinstance(variable, Gathered) and variable.numbers and variable.of == name:
        variable = replace(variable, numbers=_renamed_numbers(variable.numbers, rename))
    if isinstance(variable, Gathered | Width) and variable.selector.kind == "pairs":
        return replace(variable, selector=_renamed_pairs(variable.selector, name, rename))
    if isinstance(variable, Copy) and variable.by == name:
        routes = {(own, rename.get(value, value)): place for (own, value), place in variable.table.items()}
        return replace(variable, table=routes)
    if isinstance(variable, Gated) and variable.by == name:
        return replace(variable, value=rename.get(variable.value, variable.value))
    return variable


def _renamed_numbers(numbers: tuple[float, ...], rename: Mapping[int, int]) -> tuple[float, ...]:
    """What the new codes stand for; several old codes of one new one stand for the same."""
    renamed = {rename.get(code, code): number for code, number in enumerate(numbers)}
    return tuple(renamed.get(code, 0.0) for code in range(max(renamed) + 1))


def _renamed_pairs(selector: Selector, name: str, rename: Mapping[int, int]) -> Selector:
    there = rename if selector.keys == name else {}
    here = rename if selector.queries == name else {}
    return replace(selector, pairs=frozenset((there.get(a, a), here.get(b, b)) for a, b in selector.pairs))


def in_order(program: CircuitProgram, component: Component) -> CircuitProgram:
    """The program with the classes of one table numbered in the order in which a head compares them, and that head's
    list of pairs written as the comparison. A table that no head compares so is left as it is.
    """
    table, name = program.variables[component], str(component)
    if not isinstance(table, Table):
        return program
    codes = sorted(set(table.codes.values()))
    for reader, variable in program.variables.items():
        if not isinstance(variable, Gathered | Width) or variable.selector.kind != "pairs":
            continue
        selector = variable.selector
        compared = _compared(selector.pairs, codes) if selector.keys == selector.queries == name else None
        if compared is None:
            continue
        comparison, order = compared
        rename = {**{code: place for place, code in enumerate(order)}, table.n_classes: len(order)}
        plain = replace(selector, kind="compare", comparison=comparison, pairs=frozenset())
        variables = {**program.variables, reader: replace(variable, selector=plain)}
        renamed = renamed_codes(replace(program, variables=variables), name, rename)
        ordered = replace(table, codes={key: rename[code] for key, code in table.codes.items()}, n_classes=len(order))
        return replace(renamed, variables={**renamed.variables, component: ordered})
    return program


def _compared(pairs: frozenset[tuple[int, int]], codes: list[int]) -> tuple[str, list[int]] | None:
    """The comparison and the order of classes that pairs amount to: each selects all those before it."""
    chosen = {here: {there for there, to in pairs if to == here and there in codes} for here in codes}
    order = sorted(codes, key=lambda code: len(chosen[code]))
    for comparison, reflexive in (("LT", 0), ("LEQ", 1)):
        if all(chosen[code] == set(order[: place + reflexive]) for place, code in enumerate(order)):
            return comparison, order
    return None


def _renamed_set(codes: tuple[int, ...], rename: Mapping[int, int]) -> list[int]:
    return list(dict.fromkeys(rename.get(code, code) for code in codes))


def _renamed_table(
    table: Mapping[tuple[int, ...], Any], reads: tuple[str, ...], name: str, rename: Mapping[int, int]
) -> dict[tuple[int, ...], Any]:
    slot = reads.index(name)
    renamed: dict[tuple[int, ...], Any] = {}
    for key, value in table.items():
        renamed.setdefault((*key[:slot], rename.get(key[slot], key[slot]), *key[slot + 1 :]), value)
    return renamed


def without_constant_arguments(program: CircuitProgram, component: Component) -> CircuitProgram:
    """The program without those arguments of a table that it is constant in."""
    table = program.variables[component]
    if not isinstance(table, Table):
        return program
    for name in table.reads:
        smaller = _projected(table, name)
        if smaller is not None and all(len(set(codes)) == 1 for codes in smaller.values()):
            reads = tuple(read for read in table.reads if read != name)
            table = replace(table, reads=reads, codes={key: codes[0] for key, codes in smaller.items()})
    return replace(program, variables={**program.variables, component: table})


def without_argument(
    program: CircuitProgram, component: Component, name: str, env: Environment
) -> CircuitProgram | None:
    """The program with one argument of a table dropped, each entry the most frequent of those it joins on these runs;
    None where the table has no other argument.
    """
    table = program.variables[component]
    if not isinstance(table, Table) or _projected(table, name) is None:
        return None
    counts: dict[tuple[int, ...], int] = {}
    arguments = torch.stack([env[read][env.real] for read in table.reads], -1)
    cells, n = arguments.unique(dim=0, return_counts=True)
    counts = {tuple(key): int(count) for key, count in zip(cells.tolist(), n, strict=True)}
    slot = table.reads.index(name)
    votes: dict[tuple[int, ...], dict[int, int]] = {}
    for key, code in table.codes.items():
        box = votes.setdefault(key[:slot] + key[slot + 1 :], {})
        box[code] = box.get(code, 0) + counts.get(key, 0)
    codes = {key: max(box, key=lambda code: (box[code], -code)) for key, box in votes.items()}
    reads = tuple(read for read in table.reads if read != name)
    return replace(program, variables={**program.variables, component: replace(table, reads=reads, codes=codes)})


def _projected(table: Table, name: str) -> dict[tuple[int, ...], list[int]] | None:
    """The codes that entries have which differ in one argument only; None for the only argument."""
    if len(table.reads) < 2:
        return None
    slot = table.reads.index(name)
    codes: dict[tuple[int, ...], list[int]] = {}
    for key, code in table.codes.items():
        codes.setdefault(key[:slot] + key[slot + 1 :], []).append(code)
    return codes


#: Rounding may move an output by so much, a fifth of what tells two outputs apart.
LARGEST_MOVE = TOLERANCE / 5
MOST_DECIMALS = 6


def with_few_decimals(program: CircuitProgram, held_out: RecordedRun) -> CircuitProgram:
    """The program with its numbers rounded; one without numbers is returned as it is."""
    if not program.numeric or program.output is None:
        return program
    right = int(agreement(program, held_out).sum())
    for decimals in range(MOST_DECIMALS):
        candidate = _rounded(program, decimals)
        if _largest_move(program, candidate, held_out) > LARGEST_MOVE:
            continue
        if int(agreement(candidate, held_out).sum()) >= right:
            return candidate
    return _rounded(program, MOST_DECIMALS)


def _largest_move(program: CircuitProgram, rounded: CircuitProgram, held_out: RecordedRun) -> float:
    """How far an output moves, on the inputs and in any entry of the table: exchanges reach what inputs do not."""
    assert program.output is not None
    assert rounded.output is not None
    envs = [each.environment(held_out.sequences) for each in (program, rounded)]
    moved = (rounded.predict(envs[1]) - program.predict(envs[0]))[envs[0].real].abs()
    if program.output.line is not None:
        return float(moved.max())
    pairs = zip(program.output.table.values(), rounded.output.table.values(), strict=True)
    entries = [abs(before - after) for before, after in pairs]
    return max(float(moved.max()), abs(program.output.default - rounded.output.default), *entries)


def _rounded(program: CircuitProgram, decimals: int) -> CircuitProgram:
    assert program.output is not None
    variables = {component: _variable(variable, decimals) for component, variable in program.variables.items()}
    return replace(program, variables=variables, output=_output(program.output, decimals))


def _variable(variable: Hypothesis, decimals: int) -> Hypothesis:
    if not isinstance(variable, Linear):
        return variable
    weights = tuple(_decimal(weight, decimals) for weight in variable.weights)
    return replace(variable, weights=weights, offset=_decimal(variable.offset, decimals))


def _output(output: OutputMap, decimals: int) -> OutputMap:
    line = output.line
    if line is not None:
        line = replace(line, factor=_decimal(line.factor, decimals), offset=_decimal(line.offset, decimals))
    table = {key: _decimal(value, decimals) for key, value in output.table.items()}
    return replace(output, table=table, default=_decimal(output.default, decimals), line=line)


def _decimal(number: float, decimals: int) -> float:
    return round(number, decimals) + 0.0  # and no minus zero

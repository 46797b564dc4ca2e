"""A second reading of the language, one sequence and one position at a time, sharing no code with the interpreter.

It works on expressions and Python values: no codes, no tables, no tensors. A patch maps (expression, part) to the
values that replace it by position, where part is "head" for the count a SelectorWidth's head sees and "value" for
everything else.
"""

import math
from collections import Counter

from vesalius.rasp.language import (
    Aggregate,
    Indices,
    LinearSequenceMap,
    Map,
    SelectorWidth,
    SequenceMap,
    Tokens,
)


def value_list(node, vocab, max_len):
    """Values in order of first appearance when the inputs are combined freely, None left out."""
    if isinstance(node, Tokens):
        return list(vocab)
    if isinstance(node, Indices):
        return list(range(max_len))
    if isinstance(node, SelectorWidth):
        return list(range(max_len + 1))
    if isinstance(node, Aggregate):
        gathered = value_list(node.inputs[1], vocab, max_len)
        return gathered if node.default is None or node.default in gathered else [*gathered, node.default]
    if isinstance(node, Map):
        results = [defined(node.function, v) for v in value_list(node.inputs[0], vocab, max_len)]
    else:
        left, right = (value_list(operand, vocab, max_len) for operand in node.inputs)
        results = [defined(node.function, x, y) for x in left for y in right]
    found = []
    for result in results:
        if result is not None and result not in found:
            found.append(result)
    return found


def defined(function, *arguments):
    if None in arguments:
        return None
    try:
        result = function(*arguments)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(result, float) and math.isnan(result):
        return None
    return result


class Reading:
    """One sequence read by one program."""

    def __init__(self, sequence, vocab, max_len, causal, patches=None):
        self.sequence, self.vocab, self.max_len, self.causal = sequence, vocab, max_len, causal
        self.patches = patches or {}
        self.known = {}

    def of(self, node, part="value"):
        """The values of a node, one per position."""
        if (node, part) not in self.known:
            computed = self.compute(node, part)
            patch = self.patches.get((node, part), {})
            self.known[node, part] = [patch.get(i, value) for i, value in enumerate(computed)]
        return self.known[node, part]

    def compute(self, node, part):
        positions = range(len(self.sequence))
        if isinstance(node, Tokens):
            return list(self.sequence)
        if isinstance(node, Indices):
            return list(positions)
        if isinstance(node, Map):
            return [defined(node.function, v) for v in self.of(node.inputs[0])]
        if isinstance(node, SequenceMap):
            return [defined(node.function, x, y) for x, y in zip(*map(self.of, node.inputs), strict=True)]
        if isinstance(node, LinearSequenceMap):
            x, y = map(self.of, node.inputs)
            return [node.x_factor * (x[i] or 0) + node.y_factor * (y[i] or 0) for i in positions]
        if isinstance(node, SelectorWidth):
            return [len(self.selected(node, i)) for i in positions] if part == "head" else self.of(node, "head")
        return [self.gathered(node, [self.of(node.inputs[1])[k] for k in self.selected(node, i)]) for i in positions]

    def selected(self, node, query_position):
        select = node.inputs[0]
        keys, query = self.of(select.inputs[0]), self.of(select.inputs[1])[query_position]
        last = query_position + 1 if self.causal else len(self.sequence)
        return [
            k for k in range(last) if keys[k] is not None and query is not None and select.predicate(keys[k], query)
        ]

    def gathered(self, node, values):
        values = [value for value in values if value is not None]
        if node.numerical:
            return sum(values) / len(values) if values else 0.0
        if not values:
            return node.default
        most = max(Counter(values).values())
        return next(v for v in value_list(node.inputs[1], self.vocab, self.max_len) if values.count(v) == most)


def interchange(program, base, source, patched, source_positions=None):
    """The output on `base` with the components `patched` (indices) read from `source`, position by position."""
    setting = (program.vocab, program.max_len, program.causal)
    there = Reading(source, *setting)
    wanted = source_positions or list(range(len(base)))
    patches = {}
    for i in patched:
        placed = program.components[i]
        for node in placed.expressions:
            part = "head" if placed.kind == "head" and isinstance(node, SelectorWidth) else "value"
            values = there.of(node, part)
            patches[node, part] = {p: values[s] for p, s in enumerate(wanted) if 0 <= s < len(source)}
    return Reading(base, *setting, patches).of(program.output)

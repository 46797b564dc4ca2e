"""How often the notes on MLPs name the operation, and whether the names are right: the 84 circuits with the key open.

    python benchmarks/names.py --resume names.jsonl > names.json

The key decides for which MLPs a name exists: its variable is named, as a table over the values that occur, by the same
list of operations. "Kept apart" (the argument itself, or a pair) is not counted as an operation where only classes are
known. The share is that of those MLPs whose explanation names an operation.

Every name given is run as a function on fresh inputs and compared with the key's variables of that component, both
ways: `same` if each determines the other, `coarser` if only the key's determines the name (the readers need no more),
`finer` if only the name determines the key's (it tells apart what the key does not), `other` if neither: a wrong name.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from vesalius.api import load
from vesalius.documents.explanation import Explanation, NamedOperation
from vesalius.rasp import Program, SequenceMap
from vesalius.rasp.document import from_document
from vesalius.rasp.language import Map, Variable
from vesalius.statistics import share_interval
from vesalius_programs.explain import explain_specimen
from vesalius_programs.naming import Operation
from vesalius_programs.naming.operation import compiled, plain
from vesalius_programs.naming.table import name_table
from vesalius_truth.key import all_tasks
from vesalius_truth.key.task import Task

FRESH_SEED, FRESH = 50_001, 3000
KEPT_APART = ("identity", "pair")


def decoded(program: Program, inputs: list[list[Any]]) -> dict[str, list[Any]]:
    """The values of every categorical variable at every real position of the inputs."""
    tokens, lengths = program.encode(inputs)
    trace, real = program.run(tokens, lengths), tokens >= 0
    values: dict[str, list[Any]] = {}
    for node in program.expressions:
        if isinstance(node, Variable) and not node.numerical:
            name = program.name_of(node)
            listed = (*program.tables.domains[node].values, None)
            if name in trace.values:
                values[name] = [listed[code] for code in trace.values[name][real].tolist()]
    values["tokens"] = [token for row in inputs for token in row]
    values["indices"] = [place for row in inputs for place in range(len(row))]
    return values


def key_operation(program: Program, variables: tuple[str, ...], values: dict[str, list[Any]]) -> Operation | None:
    """The name of the key's table, where the component carries one and it has a name."""
    nodes = [node for node in program.expressions if isinstance(node, Map | SequenceMap)]
    nodes = [node for node in nodes if program.name_of(node) in variables]
    if len(variables) != 1 or len(nodes) != 1:
        return None
    node = nodes[0]
    reads = list(dict.fromkeys(program.name_of(operand) for operand in node.inputs))  # type: ignore[arg-type]
    columns = [values[name] for name in reads]
    entries = dict(zip(zip(*columns, strict=True), values[program.name_of(node)], strict=True))
    labels = {value: code for code, value in enumerate(dict.fromkeys(map(repr, entries.values())))}
    return name_table({key: labels[repr(value)] for key, value in entries.items()})


def named_values(
    component: str, operations: dict[str, NamedOperation], values: dict[str, list[Any]], nothing: str
) -> list[Any]:
    """What a component's name gives at every position; arguments that are named are what their names give."""
    if component not in operations:
        return [None if value == nothing else value for value in values[component]]
    operation = operations[component]
    columns = [
        named_values(name, operations, values, nothing) if name in operations else _plainly(values[name], nothing)
        for name in operation.arguments
    ]
    function = compiled(operation.formula, len(columns))
    found = []
    for key in zip(*columns, strict=True):
        if None not in key:
            found.append(plain(function(*key)))
        else:
            found.append(operation.otherwise if operation.undefined == "as" else None)
    return found


def _plainly(values: list[Any], nothing: str) -> list[Any]:
    return [None if value == nothing else value for value in values]


def relation(named: list[Any], key: list[Any]) -> str:
    """How two variables determine each other on the same positions."""
    forth: dict[Any, set[str]] = {}
    back: dict[str, set[Any]] = {}
    for one, two in zip(map(repr, named), map(repr, key), strict=True):
        forth.setdefault(one, set()).add(two)
        back.setdefault(two, set()).add(one)
    name_decides = all(len(values) == 1 for values in forth.values())
    key_decides = all(len(values) == 1 for values in back.values())
    if name_decides and key_decides:
        return "same"
    return "finer" if name_decides else "coarser" if key_decides else "other"


def examine(task: Task, run: Path | None = None) -> dict[str, Any]:
    """Every MLP of one circuit: the key's name, the name that was given, and how they compare."""
    began = time.perf_counter()
    specimen = load(task.id)
    explanation: Explanation = (
        explain_specimen(specimen) if run is None else Explanation.read(run / "explanations" / f"{task.id}.json")
    )
    program = task.program()
    inputs = specimen.sample(FRESH if task.max_len < 30 else FRESH // 10, FRESH_SEED)
    truth = decoded(program, inputs)
    theirs: dict[str, list[Any]] = {}
    if explanation.executable is not None:
        theirs = decoded(from_document(explanation.executable.program), inputs)
    operations = {part.id: part.operation for part in explanation.components if part.operation is not None}
    tokens = set(specimen.vocabulary.tokens)  # type: ignore[attr-defined]
    nothing = next(word for n in range(len(tokens) + 1) if (word := "nothing" + "_" * n) not in tokens)
    rows = []
    parts = {part.id: part for part in explanation.components}
    for component, variables in task.components:
        if component.is_head:
            continue
        by_key = key_operation(program, variables, truth) if all(name in truth for name in variables) else None
        given = operations.get(str(component))
        row: dict[str, object] = {
            "component": str(component),
            "by_key": None if by_key is None else by_key.operation,
            "key_formula": None if by_key is None else by_key.formula,
            "given": None if given is None else given.operation,
            "text": None if given is None else given.text,
            "verdict": parts[str(component)].verdict,
        }
        if given is not None:
            named = named_values(str(component), operations, theirs, nothing)
            carried = list(zip(*(truth[name] for name in variables if name in truth), strict=True))
            if given.at_own_position:  # the name is about each position by itself
                named, carried = (list(zip(theirs["indices"], column, strict=True)) for column in (named, carried))
            row["at_own_position"] = given.at_own_position
            row["relation"] = relation(named, carried) if carried else None
        rows.append(row)
    return {
        "id": task.id,
        "name": task.name,
        "task": explanation.task_description.split(". ")[0],
        "seconds": round(time.perf_counter() - began, 1),
        "mlps": rows,
    }


def summary(circuits: list[dict[str, Any]]) -> dict[str, Any]:
    """The share of names, and how the given names compare with the key."""
    rows = [row | {"circuit": circuit["id"]} for circuit in circuits for row in circuit["mlps"]]
    nameable = [row for row in rows if row["by_key"] is not None]
    operations = [row for row in nameable if row["by_key"] not in KEPT_APART]
    relations = Counter(row.get("relation") for row in rows if row["given"] is not None)
    wrong = [row for row in rows if row.get("relation") == "other"]
    return {
        "circuits": len(circuits),
        "mlps": len(rows),
        "named_of_nameable": _share([row["given"] is not None for row in nameable]),
        "named_of_operations": _share([row["given"] is not None for row in operations]),
        "given_by_relation": {str(name): count for name, count in sorted(relations.items(), key=str)},
        "wrong_names": len(wrong),
        "wrong": wrong,
        "tasks_named": sum(circuit["task"].startswith("The circuit ") for circuit in circuits),
    }


def _share(hits: list[bool]) -> dict[str, Any]:
    low, high = share_interval(sum(hits), len(hits))
    return {"value": sum(hits) / len(hits) if hits else None, "low": low, "high": high, "n": len(hits)}


def main() -> None:
    """Examine the circuits and print one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resume", type=Path, help="one line per finished circuit; finished ones are not run again")
    parser.add_argument("--run", type=Path, help="read the explanations of this run of `bench circuits`")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--without", nargs="+", default=[], help="ids left out, such as long ones")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = args.resume.read_text().splitlines() if args.resume and args.resume.exists() else []
    done = {circuit["id"]: circuit for circuit in map(json.loads, lines)}
    for task in all_tasks():
        if task.id in done or task.id in args.without or (args.only and task.id not in args.only):
            continue
        done[task.id] = examine(task, args.run)
        print(f"{task.id} {done[task.id]['seconds']} s", file=sys.stderr, flush=True)
        if args.resume:
            with args.resume.open("a") as file:
                file.write(json.dumps(done[task.id]) + "\n")
    circuits = sorted(done.values(), key=lambda circuit: int(circuit["id"]))
    print(json.dumps({"benchmark": "names", **summary(circuits), "per_circuit": circuits}, indent=2))


if __name__ == "__main__":
    main()

"""The answer key: published totals and sizes, notes, inert components, examples, and what it may import."""

import ast
import math
import re
from collections import Counter
from pathlib import Path

import pytest
import torch

import vesalius.rasp as rasp
import vesalius_truth.key as key
from vesalius.circuits.specimens import draw_inputs
from vesalius.components import Component
from vesalius.errors import BadInput

PAIRS = 2_000
TASKS = key.all_tasks()
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.id}-{task.name}")


def changed_positions(task: key.Task, column: int, *, across: bool = False) -> int:
    """At how many real positions the output changes when one component is patched from 2,000 other inputs."""
    program = task.program()
    base, source = (program.run(*draw_inputs(task.inputs, PAIRS, seed=seed)) for seed in (1, 2))
    patched = torch.zeros(PAIRS, len(program.components), dtype=torch.bool)
    patched[:, column] = True
    positions = None
    if across:
        generator = torch.Generator().manual_seed(3)
        positions = torch.randint(1_000, base.tokens.shape, generator=generator) % source.lengths[:, None]
    output = program.interchange(base, source, patched, positions=positions)
    is_real = torch.arange(output.shape[1]) < base.lengths[:, None]
    return int(((output != base.output) & is_real).sum())


def test_published_totals() -> None:
    components = [(task, component, tag) for task in TASKS for component, tag in key.task_roles(task).items()]
    assert len(TASKS) == 84
    assert Counter(component.is_head for _, component, _ in components) == {False: 120, True: 43}
    assert Counter(str(tag) for _, _, tag in components) == {
        "MAPPER": 72,
        "AGGREGATOR": 32,
        "COMBINER": 33,
        "ROUTER": 11,
        "INDICATOR": 15,
    }
    per_circuit = [len(task.components) for task in TASKS]
    assert Counter(per_circuit) == {1: 52, 2: 13, 3: 4, 4: 8, 5: 5, 6: 1, 10: 1}
    assert round(sum(per_circuit) / len(per_circuit), 2) == 1.94


def test_published_shape_of_the_set() -> None:
    assert [int(task.id) for task in TASKS] == sorted({int(task.id) for task in TASKS})
    assert len({task.name for task in TASKS}) == len({task.description for task in TASKS}) == 84
    assert {task.id for task in TASKS if task.numerical} == {"3", "4", "39"}
    assert sum(task.causal for task in TASKS) == 63
    assert {task.id: task.max_len for task in TASKS if task.max_len != 9} == {"3": 4, "15": 4, "19": 14, "39": 59}
    assert all(task.program().numerical == task.numerical for task in TASKS)


@pytest.mark.parametrize(
    ("id", "size", "first", "last"),
    [("51", 100, 0, 99), ("102", 40, -20, 19), ("130", 30, -15, 14), ("40", 29, 0, 28), ("114", 10, 1, 10)],
)
def test_vocabularies_of_numbers(id: str, size: int, first: int, last: int) -> None:
    vocab = key.task(id).vocab
    assert (len(vocab), vocab[0], vocab[-1]) == (size, first, last)
    assert {type(token) for token in vocab} == {int}


def test_where_components_sit() -> None:
    places = {id: [str(component) for component, _ in key.task(id).components] for id in ("3", "39", "18", "113")}
    assert places["3"] == ["L0_MLP", "L1H2"]  # the one head that is not where the program was placed
    assert places["39"] == ["L0_MLP", "L1H0"]
    assert places["18"] == ["L0H0", "L0H1", "L0_MLP", "L1_MLP"]
    assert places["113"] == (
        ["L0H0", "L0H1", "L0_MLP", "L1_MLP", "L2H0", "L2_MLP", "L3_MLP", "L4_MLP", "L5_MLP", "L6H0"]
    )


def test_the_filter_of_task_21_is_the_only_exception_to_the_rule() -> None:
    departures = [
        (task.id, str(component))
        for task in TASKS
        for component, role in rasp.roles_of(task.program()).items()
        if key.task_roles(task)[task.locate(component)] != role
    ]
    assert departures == [("21", "L3H0")]


# id: layers, d_model, d_head of the published model
PUBLISHED = {
    "2": (4, 56, 14),
    "3": (2, 12, 3),
    "7": (2, 17, 4),
    "8": (2, 4, 1),
    "18": (2, 26, 6),
    "20": (2, 13, 3),
    "21": (4, 50, 12),
    "24": (2, 36, 9),
    "25": (2, 62, 15),
    "35": (2, 9, 2),
    "36": (2, 6, 1),
    "39": (2, 120, 30),
    "93": (3, 20, 5),
    "97": (3, 200, 50),
    "103": (3, 24, 6),
    "113": (7, 88, 22),
}


@pytest.mark.parametrize("id", PUBLISHED)
def test_published_sizes(id: str) -> None:
    size = key.published_size(key.task(id))
    assert (size.n_layers, size.d_model, size.d_head) == PUBLISHED[id]
    assert (size.n_heads, size.d_mlp) == (4, 4 * size.d_model)


def test_size_of_reverse_worked_by_hand() -> None:
    program = key.task("reverse").program()
    # 26 letters with BOS and one as query side of the length head
    assert program.d_head == 28
    # tokens 28, positions 9, one 1, length 10 and its head 1, two differences of 18 values each, 26 letters out
    assert program.d_model == 28 + 9 + 1 + 11 + 18 + 18 + 26


def test_published_spread_of_sizes() -> None:
    sizes = [key.published_size(task) for task in TASKS]
    assert Counter(size.n_layers for size in sizes) == {2: 70, 3: 10, 4: 3, 7: 1}
    assert sum((size.d_model, size.d_head) == (4, 1) for size in sizes) == 50


def test_sizes_that_depart_from_the_rule() -> None:
    rule = {task.id: key.rule_size(task).d_model for task in TASKS}
    published = {task.id: key.published_size(task).d_model for task in TASKS}
    trained = {task.id: key.trained_size(task).d_model for task in TASKS}
    assert {id: (rule[id], published[id]) for id in rule if rule[id] != published[id]} == {"20": (4, 13)}
    assert {id: (published[id], trained[id]) for id in rule if published[id] != trained[id]} == {
        "39": (120, 32),
        "97": (200, 64),
    }


def test_every_component_has_its_own_note() -> None:
    for task in TASKS:
        assert set(task.notes) == {str(component) for component, _ in task.components}
    notes = [note for task in TASKS for note in task.notes.values()]
    assert len(notes) == len(set(notes)) == 163
    assert min(map(len, notes)) > 40


@every_task
def test_notes_name_only_components_of_their_circuit(task: key.Task) -> None:
    named = {name for note in task.notes.values() for name in re.findall(r"L\d+(?:H\d+|_MLP)", note)}
    assert named <= set(task.notes)


@pytest.mark.slow
@every_task
def test_inert_marks_are_what_interchange_shows(task: key.Task) -> None:
    for column, (component, _) in enumerate(task.components):
        is_inert = changed_positions(task, column) == 0
        assert is_inert == key.is_interchange_inert(task.id, component)


def test_the_three_inert_components_and_how_they_can_be_shown() -> None:
    assert set(key.INERT) == {("53", Component(0)), ("56", Component(0)), ("130", Component(0))}
    for id, component in key.INERT:
        shows = changed_positions(key.task(id), 0, across=True) > 0
        assert shows == key.shows_across_positions(id, component) == (id != "130")


@every_task
def test_answer_program_is_the_program(task: key.Task) -> None:
    text = key.answer(task.id).program
    namespace: dict = {name: getattr(rasp, name) for name in rasp.__all__} | {"math": math}
    exec(text, namespace)
    output = namespace[text.splitlines()[-1].split(" = ")[0]]
    twin = rasp.compile_program(output, task.vocab, task.max_len, causal=task.causal)
    codes, lengths = draw_inputs(task.inputs, 200, seed=5, min_length=1)
    expected, actual = (
        program.decode(program.run(codes, lengths).output, lengths) for program in (task.program(), twin)
    )
    assert expected == actual


def test_answer_of_frac_prevs() -> None:
    answer = key.answer("frac_prevs")
    assert answer == key.answer(3)
    assert answer.program.endswith(
        "is_x = Map(equals_x, tokens)\n"
        "share_of_x = Aggregate(Select(indices, indices, Comparison.LEQ), is_x, numerical=True)"
    )
    parts = [(part.id, str(part.tag), part.variables, part.interchange_inert) for part in answer.components]
    assert parts == [("L0_MLP", "INDICATOR", ("is_x",), False), ("L1H2", "AGGREGATOR", ("share_of_x",), False)]
    assert type(answer).model_validate_json(answer.model_dump_json()) == answer


def test_unknown_task_names_what_exists() -> None:
    with pytest.raises(BadInput, match=r"'1000' does not exist.*2 reverse.*84 in all"):
        key.task("1000")


@every_task
def test_examples_show_the_behaviour(task: key.Task) -> None:
    examples = key.examples(task)
    assert examples == key.examples(task)
    assert len({(example.input, example.output) for example in examples}) == 5
    assert len({len(example.input) for example in examples}) >= 3
    program = task.program()
    codes, lengths = program.encode([example.input for example in examples])
    outputs = program.decode(program.run(codes, lengths).output, lengths)
    assert [list(example.output) for example in examples] == [pytest.approx(output, abs=1e-6) for output in outputs]
    assert len({value for example in examples for value in example.output}) >= 2


def test_examples_of_branching_tasks_show_both_branches() -> None:
    sorted_ones = [example.input != example.output for example in key.examples(key.task("113"))]
    assert 2 <= sum(sorted_ones) <= 3
    for id in ("124", "129"):
        verdicts = [example.output[0] for example in key.examples(key.task(id))]
        assert 2 <= sum(verdicts) <= 3


@pytest.mark.slow
def test_samplers_reach_the_rare_branch_half_the_time() -> None:
    shares = {}
    for id in ("113", "124", "129"):
        task = key.task(id)
        codes, lengths = draw_inputs(task.inputs, 4_000, seed=0)
        program = task.program()
        outputs = program.decode(program.run(codes, lengths).output, lengths)
        inputs = [[task.vocab[code] for code in row[:length]] for row, length in zip(codes, lengths, strict=True)]
        is_rare = [
            output != tokens if id == "113" else output[0] == 1 for tokens, output in zip(inputs, outputs, strict=True)
        ]
        shares[id] = sum(is_rare) / len(is_rare)
    assert all(0.48 < share < 0.62 for share in shares.values()), shares


def test_drawn_inputs_fit_the_task() -> None:
    task = key.task("19")
    codes, lengths = draw_inputs(task.inputs, 3_000, seed=0, min_length=1)
    assert set(lengths.tolist()) == set(range(1, 15))
    is_real = torch.arange(14) < lengths[:, None]
    assert codes[~is_real].unique().tolist() == [-1]
    assert codes[is_real].unique().tolist() == [0, 1, 2]
    with pytest.raises(BadInput, match="min_length=15 is out of range: n must be"):
        draw_inputs(task.inputs, 10, seed=0, min_length=15)


def test_the_key_imports_only_lower_floors() -> None:
    package = Path(key.__file__).parent
    ground = ("vesalius.components", "vesalius.errors", "vesalius.files")
    rooms = ("key", "making", "planted", "readings", "training")
    truth = tuple(f"vesalius_truth.{room}" for room in rooms)
    allowed = ("vesalius.circuits", *truth, "vesalius.rasp", "vesalius.model", *ground)
    imported = {
        node.module
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("vesalius")
    }
    assert imported
    assert all(module.startswith(allowed) for module in imported), imported

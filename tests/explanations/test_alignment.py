"""Variables are found where weights set by hand hold them, and nowhere else; every exchange equals plain hooks."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.devices import LogicalDevices
from tests.explanations.difference_model import BEHAVIOUR, BLOCKS, D_MODEL, difference_model, direct_model
from tests.explanations.induction_model import as_specimen
from tests.models import random_model, small_config
from vesalius.behaviours.registry import behaviour
from vesalius.cli.terminal import lines_of
from vesalius.components import Component
from vesalius.documents.alignment import Alignment
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.errors import BadInput, Failed
from vesalius.explanations.variables import directions
from vesalius.explanations.variables.algorithms import find_algorithm, parse_algorithm, shipped
from vesalius.explanations.variables.align import Asked, align_variables, grade_places, layers_named
from vesalius.explanations.variables.pairs import Graded, Pairs, make_pairs
from vesalius.explanations.variables.places import parse_places
from vesalius.explanations.variables.sides import Side, sources_of
from vesalius.intervene.exchanging import Exchange, Place, Sides
from vesalius.model.devices import spread
from vesalius.model.specimen import Specimen
from vesalius.model.transformer import Transformer
from vesalius.progress import silent
from vesalius.sites import Site

ROLES = ("A", "B", "C", "end")


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return as_specimen(difference_model(), BEHAVIOUR)


@pytest.fixture(scope="module")
def alignment(specimen: Specimen) -> Alignment:
    return ves.align(specimen, n=16, held_out=40, against="arithmetic-sum-first", progress=False)


def pairs_of(specimen: Specimen, split: str, n: int) -> Pairs:
    sources = sources_of(specimen, behaviour(BEHAVIOUR), split, n=n, seed=0)
    algorithm = find_algorithm("arithmetic", behaviour="")
    with algorithm.runner() as runner:
        return make_pairs(specimen.model, runner, sources.cases(n, split), sources.token_of, roles=ROLES, pad=0)


@pytest.fixture(scope="module")
def pairs(specimen: Specimen) -> Pairs:
    return pairs_of(specimen, "train", 24)


# A model that holds A - B at B's position.


@pytest.mark.slow
def test_variables_are_found_where_the_weights_hold_them(alignment: Alignment) -> None:
    places = {one.name: one.place for one in alignment.variables}
    assert places == {
        "A": "resid0@A",
        "B": "resid0@B",
        "C": "resid0@C",
        "difference": "resid1@B",
        "answer": "resid2@end",
    }
    assert alignment.agreement.value == 1.0
    for one in alignment.variables:
        assert one.accuracy.value is not None
        assert one.accuracy.value >= 0.95
        assert one.control.value is not None
        assert one.control.value <= 0.05
        assert one.places[0].kept.value == 1.0
    assert alignment.answer is not None
    assert alignment.answer["verdict"] == "yes"
    said = alignment.answer["text"].removeprefix("by_hand, ").partition(" holds ")[2]
    assert said.startswith("difference in the residual stream before layer 1 at B (1.00 ")
    assert said.endswith("; by construction at the embedding or the output: A, B, C, answer")


@pytest.mark.slow
def test_the_map_is_one_where_a_variable_is_read_later_and_zero_elsewhere(alignment: Alignment) -> None:
    difference, c = alignment.variable("difference").map, alignment.variable("C").map
    assert alignment.layers == (0, 1, 2)
    assert difference == {"A": (0, 0, 0), "B": (0, 1, 0), "C": (0, 0, 0), "end": (0, 0, 0)}
    assert c["C"] == (1, 1, 0)  # L1H1 reads C's position in the last layer


@pytest.mark.slow
def test_the_component_that_brings_a_variable_is_named(alignment: Alignment) -> None:
    (brought,) = alignment.variable("answer").carriers
    assert brought.components == ("L1_MLP",)
    assert brought.share.value == brought.every.value == 1.0
    assert brought.others.value == 1.0  # the two heads of the layer, from which the MLP computes it
    assert "by L1_MLP" in alignment.variable("answer").path()


@pytest.mark.slow
def test_a_rival_that_computes_another_way_loses_where_they_differ(alignment: Alignment) -> None:
    assert alignment.against is not None
    (at,) = [one for one in alignment.against.places if one.variable == "difference"]
    assert at.place == "resid1@B"
    assert (at.ours.value, at.theirs.value) == (1.0, 0.0)
    assert at.ours.n >= 40


@pytest.mark.slow
def test_a_variable_that_the_model_does_not_compute_has_no_place(specimen: Specimen) -> None:
    result = ves.align(specimen, algorithm="arithmetic-sum-first", n=12, held_out=24, together=2, progress=False)
    total = result.variable("total")
    assert total.place is None
    assert not any(place.carries for place in total.places)
    assert (total.accuracy.value or 0.0) <= 0.2
    assert result.answer is not None
    assert result.answer["verdict"] == "no"  # the other variables stand at the ends by construction
    assert " carries total (best 0." in result.answer["text"]
    assert total.tried == 3 * 4 + 4 * 4 + 6  # residual streams; heads and MLPs of two layers; pairs of roles before L1


@pytest.mark.slow
def test_positions_that_hold_the_inputs_apart_hold_nothing_that_is_computed_from_them() -> None:
    """Exchanging A's and B's positions exchanges A - B in a model that looks A, B and C up at once."""
    direct = as_specimen(direct_model(), BEHAVIOUR)
    result = ves.align(direct, n=12, held_out=24, together=2, progress=False)
    difference = result.variable("difference")
    (pair,) = [one for one in difference.places if one.place == "resid1@A+B"]
    assert (pair.accuracy.value, pair.kept.value, pair.verdict) == (1.0, 1.0, "no")
    assert dict(pair.inputs) == {"A": "A", "B": "B"}
    assert difference.place is None
    assert result.answered().verdict == "no"
    assert "carries difference (best 0." in result.answered().text
    assert "resid1@A+B holds its inputs apart (A at A, B at B)" in difference.path()
    assert result.variable("A").place == "resid0@A"
    hidden = parse_algorithm(f"VARIABLES = ['difference']\n{result.program}", name="hidden", shipped=True)
    given = grade_places(direct, hidden, {"difference": "resid1@A+B"}, n=24, seed=0)
    assert given.places["difference"].verdict == "no"
    held = grade_places(as_specimen(difference_model(), BEHAVIOUR), hidden, {"difference": "resid1@A+B"}, n=24, seed=0)
    assert held.places["difference"].verdict == "carries"  # B's position holds A - B, and A's nothing that is read


@pytest.mark.slow
def test_an_algorithm_that_gives_no_answer_of_the_model_is_refuted(specimen: Specimen, tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    for answer in ("float('nan')", "{'a': A}", "None", "object()", "10 ** 5000", "str(A) * 3"):
        program.write_text(f"def answer(A):\n    return {answer}\n")
        result = ves.align(specimen, algorithm=program, n=4, held_out=4, together=2, directions=2, progress=False)
        assert (result.agreement.value, result.answered().verdict) == (0.0, "no")
        assert "does not describe" in result.answered().text


@pytest.mark.slow
def test_variables_that_no_source_separates_are_said_to_be(specimen: Specimen) -> None:
    program = "def answer(late):\n    return late\n\ndef late(A, B, C):\n    return A - B + C\n"
    asked = Asked(4, 4, 0, "2", 1, 0, (), ())
    algorithm = parse_algorithm(program, name="twice", shipped=True)
    request = Request(command="align", specimen="by_hand", behaviour=BEHAVIOUR)
    result = align_variables(specimen, algorithm, asked, rival=None, request=request, progress=silent)
    assert result.alike == (("late", "answer"),)
    said = result.answered().text
    assert said.count("late") == 1
    assert "late or answer (no source separates them) (best 0." in said
    assert "No source separates late and answer" in str(result.view().sections)
    assert result.shared == 0  # the splits have no prompt in common


def test_prompts_that_choose_and_grade_places_are_not_called_held_out() -> None:
    golden = Alignment.read(Path(__file__).parents[1] / "documents" / "golden" / "alignment.json")
    apart = "\n".join(lines_of(golden.view(), width=200))
    assert "pairs of held-out templates and words" in apart
    shared = "\n".join(lines_of(golden.model_copy(update={"shared": 5}).view(), width=200))
    assert "5 of their prompts chose places too: give the rows a column `split`" in shared
    assert "held-out" not in shared


@pytest.mark.slow
def test_a_false_algorithm_is_refused_by_its_share_of_the_answers(specimen: Specimen) -> None:
    result = ves.align(specimen, algorithm="arithmetic-last-two", n=12, held_out=24, progress=False)
    assert result.agreement.value is not None
    assert result.agreement.value < 0.5
    assert result.answer is not None
    assert result.answer["verdict"] == "no"
    assert "does not describe" in result.answer["text"]


@pytest.mark.slow
def test_the_arithmetic_model_has_no_place_for_the_difference() -> None:
    result = ves.align("arithmetic", n=12, held_out=24, progress=False)
    places = {one.name: one.place for one in result.variables}
    assert places == {"A": "resid0@A", "B": "resid0@B", "C": "resid0@C", "difference": None, "answer": "resid3@end"}
    assert (result.variable("difference").accuracy.value or 0.0) <= 0.2
    answer = result.answered()
    assert answer.verdict == "no"
    assert answer.text.startswith("no place of arithmetic, addition")
    assert " carries difference (best 0." in answer.text


# Subspaces.


@pytest.mark.slow
def test_training_turns_directions_into_those_set_by_hand(specimen: Specimen) -> None:
    """The subspace that layer 1 reads is the block of A - B, of which differences of one-hot vectors span eight."""
    place, k = Place(("B",), layer=1), 8
    block = torch.zeros(D_MODEL, 9)
    block[BLOCKS["difference"]] = torch.eye(9)
    pairs, other = pairs_of(specimen, "train", 40), pairs_of(specimen, "test", 40)
    rows = torch.cat([other.rows("difference", part) for part in ("changes", "stays")])

    def share(found: Tensor) -> float:
        return directions.graded(other, "difference", place.within(found), rows).score

    assert share(block) == 1.0
    fitted = directions.fit(pairs, "difference", place, k, enough=1.0, seed=0)
    assert fitted.how == directions.TRAINED
    found = fitted.place.directions
    assert found is not None
    assert torch.allclose(found.T @ found, torch.eye(k), atol=1e-5)
    start = directions.principal(pairs, pairs.rows("difference", "changes"), place, k)
    inside = [float((block.T @ one).square().sum() / k) for one in (start, found)]
    assert inside[1] > inside[0] + 0.2
    assert inside[1] >= 0.6  # of random directions 0.18
    assert share(found) >= 0.6 > 0.5 >= share(start)
    assert share(directions.random_directions(D_MODEL, k, seed=0)) <= 0.1


def test_a_subspace_of_all_directions_is_the_whole_place(pairs: Pairs) -> None:
    rows = torch.arange(12)
    whole = Place(("B",), layer=1)
    assert torch.allclose(
        pairs.exchange.patched(whole, rows), pairs.exchange.patched(whole.within(torch.eye(D_MODEL)), rows), atol=1e-4
    )
    nothing = whole.within(torch.zeros(D_MODEL, 1))
    clean = pairs.exchange.patched(None, rows)
    assert torch.allclose(pairs.exchange.patched(nothing, rows), clean, atol=1e-4)


# Every exchange equals a run of the base with plain hooks.


def sides(rng: random.Random, n: int, longest: int) -> list[Side]:
    """Random tokens of several lengths, with two roles."""
    made = []
    for _ in range(n):
        length = rng.randint(4, longest)
        tokens = tuple(rng.randrange(20) for _ in range(length))
        made.append(Side(tokens, {}, {"one": rng.randrange(length - 1), "end": length - 1}))
    return made


PLACES = [
    Place(("one",), layer=0),
    Place(("one",), layer=1),
    Place(("end",), layer=2),
    Place(("one", "end"), layer=1),
    Place(("end",), layer=3),
    Place(("one",), components=(Component(0, 1),)),
    Place(("end",), components=(Component(0, 1), Component(2, 0))),
    Place(("one",), components=(Component(1, 0), Component(1))),
    Place(("one",), components=(Component(2, 1),)),
    Place(("end",), components=(Component(2),)),
    Place(("end",), components=(Component(0, 0), Component(1), Component(2, 3))),
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_exchange_equals_plain_hooks(place: Place) -> None:
    model = random_model(small_config(n_layers=3, d_vocab=20, d_vocab_out=20, n_ctx=12), seed=1)
    rng = random.Random(0)
    bases, sources = sides(rng, 3, 8), sides(rng, 5, 12)
    base_of = torch.tensor([0, 0, 1, 2, 2])
    roles = ("one", "end")
    exchange = Exchange(model, roles, Sides.of(bases, roles, 0), Sides.of(sources, roles, 0), base_of, None, None)
    exchange.record()
    logits = exchange.patched(place, torch.arange(5))
    for row, source in enumerate(sources):
        base = bases[int(base_of[row])]
        assert torch.allclose(logits[row], twin(model, place, base, source), atol=1e-4)


def twin(model: Transformer, place: Place, base: Side, source: Side) -> Tensor:
    """One base alone, with one hook for each activation that is replaced."""
    _, cache = model.run_with_cache(torch.tensor([source.tokens]))
    hooks = []

    def put(name: str, head: int | None) -> None:
        def replace(value: Tensor, _: object) -> Tensor:
            value = value.clone()
            for role in place.roles:
                to, of = base.roles[role], source.roles[role]
                if head is None:
                    value[0, to] = cache[name][0, of]
                else:
                    value[0, to, head] = cache[name][0, of, head]
            return value

        hooks.append((name, replace))

    if place.layer is not None:
        last = model.config.n_layers
        put(
            f"blocks.{last - 1}.hook_resid_post" if place.layer == last else f"blocks.{place.layer}.hook_resid_pre",
            None,
        )
    for part in place.components:
        put(f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}", part.head)
    return model.run_with_hooks(torch.tensor([base.tokens]), fwd_hooks=hooks)[0, -1]


def test_the_answer_is_the_largest_among_the_choices() -> None:
    model = random_model(small_config(n_layers=2, d_vocab=20, d_vocab_out=20, n_ctx=12), seed=2)
    rng = random.Random(1)
    (base,), some = sides(rng, 1, 8), sides(rng, 4, 8)
    roles = ("one", "end")
    options = torch.tensor([[3, 7, -1], [3, 7, 9], [11, -1, -1], [3, 7, 9]])
    args = (Sides.of([base], roles, 0), Sides.of(some, roles, 0), torch.zeros(4, dtype=torch.long))
    exchange = Exchange(model, roles, *args, torch.tensor([[3, 7]]), options)
    exchange.record()
    place = Place(("end",), layer=1)
    logits = exchange.patched(place, torch.arange(4))
    expected = [
        max((one for one in row if one >= 0), key=lambda t: float(logits[i, t]))
        for i, row in enumerate(options.tolist())
    ]
    assert exchange.answers(place, torch.arange(4)).tolist() == expected


# Algorithms.

TWO_STEPS = """
VARIABLES = ["early", "late", "answer"]

def answer(late, x):
    return _double(late) + x

def late(early):
    return early + 1

def early(x, y):
    return x * y

def _double(n):
    return 2 * n
"""


def test_an_interchange_is_worked_by_hand() -> None:
    """x = 2, y = 3: early 6, late 7, answer 16; x = 5, y = 1: early 5, late 6, answer 17."""
    algorithm = parse_algorithm(TWO_STEPS, name="two-steps", shipped=True)
    assert list(algorithm.functions) == ["early", "late", "answer"]
    assert algorithm.inputs == ("x", "y")
    with algorithm.runner() as runner:
        (one,) = runner.predicted([({"x": 2, "y": 3}, {"x": 5, "y": 1})])
    assert (one.base, one.source) == (16, 17)
    assert one.after == {"early": 2 * 6 + 2, "late": 2 * 6 + 2, "answer": 17}
    assert one.same == ()
    assert one.choices is None


def test_a_variable_without_a_value_has_no_prediction() -> None:
    source = "def kind(x):\n    return None if x > 3 else x\n\ndef answer(kind, x):\n    return 1 // (2 - kind) + x\n"
    algorithm = parse_algorithm(source, name="partial", shipped=True)
    with algorithm.runner() as runner:
        none, raises = runner.predicted([({"x": 1}, {"x": 1}), ({"x": 1}, {"x": 3})])
    assert none.after == {"x": 2, "kind": 2, "answer": 2}
    assert raises.after["kind"] == 1 // (2 - 3) + 1
    with pytest.raises(TypeError), algorithm.runner() as runner:  # the source itself has no answer
        runner.predicted([({"x": 1}, {"x": 4})])


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def answer(x:\n", "not Python"),
        ("def other(x):\n    return x\n", "no function `answer`"),
        ("def a(b):\n    return b\ndef b(a):\n    return a\ndef answer(a):\n    return a\n", "read each other"),
        ("VARIABLES = ['z']\ndef answer(x):\n    return x\n", "VARIABLES names 'z'; it has x, answer"),
        ("VARIABLES = 3\ndef answer(x):\n    return x\n", "VARIABLES is a list of names"),
        ("VARIABLES = {[]}\ndef answer(x):\n    return x\n", "VARIABLES is a list of names"),
        ("VARIABLES: list[str] = ['z']\ndef answer(x):\n    return x\n", "VARIABLES names 'z'; it has x, answer"),
        ("def answer(*x):\n    return x\n", "takes its inputs by name"),
        ("def choices(answer):\n    return []\ndef answer(x):\n    return x\n", "may read inputs only"),
    ],
)
def test_a_program_that_cannot_be_read_is_refused(source: str, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        parse_algorithm(source, name="mine.py")


def test_missing_programs_and_inputs_are_refused(specimen: Specimen, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="algorithm 'banana' does not exist; choose one of arithmetic"):
        ves.align(specimen, algorithm="banana")
    with pytest.raises(BadInput, match="no such file"):
        ves.align(specimen, algorithm=tmp_path / "none.py")
    with pytest.raises(BadInput, match="'subject' is neither one of its functions nor an input"):
        ves.align(specimen, algorithm="ioi", n=2, held_out=2, progress=False)
    for name in ("successor", "ioi.jsonl", "capitals-of-mine.csv", "addition:signs=-++"):
        with pytest.raises(BadInput, match="no algorithm ships with it"):
            find_algorithm(None, behaviour=name)
    assert find_algorithm(None, behaviour="addition:signs=-+,high=4").name == "arithmetic"


def test_every_shipped_program_is_read() -> None:
    assert {"arithmetic", "ioi", "ioi-by-name", "greater-than", "capitals", "induction"} <= set(shipped())
    for name in shipped():
        assert "answer" in find_algorithm(name, behaviour="").functions


@pytest.mark.slow
def test_a_users_program_runs_in_the_sandbox(specimen: Specimen, tmp_path: Path) -> None:
    program = tmp_path / "mine.py"
    program.write_text("def gap(A, B):\n    return A - B\n\ndef answer(gap, C):\n    return gap + C\n")
    result = ves.align(specimen, algorithm=program, n=8, held_out=16, layers="1", roles=["B"], progress=False)
    assert result.variable("gap").place == "resid1@B"
    program.write_text("def answer(A):\n    return open('/etc/passwd').read()\n")
    with pytest.raises(Failed, match="it failed on a prompt"):
        ves.align(specimen, algorithm=program, n=4, held_out=4, progress=False)


# Sources.


@pytest.mark.parametrize("split", ["train", "test"])
def test_sources_of_names_differ_in_what_their_kind_says(split: str) -> None:
    specimen = as_specimen(random_model(small_config(d_vocab=word_tokenizer().size, n_ctx=40)), "ioi")
    sources = sources_of(specimen, behaviour("ioi"), split, n=8, seed=0)
    for case in sources.cases(8, "seed"):
        base = case.base.inputs
        repeated = 1 if base["subject"] == base["first"] else 2
        for kind, side in case.sources.items():
            given = side.inputs
            place = 1 if given["subject"] == given["first"] else 2
            assert side.tokens[side.roles["S2"]] == word_tokenizer().token(f" {given['subject']}")
            if kind != "names":
                assert {given["first"], given["second"]} == {base["first"], base["second"]}
                assert (given["subject"] == base["subject"], place == repeated) == {
                    "both": (False, False),
                    "place": (True, False),
                    "name": (False, True),
                    "neither": (True, True),
                }[kind]
        assert case.sources["neither"].tokens != case.base.tokens


def test_sums_keep_what_their_kind_says(specimen: Specimen) -> None:
    cases = sources_of(specimen, behaviour(BEHAVIOUR), "train", n=12, seed=0).cases(12, "seed")
    assert len(cases) == 12

    def numbers(side: Side) -> tuple[int, int, int]:
        a, b, c = (side.inputs[name] for name in "ABC")
        return a, b, c

    for case in cases:
        a, b, c = numbers(case.base)
        x, y, z = numbers(case.sources["result"])
        assert x - y + z == a - b + c
        x, y, _ = numbers(case.sources["first two"])
        assert x - y == a - b
        assert numbers(case.sources["B"])[::2] == (a, c)


def test_a_behaviour_with_roles_gives_its_words_to_a_program() -> None:
    rows = [
        {
            "prompt": f"The capital of {one} is",
            "counterfactual": f"The capital of {other} is",
            "answer": f" {city}",
            "wrong": f" {wrong}",
            "roles": {"the country": one},
        }
        for one, other, city, wrong in (("France", "Italy", "Paris", "Rome"), ("Italy", "France", "Rome", "Paris"))
    ]
    specimen = as_specimen(random_model(small_config(d_vocab=word_tokenizer().size, n_ctx=40)), None)
    sources = sources_of(specimen, ves.Behaviour.from_rows(rows), "train", n=2, seed=0)
    cases = sources.cases(2, "seed")
    words = [(case.base.inputs, case.sources["counterfactual"].inputs) for case in cases]
    france, italy = {"the_country": "France"}, {"the_country": "Italy"}
    assert sorted(words, key=str) == [(france, italy), (italy, france)]
    assert sources.token_of(cases[0].base, "Paris") == word_tokenizer().token(" Paris")


def test_rows_name_the_kinds_of_their_counterfactuals() -> None:
    """Two prompts, each with two kinds; their four rows stand in any order and make two bases."""

    def row(one: str, other: str, city: str, template: str, kind: str) -> dict:
        return {
            "prompt": f"The capital of {one} is",
            "counterfactual": template.format(other),
            "answer": f" {city}",
            "wrong": " Rome" if city == "Paris" else " Paris",
            "roles": {"country": one},
            "kind": kind,
        }

    same, another = "The capital of {} is", "Question capital of {} which"
    rows = [
        row("France", "Italy", "Paris", same, "country"),
        row("Italy", "France", "Rome", same, "country"),
        row("Italy", "Italy", "Rome", another, "template"),
        row("France", "France", "Paris", another, "template"),
    ]
    specimen = as_specimen(random_model(small_config(d_vocab=word_tokenizer().size, n_ctx=40)), None)
    sources = sources_of(specimen, ves.Behaviour.from_rows(rows), "train", n=2, seed=0)
    cases = sources.cases(2, "seed")
    assert set(sources.kinds) == {"country", "template"}
    read = {
        case.base.inputs["country"]: {kind: side.inputs["country"] for kind, side in case.sources.items()}
        for case in cases
    }
    assert read == {
        "France": {"country": "Italy", "template": "France"},
        "Italy": {"country": "France", "template": "Italy"},
    }


# Grades and places.


def test_the_worst_kind_decides() -> None:
    graded = Graded({"both": (9, 10), "place": (3, 12), "rare": (0, 3)}, {"name": (10, 10)})
    assert (graded.accuracy.value, graded.accuracy.n) == (0.25, 12)  # three pairs say nothing
    assert (graded.kept.value, graded.score) == (1.0, 0.25)
    nothing = Graded({"rare": (3, 3)}, {"name": (10, 10)})
    assert nothing.accuracy == Metric.of_share(0, 0)
    assert nothing.score == 0.0


def test_pairs_change_or_stay_by_the_answers(pairs: Pairs) -> None:
    """Exchanging C in a pair where only A differs leaves A - B + C alone; where C differs it does not."""
    for kind, variable, part in (("A", "C", "stays"), ("C", "C", "changes"), ("first two", "difference", "stays")):
        rows = [i for i, one in enumerate(pairs.kinds) if one == kind and pairs.part[variable][i] is not None]
        differ = [i for i in rows if pairs.wanted["answer"][i] != frozenset([pairs.base_answers[i]])]
        assert {pairs.part[variable][i] for i in differ} == {part}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("resid9@A", "the model has 2 layers"),
        ("resid1@S2", "role 'S2' does not exist; roles are A, B, C, end"),
        ("resid1", "write residLAYER@ROLE"),
        ("L7H0@A", "L7H0"),
        ("L0.resid_mid@A", "take L0.resid, L0.z, L0H0 or L0_MLP"),
        ("L9.resid@A", "it has layers 0 to 1"),
    ],
)
def test_places_that_do_not_exist_are_refused(specimen: Specimen, text: str, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        parse_places(text, specimen.model.config, ROLES)


def test_places_are_read_as_they_are_written(specimen: Specimen) -> None:
    texts = ["resid1@B", "resid0@A+B", "L1H0+L1_MLP@end"]
    assert [str(one) for one in parse_places(",".join(texts), specimen.model.config, ROLES)] == texts


@pytest.mark.slow
def test_an_alignment_is_the_same_over_two_devices(specimen: Specimen) -> None:
    asked: dict[str, object] = {"n": 4, "held_out": 6, "against": "arithmetic-sum-first", "progress": False}
    alone = ves.align(specimen, **asked)
    with LogicalDevices() as logical:
        other = as_specimen(difference_model(), BEHAVIOUR)
        spread(other.model, [torch.device("meta:0"), torch.device("meta:1")], [1, 1])
        apart = ves.align(other, **asked)
    assert logical.transfers["meta:0", "meta:1"] > 0
    assert (apart.variables, apart.against) == (alone.variables, alone.against)


@pytest.mark.parametrize(
    ("site", "place"),
    [
        ("L0.resid@B", "resid1@B"),
        ("L0.resid_pre@A", "resid0@A"),
        ("blocks.1.hook_resid_pre@A+C", "resid1@A+C"),
        ("L1.mlp_out@end", "L1_MLP@end"),
        ("L1H0.z@end", "L1H0@end"),
    ],
)
def test_places_have_the_names_of_sites_too(specimen: Specimen, site: str, place: str) -> None:
    """`resid1` is before layer 1, and the site `L0.resid` after block 0: the same stream."""
    config = specimen.model.config
    (read,) = parse_places(site, config, ROLES)
    assert str(read) == place
    assert parse_places([f"{one.partition('@')[0]}@A" for one in read.site.split(",")], config, ROLES) == [
        replace(read, roles=("A",))
    ]
    assert Site.parse(read.site).within(config).at == read.roles


@pytest.mark.parametrize(
    ("given", "layers"), [(None, (0, 1, 2, 3)), ("1..3", (1, 2, 3)), ("0..3/2,3", (0, 2, 3)), ("2", (2,))]
)
def test_layers_are_named(given: str | None, layers: tuple[int, ...]) -> None:
    assert layers_named(given, 3) == layers


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"layers": "five"}, "layers 'five' cannot be read"),
        ({"layers": "0..9"}, "the model has 2 layers"),
        ({"roles": ["S2"]}, "role 'S2' does not exist here; roles are A, B, C, end"),
        ({"together": 9}, "together=9 cannot be used"),
        ({"n": 0}, "0 prompts"),
    ],
)
def test_options_that_cannot_be_used_are_refused(specimen: Specimen, options: dict, line: str) -> None:
    with pytest.raises(BadInput, match=line):
        ves.align(specimen, **{"n": 4, "held_out": 4, **options}, progress=False)


def test_a_specimen_without_a_behaviour_is_refused() -> None:
    with pytest.raises(BadInput, match="name a natural model and a behaviour"):
        ves.align("frac_prevs")

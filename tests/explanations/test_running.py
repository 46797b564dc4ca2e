"""Explanations that run: rules worked by hand, programs recovered, and a ladder that equals plain hooks."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.devices import LogicalDevices
from tests.explanations.difference_model import BEHAVIOUR, difference_model
from tests.explanations.induction_model import as_specimen, induction_model
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import Trial, rows_of
from vesalius.components import Component
from vesalius.discovery.account import NamedSet, SetRuns
from vesalius.documents.claims import ClaimRecord
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.running import (
    ALL_BOS,
    CIRCUIT,
    COUNTERFACTUAL,
    DEPENDS,
    FROZEN,
    POSITION_ONLY,
    PROGRAM,
    PROGRAMS,
    SHUFFLED,
    TOKEN_VALUES,
    VARIABLE_VALUES,
    WHOLE,
    Rung,
    Running,
    with_words,
)
from vesalius.documents.view import Answer, Code
from vesalius.errors import BadInput
from vesalius.explanations.running.battery import OWN, TEXT, Sample
from vesalius.explanations.running.explained import fitted_prompts, ladder_prompts, put_in_place, run_again
from vesalius.explanations.running.fitting import Fits, _polished, _towards, graded
from vesalius.explanations.running.ladder import Readings, Stage, Words, _Patterns, rungs_of
from vesalius.explanations.running.programs import Program, parse_program
from vesalius.explanations.running.rules import COMMA, NAME, STOP, Tokens, classes_of, donors, library, target
from vesalius.model.devices import spread
from vesalius.model.specimen import Specimen

SIZE = word_tokenizer().size
FIRST, SECOND = Component(0, 0), Component(1, 0)


def sentence() -> Tokens:
    """BOS Ann , Bob . Ann saw Cid , with the classes of its words."""
    ids = torch.tensor([[0, 1, 2, 3, 4, 1, 5, 6, 2]])
    place = torch.arange(9)
    classes = {
        NAME: torch.isin(place, torch.tensor([1, 3, 5, 7]))[None],
        COMMA: torch.isin(place, torch.tensor([2, 8]))[None],
        STOP: (place == 4)[None],
    }
    return Tokens(ids, torch.ones(1, 9, dtype=torch.bool), 1, classes)


@pytest.mark.parametrize(
    ("rule", "query", "keys"),
    [
        ("BOS", 6, [0]),
        ("self", 6, [6]),
        ("2 back", 6, [4]),
        ("2 back", 2, [0]),  # BOS is no token that stands back: none, so the first token
        ("earlier copy", 5, [1]),
        ("after earlier copy", 5, [2]),
        ("after earlier copy", 8, [3]),
        ("after earlier copy", 6, [0]),
        ("copy of previous token", 6, [1]),
        ("after earlier pair", 8, [0]),
        ("last capitalised word", 6, [5]),
        ("all capitalised word", 6, [1, 3, 5]),
        ("last comma", 7, [2]),
        ("sentence start", 3, [1]),
        ("sentence start", 7, [5]),
        ("repeated name", 6, [5]),
        ("first of repeated name", 6, [1]),
        ("first of repeated name", 4, [0]),
        ("unrepeated name", 8, [3, 7]),
        ("unrepeated name", 4, [1, 3]),
    ],
)
def test_rules_worked_by_hand(rule: str, query: int, keys: list[int]) -> None:
    weights, own = sentence().look(rule)
    expected = torch.zeros(9)
    expected[keys] = 1 / len(keys)
    assert torch.allclose(weights[0, query], expected)
    assert bool(own[0, query]) == (keys != [0] or rule == "BOS")


def enumeration() -> Tokens:
    """ "<bos> def ( a , b , c ) doc b end": of three items the second is named again."""
    names = ("def", "(", "a", ",", "b", ",", "c", ")", "doc", "b", "end")
    ids = torch.tensor([[0, *(2 + list(dict.fromkeys(names)).index(name) for name in names)]])
    commas = torch.tensor([[False, *(name == "," for name in names)]])
    return Tokens(ids, torch.ones_like(ids, dtype=torch.bool), 1, {"comma": commas})


@pytest.mark.parametrize(
    ("rule", "query", "keys"),
    [
        ("named items", 11, [10]),
        ("item named last", 11, [10]),
        ("item named last", 10, [10]),
        ("place of item named last", 11, [5]),
        ("next item", 11, [7]),
        ("items left", 11, [3, 7]),
        ("next item", 9, [0]),  # nothing is named again yet
    ],
)
def test_rules_of_lists_worked_by_hand(rule: str, query: int, keys: list[int]) -> None:
    weights, own = enumeration().look(rule)
    expected = torch.zeros(12)
    expected[keys] = 1 / len(keys)
    assert torch.allclose(weights[0, query], expected)
    assert bool(own[0, query]) == (keys != [0])


def test_only_prompts_that_name_an_item_again_have_rules_of_lists() -> None:
    tokens = enumeration()
    before = Tokens(tokens.ids[:, :10], tokens.real[:, :10], 1, {"comma": tokens.classes["comma"][:, :10]})
    assert "next item" in library([before, tokens])
    assert "next item" not in library([before])


@pytest.mark.parametrize("tokens", [sentence(), enumeration()])
def test_no_rule_reads_what_comes_after_a_query(tokens: Tokens) -> None:
    for rule in library([sentence(), enumeration()]):
        whole, own = tokens.look(rule)
        for end in range(1, tokens.ids.shape[1]):
            cut = {name: here[:, :end] for name, here in tokens.classes.items()}
            looks, known = Tokens(tokens.ids[:, :end], tokens.real[:, :end], tokens.first, cut).look(rule)
            assert torch.allclose(looks, whole[:, :end, :end]), (rule, end)
            assert bool((known == own[:, :end]).all()), (rule, end)


def test_near_falls_by_a_factor_e() -> None:
    weights = sentence().look("near 2")[0][0, 6]
    assert float(weights[4] / weights[6]) == pytest.approx(float(torch.tensor(-1.0).exp()))
    assert (float(weights[0]), float(weights[7])) == (0.0, 0.0)


def test_every_pattern_is_a_distribution_over_what_a_query_sees() -> None:
    tokens = sentence()
    for rule in library([tokens]):
        pattern = Program(((rule, 1.0),)).pattern(tokens)
        assert torch.allclose(pattern.sum(-1), torch.ones(1, 9)), rule
        assert not bool(pattern.triu(1).any()), rule


@pytest.mark.parametrize(
    ("piece", "classes"),
    [
        (" Mary", (NAME,)),
        (" the", ("function word",)),
        (" When", ("function word", NAME)),
        (".", (STOP, "punctuation")),
    ],
)
def test_classes_of_tokens(piece: str, classes: tuple[str, ...]) -> None:
    assert classes_of(piece) == classes


@given(
    st.lists(st.sampled_from(library([sentence()])), min_size=1, max_size=3, unique=True),
    st.sampled_from([None, "seen before", "comma"]),
)
def test_what_is_written_is_read_again(rules: list[str], condition: str | None) -> None:
    weights = {1: (1.0,), 2: (0.75, 0.25), 3: (0.5, 0.3, 0.2)}[len(rules)]
    mixture = tuple(zip(rules, weights, strict=True))
    program = Program(mixture, condition, mixture if condition else ())
    assert str(parse_program(str(program))) == str(program)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 back 0.9 + BOS 0.1", "the token before (0.90) and the first token (0.10)"),
        ("near 5", "itself and the tokens before, less by a factor e every 5 tokens"),
        (
            "all capitalised word 0.5 + 3 back 0.3 + self 0.2",
            "every capitalised word so far (0.50), the token 3 before (0.30) and itself (0.20)",
        ),
        (
            "if seen before: after earlier copy; else: BOS",
            "what came after earlier copies of the token where the token came before, and elsewhere at the first token",
        ),
        (
            "if part of a word: BOS; else: last comma",
            "the first token where the token is part of a word, and elsewhere at the nearest comma",
        ),
    ],
)
def test_programs_in_words(text: str, words: str) -> None:
    assert parse_program(text).words == words


@pytest.mark.parametrize("rule", [*library([sentence(), enumeration()]), "last part of a word", "near 9"])
def test_every_rule_has_words(rule: str) -> None:
    assert target(rule)
    assert not target(rule).startswith(("last ", "all BOS", "near "))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the answer 1", "rule 'the answer' does not exist"),
        ("1 back 0.5 + BOS 0.2", "sum to 0.70"),
        ("if IO: self; else: BOS", "condition 'IO'"),
        ("if comma: self", "cannot be read"),
        ("", "cannot be read"),
        ("last verb", "rule 'last verb'"),
    ],
)
def test_programs_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        parse_program(text)


def drawn(text: str, *, rows: int = 6, width: int = 16, kind: str = TEXT, head: Component = FIRST) -> Sample:
    """Random tokens of a small vocabulary, so that they repeat, and a head that follows a program."""
    ids = torch.randint(3, 12, (rows, width), generator=torch.Generator().manual_seed(3))
    ids[:, 0] = 0
    real = torch.ones(rows, width, dtype=torch.bool)
    after = torch.arange(width) > 0
    tokens = Tokens(ids, real, 1, {COMMA: (ids == 5) & after, STOP: torch.zeros_like(real)})
    return Sample(kind, tokens, {head: parse_program(text).pattern(tokens)})


@pytest.mark.parametrize(
    "text",
    [
        "1 back 1.00",
        "after earlier copy 0.80 + self 0.20",
        "if comma: earlier copy 1.00; else: 3 back 0.70 + BOS 0.30",
    ],
)
def test_a_planted_program_is_found(text: str) -> None:
    sample = drawn(text)
    program = Fits([sample]).program(FIRST)
    pattern, true = program.pattern(sample.tokens), sample.patterns[FIRST]
    assert float(torch.minimum(pattern, true).sum(-1)[sample.tokens.queries].mean()) > 0.95
    assert set(parse_program(text).rules) <= {*program.rules, "BOS"}


def test_a_rule_without_keys_of_its_own_is_not_bos_under_another_name() -> None:
    """There is no stop in these prompts, so that `last stop` looks at the first token wherever it is asked."""
    fits = Fits([drawn("BOS 1")])
    assert "last stop" not in fits.rules
    sample = drawn("BOS 1")
    sample.tokens.classes[STOP][0, 3] = True  # type: ignore[index]
    assert Fits([sample]).program(FIRST).rules == ["BOS"]


@given(st.integers(0, 10_000))
def test_the_best_step_towards_a_rule_is_that_of_a_search(seed: int) -> None:
    """Squared loss along the way from a mixture to each rule, by a grid of steps; polishing never raises it."""
    generator = torch.Generator().manual_seed(seed)
    looks, pattern = (torch.rand(n, 12, generator=generator, dtype=torch.float64) for n in (4, 1))
    looks, pattern = looks / looks.sum(1, keepdim=True), pattern[0] / pattern.sum()
    gram, cross = looks @ looks.T, looks @ pattern
    mixed = torch.tensor([0.3, 0.7, 0.0, 0.0], dtype=torch.float64)
    losses, _ = _towards(gram, cross, mixed)
    for rule in range(4):
        tried = [
            (1 - step) * mixed + step * torch.eye(4, dtype=torch.float64)[rule] for step in torch.linspace(0, 1, 101)
        ]
        least = min(float(((one @ looks - pattern) ** 2).sum() - pattern @ pattern) for one in tried)
        assert least - 1e-3 <= float(losses[rule]) <= least + 1e-9
    loss, polished = _polished(gram, cross, mixed)
    assert loss <= float(mixed @ gram @ mixed - 2 * mixed @ cross) + 1e-9
    assert (float(polished.sum()), float(polished[2:].sum())) == (pytest.approx(1.0), 0.0)


def test_words_follow_from_figures() -> None:
    """By tokens, by position, and neither: attention that no rule has."""
    fit, other = (drawn("earlier copy 1", rows=rows) for rows in (8, 6))
    found = graded({FIRST: parse_program("earlier copy 1")}, [fit], {"others": [other]})[FIRST]
    assert found.word == PROGRAM
    assert found.decisive.overlap == pytest.approx(1.0)
    fit, other = (drawn("2 back 1", rows=rows) for rows in (8, 6))
    assert graded({FIRST: parse_program("2 back 1")}, [fit], {"others": [other]})[FIRST].word == POSITION_ONLY
    random = torch.rand(6, 16, 16, generator=torch.Generator().manual_seed(1)).tril().pow(8)
    odd = Sample(TEXT, other.tokens, {FIRST: random / random.sum(-1, keepdim=True)})
    assert graded({FIRST: parse_program("earlier copy 1")}, [odd], {"others": [odd]})[FIRST].word == DEPENDS


def test_a_program_that_does_not_react_to_the_counterfactual_is_none() -> None:
    """`3 back` finds where the copy stands in the prompts, and does not move where nothing is repeated."""
    sample = drawn("earlier copy 1", kind=OWN)
    far = torch.arange(sample.tokens.ids.numel()).view_as(sample.tokens.ids) + 100
    without = Tokens(far, sample.tokens.real, 1, sample.tokens.classes)
    partner = {FIRST: parse_program("earlier copy 1").pattern(without)}
    own = Sample(OWN, sample.tokens, sample.patterns, partner, without, sample.tokens.queries.float())
    still = graded({FIRST: parse_program("3 back 1")}, [own], {"held-out": [own]})[FIRST]
    moving = graded({FIRST: parse_program("earlier copy 1")}, [own], {"held-out": [own]})[FIRST]
    assert (still.decisive.change, moving.decisive.change) == (0.0, pytest.approx(1.0))
    assert (still.word != PROGRAM, moving.word) == (True, PROGRAM)


# A model whose two heads are known.


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return as_specimen(induction_model(SIZE))


@pytest.fixture(scope="module")
def named(specimen: Specimen) -> NamedSet:
    return NamedSet((FIRST, SECOND), ladder_prompts(specimen, 12, seed=0), 2)


@pytest.fixture(scope="module")
def running(specimen: Specimen, named: NamedSet) -> Running:
    found = put_in_place(specimen, named)
    assert found is not None
    return found


def test_prompts_that_fitted_the_programs_are_not_run_again(specimen: Specimen) -> None:
    """The seed that explained draws them again unless they are left out."""
    fitted = fitted_prompts(specimen, 0, seed=0)
    sets = ladder_prompts(specimen, 8, seed=0, fit=fitted)
    assert sets.rank is fitted
    assert len(sets.report.batch) == 8
    for drawn in (sets.report, sets.elsewhere):
        assert drawn is not None
        assert not rows_of(fitted) & {tuple(row) for row in drawn.batch.tokens.tolist()}


def kept(running: Running, step: str) -> float:
    rung = running.rung(step)
    assert rung is not None
    assert rung.kept.value is not None
    return rung.kept.value


@pytest.mark.slow
def test_the_programs_of_the_two_heads_keep_everything(running: Running) -> None:
    programs = {one.head: one.program for one in running.heads}
    assert programs["L0H0"] == "1 back 1.00"
    assert "if seen before: after earlier copy" in programs["L1H0"]
    assert kept(running, PROGRAMS) == pytest.approx(1.0, abs=0.03)
    assert kept(running, TOKEN_VALUES) == pytest.approx(1.0, abs=0.03)  # both heads move the bare token
    assert max(kept(running, one) for one in (SHUFFLED, ALL_BOS, COUNTERFACTUAL)) < 0.3
    assert (running.doubt(0.8), running.beaten_elsewhere) == (None, [])


@pytest.mark.slow
def test_the_ladder_is_the_same_over_two_devices(running: Running) -> None:
    with LogicalDevices() as logical:
        specimen = as_specimen(induction_model(SIZE))
        spread(specimen.model, [torch.device("meta:0"), torch.device("meta:1")], [1, 1])
        apart = put_in_place(specimen, NamedSet((FIRST, SECOND), ladder_prompts(specimen, 12, seed=0), 2))
    assert apart is not None
    assert logical.transfers["meta:0", "meta:1"] > 0
    for alone, one in zip((*running.rungs, *running.controls), (*apart.rungs, *apart.controls), strict=True):
        assert (one.step, one.kept.value) == (alone.step, pytest.approx(alone.kept.value, abs=1e-5))


@pytest.mark.slow
def test_runs_that_were_made_are_used_and_not_counted_again(
    specimen: Specimen, named: NamedSet, running: Running
) -> None:
    """Of 12 prompts and 12 of other templates: the clean runs, the counterfactual ones, and those with nothing kept."""
    runs = SetRuns(specimen.model, named.sets)
    made = [runs.report, runs.elsewhere]
    before = sum(one.cost.rows for one in made if one is not None)
    again = put_in_place(specimen, named, runs=runs)
    assert again is not None
    assert (again.rungs, again.controls) == (running.rungs, running.controls)
    assert running.rows - again.rows == pytest.approx(before, abs=0.2)
    assert sum(one.cost.rows for one in made if one is not None) == before >= 48


@pytest.mark.slow
def test_a_false_program_is_refuted(specimen: Specimen, running: Running) -> None:
    false = run_again(specimen, running, programs={"L1H0": "1 back"}, n=8)
    assert abs(kept(false, PROGRAMS)) < 0.3
    assert "not shown that these heads look where the programs say" in (false.doubt(0.8) or "")
    assert kept(false, FROZEN) == pytest.approx(1.0, abs=0.05)
    true = run_again(specimen, running, n=8)
    assert kept(true, PROGRAMS) == pytest.approx(1.0, abs=0.05)


def by_hooks(
    specimen: Specimen, material: Trial, running: Running, step: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores with nothing replaced, with programs (reading what the rung says), and with everything replaced: plain
    hooks on one prompt after the other.
    """
    model, prompts = specimen.model, material.prompts
    assert prompts is not None
    programs = {Component.parse(one.head): parse_program(one.program) for one in running.heads}
    donor = dict(zip(*(part.tolist() for part in donors(prompts)), strict=True))
    scores = []
    for row in range(len(prompts)):
        tokens, other = prompts.tokens[row : row + 1], prompts.counterfactual[row : row + 1]
        seen = Tokens.of(specimen, material.batch.take(slice(row, row + 1)), 1)
        _, cache = model.run_with_cache(other)
        bare = [model.run_with_cache(torch.tensor([[tokens[0, 0], one]]))[1] for one in tokens[0].tolist()]
        values: dict[int, torch.Tensor] = {}
        given = {}
        if step == VARIABLE_VALUES and row in donor:
            places = [[int(where[one]) for where in prompts.roles.values()] for one in (row, donor[row])]
            said = prompts.tokens[donor[row]].clone()
            for own, its in zip(*places, strict=True):
                said[its] = tokens[0, own]
            ends = [[*of, int(prompts.position[one])] for of, one in zip(places, (row, donor[row]), strict=True)]
            _, told = model.run_with_cache(said[None])
            given = {own: (told, its) for own, its in zip(*ends, strict=True)}

        def keep(v, hook, values=values):
            values[hook.layer()] = v

        def heads(z, hook, cache=cache, values=values, seen=seen, bare=bare, given=given):
            z, layer = z.clone(), hook.layer()
            for head in range(model.config.n_heads):
                program = programs.get(Component(layer, head))
                if program is None:
                    z[:, :, head] = cache[hook.name][:, :, head]
                    continue
                read = values[layer][0, :, head]
                if step != PROGRAMS:
                    name = f"blocks.{layer}.attn.hook_v"
                    read = torch.stack([one[name][0, int(place > 0), head] for place, one in enumerate(bare)])
                    for place, (told, its) in given.items():
                        read[place] = told[name][0, its, head]
                z[0, :, head] = program.pattern(seen)[0] @ read
            return z

        def everything(value, hook, cache=cache):
            return cache[hook.name]

        is_z, is_mlp, is_v = (lambda name, end=end: name.endswith(end) for end in ("hook_z", "hook_mlp_out", "hook_v"))
        runs = [[], [(is_v, keep), (is_z, heads)], [(is_z, everything), (is_mlp, everything)]]
        at = int(prompts.position[row])
        logits = [model.run_with_hooks(tokens, fwd_hooks=hooks)[0, at] for hooks in runs]
        scores.append([float(one[prompts.correct[row]] - one[prompts.wrong[row]]) for one in logits])
    return torch.tensor(scores).double().unbind(1)  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.parametrize("step", [PROGRAMS, VARIABLE_VALUES, TOKEN_VALUES])
def test_rungs_equal_plain_hooks(specimen: Specimen, named: NamedSet, running: Running, step: str) -> None:
    full, scores, nothing = by_hooks(specimen, named.sets.report, running, step)
    share = (scores.mean() - nothing.mean()) / (full.mean() - nothing.mean())
    assert kept(running, step) == pytest.approx(float(share), abs=1e-4)


@pytest.mark.slow
def test_values_from_variables_hold_what_no_token_alone_holds() -> None:
    """At B's position stands A - B after the first layer: what L1 reads there is no token's, and a donor has it."""
    specimen = as_specimen(difference_model(), BEHAVIOUR)
    looks = {Component(0, 0): "2 back", Component(1, 0): "3 back", Component(1, 1): "1 back"}
    given = {head: parse_program(text) for head, text in looks.items()}
    named = NamedSet(tuple(given), ladder_prompts(specimen, 12, seed=0), len(given))
    running = put_in_place(specimen, named, given=given)
    assert running is not None
    assert kept(running, PROGRAMS) == pytest.approx(1.0, abs=1e-6)
    assert kept(running, VARIABLE_VALUES) == pytest.approx(1.0, abs=1e-6)
    assert kept(running, TOKEN_VALUES) < 0.8


def four_prompts() -> Prompts:
    """The second has its roles the other way round, and the third shares fewer words with the first than the last."""
    rows = [[9, 1, 2, 3, 4], [9, 2, 1, 3, 4], [9, 5, 6, 7, 8], [9, 5, 6, 3, 4]]
    roles = {"first": [1, 2, 1, 1], "second": [2, 1, 2, 2]}
    return Prompts(
        tokens=torch.tensor(rows),
        mask=torch.ones(4, 5, dtype=torch.bool),
        position=torch.full((4,), 4),
        correct=torch.zeros(4, dtype=torch.long),
        wrong=torch.zeros(4, dtype=torch.long),
        counterfactual=torch.tensor(rows),
        texts=[""] * 4,
        roles={name: torch.tensor(places) for name, places in roles.items()},
    )


def test_a_donor_has_the_same_words_at_roles_in_the_same_order() -> None:
    who, of = donors(four_prompts())
    assert dict(zip(who.tolist(), of.tolist(), strict=True)) == {0: 2, 2: 0, 3: 2}


@pytest.mark.slow
def test_what_a_pattern_is_made_of_is_not_needed_once_it_is_set(specimen: Specimen, running: Running) -> None:
    """L0H0 tells L1H0 where to look, and nothing else: with the program of L1H0 it may look anywhere."""
    anywhere = run_again(specimen, running, programs={"L0H0": "BOS"}, n=8)
    assert kept(anywhere, PROGRAMS) == pytest.approx(1.0, abs=0.05)
    assert (running.doubt(0.8), anywhere.beaten_by) == (None, [])
    assert (anywhere.doubt(0.8) or "").startswith("L0H0 looks elsewhere than its program says (overlap 0.")
    assert anywhere.listing().startswith("L0H0 looks at the first token   # looks elsewhere")


@pytest.mark.slow
def test_heads_without_a_program_are_refused(specimen: Specimen, running: Running) -> None:
    with pytest.raises(BadInput, match="L0H1 has no program"):
        run_again(specimen, running, programs={"L0H1": "BOS"}, n=8)


# What the ladder says of itself.


def readings(**shares: float) -> Readings:
    """Scores of eight prompts between 0 (nothing) and 1 (the model), with little scatter."""
    scatter = torch.linspace(-0.02, 0.02, 8)
    table = {}
    for name, share in shares.items():
        score = torch.full((8,), share) + (scatter if 0 < share < 1 else 0)
        table[name.replace("_", " ")] = torch.stack([score, score, score * 0, score > 0.5], 1).float()
    return Readings(table, torch.zeros(8))


def running_of(**shares: float) -> Running:
    rungs, controls = rungs_of(readings(whole_model=1.0, **shares), None)
    head = graded({FIRST: parse_program("2 back 1")}, [drawn("2 back 1")], {"others": [drawn("2 back 1")]})[FIRST]
    return Running(heads=(head,), mlps=(), rungs=rungs, controls=controls, n_fit=8)


def test_a_rung_above_the_one_before_is_a_fault() -> None:
    running = running_of(circuit=0.6, frozen_patterns=0.7, programs=0.5, counterfactual_patterns=0.1)
    assert [one.step for one in running.rungs if one.fault] == [FROZEN]
    assert "keeps 0.10 more than `circuit`" in running.faults[0]
    assert running.claimed.step == PROGRAMS
    above = running_of(circuit=0.6, frozen_patterns=0.5, programs=0.9, counterfactual_patterns=0.1)
    assert "`programs` keeps 0.40 more than `frozen patterns`" in (above.doubt(0.8) or "")


def test_a_little_more_than_the_rung_before_is_no_fault() -> None:
    little = running_of(circuit=1.0, frozen_patterns=1.0, programs=1.03, counterfactual_patterns=0.1)
    assert (little.faults, little.doubt(0.8)) == ([], None)


def test_no_head_keeps_its_program_when_programs_are_shuffled() -> None:
    """Two redundant heads have one program: exchanged with each other, they would look where they did."""
    one = sentence()
    tokens = Tokens(one.ids.repeat(40, 1), one.real.repeat(40, 1), 1, {})
    same, other = parse_program("1 back 1"), parse_program("self 1")
    words = Words({FIRST: other, SECOND: same, Component(1, 1): same}, ())
    patterns = _Patterns(Stage(tokens, {}, {}, {}), words, four_prompts(), seed=0)
    shuffled = patterns._shuffled()
    assert torch.equal(shuffled[FIRST], patterns.programs[SECOND])
    assert all(torch.equal(shuffled[head], patterns.programs[FIRST]) for head in (SECOND, Component(1, 1)))


def test_a_control_that_does_as_well_takes_the_yes() -> None:
    nothing = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.85, counterfactual_patterns=0.85)
    assert nothing.beaten_by == [COUNTERFACTUAL]
    said = with_words(Answer("a set keeps 0.90 of it", "yes"), nothing, 0.8)
    assert said.verdict == "partly"
    assert "in words (1 attention program) 0.85" in said.text
    assert said.text.endswith(
        ": no more than with counterfactual patterns (0.85): what differs between the prompts is not where these heads "
        "look"
    )
    told = with_words(Answer("a set keeps 0.90 of it", "yes"), nothing, 0.8, says=True)
    assert "0.85 [0.84, 0.86], saying the right answer on 1.00: no more than" in told.text
    good = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.85, counterfactual_patterns=0.1)
    assert with_words(Answer("a set", "yes"), good, 0.8).verdict == "yes"
    assert with_words(Answer("a set", "no"), good, 0.8).verdict == "no"
    little = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.5, counterfactual_patterns=0.1)
    assert with_words(Answer("a set", "yes"), little, 0.8) == Answer(
        f"a set; in words (1 attention program) {little.claimed.kept.text()}: that is less than 0.8", "partly"
    )

    much = running_of(circuit=1.5, frozen_patterns=1.5, programs=1.4, counterfactual_patterns=0.1)
    said = with_words(Answer("a set", "yes"), much, 0.8)
    assert (said.verdict, "far more than the model itself" in said.text) == ("partly", True)


def changed(running: Running, step: str, **fields: object) -> Running:
    """With other figures of one rung."""
    rungs = [one.model_copy(update=fields if one.step == step else {}) for one in running.rungs]
    return running.model_copy(update={"rungs": tuple(rungs)})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kept": Metric(value=0.9, low=0.5, high=1.3, n=32)}, "the interval is too wide"),
        ({"kept": Metric(value=0.9, low=0.85, high=0.95, n=4)}, "4 prompts are too few"),
        ({"elsewhere": Metric(value=0.3, low=0.2, high=0.4, n=32)}, "they keep 0.30 [0.20, 0.40] on other templates"),
        ({"elsewhere": Metric(value=1.9, low=1.6, high=2.4, n=32)}, "they keep 1.90 [1.60, 2.40] on other templates"),
        ({"elsewhere": Metric(value=0.7, low=0.6, high=0.8, n=32)}, None),
    ],
)
def test_words_are_judged_by_the_rule_of_the_circuit(fields: dict, said: str | None) -> None:
    """Few prompts, a wide interval, and words that hold in one template alone take the Yes of the words too."""
    good = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.85, counterfactual_patterns=0.1)
    doubt = changed(good, PROGRAMS, **fields).doubt(0.8)
    assert doubt == said or (said is not None and said in (doubt or ""))
    answer = with_words(Answer("a set", "yes"), changed(good, PROGRAMS, **fields), 0.8)
    assert answer.verdict == ("yes" if said is None else "partly")


def test_the_first_line_says_of_how_many_heads_no_program_says_where_they_look() -> None:
    good = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.85, counterfactual_patterns=0.1)
    head = good.heads[0].model_copy(update={"word": DEPENDS})
    for count, text in ((1, "1 attention program; 1 head depends on"), (3, "3 attention programs; 3 heads depend on")):
        several = good.model_copy(update={"heads": (head,) * count})
        assert f"in words ({text} context) 0.85" in with_words(Answer("a set", "yes"), several, 0.8).text


def test_attention_that_does_not_differ_is_said_to_be_so() -> None:
    """Heads that attend as on the counterfactual keep what their own patterns keep: no program could show anything."""
    alike = running_of(
        circuit=0.9, frozen_patterns=0.9, programs=0.7, shuffled_programs=0.5, counterfactual_patterns=0.9
    )
    assert alike.beaten_by == [COUNTERFACTUAL]
    assert alike.doubt(0.5) == (
        "no more than with counterfactual patterns (0.90): what differs between the prompts is not where these heads "
        "look"
    )
    wrong = running_of(
        circuit=0.9, frozen_patterns=0.9, programs=0.4, shuffled_programs=0.4, all_BOS=0.5, counterfactual_patterns=0.45
    )
    assert wrong.doubt(0.3) == (
        "no more than with shuffled programs (0.40), all BOS (0.50), counterfactual patterns (0.45), so it is not "
        "shown that these heads look where the programs say"
    )


def test_the_listing_says_what_is_not_explained() -> None:
    running = running_of(circuit=0.9, frozen_patterns=0.9, programs=0.85)
    assert running.listing().splitlines()[0] == "L0H0 looks at the token 2 before   # position only"
    carried = running.listing({"L0H0": "moves A to end"}).splitlines()[0]
    assert carried == "L0H0 looks at the token 2 before; it moves A to end   # position only"
    assert running.listing().count("not explained") == 2
    assert running.steps()[0]["step"] == WHOLE
    assert [one["step"] for one in running.steps()] == [WHOLE, CIRCUIT, FROZEN, PROGRAMS]
    assert isinstance(running.rungs[0], Rung)
    assert isinstance(running.steps()[0]["kept"], Metric)


# The whole way, by name.


@pytest.mark.slow
def test_an_explanation_runs_and_is_run_again(specimen: Specimen, tmp_path: Path) -> None:
    explanation = ves.explain(specimen, ["L0H0", "L1H0"], n=4)
    data = explanation.as_data()
    assert [one["step"] for one in data["ladder"]] == [rung.step for rung in explanation.running.rungs]  # type: ignore[union-attr]
    assert {"value", "low", "high", "n"} <= data["ladder"][0]["kept"].keys()
    assert "in words (2 attention programs) 1.00" in data["answer"]["text"]
    assert Explanation.model_validate(data) == explanation
    moves = ClaimRecord(kind="moves_role", text="L1H0 moves B to end.", verdict="supported", evidence=())
    refuted = moves.model_copy(update={"text": "L1H0 moves first A to end.", "verdict": "refuted"})
    parts = tuple(
        one.model_copy(update={"claims": (moves, refuted)}) for one in explanation.components if one.id == "L1H0"
    )
    code = next(
        one for one in explanation.model_copy(update={"components": parts}).view().sections if isinstance(one, Code)
    )
    assert "; it moves B to end" in code.text
    assert "first A" not in code.text
    explanation.write(tmp_path / "explanation.json")
    again = ves.ladder(tmp_path, {"L1H0": "BOS"}, n=6, specimen=specimen, out=tmp_path / "again")
    assert again.answer is not None
    assert again.answer["verdict"] == "no"
    assert again.request.command_line() == f"vesalius ladder {tmp_path} --n 6 --program L1H0=BOS --seed 1"
    assert (tmp_path / "again" / "ladder.json").is_file()
    repeated = ves.ladder(tmp_path, specimen=specimen, **again.request.keywords())
    assert repeated.running == again.running
    with pytest.raises(BadInput, match="program '3' of head L1H0 is no text"):
        ves.ladder(tmp_path, {"L1H0": 3}, specimen=specimen)  # type: ignore[dict-item]
    without = explanation.model_copy(update={"running": None})
    assert "ladder" not in without.as_data()
    with pytest.raises(BadInput, match="no program that runs"):
        ves.ladder(without, specimen=specimen)


def test_bad_options_are_refused_before_a_model_is_loaded() -> None:
    path = Path(__file__).parents[1] / "documents" / "golden" / "explanation.json"
    with pytest.raises(BadInput, match="no program that runs"):
        ves.ladder(path)
    with pytest.raises(BadInput, match="3 prompts are too few"):
        ves.ladder(path, n=3)
    with pytest.raises(BadInput, match="listed vocabulary"):
        ves.explain("frac_prevs", no_ladder=True)

"""Claims on a circuit whose answer is known (frac_prevs: L0_MLP flags x, L1H2 averages the flags so far)."""

import pytest
import torch

import vesalius.api as ves
from vesalius.documents.explanation import SHOWN, Evidence
from vesalius.errors import BadInput
from vesalius.explanations.claims import (
    Aggregates,
    BackupOf,
    Combines,
    Computes,
    Copies,
    DependsOnlyOn,
    Hypothesis,
    IndependentOf,
    Necessary,
    ReadsFrom,
    Redundant,
    Sufficient,
    check,
    claim_from,
    interchange,
)
from vesalius.explanations.claims.base import level_for, share_interval_at
from vesalius.explanations.claims.interchange import ACCURACY, AGREEMENT, ELSEWHERE
from vesalius.explanations.laboratory import CircuitLab
from vesalius.rasp import (
    Aggregate,
    Comparison,
    Map,
    Select,
    SelectorWidth,
    SequenceMap,
    compile_program,
    indices,
    tokens,
)
from vesalius_truth.key import task


@pytest.fixture(scope="module")
def lab():
    return CircuitLab(ves.load("3"), n=512)


def program(*, flag=lambda token: token == "x", predicate=Comparison.LEQ):
    is_x = Map(flag, tokens, name="is_x")
    share = Aggregate(Select(indices, indices, predicate), is_x, numerical=True, name="share")
    key = task("3").program()
    return compile_program(share, key.vocab, key.max_len, causal=key.causal, name="share_of_x")


def hypothesis(**changes):
    flags, share = (str(component) for component, _ in task("3").components)
    return Hypothesis(program=program(**changes), carriers={flags: ("is_x",), share: ("share",)})


FLAGS, SHARE = (str(component) for component, _ in task("3").components)


@pytest.mark.parametrize("component", [FLAGS, SHARE])
def test_what_a_component_computes_is_supported(lab, component):
    record = check(Computes(component=component, hypothesis=hypothesis()), lab, tried=4)
    assert (record.verdict, record.tried, record.kind) == ("supported", 4, "computes")
    # The model was trained with moved outputs, so that they follow the program as well.
    assert record.text.startswith(f"{component} computes")
    agreement, accuracy, _, rivals, *_ = record.evidence
    assert agreement.value == 1.0
    assert accuracy.value > 0.97
    assert accuracy.controls["shuffled_source"] < 0.8
    assert rivals.value > 0.5


@pytest.mark.parametrize(
    ("component", "changes"),
    [
        (FLAGS, {"flag": lambda token: token == "a"}),
        (FLAGS, {"flag": lambda token: token in ("x", "a")}),
        (SHARE, {"predicate": Comparison.LT}),
        (SHARE, {"predicate": Comparison.GEQ}),
        (SHARE, {"predicate": lambda key, query: key <= query - 1 or key == query == 0}),
    ],
)
def test_a_near_miss_is_refuted(lab, component, changes):
    assert check(Computes(component=component, hypothesis=hypothesis(**changes)), lab).verdict == "refuted"


@pytest.mark.parametrize(("wins", "verdict"), [((14, 0), "supported"), ((13, 1), "undecided"), ((0, 40), "refuted")])
def test_a_rival_without_a_follower_has_lost_at_any_level(lab, monkeypatch, wins, verdict):
    monkeypatch.setattr("vesalius.explanations.claims.interchange._wins", lambda *args: wins)
    record = check(Computes(component=FLAGS, hypothesis=hypothesis()), lab, tried=5_000)
    assert record.verdict == verdict


def test_another_pattern_gives_the_scores_of_a_run_that_is_hooked_there(lab):
    head = lab.model.components[0].parse(SHARE)
    pattern = lab.pattern(head).roll(1, -1)
    pattern = pattern / pattern.sum(-1, keepdim=True).clamp(min=1e-9)

    def replace(whole, hook):
        whole = whole.clone()
        whole[:, head.head] = pattern
        return whole

    batch = lab.batch
    hooks = [(f"blocks.{head.layer}.attn.hook_pattern", replace)]
    with torch.no_grad():
        logits = lab.model.run_with_hooks(batch.tokens, mask=batch.mask, fwd_hooks=hooks)
    n = len(batch)
    unchanged = lab.same(logits[:, 1:, 0], lab.clean[:n]) & lab.real[:n]
    expected = unchanged.sum(1) / lab.real[:n].sum(1)
    # An output within rounding of the tolerance may count on one side only: at most one in a prompt, in few prompts.
    differing = (lab.scores_attending(head, pattern) - expected).abs() > 1e-6
    assert differing.float().mean() < 0.01
    assert expected.mean() < 0.9, "the other pattern changes outputs"


def test_where_a_program_fails_the_component_that_is_wrong_is_refuted_and_the_other_is_not(lab):
    """The wrong comparison is the head's. What the MLP carries is right, though no output of the program is."""
    idea = hypothesis(predicate=Comparison.GEQ)
    wrong, right = (check(Computes(component=part, hypothesis=idea), lab) for part in (SHARE, FLAGS))
    assert [evidence.measure for evidence in right.evidence[:2]] == [AGREEMENT, ACCURACY]
    assert (wrong.verdict, right.verdict) == ("refuted", "undecided")
    assert {evidence.outcome for evidence in right.evidence[2:]} == {ELSEWHERE}
    assert ELSEWHERE not in {evidence.outcome for evidence in wrong.evidence}


def test_where_a_program_fails_and_a_component_cannot_be_looked_at_nothing_is_refuted(lab, monkeypatch):
    """Too few inputs have equal claimed values, so nothing says that this component is wrong, and not another."""
    claim = Computes(component=FLAGS, hypothesis=hypothesis(predicate=Comparison.GT))
    nothing_equal = lambda lab, program, names: torch.zeros_like(lab.real)  # noqa: E731
    monkeypatch.setattr(interchange, "equal_in", nothing_equal)
    record = check(claim, lab)
    assert record.verdict == "undecided"
    assert ELSEWHERE not in {evidence.outcome for evidence in record.evidence}


@pytest.mark.parametrize(("high", "verdict"), [(0.98, "undecided"), (0.95, "refuted")])
def test_an_interchange_that_reaches_its_bar_refutes_nothing_by_itself(lab, monkeypatch, high, verdict):
    """No input has equal claimed values; the interval of the interchange holds 0.97, or does not."""
    nothing_equal = lambda lab, program, names: torch.zeros_like(lab.real)  # noqa: E731
    measured, figures = interchange._accuracy, {"value": 0.93, "high": high}
    monkeypatch.setattr(interchange, "equal_in", nothing_equal)
    monkeypatch.setattr(interchange, "_accuracy", lambda *args: measured(*args).model_copy(update=figures))
    assert check(Computes(component=FLAGS, hypothesis=hypothesis()), lab).verdict == verdict


def test_the_right_variable_in_the_wrong_component_is_refuted(lab):
    swapped = Hypothesis(program=program(), carriers={FLAGS: ("share",), SHARE: ("is_x",)})
    assert check(Computes(component=FLAGS, hypothesis=swapped), lab).verdict == "refuted"
    outside = str(lab.matched(lab.circuit[0])[0])
    elsewhere = Hypothesis(program=program(), carriers={outside: ("is_x",)})
    assert check(Computes(component=outside, hypothesis=elsewhere), lab).verdict == "refuted"


def test_a_variable_that_no_interchange_shows_is_undecided(lab):
    constant = Map(lambda token: 0, tokens, name="zero")
    true = program()
    is_x = Map(lambda token: token == "x", tokens, name="is_x")
    flag = SequenceMap(lambda x, zero: x, is_x, constant, name="flag")
    output = Aggregate(Select(indices, indices, Comparison.LEQ), flag, numerical=True, name="share")
    idle = compile_program(output, true.vocab, true.max_len, causal=true.causal)
    outside = str(lab.matched(lab.circuit[0])[0])
    claim = Computes(component=outside, hypothesis=Hypothesis(program=idle, carriers={outside: ("zero",)}))
    record = check(claim, lab)
    assert record.verdict == "undecided"
    assert record.evidence[1].n < 24


def test_necessary_and_sufficient(lab):
    outside = str(lab.matched(lab.circuit[0])[0])
    assert check(Necessary(component=FLAGS), lab).verdict == "supported"
    assert check(Necessary(component=outside), lab).verdict == "refuted"
    assert check(Sufficient(component=FLAGS, components=(FLAGS, SHARE)), lab).verdict == "supported"
    assert check(Sufficient(component=FLAGS, components=(FLAGS,)), lab).verdict == "refuted"


def test_a_circuit_that_only_the_mean_completes_does_not_suffice() -> None:
    """Circuit 129 needs L2_MLP, whose values on other inputs change the answer; its mean happens to change nothing."""
    lab = CircuitLab(ves.load("129"), n=512)
    parts = ("L0_MLP", "L1H0", "L1_MLP")
    assert check(Sufficient(component="L0_MLP", components=parts, replacement="mean"), lab).verdict == "supported"
    assert check(Sufficient(component="L0_MLP", components=parts), lab).verdict == "refuted"


def test_components_in_a_chain_are_neither_redundant_nor_backups(lab):
    for how in ("mean", "resample"):
        assert check(Redundant(component=FLAGS, others=(SHARE,), replacement=how), lab).verdict == "refuted"
        assert check(BackupOf(component=FLAGS, of=(SHARE,), replacement=how), lab).verdict == "refuted"


def test_the_flag_depends_only_on_the_token_being_x(lab):
    true = program()
    assert check(DependsOnlyOn(component=FLAGS, program=true, variables=("is_x",)), lab).verdict == "supported"
    assert check(DependsOnlyOn(component=FLAGS, program=true, variables=("share",)), lab).verdict == "refuted"
    independent = IndependentOf(component=FLAGS, program=true, variable="tokens", given=("is_x",))
    assert check(independent, lab).verdict == "supported"
    assert check(IndependentOf(component=FLAGS, program=true, variable="is_x"), lab).verdict == "refuted"


def test_what_depends_on_the_position_alone_cannot_be_swapped_and_stays_undecided(lab):
    claim = Combines(component=FLAGS, program=program(), variables=("tokens", "indices"))
    assert check(claim, lab).verdict == "undecided"


def test_the_head_aggregates_the_flags_so_far(lab):
    record = check(Aggregates(component=SHARE, hypothesis=hypothesis()), lab)
    assert record.verdict == "supported"
    assert "is_x" in record.text
    assert check(Aggregates(component=SHARE, hypothesis=hypothesis(predicate=Comparison.GT)), lab).verdict == "refuted"
    number = SelectorWidth(Select(tokens, Map({0: "x"}, indices, otherwise="x"), Comparison.EQ), name="number")
    program = compile_program(number, lab.vocabulary.tokens, lab.vocabulary.max_len, causal=True)
    counted = Hypothesis(program=program, carriers={SHARE: ("number_head",)})
    said = "aggregates the number over positions whose tokens is 'x'."
    assert Aggregates(component=SHARE, hypothesis=counted).text == f"{SHARE} {said}"
    with pytest.raises(BadInput, match="Aggregate"):
        check(Aggregates(component=FLAGS, hypothesis=hypothesis()), lab)


@pytest.mark.slow
def test_a_head_that_copies_the_previous_token():
    previous = task("19").program()
    head = str(task("19").components[0][0])
    other = CircuitLab(ves.load("19"), n=384)
    verdicts = [check(ReadsFrom(component=head, offset=offset), other).verdict for offset in (0, 1, 2)]
    assert verdicts == ["refuted", "supported", "refuted"]
    copies = [check(Copies(component=head, program=previous, offset=offset), other).verdict for offset in (0, 1, 2)]
    assert copies == ["refuted", "supported", "refuted"]


@pytest.mark.slow
def test_a_copy_that_a_program_names_gets_the_verdict_of_computes():
    previous = task("19").program()
    head, carried = task("19").components[0]
    other = CircuitLab(ves.load("19"), n=384)
    idea = Hypothesis(program=previous, carriers={str(head): carried})
    computes = check(Computes(component=str(head), hypothesis=idea), other)
    copies = Copies(component=str(head), program=previous, offset=1, carried=carried)
    record = check(copies, other)
    assert record.verdict == computes.verdict == "supported"
    assert record.evidence[: len(computes.evidence)] == computes.evidence
    assert record.evidence[-1].outcome in ("nothing beside", "something beside", "not decided")
    # Another place than the program's is not its variable, so that the swaps decide.
    wrong = copies.model_copy(update={"offset": 2})
    assert check(wrong, other).verdict == "refuted"
    assert not any(line.measure == ACCURACY for line in check(wrong, other).evidence)


def test_every_line_of_evidence_is_marked():
    figures = {"value": 1.0, "low": 0.9, "high": 1.0, "n": 9, "rule": "", "seed": 0, "experiment": "", "measure": ""}
    marks = [Evidence(**figures, passed=passed).mark for passed in (True, False, None)]
    assert marks == ["pass", "FAIL", "undecided"]
    assert Evidence(**figures, outcome=SHOWN).mark == "shown"


@pytest.fixture(scope="module")
def share_lab():
    """Circuit 25: L1_MLP divides the count of the own token by the length."""
    return CircuitLab(ves.load("25"), n=1400)


@pytest.mark.slow
def test_two_operands_that_both_matter(share_lab):
    program = task("25").program()  # share_of_token = same_token_count / sequence_length
    both = ("same_token_count", "sequence_length")
    assert check(Combines(component="L1_MLP", program=program, variables=both), share_lab).verdict == "supported"
    missing = ("same_token_count", "tokens")
    assert check(Combines(component="L1_MLP", program=program, variables=missing), share_lab).verdict == "refuted"


def shares_and(function):
    """The share of the own token, put together with the token by a function; and who carries it."""
    key = task("25").program()
    same = SelectorWidth(Select(tokens, tokens, Comparison.EQ), name="same_token_count")
    length = SelectorWidth(Select(tokens, tokens, Comparison.TRUE), name="sequence_length")
    share = SequenceMap(lambda count, n: count / n if n else 0.0, same, length, name="share")
    output = SequenceMap(function, share, tokens, name="marked_share")
    made = compile_program(output, key.vocab, key.max_len, causal=key.causal)
    return Hypothesis(program=made, carriers={"L1_MLP": ("marked_share",)})


def lines_of(record, name):
    return [one for one in record.evidence if f"where only {name} differs" in one.experiment]


def test_both_arguments_of_a_table_of_two_are_shown_to_matter(share_lab):
    program = task("25").program()
    (carried,) = [variables for component, variables in task("25").components if str(component) == "L1_MLP"]
    claim = Computes(component="L1_MLP", hypothesis=Hypothesis(program=program, carriers={"L1_MLP": carried}))
    record = check(claim, share_lab)
    assert record.verdict == "supported"
    for name in ("same_token_count", "sequence_length"):
        (line,) = lines_of(record, name)
        assert line.passed is True


def test_an_argument_that_makes_no_difference_refutes_what_is_computed(share_lab, monkeypatch):
    """With every other bar of the rule lowered, so that this one decides alone; `combines` says the same."""
    bars = {"MIN_AGREEMENT": 0.0, "MIN_CHANGED_ACCURACY": 0.0, "MIN_WORST_CELL": 0.0, "MIN_LEAD_OVER_SHUFFLED": -1.0}
    for bar, value in {**bars, "RIVALS": 0}.items():
        monkeypatch.setattr(interchange, bar, value)
    marked = task("25").program().vocab[::2]
    idea = shares_and(lambda share, token: 1 - share if token in marked else share)
    record = check(Computes(component="L1_MLP", hypothesis=idea), share_lab, tried=5)
    (spurious,), (needed,) = lines_of(record, "tokens"), lines_of(record, "share")
    assert (record.verdict, spurious.passed, needed.passed) == ("refuted", False, True)
    combines = Combines(
        component="L1_MLP", program=idea.program, variables=("share", "tokens"), carried=("marked_share",)
    )
    assert check(combines, share_lab).verdict == "refuted"


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"offset": 0}, "its own position"),
        ({"offset": 2}, "2 position(s) before"),
        ({"offset": -1}, "1 position(s) after"),
        ({"position": 0}, "position 0"),
    ],
)
def test_the_text_names_where_a_head_reads(place, words):
    assert ReadsFrom(component="L0H0", **place).text == f"L0H0 reads from {words} and uses what it finds."
    assert Copies(component="L0H0", program=program(), **place).text == f"L0H0 copies tokens from {words}."


def test_more_claims_tried_widen_every_interval():
    assert level_for(1) == pytest.approx(0.95)
    assert level_for(10) == pytest.approx(0.995)
    one, ten = share_interval_at(90, 100, level_for(1)), share_interval_at(90, 100, level_for(10))
    assert ten[0] < one[0] < 0.9 < one[1] < ten[1]
    assert one == pytest.approx((0.8256, 0.9448), abs=1e-3)  # Wilson's interval of 90 in 100, as published
    with pytest.raises(BadInput, match="tried=0"):
        level_for(0)


def test_claims_are_frozen_data_and_survive_json(lab):
    claims = [
        Necessary(component="blocks.0.mlp.hook_post"),
        ReadsFrom(component="1.2", tokens=("x",)),
        Computes(component=FLAGS, hypothesis=hypothesis()),
    ]
    assert claims[0].component == "L0_MLP"
    for claim in claims:
        again = claim_from(claim.model_dump(mode="json"))
        assert type(again) is type(claim)
        assert again.text == claim.text
    assert check(claim_from(claims[2].model_dump(mode="json")), lab).verdict == "supported"


@pytest.mark.parametrize(
    "data",
    [
        {"kind": "guess", "component": "L0_MLP"},
        {"kind": "necessary"},
        {"kind": "necessary", "component": "head nine"},
        {"kind": "reads_from", "component": "L0H0"},
        {"kind": "reads_from", "component": "L0H0", "offset": 1, "bos": True},
        {"kind": "computes", "component": "L0_MLP", "hypothesis": {"program": {"nodes": []}, "carriers": {}}},
        [],
    ],
)
def test_malformed_claims_are_refused_in_one_line(data):
    with pytest.raises(BadInput) as error:
        claim_from(data)
    assert "\n" not in str(error.value)


def test_claims_that_make_no_sense_are_refused(lab):
    for claim in (
        Necessary(component="L9H9"),
        ReadsFrom(component=FLAGS, offset=1),
        Redundant(component=FLAGS, others=(FLAGS,)),
        Sufficient(component=FLAGS, components=(SHARE,)),
        DependsOnlyOn(component=FLAGS, program=program(), variables=("nothing",)),
        Computes(component="L0H0", hypothesis=hypothesis()),
    ):
        with pytest.raises(BadInput):
            check(claim, lab)


def test_a_whole_interchange_equals_running_with_the_source_in_place(lab):
    """The independent twin: one forward pass with a hook that writes the source's output of the MLP."""
    hook = "blocks.0.hook_mlp_out"
    _, cache = lab.model.run_with_cache(lab.source.tokens, names=hook)
    where = lab.source.mask[..., None]

    def replace(value, point):
        return torch.where(where, cache[hook], value)

    logits = lab.model.run_with_hooks(lab.batch.tokens, fwd_hooks=[(hook, replace)])
    expected = logits[:, 1:, 0] if lab.numerical else logits[:, 1:].argmax(-1).float()
    observed = lab.whole_interchange(lab.circuit[0])
    assert torch.allclose(observed[lab.real], expected[lab.real], atol=1e-5)

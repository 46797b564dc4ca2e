"""What MLPs do, on models whose lookups are set by hand: true names, and an interchange made with plain hooks."""

import pytest
import torch
from benchmarks.entries import says_nothing

import vesalius as ves
from tests.explanations.induction_model import as_specimen
from tests.explanations.lookup_model import countries, lookup_model
from vesalius.components import Component
from vesalius.documents.explanation import ClaimRecord, ComponentExplanation
from vesalius.errors import BadInput
from vesalius.explanations.claims import (
    ActsAt,
    Carries,
    Claim,
    FewNeurons,
    LooksUp,
    NeedsInput,
    check,
    claim_data,
    claim_from,
)
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.natural.roles import NOT_FOUND, name_of_mlp, written_by
from vesalius.intervene.written_tokens import ranks

ALL_COUNTRIES = tuple(range(len(countries())))


def laboratory(second: str, n: int = 16) -> NaturalLab:
    specimen = as_specimen(lookup_model(second), "capitals")  # type: ignore[arg-type]
    return NaturalLab.draw(specimen, n=n, seed=5, circuit=[Component(0, 0), Component(1)])


@pytest.fixture(scope="module")
def single() -> NaturalLab:
    """L1_MLP looks capitals up, L0_MLP writes a constant."""
    return laboratory("nothing")


@pytest.fixture(scope="module")
def shared() -> NaturalLab:
    """L1_MLP and L2_MLP write half of the capital each."""
    return laboratory("half")


@pytest.fixture(scope="module")
def doubled() -> NaturalLab:
    """L2_MLP writes once more what L1_MLP has written."""
    return laboratory("twice")


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (ActsAt(component="L1_MLP", role="end"), "supported"),
        (ActsAt(component="L1_MLP", role="country"), "refuted"),
        (ActsAt(component="L0H0", role="country"), "refuted"),
        (NeedsInput(component="L1_MLP", sender="L0H0"), "supported"),
        (NeedsInput(component="L1_MLP", sender="L0H1"), "refuted"),
        (NeedsInput(component="L1_MLP", sender="tokens"), "refuted"),
        # A constant is the same on every prompt: no path with another prompt's value can show it.
        (NeedsInput(component="L1_MLP", sender="L0_MLP"), "refuted"),
        (FewNeurons(component="L1_MLP", neurons=ALL_COUNTRIES), "supported"),
        (FewNeurons(component="L1_MLP", neurons=(len(ALL_COUNTRIES),)), "refuted"),
        (Carries(component="L1_MLP", variable="country"), "supported"),
        (Carries(component="L1_MLP", variable="answer"), "supported"),
        (Carries(component="L1_MLP", variable="country", at="country"), "refuted"),
        (Carries(component="L0_MLP", variable="country"), "refuted"),
        (Carries(component="L0_MLP", variable="country", at="country"), "refuted"),
        (LooksUp(component="L1_MLP", variable="country"), "supported"),
        (LooksUp(component="L2_MLP", variable="country"), "refuted"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.kind}-{value.component}",
)
def test_of_one_lookup(single: NaturalLab, claim: Claim, verdict: str) -> None:
    record = check(claim, single)
    assert record.verdict == verdict
    again = claim_from(claim_data(record, claim.component, None, builtin=True))
    assert again == claim


def test_two_mlps_that_share_a_lookup_both_look_up_and_move_the_answer_half_way(shared: NaturalLab) -> None:
    for name in ("L1_MLP", "L2_MLP"):
        record = check(LooksUp(component=name, variable="country"), shared)
        assert record.verdict == "supported"
        assert record.evidence[0].value == pytest.approx(0.5, abs=1e-3)


def test_an_mlp_that_writes_the_answer_once_more_carries_it_and_looks_nothing_up(doubled: NaturalLab) -> None:
    assert check(Carries(component="L2_MLP", variable="country"), doubled).verdict == "supported"
    record = check(LooksUp(component="L2_MLP", variable="country"), doubled)
    assert record.verdict == "refuted"
    written, gained, apart = record.evidence[-3:]
    assert (written.value, gained.value) == (1.0, 0.0)  # the answer stands in what it reads already
    assert (apart.value or 1.0) < 0.75  # and it follows what L1_MLP tells it
    assert check(NeedsInput(component="L2_MLP", sender="L1_MLP"), doubled).verdict == "supported"


def test_the_interchange_is_that_of_plain_hooks(shared: NaturalLab) -> None:
    """Each prompt with L1_MLP's output at the end from another prompt, in which the country is a third one's."""
    lab, model, mlp = shared, shared.model, Component(1)
    record = check(Carries(component="L1_MLP", variable="country"), lab)
    tokens, end, place = lab.prompts.tokens, lab.prompts.position, lab.prompts.roles["country"]
    rows = torch.arange(len(tokens))
    changed = lab.corrupted("country").tokens
    new, own = changed[rows, place], tokens[rows, place]
    donors, donor_end = tokens.roll(1, 0).clone(), end.roll(1)
    donors[rows, place.roll(1)] = new
    name = f"blocks.{mlp.layer}.hook_mlp_out"
    _, cache = model.run_with_cache(donors, mask=lab.prompts.mask.roll(1, 0), names=[name])

    def patch(value: torch.Tensor, _: object) -> torch.Tensor:
        value = value.clone()
        value[rows, end] = cache[name][rows, donor_end]
        return value

    def margin(logits: torch.Tensor) -> torch.Tensor:
        at_end = logits[rows, end]
        return at_end[rows, rival] - at_end[rows, answer]

    clean, whole = (model(batch, mask=lab.prompts.mask) for batch in (tokens, changed))
    answer, rival = (logits[rows, end].argmax(-1) for logits in (clean, whole))
    patched = model.run_with_hooks(tokens, mask=lab.prompts.mask, fwd_hooks=[(name, patch)])
    way = (margin(patched) - margin(clean)) / (margin(whole) - margin(clean)).mean()
    assert bool((new != own).all())
    assert bool((rival != answer).all())
    assert record.evidence[0].n == len(rows)
    assert record.evidence[0].value == pytest.approx(float(way.mean()), abs=1e-4)


def test_what_neurons_keep_is_what_plain_hooks_keep(single: NaturalLab) -> None:
    lab, model, kept = single, single.model, (3, 5, 8, 13, 21, 34)
    name, prompts = "blocks.1.mlp.hook_post", single.prompts
    _, cache = model.run_with_cache(prompts.counterfactual, mask=prompts.mask, names=[name])

    def patch(value: torch.Tensor, _: object) -> torch.Tensor:
        new = cache[name].clone()
        new[..., list(kept)] = value[..., list(kept)]
        return new

    def score(logits: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(len(logits))
        at_end = logits[rows, prompts.position]
        return at_end[rows, prompts.correct] - at_end[rows, prompts.wrong]

    clean = score(model(prompts.tokens, mask=prompts.mask))
    edited = score(model.run_with_hooks(prompts.tokens, mask=prompts.mask, fwd_hooks=[(name, patch)]))
    lost = (clean - edited) / clean.mean()
    assert torch.allclose(lab.kept_by(Component(1), kept), lost, atol=1e-4)
    assert float(lost.mean()) > 0.1  # some countries are none of these neurons'


def test_ranks_count_the_answers_below_and_half_of_those_that_are_equal(single: NaturalLab) -> None:
    model = single.model
    weight = model.unembed_weight
    answers = single.clean_answers.token
    others = answers.unique()
    assert torch.equal(ranks(model, weight[answers], answers), torch.ones(len(answers)))
    assert torch.equal(ranks(model, torch.zeros_like(weight[answers]), answers), torch.full((len(answers),), 0.5))
    first = answers[:1].expand_as(answers)
    assert float(ranks(model, weight[first], answers)[0]) == 1.0
    assert len(others) > 2


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Carries(component="L0H0", variable="country"), "it is a head; name an MLP"),
        (Carries(component="L1_MLP", variable="city"), "role 'city' does not exist"),
        (Carries(component="L1_MLP", variable="country", at="city"), "role 'city' does not exist"),
        (NeedsInput(component="L0_MLP", sender="L1H0"), "L0_MLP does not read what L1H0 writes"),
        (FewNeurons(component="L1_MLP", neurons=(100_000,)), "L1_MLP has no neuron 100000"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_a_claim_about_what_is_not_there_is_refused(single: NaturalLab, claim: Claim, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        check(claim, single)


def test_the_explanation_names_the_lookup_and_says_what_it_reads() -> None:
    explanation = ves.explain(as_specimen(lookup_model(), "capitals"), ["L0_MLP", "L1_MLP"], n=16, no_ladder=True)
    parts = {part.id: part for part in explanation.components}
    assert parts["L1_MLP"].role == "looks up the answer from country at the answer (interchange 1.00), reads L0H0"
    assert (parts["L1_MLP"].tag, parts["L1_MLP"].tag_by_experiment) == ("MAPPER", "MAPPER")
    assert "it looks the answer up" in parts["L1_MLP"].note
    assert "It needs what reaches it directly from L0H0" in parts["L1_MLP"].note
    supported = {claim.kind for claim in parts["L1_MLP"].claims if claim.verdict == "supported"}
    assert {"needs_input", "carries", "looks_up", "acts_at_answer"} <= supported
    # Of the countries that neurons were chosen on, others need others: no small set is claimed to do.
    assert "No few neurons were found" in parts["L1_MLP"].note
    assert parts["L0_MLP"].role == "supplies what the prompts share"


def test_a_path_into_an_mlp_is_one_question_with_one_claim() -> None:
    """Where the sender is explained as well, its path is claimed there; the MLP's name and note still say it."""
    explanation = ves.explain(as_specimen(lookup_model(), "capitals"), ["L0H0", "L1_MLP"], n=16, no_ladder=True)
    parts = {part.id: part for part in explanation.components}
    fed = [claim for claim in parts["L0H0"].claims if claim.kind == "feeds"]
    assert [(claim.prediction, claim.verdict) for claim in fed] == [({"receiver": "L1_MLP"}, "supported")]
    assert not any(claim.kind == "needs_input" for claim in parts["L1_MLP"].claims)
    assert parts["L1_MLP"].role == "looks up the answer from country at the answer (interchange 1.00), reads L0H0"
    assert "It needs what reaches it directly from L0H0" in parts["L1_MLP"].note


def record(kind: str, **prediction: str) -> ClaimRecord:
    return ClaimRecord(kind=kind, text="t", verdict="supported", evidence=(), prediction=prediction)


def test_a_name_says_where_and_by_which_paths_if_nothing_else_was_shown() -> None:
    necessary = record("necessary")
    assert name_of_mlp([necessary], []) == NOT_FOUND
    assert name_of_mlp([necessary, record("acts_at", role="S2")], []) == "necessary at S2"
    needs = [record("needs_input", sender=name) for name in ("tokens", "L0H1")]
    names = [f"L{layer}H0" for layer in range(5)]
    assert name_of_mlp([necessary, record("acts_at_answer"), *needs], names) == (
        "necessary at the answer, reads the tokens and L0H1, feeds L0H0, L1H0, L2H0 and 2 more"
    )


def test_what_an_mlp_writes_is_read_in_tokens(single: NaturalLab) -> None:
    """The lookup raises the capital and nothing else, as do its neurons; the constant raises nothing of its own."""
    written = written_by(single, Component(1), "end")
    by_neurons = written_by(single, Component(1), "end", ALL_COUNTRIES)
    assert written is not None
    assert by_neurons is not None
    assert all(raised[0] == answer for answer, raised in written.examples)
    assert (written.answer, written.neurons) == (1.0, None)
    assert (by_neurons.examples, by_neurons.neurons) == (written.examples, len(ALL_COUNTRIES))
    assert "these 90 neurons write at the answer position raises most" in by_neurons.sentence
    other = written_by(single, Component(1), "end", (len(ALL_COUNTRIES),))
    assert other is not None
    assert other.answer < 0.5


def test_an_entry_without_a_place_or_a_path_says_nothing() -> None:
    roles = ("necessary", NOT_FOUND, "necessary at S2", "necessary, feeds L1H0", None)
    parts = [
        ComponentExplanation(id="L1_MLP", tag=None, tag_by_experiment=None, note="", verdict="supported", role=role)
        for role in roles
    ]
    assert [says_nothing(part) for part in parts] == [True, True, False, False, True]

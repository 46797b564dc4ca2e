"""MLPs as tables, on models whose lookups are set by hand: entries by hand, a rung that equals plain hooks."""

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch

from tests.explanations.induction_model import as_specimen
from tests.explanations.lookup_model import lookup_model
from vesalius.behaviours.builtin import CAPITALS
from vesalius.behaviours.prompts import Prompts
from vesalius.behaviours.trial import trial
from vesalius.components import Component
from vesalius.discovery.account import NamedSet
from vesalius.documents.metric import Metric
from vesalius.documents.running import LOOKUPS, MEAN_LOOKUPS, SHUFFLED_LOOKUPS, Lookup, Running
from vesalius.explanations.running.explained import ladder_prompts, put_in_place
from vesalius.explanations.running.lookups import MAKERS, Tables, shuffled_words, words_of
from vesalius.explanations.running.misplaced import elsewhere, misplaced
from vesalius.explanations.running.programs import parse_program
from vesalius.explanations.running.rules import Tokens
from vesalius.intervene.engine import Cost
from vesalius.model.specimen import Specimen

HEAD, CONSTANT, FIRST, SECOND = Component(0, 0), Component(0), Component(1), Component(2)
LOOKS = {HEAD: parse_program("all capitalised word")}


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    """L1_MLP and L2_MLP look half of the capital up each, L0_MLP writes a constant."""
    return as_specimen(lookup_model("half"), "capitals")


@pytest.fixture(scope="module")
def named(specimen: Specimen) -> NamedSet:
    return NamedSet((HEAD, CONSTANT, FIRST, SECOND), ladder_prompts(specimen, 12, seed=0), 9)


@pytest.fixture(scope="module")
def running(specimen: Specimen, named: NamedSet) -> Running:
    found = put_in_place(specimen, named, given=LOOKS)
    assert found is not None
    return found


def kept(running: Running, step: str) -> float:
    rung = running.rung(step)
    assert rung is not None
    assert rung.kept.value is not None
    return rung.kept.value


@pytest.mark.slow
def test_what_looks_words_up_is_a_table_and_a_constant_is_none(running: Running) -> None:
    assert [(one.mlp, one.by) for one in running.lookups] == [("L1_MLP", "country"), ("L2_MLP", "country")]
    for one in running.lookups:
        assert one.kept.value == pytest.approx(1.0, abs=1e-3)
        assert (one.shuffled.value or 0.0) < 0.3
        assert one.needed.value == pytest.approx(0.24, abs=0.05)  # half of what says the own capital and not another
        assert one.holds
    capitals = {f" {country}": f" {capital}" for country, capital in CAPITALS}
    examples = running.lookups[0].examples
    assert len(examples) == 3
    assert all(capitals[country] == capital for country, capital in examples)
    assert kept(running, LOOKUPS) == pytest.approx(1.0, abs=1e-3)
    assert max(kept(running, SHUFFLED_LOOKUPS), kept(running, MEAN_LOOKUPS)) < 0.7
    assert "L1_MLP is a table of the word at a role, and of country at the end (' " in running.listing()
    assert "every other MLP computes by the model's own weights" in running.listing()
    assert "all MLPs but L1_MLP, L2_MLP" in running.not_explained()


def entry(specimen: Specimen, makers: Prompts, mlp: Component, word: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What an MLP writes at the country and at the end: the mean over makers with that country, run one by one."""
    name, written = f"blocks.{mlp.layer}.hook_mlp_out", []
    for row in range(len(makers)):
        tokens, place = makers.tokens[row].clone(), int(makers.roles["country"][row])
        tokens[place] = word
        _, cache = specimen.model.run_with_cache(tokens[None], mask=makers.mask[row][None])
        written.append(torch.stack([cache[name][0, place], cache[name][0, int(makers.position[row])]]))
    at_role, at_end = torch.stack(written).mean(0)
    return at_role, at_end


@pytest.mark.slow
def test_the_rung_of_tables_equals_plain_hooks(specimen: Specimen, named: NamedSet, running: Running) -> None:
    model, prompts, batch = specimen.model, named.sets.report.prompts, named.sets.report.batch
    assert prompts is not None
    assert named.sets.rank.prompts is not None
    makers = named.sets.rank.prompts.take(slice(0, MAKERS))
    scores = []
    for row in range(len(prompts)):
        tokens, other, mask = (one[row : row + 1] for one in (prompts.tokens, prompts.counterfactual, prompts.mask))
        place, end = int(prompts.roles["country"][row]), int(prompts.position[row])
        _, cache = model.run_with_cache(other, mask=mask)
        values: dict[int, torch.Tensor] = {}
        seen = Tokens.of(specimen, batch.take(slice(row, row + 1)), 1)
        tables = {mlp.layer: entry(specimen, makers, mlp, int(tokens[0, place])) for mlp in (FIRST, SECOND)}

        def keep(v, hook, values=values):
            values[hook.layer()] = v

        def heads(z, hook, cache=cache, values=values, seen=seen):
            new = cache[hook.name].clone()
            if hook.layer() == HEAD.layer:
                new[0, :, HEAD.head] = LOOKS[HEAD].pattern(seen)[0] @ values[hook.layer()][0, :, HEAD.head]
            return new

        def mlps(out, hook, cache=cache, tables=tables, place=place, end=end):
            if hook.layer() not in tables:
                return out
            new = cache[hook.name].clone()
            new[0, place], new[0, end] = tables[hook.layer()]
            return new

        def everything(value, hook, cache=cache):
            return cache[hook.name]

        is_z, is_mlp, is_v = (lambda name, end=ending: name.endswith(end) for ending in ("hook_z", "mlp_out", "hook_v"))
        runs = [[], [(is_v, keep), (is_z, heads), (is_mlp, mlps)], [(is_z, everything), (is_mlp, everything)]]
        logits = [model.run_with_hooks(tokens, mask=mask, fwd_hooks=hooks)[0, end] for hooks in runs]
        scores.append([float(one[prompts.correct[row]] - one[prompts.wrong[row]]) for one in logits])
    full, table, nothing = torch.tensor(scores).double().mean(0)
    assert kept(running, LOOKUPS) == pytest.approx(float((table - nothing) / (full - nothing)), abs=1e-4)


@pytest.mark.parametrize(
    ("behaviour", "places", "classes"),
    [
        ("capitals", ["country"], ["country"]),
        ("ioi", ["IO", "S1", "S2"], ["S1"]),  # IO is the answer; S2 is S1's word again
        ("induction", ["first A", "B"], ["first A"]),  # B is the answer
        ("greater-than", ["period", "century", "start year"], ["period", "century", "start year"]),
    ],
)
def test_no_table_is_looked_up_by_the_answer(behaviour: str, places: list[str], classes: list[str]) -> None:
    specimen = as_specimen(lookup_model(), behaviour)
    prompts = trial(specimen, 6, split="train").prompts
    assert prompts is not None
    tables = Tables(specimen.model, [FIRST], prompts, Cost())
    assert (tables.places, tables.classes) == (places, classes)


def test_an_entry_leaves_out_prompts_in_which_its_word_stands_elsewhere(specimen: Specimen) -> None:
    prompts = trial(specimen, 2, split="train").prompts
    assert prompts is not None
    tokens, word = prompts.tokens.clone(), int(prompts.tokens[0, prompts.roles["country"][0]])
    tokens[1, 1] = word  # the second prompt names the country of the first one, not at the role
    prompts = replace(prompts, tokens=tokens)
    tables = Tables(specimen.model, [FIRST], prompts, Cost())
    first = Tables(specimen.model, [FIRST], prompts.take(slice(0, 1)), Cost())
    asked = torch.tensor([word])
    assert torch.allclose(tables.of("country", asked), first.of("country", asked))


def table_with(**figures: tuple[float, float, float]) -> Lookup:
    metrics = {name: Metric(value=value, low=low, high=high, n=8) for name, (value, low, high) in figures.items()}
    return Lookup(mlp="L1_MLP", by="country", **metrics)


@pytest.mark.parametrize(
    ("changed", "holds"),
    [
        ({}, True),
        ({"kept": (0.7, 0.6, 0.8)}, False),
        ({"kept": (1.5, 1.3, 1.9)}, False),
        ({"shuffled": (0.8, 0.7, 0.9)}, False),
        ({"needed": (0.02, -0.01, 0.05)}, False),
    ],
)
def test_a_table_holds_where_it_keeps_enough_and_more_than_that_of_other_words(
    changed: Mapping[str, tuple[float, float, float]], holds: bool
) -> None:
    figures = {"kept": (0.9, 0.85, 0.95), "shuffled": (0.0, -0.1, 0.1), "needed": (0.1, 0.05, 0.15)}
    one = table_with(**{**figures, **changed})
    assert one.holds == holds
    assert one.line().endswith("does not hold on held-out prompts") != holds


def test_shuffled_words_are_those_of_a_prompt_that_differs_in_all_of_them() -> None:
    words = {"first": torch.tensor([1, 1, 2, 3]), "second": torch.tensor([5, 6, 5, 7])}
    drawn = shuffled_words(words, random.Random(0))
    for role, own in words.items():
        assert bool((drawn[role] != own).all())
    assert {(int(a), int(b)) for a, b in zip(*drawn.values(), strict=True)} <= {(1, 5), (1, 6), (2, 5), (3, 7)}


def test_misplaced_patterns_look_from_roles_where_another_prompt_does() -> None:
    """Of two prompts of five tokens the country stands at 2 in one and at 3 in the other, which is one token longer."""
    prompts = Prompts(
        tokens=torch.tensor([[0, 7, 8, 9, 1], [0, 7, 6, 8, 9]]),
        mask=torch.tensor([[True, True, True, True, False], [True] * 5]),
        position=torch.tensor([3, 4]),
        correct=torch.zeros(2, dtype=torch.long),
        wrong=torch.zeros(2, dtype=torch.long),
        counterfactual=torch.tensor([[0, 7, 5, 9, 1], [0, 7, 6, 5, 9]]),
        texts=["", ""],
        roles={"country": torch.tensor([2, 3])},
    )
    assert words_of(prompts)["country"].tolist() == [8, 8]
    own = torch.eye(5).repeat(2, 1, 1)
    own[0, 3], own[1, 4] = torch.eye(5)[2], torch.eye(5)[3]  # from the end the head looks at the country
    found = misplaced({HEAD: own}, prompts)
    assert found is not None
    assert elsewhere(prompts).tolist() == [1, 0]  # type: ignore[union-attr]
    assert found[HEAD][0].argmax(-1).tolist()[:4] == [0, 1, 0, 3]  # at 2 it looks ahead, at 3: nowhere, so BOS
    assert found[HEAD][1].argmax(-1).tolist() == [0, 1, 2, 2, 2]
    assert torch.allclose(found[HEAD].sum(-1), torch.ones(2, 5))
    alike = replace(prompts, roles={"country": torch.tensor([2, 2])})
    assert misplaced({HEAD: own}, alike) is None

"""The measurements of the profile against naive twins: loops, and one hooked forward per intervention."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.explanations.induction_model import as_specimen
from tests.intervene.twin import naive_logits
from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.discovery.head_tests import masses
from vesalius.explanations.claims.base import against
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.laboratory.answers import answer_readout
from vesalius.explanations.laboratory.runs import (
    HeadPaths,
    at_answer,
    direct_attribution,
    edges_between,
    everywhere,
    feeds,
    logit_difference_of,
    random_keys,
    shuffled,
)
from vesalius.explanations.natural.selection import (
    DESCRIBED,
    SCREENING_PROMPTS,
    ChosenComponents,
    StudyLimits,
    _within_reach,
    screen,
)
from vesalius.intervene import Batch, Recordings, Row, means, means_of
from vesalius.progress import silent


@pytest.fixture(scope="module", params=["induction", "ioi"])
def lab(request: pytest.FixtureRequest) -> NaturalLab:
    """Five prompts of a random model with grouped-query attention; the prompts of ioi are padded."""
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS))
    return NaturalLab.draw(as_specimen(model, request.param), 5, seed=3, split="test")


def naive_difference(lab: NaturalLab, logits: torch.Tensor, prompt: int) -> float:
    at = int(lab.prompts.position[prompt])
    return float(logits[at, lab.prompts.correct[prompt]] - logits[at, lab.prompts.wrong[prompt]])


def role_by_loop(lab: NaturalLab, role: str, prompt: int, query: int) -> list[int]:
    """Keys of a general role, straight from its definition."""
    tokens = lab.prompts.tokens[prompt].tolist()
    earlier = range(1, query)
    match role:
        case "BOS":
            return [0]
        case "self":
            return [query]
        case "previous":
            return [query - 1] if query > 1 else []
        case "duplicate":
            return [k for k in earlier if tokens[k] == tokens[query]]
        case _:
            return [k + 1 for k in earlier if tokens[k] == tokens[query] and k + 1 < query]


def test_attention_mass_by_role_is_that_of_explicit_loops(lab: NaturalLab) -> None:
    for role, target in everywhere(lab.runs).items():
        mass = masses(lab.runs.pattern(1), target)
        for prompt in range(lab.n):
            for head in range(4):
                pattern, length = lab.runs.pattern(1)[prompt, head], int(lab.prompts.position[prompt]) + 1
                shares = []
                for query in range(1, length):
                    keys = role_by_loop(lab, role, prompt, query)
                    if keys:
                        shares.append(sum(float(pattern[query, key]) for key in keys))
                if shares:
                    assert float(mass[prompt, head]) == pytest.approx(sum(shares) / len(shares), abs=1e-6)
                else:
                    assert mass[prompt, head].isnan()


def test_roles_of_the_behaviour_are_single_keys_seen_from_the_answer(lab: NaturalLab) -> None:
    targets = at_answer(lab.runs)
    own = set(targets) - set(everywhere(lab.runs))
    assert own == ({"first A", "B"} if "B" in lab.prompts.roles else {"IO", "S1", "S2"})
    for role in own:
        for prompt in range(lab.n):
            (place,) = targets[role][prompt].nonzero().tolist()
            assert place == [int(lab.prompts.position[prompt]), int(lab.prompts.roles[role][prompt])]


def test_control_targets_have_no_key_in_common_with_the_target_and_look_back(lab: NaturalLab) -> None:
    target = everywhere(lab.runs)["duplicate"]
    other = random_keys(target, lab.runs, seed=1)
    assert not bool((other & target).any())
    room = (torch.arange(target.shape[1]) - target.sum(-1)).clamp(min=0)
    assert torch.equal(other.sum(-1), torch.minimum(target.sum(-1), room))
    upper = torch.ones(target.shape[1:], dtype=torch.bool).triu(1)
    assert not bool((shuffled(target) & upper).any() or (other & upper).any())


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [("L0H1", "L1H2"), ("L0_MLP", "L1H3"), ("L0H0", "L1_MLP"), ("L1H1", "L1_MLP"), ("L0H3", None)],
)
def test_a_path_is_the_naive_path(lab: NaturalLab, sender: str, receiver: str | None) -> None:
    edges = edges_between(Component.parse(sender), None if receiver is None else Component.parse(receiver))
    effects = lab.path_effects([edges])[:, 0]
    for prompt in range(lab.n):
        row = Row(prompt, edges=dict.fromkeys(edges, prompt))
        logits = naive_logits(lab.model, lab.batch, row, lab.runs.source_values)
        expected = float(lab.clean_scores[prompt]) - naive_difference(lab, logits, prompt)
        assert float(effects[prompt]) == pytest.approx(expected, abs=1e-4)


def test_every_pair_of_components_has_edges_exactly_where_one_feeds_the_other(lab: NaturalLab) -> None:
    components = lab.model.components
    assert not feeds(Component(1, 0), Component(1, 1))
    assert feeds(Component(1, 0), Component(1))
    for sender in components:
        for receiver in components:
            if feeds(sender, receiver):
                assert edges_between(sender, receiver)


def test_replacing_at_the_answer_only_is_the_naive_patch_there(lab: NaturalLab) -> None:
    head = Component(0, 2)
    effects = lab.patch_effects([[head]], positions=lab.runs.answer_only)[:, 0]
    for prompt in range(lab.n):
        row = Row(prompt, edits={head: prompt}, positions=[int(lab.prompts.position[prompt])])
        logits = naive_logits(lab.model, lab.batch, row, lab.runs.source_values)
        assert float(effects[prompt]) == pytest.approx(
            float(lab.clean_scores[prompt]) - naive_difference(lab, logits, prompt), abs=1e-4
        )


def test_clean_values_on_the_counterfactual_prompt_restore_what_a_naive_patch_restores(
    lab: NaturalLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model does not perform the behaviour: shares of a difference that may be 0 are not defined."""
    mlp = Component(0)
    assert lab.restored([[mlp]]).isnan().all()
    monkeypatch.setattr(
        "vesalius.explanations.laboratory.natural.mean_apart_from_zero", lambda values: float(values.mean())
    )
    batch = Batch(lab.source.tokens, lab.source.mask)
    corrupted, patched = [], []
    for prompt in range(lab.n):
        for row, scores in ((Row(prompt), corrupted), (Row(prompt, edits={mlp: prompt}), patched)):
            scores.append(naive_difference(lab, naive_logits(lab.model, batch, row, lab.runs.values), prompt))
    before, after = torch.tensor(corrupted), torch.tensor(patched)
    expected = (after - before) / float((lab.clean_scores - before).mean())
    assert torch.allclose(lab.restored([[mlp]])[:, 0], expected, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("port", ["q", "k"])
@pytest.mark.parametrize("sender", ["L0H3", "L0_MLP"])
def test_composition_is_the_attention_of_a_hooked_run(lab: NaturalLab, sender: str, port: str) -> None:
    head, component = Component(1, 3), Component.parse(sender)
    change = lab.runs.output_of(component, lab.runs.source_values) - lab.runs.output_of(component, lab.runs.values)
    expected = {}

    def cut(inputs: torch.Tensor, hook: object) -> torch.Tensor:
        inputs = inputs.clone()
        inputs[:, :, 3] += change
        return inputs

    def record(pattern: torch.Tensor, hook: object) -> None:
        expected["pattern"] = pattern[:, 3]

    hooks = [(f"blocks.1.hook_{port}_input", cut), ("blocks.1.attn.hook_pattern", record)]
    lab.model.run_with_hooks(lab.batch.tokens, mask=lab.batch.mask, fwd_hooks=hooks)
    pattern = HeadPaths(lab.runs, head).pattern_without(component, port)  # type: ignore[arg-type]
    assert torch.allclose(pattern[:, 0], expected["pattern"], atol=1e-5)


def test_cutting_keys_is_cutting_them_in_a_hooked_run(lab: NaturalLab) -> None:
    head, target = Component(0, 1), everywhere(lab.runs)["previous"]

    def cut(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        pattern = pattern.clone()
        remaining = pattern[:, 1].masked_fill(target, 0.0)
        pattern[:, 1] = remaining / remaining.sum(-1, keepdim=True).clamp(min=1e-9)
        return pattern

    logits = lab.model.run_with_hooks(
        lab.batch.tokens, mask=lab.batch.mask, fwd_hooks=[("blocks.0.attn.hook_pattern", cut)]
    )
    patched = torch.tensor([naive_difference(lab, logits[prompt], prompt) for prompt in range(lab.n)])
    inputs = HeadPaths(lab.runs, head)
    untouched = torch.zeros_like(target)
    effects = lab.output_effects(head, inputs.z_without_keys(target))
    assert torch.allclose(effects, lab.clean_scores - patched, atol=1e-4)
    assert torch.allclose(lab.output_effects(head, inputs.z_without_keys(untouched)), torch.zeros(lab.n), atol=1e-4)


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_direct_attributions_add_up_to_the_logit_difference(norm: str) -> None:
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS, norm=norm))
    lab = NaturalLab.draw(as_specimen(model), 4, seed=0, split="test")
    total = direct_attribution(lab.runs, None) + sum(direct_attribution(lab.runs, part) for part in model.components)
    for block in model.blocks:
        total = total + logit_difference_of(lab.runs, (block.attn.b_O + block.mlp.b_out).expand(4, -1))
    correct, wrong = lab.prompts.correct, lab.prompts.wrong
    total = total + model.b_U[correct] - model.b_U[wrong]
    if model.ln_final.b is not None:
        total = total + (model.unembed_weight[correct] - model.unembed_weight[wrong]) @ model.ln_final.b
    assert torch.allclose(total, lab.clean_scores, atol=1e-4)


def test_a_laboratory_of_few_prompts_gives_the_effects_it_has(lab: NaturalLab) -> None:
    """Asked for more prompts than a file of one row has, it ended in "prompt 3 is outside the batch of 1"."""
    mlp = next(part for part in lab.model.components if not part.is_head)
    assert torch.equal(lab.kept_effects(mlp, [0], n=99), lab.kept_effects(mlp, [0]))


def test_every_component_is_screened_and_those_far_from_the_bar_are_no_suspects(lab: NaturalLab) -> None:
    steps: list[str] = []
    chosen, parts = ChosenComponents(), list(lab.model.components)
    screen(lab, chosen, lambda step, done, total: steps.append(step))
    assert set(chosen.effect) == set(parts)
    few = lab.patch_effects([[part] for part in parts], prompts=torch.arange(SCREENING_PROMPTS)).mean(0)
    for part, effect in zip(parts, few.tolist(), strict=True):
        if part in chosen.suspects:  # measured on all screening prompts
            assert chosen.effect[part] == pytest.approx(effect, abs=1e-5)
    largest = max(parts, key=lambda part: abs(chosen.effect[part]))
    assert largest in chosen.suspects
    assert steps


def test_a_component_that_costs_enough_of_every_prompt_is_a_suspect_where_the_first_prompts_score_little() -> None:
    """The head costs 0.07 of what everything costs, on each prompt: 2.1 where that is 30. The bar of all prompts, 0.05
    of 131, is 6.5, so that the head was never measured and the account said that nothing above the bar was left out.
    """
    model = random_model(small_config(n_layers=1, n_heads=1, n_kv_heads=1))
    head, mlp = model.components
    costs, scale = {head: 0.07, mlp: 0.9}, torch.tensor([30.0, 32.0, 300.0, 160.0])

    def patch_effects(sets: Any, prompts: Any = slice(None)) -> torch.Tensor:
        return torch.stack([scale[prompts] * min(1.0, sum(costs[part] for part in parts)) for parts in sets], 1)

    chosen = ChosenComponents()
    screen(cast(NaturalLab, SimpleNamespace(model=model, n=4, patch_effects=patch_effects)), chosen, silent)
    assert chosen.suspects == [head, mlp]


def test_a_number_that_is_asked_for_limits_the_set_and_what_is_described() -> None:
    asked, usual = StudyLimits.of(3, 16), StudyLimits.of(None, 16)
    assert (asked.described, asked.most(300)) == (3, 3)
    assert (usual.described, usual.most(300), usual.most(21)) == (DESCRIBED, 60, DESCRIBED)


def test_another_readout_of_the_clean_run_needs_no_run_of_its_own(lab: NaturalLab) -> None:
    readout = answer_readout(lab.runs)
    shared, apart = lab.recordings.read_as(readout), Recordings(lab.model, lab.batch, readout)
    assert torch.allclose(shared.scores(), apart.scores(), atol=1e-3, rtol=1e-4)
    assert (shared.n_run, apart.n_run) == (0, lab.n)


def test_means_of_outputs_are_those_of_their_prompts(lab: NaturalLab) -> None:
    first, second = means(lab.model, lab.source), means_of(lab.model, lab.runs.source_values)
    for one, other in zip((*first.z, *first.mlp), (*second.z, *second.mlp), strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_a_candidate_goes_on_if_two_standard_errors_take_it_to_the_bar() -> None:
    # Means 5, -3, 1.8 and 0.1; the third has a standard error of 0.8, so that 1.8 + 1.6 reaches 3.
    effects = torch.tensor([[5.0, -3.0, 1.0, 0.1], [5.0, -3.0, 2.6, 0.1]])
    assert _within_reach(effects, 3.0) == [0, 1, 2]
    assert _within_reach(effects, 5.0) == [0]
    undefined = torch.full((2, 1), torch.nan)
    assert _within_reach(torch.cat([effects, undefined], 1), 1.8) == [0, 1, 2, 4]


def test_a_control_that_reaches_the_same_is_not_exceeded_by_rounding() -> None:
    lab: Any = SimpleNamespace(seed=0, ends=lambda values, level: (float(values.min()), float(values.max())))
    values = torch.full((16,), 0.69968)
    verdict, evidence = against(lab, "", "", values, lambda: {"other": values}, least=0.5, level=0.95)
    assert (evidence.low, evidence.controls["other"]) == (0.6997, 0.6997)
    assert verdict == "refuted"

"""The measurements of the profile against naive twins: loops, and one hooked forward per intervention."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.explanations.induction_model import as_specimen
from tests.intervene.twin import naive_logits
from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.discovery.attention import masses
from vesalius.explanations.natural.answers import answer_readout
from vesalius.explanations.natural.composition import HeadPaths
from vesalius.explanations.natural.evidence import _against
from vesalius.explanations.natural.lens import direct_attribution, logit_difference_of
from vesalius.explanations.natural.paths import edges_between, feeds
from vesalius.explanations.natural.pool import Pool
from vesalius.explanations.natural.selection import _within_reach, select
from vesalius.explanations.natural.token_roles import at_answer, everywhere, random_keys, shuffled
from vesalius.intervene import Batch, Recordings, Row, means, means_of


@pytest.fixture(scope="module", params=["induction", "ioi"])
def pool(request: pytest.FixtureRequest) -> Pool:
    """Five prompts of a random model with grouped-query attention; the prompts of ioi are padded."""
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS))
    return Pool.draw(as_specimen(model, request.param), 5, seed=3, split="test")


def naive_difference(pool: Pool, logits: torch.Tensor, prompt: int) -> float:
    at = int(pool.prompts.position[prompt])
    return float(logits[at, pool.prompts.correct[prompt]] - logits[at, pool.prompts.wrong[prompt]])


def role_by_loop(pool: Pool, role: str, prompt: int, query: int) -> list[int]:
    """Keys of a general role, straight from its definition."""
    tokens = pool.prompts.tokens[prompt].tolist()
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


def test_attention_mass_by_role_is_that_of_explicit_loops(pool: Pool) -> None:
    for role, target in everywhere(pool).items():
        mass = masses(pool.pattern(1), target)
        for prompt in range(len(pool)):
            for head in range(4):
                pattern, length = pool.pattern(1)[prompt, head], int(pool.prompts.position[prompt]) + 1
                shares = []
                for query in range(1, length):
                    keys = role_by_loop(pool, role, prompt, query)
                    if keys:
                        shares.append(sum(float(pattern[query, key]) for key in keys))
                if shares:
                    assert float(mass[prompt, head]) == pytest.approx(sum(shares) / len(shares), abs=1e-6)
                else:
                    assert mass[prompt, head].isnan()


def test_roles_of_the_behaviour_are_single_keys_seen_from_the_answer(pool: Pool) -> None:
    targets = at_answer(pool)
    own = set(targets) - set(everywhere(pool))
    assert own == ({"first A", "B"} if "B" in pool.prompts.roles else {"IO", "S1", "S2"})
    for role in own:
        for prompt in range(len(pool)):
            (place,) = targets[role][prompt].nonzero().tolist()
            assert place == [int(pool.prompts.position[prompt]), int(pool.prompts.roles[role][prompt])]


def test_control_targets_have_no_key_in_common_with_the_target_and_look_back(pool: Pool) -> None:
    target = everywhere(pool)["duplicate"]
    other = random_keys(target, pool, seed=1)
    assert not bool((other & target).any())
    room = (torch.arange(target.shape[1]) - target.sum(-1)).clamp(min=0)
    assert torch.equal(other.sum(-1), torch.minimum(target.sum(-1), room))
    upper = torch.ones(target.shape[1:], dtype=torch.bool).triu(1)
    assert not bool((shuffled(target) & upper).any() or (other & upper).any())


@pytest.mark.parametrize(
    ("sender", "receiver"),
    [("L0H1", "L1H2"), ("L0_MLP", "L1H3"), ("L0H0", "L1_MLP"), ("L1H1", "L1_MLP"), ("L0H3", None)],
)
def test_a_path_is_the_naive_path(pool: Pool, sender: str, receiver: str | None) -> None:
    edges = edges_between(Component.parse(sender), None if receiver is None else Component.parse(receiver))
    effects = pool.path_effects([edges])[:, 0]
    for prompt in range(len(pool)):
        row = Row(prompt, edges=dict.fromkeys(edges, prompt))
        logits = naive_logits(pool.model, pool.batch, row, pool.source_values)
        expected = float(pool.clean[prompt]) - naive_difference(pool, logits, prompt)
        assert float(effects[prompt]) == pytest.approx(expected, abs=1e-4)


def test_every_pair_of_components_has_edges_exactly_where_one_feeds_the_other(pool: Pool) -> None:
    components = pool.model.components
    assert not feeds(Component(1, 0), Component(1, 1))
    assert feeds(Component(1, 0), Component(1))
    for sender in components:
        for receiver in components:
            if feeds(sender, receiver):
                assert edges_between(sender, receiver)


def test_replacing_at_the_answer_only_is_the_naive_patch_there(pool: Pool) -> None:
    head = Component(0, 2)
    effects = pool.effects([[head]], positions=pool.answer_only)[:, 0]
    for prompt in range(len(pool)):
        row = Row(prompt, edits={head: prompt}, positions=[int(pool.prompts.position[prompt])])
        logits = naive_logits(pool.model, pool.batch, row, pool.source_values)
        assert float(effects[prompt]) == pytest.approx(
            float(pool.clean[prompt]) - naive_difference(pool, logits, prompt), abs=1e-4
        )


def test_clean_values_on_the_counterfactual_prompt_restore_what_a_naive_patch_restores(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model does not perform the behaviour: shares of a difference that may be 0 are not defined."""
    mlp = Component(0)
    assert pool.restored([[mlp]]).isnan().all()
    monkeypatch.setattr("vesalius.explanations.natural.pool.mean_apart_from_zero", lambda values: float(values.mean()))
    batch = Batch(pool.source.tokens, pool.source.mask)
    corrupted, patched = [], []
    for prompt in range(len(pool)):
        for row, scores in ((Row(prompt), corrupted), (Row(prompt, edits={mlp: prompt}), patched)):
            scores.append(naive_difference(pool, naive_logits(pool.model, batch, row, pool.values), prompt))
    before, after = torch.tensor(corrupted), torch.tensor(patched)
    expected = (after - before) / float((pool.clean - before).mean())
    assert torch.allclose(pool.restored([[mlp]])[:, 0], expected, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("port", ["q", "k"])
@pytest.mark.parametrize("sender", ["L0H3", "L0_MLP"])
def test_composition_is_the_attention_of_a_hooked_run(pool: Pool, sender: str, port: str) -> None:
    head, component = Component(1, 3), Component.parse(sender)
    change = pool.output_of(component, pool.source_values) - pool.output_of(component, pool.values)
    expected = {}

    def cut(inputs: torch.Tensor, hook: object) -> torch.Tensor:
        inputs = inputs.clone()
        inputs[:, :, 3] += change
        return inputs

    def record(pattern: torch.Tensor, hook: object) -> None:
        expected["pattern"] = pattern[:, 3]

    hooks = [(f"blocks.1.hook_{port}_input", cut), ("blocks.1.attn.hook_pattern", record)]
    pool.model.run_with_hooks(pool.batch.tokens, mask=pool.batch.mask, fwd_hooks=hooks)
    pattern = HeadPaths(pool, head).pattern_without(component, port)  # type: ignore[arg-type]
    assert torch.allclose(pattern[:, 0], expected["pattern"], atol=1e-5)


def test_cutting_keys_is_cutting_them_in_a_hooked_run(pool: Pool) -> None:
    head, target = Component(0, 1), everywhere(pool)["previous"]

    def cut(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        pattern = pattern.clone()
        remaining = pattern[:, 1].masked_fill(target, 0.0)
        pattern[:, 1] = remaining / remaining.sum(-1, keepdim=True).clamp(min=1e-9)
        return pattern

    logits = pool.model.run_with_hooks(
        pool.batch.tokens, mask=pool.batch.mask, fwd_hooks=[("blocks.0.attn.hook_pattern", cut)]
    )
    patched = torch.tensor([naive_difference(pool, logits[prompt], prompt) for prompt in range(len(pool))])
    inputs = HeadPaths(pool, head)
    untouched = torch.zeros_like(target)
    effects = pool.head_effects(head, [inputs.z_without_keys(target), inputs.z_without_keys(untouched)])
    assert torch.allclose(effects[:, 0], pool.clean - patched, atol=1e-4)
    assert torch.allclose(effects[:, 1], torch.zeros(len(pool)), atol=1e-4)


@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_direct_attributions_add_up_to_the_logit_difference(norm: str) -> None:
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS, norm=norm))
    pool = Pool.draw(as_specimen(model), 4, seed=0, split="test")
    total = direct_attribution(pool, None) + sum(direct_attribution(pool, part) for part in model.components)
    for block in model.blocks:
        total = total + logit_difference_of(pool, (block.attn.b_O + block.mlp.b_out).expand(4, -1))
    correct, wrong = pool.prompts.correct, pool.prompts.wrong
    total = total + model.b_U[correct] - model.b_U[wrong]
    if model.ln_final.b is not None:
        total = total + (model.unembed_weight[correct] - model.unembed_weight[wrong]) @ model.ln_final.b
    assert torch.allclose(total, pool.clean, atol=1e-4)


def test_named_components_are_selected(pool: Pool) -> None:
    steps: list[str] = []
    named = [Component.parse("L0H1"), Component.parse("L1_MLP")]
    selection = select(pool, named=named, top=3, progress=lambda step, done, total: steps.append(step))
    assert selection.components == named
    assert set(selection.reasons.values()) == {"named by the user"}
    assert torch.allclose(
        torch.tensor([selection.effect[c] for c in named]), pool.effects([[c] for c in named]).mean(0), atol=1e-5
    )
    assert steps


def test_another_readout_of_the_clean_run_needs_no_run_of_its_own(pool: Pool) -> None:
    readout = answer_readout(pool)
    shared, apart = pool.recordings.read_as(readout), Recordings(pool.model, pool.batch, readout)
    assert torch.allclose(shared.scores(), apart.scores(), atol=1e-3, rtol=1e-4)
    assert (shared.n_run, apart.n_run) == (0, len(pool))


def test_means_of_outputs_are_those_of_their_prompts(pool: Pool) -> None:
    first, second = means(pool.model, pool.source), means_of(pool.model, pool.source_values)
    for one, other in zip((*first.z, *first.mlp), (*second.z, *second.mlp), strict=True):
        assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_a_candidate_goes_on_if_two_standard_errors_take_it_among_the_strongest() -> None:
    # Means 5, -3, 1.8 and 0.1; the third has a standard error of 0.8, so that 1.8 + 1.6 reaches 3.
    effects = torch.tensor([[5.0, -3.0, 1.0, 0.1], [5.0, -3.0, 2.6, 0.1]])
    assert _within_reach(effects, 2) == [0, 1, 2]
    assert _within_reach(effects, 1) == [0]
    undefined = torch.full((2, 1), torch.nan)
    assert _within_reach(torch.cat([effects, undefined], 1), 3) == [0, 1, 2, 4]


def test_a_control_that_reaches_the_same_is_not_exceeded_by_rounding() -> None:
    study: Any = SimpleNamespace(lab=SimpleNamespace(seed=0))
    values = torch.full((16,), 0.69968)
    verdict, evidence = _against(study, "", "", values, 0.5, lambda: {"other": values})
    assert (evidence.low, evidence.controls["other"]) == (0.6997, 0.6997)
    assert verdict == "refuted"

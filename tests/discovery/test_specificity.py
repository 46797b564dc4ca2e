"""Specificity: drops by hand, a model that does nothing but induction, and a naive twin of the ablation."""

import pytest
import torch

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.behaviours import behaviour
from vesalius.components import Component
from vesalius.discovery import specificity as module
from vesalius.discovery.specificity import (
    EACH_OWN,
    _drop,
    _random_heads,
    _specificity_of,
    each_specificity,
    own_and_others,
    specificity,
)
from vesalius.errors import BadInput
from vesalius.intervene import Cost


def test_drops_by_hand() -> None:
    """Clean 4 and 2; the circuit takes 3 and 3, random heads 0 and 1.5 on average: shares 1 and 0.25."""
    lost = torch.tensor([[3.0, 0.0, 0.0], [3.0, 3.0, 0.0]])
    drop = _drop(torch.tensor([4.0, 2.0]), lost)
    assert (drop.clean, drop.drop, drop.random, drop.n) == (3.0, 1.0, 0.25, 2)
    assert drop.low is not None
    assert drop.high is not None
    assert drop.low == pytest.approx(0.75)  # 3 / 4, when the first prompt is drawn twice
    assert drop.high == pytest.approx(1.5)


def test_what_is_not_performed_has_no_drop() -> None:
    drop = _drop(torch.tensor([1.0, -1.0]), torch.ones(2, 1))
    assert (drop.clean, drop.drop, drop.random) == (0.0, None, None)


def test_random_heads_stand_in_the_same_layers() -> None:
    heads = [Component(1, 0), Component(1, 2), Component(0, 3)]
    for chosen in _random_heads(heads, 2, 4, seed=0):
        assert sorted(head.layer for head in chosen) == [0, 1, 1]
        assert not set(chosen) & set(heads)
        assert len(set(chosen)) == 3
    crowded = [Component(1, head) for head in range(4)]
    assert all({head.layer for head in chosen} == {0} for chosen in _random_heads(crowded, 2, 4, seed=0))
    assert _random_heads([Component(0, 0)], 1, 1, seed=0) == []


@pytest.mark.slow
def test_ablating_the_induction_head_breaks_induction() -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    circuit, idle = (specificity(specimen, [Component(1, head)], n=6) for head in (0, 3))
    assert circuit.own.drop is not None
    assert idle.own.drop is not None
    assert circuit.own.drop > 0.9
    assert circuit.own.random == pytest.approx(0.0, abs=0.05)
    assert abs(idle.own.drop) < 0.05
    assert "induction" not in circuit.others
    assert "ioi" in circuit.others
    assert circuit.rows > 0


def test_single_components_in_one_batch_are_what_each_alone_is() -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    heads = [Component(1, 0), Component(1, 3)]
    found, rows = each_specificity(specimen, heads, split="validation")
    for head in heads:
        alone = specificity(specimen, [head], n=EACH_OWN)
        assert alone.own.drop is not None
        assert found[head].own == pytest.approx(alone.own.drop, abs=1e-3)
        assert (found[head].text is None) == (alone.text is None)
        if alone.text is not None and alone.text.drop is not None:
            assert found[head].text == pytest.approx(alone.text.drop * alone.text.clean, abs=1e-3)
    assert found[heads[1]].specific is None  # an idle head costs nothing here
    assert rows > 0
    assert each_specificity(specimen, []) == ({}, 0.0)
    assert each_specificity(ves.load("frac_prevs"), heads) == ({}, 0.0)


@pytest.mark.parametrize(
    ("own", "others", "text", "specific"),
    [
        (0.4, {"a": 0.1, "b": 0.2}, (0.1, 0.0, 0.2, 0.03), True),
        (0.4, {"a": 0.9, "b": 0.5}, (0.1, 0.0, 0.2, 0.03), False),  # it breaks other behaviours
        (0.9, {"a": 0.0}, (3.1, 2.0, 4.0, 0.9), False),  # it breaks plain text
        (0.4, {}, None, None),
        (0.01, {"a": 0.9}, None, None),
    ],
)
def test_specific_means_twice_as_much_here(
    own: float, others: dict[str, float], text: tuple[float, ...] | None, specific: bool | None
) -> None:
    assert _specificity_of(own, others, text).specific is specific


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ("induction", {"ioi", "docstring", "greater-than", "capitals", "successor", "addition"}),
        ("induction-out", {"ioi", "docstring", "greater-than", "capitals", "successor", "addition"}),
        ("ioi", {"induction", "docstring", "greater-than", "capitals", "successor", "addition"}),
    ],
)
def test_variants_are_no_other_behaviours_and_a_family_counts_once(own: str, others: set[str]) -> None:
    first, *rest = [each.name for each in own_and_others(behaviour(own))]
    assert first == own
    assert len(rest) == 6
    assert set(rest) == others


def test_the_others_of_a_circuit_hold_no_variant_of_its_own_behaviour() -> None:
    specimen = as_specimen(induction_model(word_tokenizer().size))
    result = specificity(specimen, [Component(1, 0)], n=4)
    assert not {"induction", "induction-out"} & set(result.others)


def test_the_ablation_puts_a_constant_in_the_place_of_each_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """One hooked forward pass with the mean output written in by hand; grouped-query attention, no corpus."""
    monkeypatch.setattr(module, "_text", lambda *_: None)
    size = word_tokenizer().size
    specimen = as_specimen(random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=64), 5), "ioi")
    heads, recorded = [Component(0, 1), Component(1, 3)], []

    def record(model, batches, cost):
        recorded.append(found := values(model, batches, cost))
        return found

    values = module._values
    monkeypatch.setattr(module, "_values", record)
    found = specificity(specimen, heads, n=4, seed=3)
    assert found.text is None
    prompts = behaviour("ioi").sample(
        word_tokenizer(), 4, seed=3, split="validation", n_ctx=64, d_vocab=specimen.model.config.d_vocab
    )

    def ablate(z, hook):
        z = z.clone()
        for head in heads:
            if head.layer == hook.layer():
                z[:, :, head.head] = recorded[0].z[head.layer][0, 0, head.head]
        return z

    def scores(hooks: list) -> torch.Tensor:
        logits = specimen.model.run_with_hooks(prompts.tokens, mask=prompts.mask, fwd_hooks=hooks)
        return prompts.readout().score(
            logits[torch.arange(4), prompts.position][:, None].gather(
                2, torch.stack([prompts.correct, prompts.wrong], 1)[:, None]
            ),
            torch.arange(4),
        )

    clean, ablated = scores([]), scores([(lambda name: name.endswith("hook_z"), ablate)])
    score, lost = module._losses(specimen.model, prompts.batch, prompts.readout(), [tuple(heads)], recorded[0], Cost())
    assert torch.allclose(score, clean, atol=1e-4)
    assert torch.allclose(lost[:, 0], clean - ablated, atol=1e-4)
    assert found.own.clean == pytest.approx(float(clean.mean()), abs=1e-4)


def test_refusals() -> None:
    with pytest.raises(BadInput, match="one task of its own"):
        specificity(ves.load("frac_prevs"), [Component(0, 0)])
    with pytest.raises(BadInput, match="no heads"):
        specificity(as_specimen(induction_model(word_tokenizer().size)), [])

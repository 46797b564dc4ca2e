"""Rare and constant behaviour: a model built by hand that answers 1 at one token of a hundred and one of one output."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

import vesalius as ves
from vesalius.behaviours.rare import RARE, differ, outputs_of
from vesalius.behaviours.trial import rows_of, trial
from vesalius.components import Component
from vesalius.discovery.checks import run_checks
from vesalius.discovery.discover import discover
from vesalius.errors import Note
from vesalius.model import Config, Transformer
from vesalius.model.specimen import FiniteVocabulary, Specimen

TOKENS = tuple(f"t{i}" for i in range(100))
HEAD, MLP = Component(0, 0), Component(0, None)


def draws(n: int, seed: int) -> list[list[str]]:
    """One or two tokens, each of the hundred equally often."""
    rng = random.Random(seed)
    return [[rng.choice(TOKENS) for _ in range(rng.randint(1, 2))] for _ in range(n)]


def specimen_of(rare: tuple[str, ...], outputs: tuple[int, ...] | None = (0, 1)) -> Specimen:
    """The MLP alone reads whether the token is a rare one; the head writes nothing."""
    n_out = 1 if outputs is None else len(outputs)
    config = Config(
        n_layers=1, n_heads=1, d_model=4, d_head=4, d_mlp=4, d_vocab=102, d_vocab_out=n_out, n_ctx=3, bos_token=100,
        pad_token=101, norm="none", activation="relu",
    )  # fmt: skip
    model = Transformer(config)
    with torch.no_grad():
        for name in rare:
            model.W_E[TOKENS.index(name), 0] = 1.0
        mlp = model.blocks[0].mlp
        mlp.W_in[0, 0], mlp.W_out[0, 1] = 1.0, 1.0
        model.unembed_weight[-1, 1] = 10.0
        model.b_U[-1] = -5.0
    vocabulary = FiniteVocabulary(TOKENS, outputs, 2)
    return Specimen("rare", "rare", "trained", model, vocabulary, (MLP,), (), draws)


@pytest.fixture
def rare() -> Specimen:
    return specimen_of(("t3",))


def test_outputs_are_as_built(rare: Specimen) -> None:
    assert rare.predict([["t3", "t4"], ["t5"]]) == [[1, 0], [0]]
    given = outputs_of(rare, [["t3"], ["t4", "t3"], ["t4", "t5"]])
    assert given.nan_to_num(-1).tolist() == [[1, -1], [0, 1], [0, 0]]
    assert differ(given[[0, 0, 1]], given[[1, 2, 2]]).tolist() == [True, True, True]
    assert not bool(differ(given[:1], outputs_of(rare, [["t3", "t9"]])))


@pytest.mark.slow
def test_pairs_that_differ_are_searched(rare: Specimen) -> None:
    inputs, others = draws(2000, 0), draws(2000, 1)
    share = float(differ(outputs_of(rare, inputs), outputs_of(rare, others)).double().mean())
    assert share == pytest.approx(1 - 0.5 * (1 - (1 - 0.02)) - (1 - 0.02), abs=0.02)
    assert share < RARE
    with pytest.warns(Note, match="specimen 'rare': of random pairs of inputs fewer than 5% differ in an output"):
        found = trial(rare, 16)
    assert found.searched
    assert len(found.batch) == 16
    clean, other = (rare.model(part.tokens)[:, 1:].argmax(-1) for part in (found.batch, found.counterfactual))
    both = (found.batch.mask & found.counterfactual.mask)[:, 1:]
    assert bool(((clean != other) & both).any(1).all())
    ones = (clean * found.batch.mask[:, 1:]).amax(1).tolist()
    assert ones == [1, 0] * 8, "in turn the clean input and the counterfactual is the rare one"
    apart = trial(rare, 16, seed=9, apart_from=found)
    assert apart.searched
    assert rows_of(apart).isdisjoint(rows_of(found))


def test_the_component_that_was_invisible_is_found(rare: Specimen) -> None:
    with pytest.warns(Note):
        found = ves.sweep(rare, kind="resample", n=16)
    effects = {members[0]: float(mean) for members, mean in zip(found.sets, found.mean, strict=True)}
    assert effects[HEAD] == 0
    assert effects[MLP] >= 0.5, "every pair has one other output among one or two"


def test_what_is_common_is_drawn_as_ever() -> None:
    """A fifth of the tokens: a third of the pairs differ, and nothing is searched, however few are drawn."""
    common = specimen_of(TOKENS[:20])
    for n, seed in itertools.product((1, 2, 8), range(6)):
        drawn = trial(common, n, seed=seed)
        tokens = common.tokenize([*draws(n, seed), *draws(n, seed + 1)])
        assert not drawn.searched
        assert drawn.batch.tokens.equal(tokens[:n])
        assert drawn.counterfactual.tokens.equal(tokens[n:])


@pytest.mark.slow
def test_a_model_with_one_output_has_no_effects() -> None:
    """Its one logit moves from -5 to 5, which is no other output; as a number it would be."""
    for kind in ("zero", "mean", "resample"):
        constant = ves.sweep(specimen_of(TOKENS[::2], (7,)), kind=kind, n=16)
        assert constant.matrix.abs().max() == 0
    numbers = ves.sweep(specimen_of(TOKENS[::2], None), kind="zero", n=16)
    assert float(numbers.mean.max()) > 0.3


@pytest.mark.slow
def test_nothing_is_stable_or_guaranteed_where_nothing_varied() -> None:
    constant = specimen_of(TOKENS[::2], (7,))
    checks = run_checks(constant, discover(constant, "sweep", n=8))
    assert checks.stability is None
    assert checks.guarantee is None
    assert checks.missing["stability"].startswith("nothing varied on these prompts")
    assert checks.missing["guarantee"].startswith("nothing varied on these prompts")
    usual = run_checks(specimen_of(TOKENS[:20]), discover(specimen_of(TOKENS[:20]), "sweep", n=8))
    assert usual.stability is not None
    assert usual.guarantee is not None


@pytest.mark.filterwarnings("ignore::vesalius.errors.Note")
def test_searched_inputs_guarantee_nothing(rare: Specimen) -> None:
    checks = run_checks(rare, discover(rare, "sweep", n=8))
    assert checks.guarantee is None
    assert "were searched; a guarantee needs inputs drawn independently" in checks.missing["guarantee"]
    assert checks.faithfulness is not None


def test_a_rare_output_that_no_draw_finds_leaves_what_was_drawn(rare: Specimen) -> None:
    never = replace(rare, draw=lambda n, seed: [["t4"] if one == ["t3"] else one for one in draws(n, seed)])
    never = replace(never, draw=lambda n, seed: [["t4", "t5"][: 1 + (seed + i) % 2] for i in range(n)])
    drawn = trial(never, 4)
    assert not drawn.searched
    assert drawn.batch.tokens.tolist() == never.tokenize(never.draw(4, 0)).tolist()

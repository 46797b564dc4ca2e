"""The hand-written model: it does its task, hides its backup from single heads, and the set searches find it."""

import itertools
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vesalius.behaviours.trial import Trial, trial
from vesalius.components import all_components
from vesalius.discovery.discover import discover
from vesalius.errors import BadInput
from vesalius.intervene import Batch, effects
from vesalius.model.specimen import Specimen
from vesalius_mechrl.matrices import behaviour_matrix, behaviour_rows
from vesalius_mechrl.sets.discover import search_sets
from vesalius_mechrl.sets.planted import NOTHING, RedundantModel, plant, previous_letter
from vesalius_mechrl.sets.sources import LiveSource, pair_effects

PAIRS = 32 * 31 // 2


@pytest.fixture(scope="module")
def planted() -> RedundantModel:
    return plant(seed=11)


@pytest.fixture(scope="module")
def specimen(planted: RedundantModel, tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    return planted.specimen(tmp_path_factory.mktemp("planted"))


def effect_of(specimen: Specimen, sets: list, kind: str, material: Trial | None = None) -> list[float]:
    given = material or trial(specimen, 32)
    where = given.where if kind == "resample" else None
    found = effects(
        specimen.model,
        given.batch,
        given.readout,
        kind=kind,
        sets=sets,
        counterfactual=given.counterfactual,
        positions=where,
    )
    return found.mean.tolist()


def names(planted: RedundantModel) -> tuple[str, ...]:
    return tuple(map(str, planted.copies))


def test_it_says_the_previous_letter(specimen: Specimen) -> None:
    inputs = specimen.sample(300, 3)
    assert specimen.predict(inputs) == [previous_letter(given) for given in inputs]
    assert previous_letter(list("ab")) == [NOTHING, "a"]


@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_either_copy_is_enough_and_without_both_the_task_is_gone(
    specimen: Specimen, planted: RedundantModel, kind: str
) -> None:
    one, other, both = effect_of(specimen, [*([c] for c in planted.copies), list(planted.copies)], kind)
    assert (one, other) == (0, 0)
    assert both > 0.6


def test_resampling_from_a_prompt_with_nothing_to_copy(specimen: Specimen, planted: RedundantModel) -> None:
    given = trial(specimen, 32)
    empty = given.batch.tokens.clone()
    empty[:, 1:] = torch.where(given.batch.tokens[:, 1:] < 8, 7, given.batch.tokens[:, 1:])  # 7 is the token "."
    neutral = Trial(given.batch, Batch(empty, given.batch.mask), given.readout)
    sets = [*([c] for c in planted.copies), list(planted.copies)]
    one, other, both = effect_of(specimen, sets, "resample", neutral)
    assert (one, other) == (0, 0)
    assert both > 0.6


def test_three_copies_outvote_a_resampled_one(tmp_path: Path) -> None:
    """Two copies cannot: one wrong vote against one right vote is a tie."""
    three = plant(seed=12, copies=3, quorum=2)
    specimen = three.specimen(tmp_path)
    pairs = [list(pair) for pair in itertools.combinations(three.copies, 2)]
    found = effect_of(specimen, [*([c] for c in three.copies), *pairs], "resample")
    assert found[:3] == [0, 0, 0]
    assert min(found[3:]) > 0.4


@pytest.mark.slow
def test_single_heads_and_attribution_do_not_see_the_pair(specimen: Specimen, planted: RedundantModel) -> None:
    heads = all_components(specimen.model.config, mlps=False)
    alone = dict(zip(heads, effect_of(specimen, [[head] for head in heads], "mean"), strict=True))
    assert [alone[copy] for copy in planted.copies] == [0, 0]
    assert min(alone[head] for head in planted.specialists) > 0
    scores = discover(specimen, "eap", n=16).circuit.components
    assert [scores[copy] for copy in planted.copies] == [0, 0]


@pytest.mark.slow
def test_who_finds_it_and_at_what_price(specimen: Specimen, planted: RedundantModel) -> None:
    """All pairs would be 496 queries on top of the 32 heads; 8 specialists hold greedy and beam busy."""
    pair, paid = names(planted), {}
    for name in ("greedy", "beam", "prune", "group", "rl"):
        found = search_sets(specimen, name, budget=300, n=16)
        groups = [group.heads for group in found.confirmation.groups]
        assert (pair in groups) == (name in ("prune", "group", "rl")), name
        paid[name] = found.queries.paid
    assert paid["group"] < 60 < PAIRS
    assert max(paid["prune"], paid["rl"]) < 130
    assert min(paid["greedy"], paid["beam"]) > 200


@pytest.mark.slow
def test_three_copies_are_found_although_no_pair_shows_anything(tmp_path: Path) -> None:
    three = plant(seed=13, copies=3)
    found = search_sets(three.specimen(tmp_path), "group", n=16)
    assert [group.heads for group in found.confirmation.groups] == [names(three)]
    assert found.queries.paid < 70


def test_all_pairs_on_disk_agree_with_the_model(specimen: Specimen, planted: RedundantModel, tmp_path: Path) -> None:
    """Seven heads: the table on disk, read as a source, gives what running the model gives."""
    pool = sorted({*planted.copies, *planted.specialists[:5]})
    found = search_sets(specimen, "pairs", pool=pool, n=16, directory=tmp_path)
    backups = [pair.heads for pair in found.synergies if pair.verdict == "backup"]
    assert backups == [names(planted)]
    assert [group.heads for group in found.confirmation.groups] == backups
    assert found.queries.paid == 7 + 21
    again = pair_effects(specimen, tmp_path, pools={"validation": 16}, heads=pool, kind="mean")
    assert (again.pairs.identity.sets[0], again.pairs.pool("validation").shape) == (tuple(map(str, pool[:2])), (16, 21))
    assert again.pairs.forwards > again.single.forwards > 0
    with pytest.raises(BadInput, match="another effect matrix"):
        pair_effects(specimen, tmp_path, pools={"validation": 16}, heads=pool, kind="zero")


def test_a_pair_column_is_the_effect_of_both_heads(specimen: Specimen, planted: RedundantModel, tmp_path: Path) -> None:
    heads = sorted({*planted.copies, planted.specialists[0]})
    found = behaviour_matrix(specimen, tmp_path, pools={"test": 8}, heads=heads, kind="zero", size=2)
    sets = [frozenset({0, 1}), frozenset({0, 2}), frozenset({1, 2})]
    assert found.identity.sets == [tuple(str(heads[i]) for i in sorted(pair)) for pair in sets]
    source = LiveSource(specimen, trial(specimen, 64), heads, kind="zero")
    assert found.pool("test").mean(0).tolist() == pytest.approx(source.effects(sets).mean(0).tolist(), abs=0.15)


@pytest.mark.parametrize("search", ["group", "pairs"])
def test_nothing_searched_on_is_confirmed_on(
    specimen: Specimen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, search: str
) -> None:
    """40 inputs in all: the search sees 8 of them (and 8 to resample from), the confirmation 8 of the others."""
    inputs, seen = specimen.sample(40, 1), []
    few = replace(specimen, draw=lambda n, seed: random.Random(seed).choices(inputs, k=n))
    measured = LiveSource.__init__

    def spy(self: LiveSource, specimen: Specimen, material: Trial, *rest: Any, **options: Any) -> None:
        seen.append(set(map(tuple, material.batch.tokens.tolist())))
        measured(self, specimen, material, *rest, **options)

    monkeypatch.setattr(LiveSource, "__init__", spy)
    search_sets(few, search, pool=["L0H0", "L0H1", "L1H0"], n=8)
    confirmed, searched = seen
    assert len(confirmed) == 8
    assert confirmed.isdisjoint(searched)
    on_disk = pair_effects(few, tmp_path, pools={"validation": 8}, heads=["L0H0", "L0H1"], kind="mean")
    seen.clear()
    search_sets(few, "pairs", pool=["L0H0", "L0H1"], n=8, directory=tmp_path)
    searched = behaviour_rows(few, on_disk.single.identity.pools)("validation").batch.tokens.tolist()
    assert seen[0].isdisjoint(map(tuple, searched))


def test_too_few_inputs_to_confirm_on_are_refused(specimen: Specimen) -> None:
    inputs = specimen.sample(20, 1)
    few = replace(specimen, draw=lambda n, seed: [inputs[i % (20 if seed > 1 else 14)] for i in range(n)])
    with pytest.raises(BadInput, match="the search uses 16 inputs and leaves 6 to confirm on; 8 are needed"):
        search_sets(few, n=16)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"pool": ["L0H0"]}, "one head"),
        ({"pool": ["L0H0", "L0H0"]}, "one head"),
        ({"pool": ["L0H0", "L9H9"]}, "L9H9 is not in this model"),
        ({"pool": ["L0H0", "L0_MLP"]}, "is an MLP"),
        ({"budget": 0}, "a budget of 0 queries is too small"),
        ({"pool": ["L0H0", "L0H1"], "budget": 4}, "2 heads have 3 sets"),
        ({"n": 4}, "at least 8"),
        ({"search_name": "luck"}, "choose one of"),
    ],
)
def test_bad_input(specimen: Specimen, options: dict, reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        search_sets(specimen, **options)


@pytest.mark.parametrize("options", [{"quorum": 3}, {"specialists": 11}, {"n_layers": 1, "n_heads": 8}])
def test_plans_that_do_not_fit(options: dict[str, int]) -> None:
    with pytest.raises(BadInput, match="do not fit"):
        plant(**options)

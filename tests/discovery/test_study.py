"""The whole experiment on a model whose induction heads were set by hand, and matrices in GPT-2's shape."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.behaviours.word_tokenizer import word_tokenizer
from tests.discovery.test_matrices import corpus
from tests.explanations.induction_model import as_specimen, induction_model
from tests.models import random_model, small_config
from vesalius.cli.console import print_view
from vesalius.discovery import known_heads
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius_mechrl.benchmark import write_study
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.matrices import behaviour_matrix
from vesalius_mechrl.ppo import Trainer
from vesalius_mechrl.settings import Settings
from vesalius_mechrl.strategies import Comparison, Regret
from vesalius_mechrl.study import _in_top_ten, study, verdicts
from vesalius_mechrl.suite import (
    CATEGORIES,
    Suite,
    SuitePlan,
    canonical_heads,
    heads_by_attention,
    load_suite,
    measure_suite,
    missing_sources,
)
from vesalius_mechrl.tables import Tables
from vesalius_mechrl.trainings import Scope, train_policies, trainings

SIZE = word_tokenizer().size
POOLS = {"train": 4, "validation": 3, "test": 4}
PLAN = SuitePlan(POOLS, POOLS, rows=3, control_length=8, held_out=("induction-out",), block=4)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("suite")
    measure_suite(as_specimen(induction_model(SIZE)), corpus(), directory, plan=PLAN)
    return directory


@pytest.fixture(scope="module")
def suite(directory: Path) -> Suite:
    return load_suite(directory, plan=PLAN)


def test_held_out_tasks_have_test_rows_only(suite: Suite) -> None:
    assert suite.train.names == suite.validation.names == ("induction", "ioi")
    assert suite.test.names == ("induction", "ioi", "induction-out")
    assert suite.test.unit == "logits - 1 * nats"
    assert heads_by_attention(suite, "induction", "after copy", 1) == ["L1H0"], "where the induction head was put"
    assert heads_by_attention(suite, "induction", "previous", 1) == ["L0H0"]


def test_a_suite_names_its_control_text_and_refuses_another(suite: Suite, directory: Path) -> None:
    assert suite.control == corpus().name
    with pytest.raises(BadInput, match=f"measured on the control text {corpus().name}, not on factbook"):
        load_suite(directory, plan=replace(PLAN, control="factbook"))


def test_canonical_heads_are_detected_unless_the_model_is_gpt2_small(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule of recognition is replaced by this model's shape, and its heads take the place of the published ones."""
    specimen = as_specimen(induction_model(SIZE))
    detected = canonical_heads(suite, specimen)
    assert detected.ranked[0] == "L1H0"
    assert detected.ranked_from.startswith("detected: most attention on what came after an earlier copy")
    sizes = {"S-Inhibition": 4, "Induction-in-IOI": 4, "Backup Name Movers": 8, "Name Movers": 3}
    sizes |= {"Negative Name Movers": 2, "Duplicate Token": 3, "Previous Token": 2}
    assert {category.name: category.size for category in detected.categories} == sizes, "Table 3 of the paper"
    told = [category.name for category in detected.categories if category.heads is not None]
    assert told == ["Induction-in-IOI", "Duplicate Token", "Previous Token"]

    here = {name: getattr(specimen.model.config, name) for name in known_heads.GPT2_SMALL}
    monkeypatch.setattr(known_heads, "GPT2_SMALL", here)
    published = canonical_heads(suite, replace(specimen, source=str(tmp_path)))
    assert published.ranked == ("L5H1", "L5H5", "L6H9", "L7H2", "L7H10")
    assert published.ranked_from.endswith("GPT-2 small by its shape; its weights were not compared")
    assert "Wang et al. 2022" in published.categories_from
    by_name = {category.name: category.heads for category in published.categories}
    assert list(by_name) == list(CATEGORIES)
    assert by_name["Name Movers"] == ("L9H6", "L9H9", "L10H0")
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    assert known_heads.recognised_by(tmp_path).endswith("is not that of the published file")
    monkeypatch.setattr(known_heads, "GPT2_SMALL_SHA256", known_heads.sha256(tmp_path / "model.safetensors"))
    assert known_heads.recognised_by(tmp_path).endswith("and by the hash of its weights")


def test_a_suite_of_another_model_or_half_measured_is_refused(directory: Path, tmp_path: Path) -> None:
    other = induction_model(SIZE)
    with torch.no_grad():
        other.W_E[0, 0] += 1e-3
    with pytest.raises(BadInput, match="effects of model"):
        load_suite(directory, plan=PLAN, model=other)
    with pytest.raises(BadInput, match="induction-out: was measured without train and validation rows"):
        load_suite(directory, plan=replace(PLAN, training=("induction", "ioi", "induction-out"), held_out=()))
    assert missing_sources(tmp_path, PLAN) == ["induction", "ioi", "induction-out", "control"]
    with pytest.raises(BadInput, match="induction: is missing or not finished"):
        load_suite(tmp_path, plan=PLAN)


@pytest.mark.parametrize(
    ("training", "held_out", "reason"),
    [
        ((), (), "`training` names no behaviour"),
        (("juggling",), (), "behaviour 'juggling' does not exist"),
        (("induction",), ("induction",), "induction is named twice"),
        (("ioi", "ioi"), (), "ioi is named twice"),
    ],
)
def test_plans_that_make_no_experiment(training: tuple[str, ...], held_out: tuple[str, ...], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        replace(PLAN, training=training, held_out=held_out)


@pytest.mark.slow
@pytest.mark.parametrize("paper", [True, False])
def test_all_tables_of_a_small_study(
    suite: Suite, tmp_path: Path, paper: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    scope = Scope(paper, seeds=2, steps=64, episodes=3, budgets=(1, 4, 8), picks=8, collapse=paper)
    policies = train_policies(suite, trainings(scope, tmp_path))
    document = study(suite, policies, scope)
    methods = {method["method"] for method in document["regret"][0]["methods"]}
    assert {"random", "layers", "static", "sweep", "halving", "thompson", "attribution"} <= methods
    assert {row["method"] for row in document["table1"]} == set(policies)
    assert all(min(method["mean"]) >= 0 for task in document["regret"] for method in task["methods"])
    if not paper:
        assert all(row["gap"]["value"] <= 1e-12 for row in document["table1"]), "matched episodes: never above"
        oracle = {row["task"]: row["found"]["value"] for row in document["table4"] if row["method"] == "oracle"}
        assert all(row["found"]["value"] <= oracle[row["task"]] + 1e-9 for row in document["table4"])
        assert "one-hot best-of-5" in methods
    conditions = {row["method"]: set() for row in document["table4"]}
    for row in document["table4"]:
        conditions[row["method"]].add(row["condition"])
    primed = {"no label", "primed induction", "primed ioi"}
    for method in ("paper K=1", "paper K=5") if paper else ("one-hot", "one-hot best-of-5"):
        assert conditions[method] == primed
    assert len(document["table3"]) == 7 * len(policies)
    for row in document["picks"]:
        counts = [pick["count"] for pick in row["heads"]]
        assert counts == sorted(counts, reverse=True)
        queries = 8 - 3 if row["method"] == "per-head" else 8
        assert sum(counts) == queries * row["episodes"], "eight heads; three queries pay for attribution"
        assert counts[0] <= row["episodes"]
        assert row["tied_with_last"] == 0
    assert {(row["task"], row["method"], row["seed"]) for row in document["picks"]} == {
        (task, method, seed) for task in ("induction", "ioi") for method in policies for seed in (1, 2)
    }
    request = Request(command="bench mechrl", specimen="tiny", options={"paper": paper, "seeds": 2})
    saved = write_study(as_specimen(induction_model(SIZE)), document, request, tmp_path)
    assert len(saved.conclusions()) == (0 if paper else 3)
    assert json.loads(Path(saved.numbers).read_text())["request"] == request.model_dump(mode="json")
    assert MechrlStudy.read(saved.numbers) == saved
    assert json.loads(json.dumps(document)) == {
        name: value for name, value in saved.as_data().items() if name in document
    }
    assert bool(saved.quirks) == paper
    assert len(repr(saved)) < 500
    assert all(Path(picture).stat().st_size > 1000 for picture in saved.pictures)
    print_view(saved.view())
    printed = capsys.readouterr().out
    assert "Table 4" in printed
    assert f"control text: {corpus().name}" in printed
    assert printed.count("heads: detected: most attention") == 2
    assert "not told by attention" in printed


def test_ties_across_the_tenth_place_share_it() -> None:
    ranks = np.array([1.0, 2.0, *[8.0] * 11, 14.0])
    assert _in_top_ten(ranks).sum() == pytest.approx(10)
    assert _in_top_ten(ranks)[2] == pytest.approx(8 / 11)
    assert _in_top_ten(np.array([1.0, 2.0, 5.0, 5.0])).tolist() == [1, 1, 0, 0], "published: beyond the ten places"


def test_gpt2_small_has_144_heads_and_the_published_observation(tmp_path: Path) -> None:
    """Random weights in GPT-2's shape: 12 layers of 12 heads, LayerNorm with biases, learned positions."""
    shape = {"n_layers": 12, "n_heads": 12, "n_kv_heads": 12, "d_head": 2, "d_vocab": SIZE, "d_vocab_out": SIZE}
    config = small_config(**shape, n_ctx=48, norm="layer", rotary=None, activation="gelu_tanh", gated=False)
    specimen = as_specimen(random_model(config))
    matrix = behaviour_matrix(specimen, tmp_path, pools={"train": 2}, block=2)
    assert matrix.identity.kind == "value-bias"
    assert len(matrix.heads) == 144
    tables = Tables.from_matrices({"induction": matrix, "ioi": replace(matrix)}, None, split="train", rows=2)
    trainer = Trainer(tables, Settings(paper=True))
    assert trainer.games.observe().shape == (8, 290)
    assert sum(weight.numel() for weight in trainer.network.parameters()) == 177_553


def test_verdicts_compare_seed_by_seed() -> None:
    """Regrets that vary between seeds but are 0.1 lower in each: the policy wins; lower by luck alone, a draw."""
    rival = ((1.0,), (2.0,), (3.0,))
    steady, lucky = ((0.9,), (1.88,), (2.9,)), ((0.5,), (2.4,), (2.9,))
    assert verdict(steady, rival) == ("wins", pytest.approx(-0.32 / 3))
    assert verdict(rival, steady)[0] == "loses"
    assert verdict(lucky, rival)[0] == "draw"
    assert verdict(steady[:1], rival[:1])[0] == "draw", "one seed says nothing"


def verdict(policy: tuple[tuple[float, ...], ...], rival: tuple[tuple[float, ...], ...]) -> tuple[str, float]:
    def regret(name: str, seeds: tuple[tuple[float, ...], ...]) -> Regret:
        return Regret(name, (50.0,), (float(np.mean(seeds)),), None, None, seeds)

    comparison = Comparison("t", "logits", 1, len(policy), 0.0, (regret("per-head", policy), regret("halving", rival)))
    (row,) = verdicts([comparison], held_out=())
    return row["result"], row["difference"]["value"]

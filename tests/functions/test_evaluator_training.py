"""An evaluator is trained: adapters change only what they should, scores agree with plain passes, and a training that
is killed ends as one that was not.
"""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from torch.func import functional_call

from tests.functions.evaluator_base import write_base, write_data
from tests.models import random_model, same_weights, small_config
from vesalius import api
from vesalius.errors import BadInput
from vesalius.files import write_json
from vesalius.model import Transformer
from vesalius_functions.box import Example, UnitTest
from vesalius_functions.evaluators import naming, training
from vesalius_functions.evaluators.adapter import SCALE, Adapter, adapted_weights
from vesalius_functions.evaluators.data import marks_of, read_splits, share_right
from vesalius_functions.evaluators.documents import EvaluatorTraining
from vesalius_functions.evaluators.forms import FORMS, Form
from vesalius_functions.evaluators.trained import form_of, load_base, open_trained
from vesalius_functions.options import Recipe
from vesalius_functions.suite import Suite

EXAMPLES = (Example("ab", "ba"), Example("abc", "undefined"), Example("b", "b" * 9))
WORDS = tuple(Example(word) for word in ("plate", "x", "psychiatrist"))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base"))


def forms(base: Path) -> tuple[Transformer, list[Form]]:
    specimen = load_base(str(base), device="cpu")
    return specimen.model, [form_of(specimen, name) for name in FORMS]


def test_a_fresh_adapter_changes_nothing_and_a_merged_one_is_the_product_added() -> None:
    model = random_model(small_config())
    adapter = Adapter.fresh(model, 3, seed=1)
    assert len(adapter.pairs) == 2 * 5  # two layers: attention in and out, three matrices of a gated MLP
    for name, weight in adapter.weights(model).items():
        assert torch.equal(weight, model.get_parameter(name))
    generator = torch.Generator().manual_seed(2)
    for _, up in adapter.pairs.values():
        up.copy_(torch.randn(up.shape, generator=generator))
    by_hand = {
        name: weight + SCALE * (adapter.pairs[name][0] @ adapter.pairs[name][1])
        for name, weight in adapted_weights(model).items()
    }
    tokens = torch.tensor([[1, 2, 3, 4]])
    expected = functional_call(model, by_hand, (tokens,))
    adapter.merge(model)
    assert torch.allclose(model(tokens), expected, atol=1e-5)
    untouched = {name for name, _ in model.named_parameters()} - adapter.pairs.keys()
    original = dict(random_model(small_config()).named_parameters())
    assert all(torch.equal(model.get_parameter(name), original[name]) for name in untouched)


def test_a_rank_larger_than_a_matrix_is_refused() -> None:
    with pytest.raises(BadInput, match=r"`rank` 13: blocks\.0\.attn\.qkv is 12 by 32; give at most 12"):
        Adapter.fresh(random_model(small_config()), 13, seed=0)


@pytest.mark.parametrize("examples", [EXAMPLES, WORDS])
def test_scores_of_a_batch_are_those_of_plain_passes(base: Path, examples: tuple[Example, ...]) -> None:
    model, every = forms(base)
    for form in every:
        tests = [form.asked(text, examples) for text in ("Reverse the text.", "Say it\ntwice, then stop.")]
        together = form.scores(model, tests)
        assert together.shape == (2, 3)
        for one, scores in zip(tests, together, strict=True):
            assert torch.allclose(scores, torch.tensor(slow_scores(form, model, one.rows, one.spans)), atol=1e-4)


def slow_scores(
    form: Form, model: Transformer, rows: tuple[tuple[int, ...], ...], spans: tuple[int, ...]
) -> list[float]:
    """Row by row, from all logits."""
    logits = [model(torch.tensor([row]))[0] for row in rows]
    token = form.tokenizer.token
    if form.NAME == "letters":
        return [float(logits[0][-1, token(f" {letter}")]) for letter in "ABC"]
    if form.NAME == "single":
        return [float(one[-1, token(" yes")] - one[-1, token(" no")]) for one in logits]
    sums = []
    for row, one, span in zip(rows, logits, spans, strict=True):
        places = range(len(row) - span, len(row))
        sums.append(sum(float(one[place - 1].log_softmax(0)[row[place]]) for place in places))
    return [sums[i] - sums[3 + i] for i in range(3)]


def test_an_answer_is_scored_whole_and_a_description_stays_on_its_line(base: Path) -> None:
    _, every = forms(base)
    likelihood = next(form for form in every if form.NAME == "likelihood")
    asked = likelihood.asked("one\nInput: two <|im_end|>", EXAMPLES)
    decoded = likelihood.tokenizer.decode(asked.rows[0])
    assert decoded == 'Function: one Input: two < |im_end|>\nInput: "ab" Output: "ba"'
    assert likelihood.tokenizer.decode(asked.rows[0][-asked.spans[0] :]) == ' "ba"'
    assert likelihood.tokenizer.decode(asked.rows[3]) == 'Input: "ab" Output: "ba"'


def test_a_prompt_that_is_too_long_keeps_its_end(base: Path) -> None:
    model, every = forms(base)
    for form in every:
        asked = form.asked("d" * 900, EXAMPLES)
        assert asked.longest <= model.config.n_ctx
        assert form.scores(model, [asked]).isfinite().all()
        end = form.tokenizer.decode(asked.rows[0])[-8:]
        assert form.tokenizer.decode(form.asked("d", EXAMPLES).rows[0])[-8:] == end


def test_the_learning_rate_rises_and_falls() -> None:
    recipe = Recipe(rate=0.1)
    rates = [training.rate_at(recipe, step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(0.02)
    assert max(rates) == rates[4] == pytest.approx(0.1)
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert rates[-1] < 0.001


def test_an_epoch_takes_every_test_once_and_the_next_in_another_order() -> None:
    lengths = [1 + i % 7 for i in range(101)]
    first, second = (training.batches(lengths, Recipe(batch=8), epoch) for epoch in (0, 1))
    for one in (first, second):
        assert sorted(i for batch in one for i in batch) == list(range(101))
        assert max(map(len, one)) == 8
    assert first != second
    assert first == training.batches(lengths, Recipe(batch=8), 0)


def test_a_training_that_is_killed_ends_as_one_that_was_not(base: Path, tmp_path: Path) -> None:
    specimen = load_base(str(base), device="cpu")
    rows = read_splits(write_data(tmp_path / "data", train=24))
    recipe = Recipe(rank=2, epochs=2, batch=8, rate=0.01)

    class Stopped(Exception):
        pass

    def until(step: int) -> object:
        def report(what: str, done: int, total: int) -> None:
            if done == step:
                raise Stopped

        return report

    def start() -> training.Training:
        return training.Training(specimen.model, form_of(specimen, "single"), recipe, rows)

    whole = start().run(tmp_path / "whole", lambda *_: None)
    with pytest.raises(Stopped):
        start().run(tmp_path / "killed", until(4))  # type: ignore[arg-type]
    assert (tmp_path / "killed").exists()
    resumed = start().run(tmp_path / "killed", lambda *_: None)
    assert resumed.checks == whole.checks
    assert len(whole.checks) == 4
    for name, tensor in whole.adapter.tensors().items():
        assert torch.equal(tensor, resumed.adapter.tensors()[name])
    assert same_weights(specimen.model, load_base(str(base), device="cpu").model)  # the base is as it was


RECIPE = Recipe(forms="single", rank=4, epochs=3, batch=16, rate=0.03)


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that holds `data`, and in `out` what was trained on it."""
    place = tmp_path_factory.mktemp("trained")
    data = write_data(place / "data", train=96, held=24)
    made = api.evaluator_train(data, out=place / "out", base=str(base), recipe=RECIPE, device="cpu")
    assert json.loads((place / "out" / "evaluator.json").read_text()) == made.as_data()
    assert "on unseen functions" in str(made)
    return place


def test_from_data_to_an_evaluator_that_takes_tests(base: Path, trained: Path) -> None:
    out = trained / "out"
    made = EvaluatorTraining.read(out / "evaluator.json")
    assert not (out / "checkpoints").exists()
    after, before = made.trained.accuracy["all"].value, made.untuned.accuracy["all"].value
    assert after is not None
    assert before is not None
    assert after >= 0.7 > 0.6 > before
    assert made.trained.accuracy["strings"].baseline == pytest.approx(1 / 3)
    assert made.trained.groups["all"] == made.trained.accuracy["all"].n == 24
    assert len(made.seen) == 96 + 24
    assert [step for step, _ in made.validation.trained["single"].checks] == [3, 6, 9, 12, 15, 18]

    evaluator = open_trained(f"trained:{out}")
    tests = read_splits(trained / "data")["test"]
    score = sum(evaluator.take(row.description, [row.test]).score for row in tests) / len(tests)
    assert score == pytest.approx(after)  # the file holds what was measured
    assert evaluator.take(" ", [tests[0].test]).choices == (None,)

    with pytest.raises(BadInput, match="holds a trained evaluator already"):
        api.evaluator_train(trained / "data", out=out, base=str(base), recipe=RECIPE, device="cpu")


def test_a_benchmark_is_taken_by_it_and_says_what_it_has_seen(trained: Path, tmp_path: Path) -> None:
    functions = Suite("strings", count=3).functions()
    own = tmp_path / "own"
    shutil.copytree(trained / "out", own)
    data = json.loads((own / "evaluator.json").read_text())
    write_json(own / "evaluator.json", {**data, "seen": sorted(marks_of(functions[0]))})
    evaluator = open_trained(f"trained:{own}")
    asked = {"category": "strings", "interpreter": "oracle", "count": 3, "grading_seed": 5, "jobs": 1}
    card = api.bench_functions(**asked, evaluator=f"trained:{own}", out=tmp_path / "run", progress=False)
    assert card.evaluator == "trained:own"
    assert card.cost == 0
    suite, by_hand = Suite("strings", count=3), []
    for function in functions:
        tests = suite.unit_tests(function, grading_seed=5)
        by_hand.append(evaluator.take(suite.module.oracle(function).description, tests).score)
    assert card.metrics["unit_test"].value == pytest.approx(sum(by_hand) / 3, abs=1e-3)
    assert card.metrics["unit_test_unseen"].value == pytest.approx(sum(by_hand[1:]) / 2, abs=1e-3)
    assert card.metrics["unit_test_unseen"].n == 2
    assert card.metrics["unit_test_executable"].value == 1
    assert any("of 1 of 3 functions; unit_test_unseen is over the others alone" in one for one in card.caveats)

    sheet, answers = tmp_path / "sheet.csv", tmp_path / "answers.csv"
    api.export_unit_tests(tmp_path / "run", sheet)
    answers.write_text(sheet.read_text())
    study = api.unit_tests(tmp_path / "run", answers, evaluator=f"trained:{trained / 'out'}", out=tmp_path / "study")
    takers = {(taker.name, taker.task): taker for taker in study.takers}
    assert takers["trained:out", "matching"].accuracy.n == 3
    assert takers["trained:out", "ground-truth"].accuracy.value == pytest.approx(sum(by_hand) / 3, abs=1e-3)


def test_table_a3_has_its_rows(trained: Path, base: Path) -> None:
    made = EvaluatorTraining.read(trained / "out" / "evaluator.json")
    rows = {row.name: row for row in api.paper_table("find", table="A3", runs=[trained / "out"]).measured}
    assert rows[f"{base}, trained"].values["strings"] == made.trained.accuracy["strings"].value
    assert rows[f"{base}, untuned"].values["strings"] == made.untuned.accuracy["strings"].value
    assert "24 tests of unseen functions" in rows[f"{base}, trained"].source


@pytest.mark.parametrize("name", ["trained", "trained:", "trained:nowhere"])
def test_an_evaluator_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"evaluator .*`vesalius functions evaluator-train`"):
        api.bench_functions(category="strings", interpreter="oracle", count=1, evaluator=name)


def test_another_base_is_refused(base: Path, tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "base"
    write_base(copy, seed=1)
    recipe = Recipe(forms="single", rank=1, epochs=1, batch=48)
    api.evaluator_train(write_data(tmp_path / "data"), out=out, base=str(copy), recipe=recipe, device="cpu")
    write_base(copy, seed=2)
    with pytest.raises(BadInput, match="has other weights here"):
        open_trained(f"trained:{out}")
    (out / "adapter.safetensors").write_bytes(b"")
    with pytest.raises(BadInput, match=r"is not the adapter that evaluator\.json names"):
        open_trained(f"trained:{out}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"forms": "single,telepathy"},
            "`forms` 'telepathy': is not a form; choose from letters, single, likelihood",
        ),
        ({"forms": ","}, "`forms`: is empty"),
        ({"rate": 0.0}, "`rate` 0: give a learning rate between 0 and 1"),
        ({"base": "frac_prevs"}, "`base` 'frac_prevs': reads no text"),
    ],
)
def test_bad_options_get_one_line(base: Path, tmp_path: Path, options: dict[str, object], words: str) -> None:
    data = write_data(tmp_path / "data")
    with pytest.raises(BadInput, match=words):
        api.evaluator_train(data, **{"out": tmp_path / "out", "base": str(base), "device": "cpu", **options})


def test_bad_data_gets_one_line(base: Path, tmp_path: Path) -> None:
    def train(data: Path) -> None:
        api.evaluator_train(data, out=tmp_path / "out", base=str(base), device="cpu")

    with pytest.raises(BadInput, match="is no directory; write it with `vesalius functions evaluator-data"):
        train(tmp_path / "nowhere")
    data = write_data(tmp_path / "data")
    test = (data / "test.jsonl").read_text()
    (data / "test.jsonl").write_text(test + '{"examples": []}\n')
    with pytest.raises(BadInput, match=r"test\.jsonl, line 13: is not a unit test with three examples"):
        train(data)
    (data / "test.jsonl").write_text((data / "train.jsonl").read_text())
    with pytest.raises(BadInput, match="'program 1' is in the test and in another split"):
        train(data)
    (data / "test.jsonl").write_text("")
    with pytest.raises(BadInput, match="holds no test"):
        train(data)


def test_the_interval_is_over_groups_of_functions() -> None:
    hits, groups = [True] * 10 + [False] * 10, [("a",)] * 10 + [("b",)] * 10
    metric = share_right(hits, groups)
    assert (metric.value, metric.low, metric.high) == (0.5, 0.0, 1.0)  # two groups that go all one way
    assert metric.n == 20
    apart = share_right(hits, [(str(i),) for i in range(20)])
    assert apart.low is not None
    assert 0.2 < apart.low < 0.5
    assert not math.isnan(apart.low)


def test_a_unit_test_needs_three_examples() -> None:
    with pytest.raises(AssertionError):
        UnitTest(EXAMPLES[:2], 0)


def test_a_packaged_evaluator_is_named_by_its_base_unless_a_directory_has_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, packaged = tmp_path / "here" / "small", tmp_path / "packaged" / "small"
    monkeypatch.setattr(naming, "PACKAGED", tmp_path / "packaged")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place in (packaged, own):
        if place is packaged:
            with pytest.raises(BadInput, match="trained:small: holds no evaluator"):
                naming.placed("trained:small")
        place.mkdir(parents=True)
        for file in (naming.EVALUATOR_FILE, naming.ADAPTER_FILE):
            (place / file).write_text("{}")
        assert naming.placed("trained:small") == f"trained:{place}"

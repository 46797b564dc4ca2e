"""Every metric against its formula, on logits that are known, and teacher forcing against plain forward passes."""

import math
from dataclasses import replace

import pytest
import torch

from tests.models import random_model, small_config
from vesalius.behaviours import Prompt, Prompts, performance
from vesalius.behaviours.metrics import METRICS, NONE
from vesalius.behaviours.trial import Trial
from vesalius.errors import BadInput
from vesalius.explanations.running.ladder import _readings
from vesalius.intervene import Recordings, effects
from vesalius.statistics import means_interval

from .test_performance import constant_model

#: Logits of four tokens; the other 13 of the vocabulary are 0.
LOGITS = {5: 4.0, 6: 1.0, 7: 3.0, 8: 2.0}
Z = sum(math.exp(x) for x in LOGITS.values()) + 13
#: Sums of 17 exponentials in float32.
CLOSE = {"rel": 1e-5, "abs": 1e-6}


def prompts(*rows: Prompt, metric=None) -> Prompts:
    return Prompts.from_rows(rows, pad=0, n_ctx=16, d_vocab=17).with_metric(metric)


def scores(given: Prompts, model=None) -> list[float]:
    model = model or constant_model(LOGITS)
    return Recordings(model, given.batch, given.readout(model)).scores().tolist()


SINGLE = Prompt((1, 2), (1, 3), 5, 6, {}, "")
SETS = Prompt((1, 2), (1, 3), 5, 6, {}, "", answers=(5, 7), wrongs=(6, 8))
FORCED = Prompt((1, 2), (1, 3), 5, NONE, {}, "", forced=(5, 7, 6))


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (None, [3.0, math.log((math.exp(4) + math.exp(3)) / (math.exp(1) + math.exp(2)))]),
        ("logit-difference", [3.0, math.log((math.exp(4) + math.exp(3)) / (math.exp(1) + math.exp(2)))]),
        ("probability", [math.exp(4) / Z, (math.exp(4) + math.exp(3)) / Z]),
        (
            "probability-difference",
            [(math.exp(4) - math.exp(1)) / Z, (math.exp(4) + math.exp(3) - math.exp(1) - math.exp(2)) / Z],
        ),
        ("log-probability", [4 - math.log(Z), math.log((math.exp(4) + math.exp(3)) / Z)]),
        ("loss", [4 - math.log(Z), math.log((math.exp(4) + math.exp(3)) / Z)]),
        ("kl", [0.0, 0.0]),
    ],
)
def test_a_metric_is_its_formula(metric: str | None, expected: list[float]) -> None:
    assert scores(prompts(SINGLE, SETS, metric=metric)) == pytest.approx(expected, **CLOSE)
    assert scores(prompts(SINGLE, metric=metric)) == pytest.approx(expected[:1], **CLOSE)


def test_an_answer_of_several_tokens_is_the_product_of_its_tokens() -> None:
    total = 4 + 3 + 1 - 3 * math.log(Z)
    assert scores(prompts(FORCED, SINGLE, metric="log-probability")) == pytest.approx([total, 4 - math.log(Z)], **CLOSE)
    assert scores(prompts(FORCED, metric="probability")) == pytest.approx([math.exp(total)], **CLOSE)
    assert scores(prompts(FORCED, metric="loss")) == pytest.approx([total / 3], **CLOSE)


def test_an_answer_is_said_where_each_of_its_tokens_is_the_likeliest() -> None:
    """The model always says 5; a metric that reads one place only is read beside it."""
    rows = [replace(FORCED, forced=forced) for forced in ((5, 7, 6), (5, 5), (5, 5, 5))]
    given = prompts(SINGLE, replace(SINGLE, correct=7), SETS, replace(SETS, answers=(7, 8)), *rows)
    model = constant_model(LOGITS)
    assert Recordings(model, given.batch, given.said()).scores().tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]
    for metric in ("log-probability", "probability"):
        one = given.with_metric(metric)
        material = Trial(one.batch, one.counterfactual_batch, one.readout(model), one)
        read = Recordings(model, one.batch, _readings(material, model)).scores()
        assert read[:, 0].tolist() == pytest.approx(scores(one))
        assert read[:, 3].tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0]


def test_teacher_forcing_agrees_with_plain_forward_passes() -> None:
    model = random_model(small_config())
    rows = [
        Prompt((1, 2, 9), (1, 3, 9), 5, NONE, {}, "", forced=(5, 7, 6)),
        Prompt((1, 4), (1, 3), 11, NONE, {}, "", forced=(11, 12)),
        Prompt((1, 4, 4, 8), (1, 3, 2, 8), 3, NONE, {}, ""),
    ]
    expected = []
    for row in rows:
        answer, tokens, total = row.forced or (row.correct,), list(row.tokens), 0.0
        for token in answer:
            total += float(model(torch.tensor([tokens]))[0, -1].double().log_softmax(-1)[token])
            tokens.append(token)
        expected.append(total)
    assert scores(prompts(*rows, metric="log-probability"), model) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_kl_is_what_replacing_a_component_changes() -> None:
    model = random_model(small_config())
    given = prompts(Prompt((1, 2, 9), (1, 3, 9), 5, NONE, {}, ""), metric="kl")
    found = effects(model, given.batch, given.readout(model), kind="zero", sets=[["L0H1"], ["L1_MLP"]])
    for column, name in ((0, "blocks.0.attn.hook_z"), (1, "blocks.1.hook_mlp_out")):

        def cut(value, hook, column=column):
            value = value.clone()
            if column == 0:
                value[:, :, 1] = 0
            else:
                value[:] = model.blocks[1].mlp.b_out
            return value

        clean = model(given.tokens)[0, -1].double().log_softmax(-1)
        edited = model.run_with_hooks(given.tokens, fwd_hooks=[(name, cut)])[0, -1].double().log_softmax(-1)
        expected = float((clean.exp() * (clean - edited)).sum())
        assert expected > 1e-3
        assert float(found.matrix[0, column]) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_function_is_a_metric() -> None:
    def second(logits, answers, wrongs):
        assert (answers[:, 0] == 5).all()
        assert (wrongs[:, 0] == 6).all()
        return logits[:, 7]

    assert scores(prompts(SINGLE, SINGLE, metric=second)) == pytest.approx([3.0, 3.0])
    with pytest.raises(BadInput, match="metric <lambda> returned \\(2, 17\\) for 2 rows; return one number per row"):
        scores(prompts(SINGLE, SINGLE, metric=lambda logits, answers, wrongs: logits))
    with pytest.raises(
        BadInput, match=r"metric <lambda> returned nan for prompt 0 .*; return a finite number for every"
    ):
        scores(prompts(SINGLE, SINGLE, metric=lambda logits, answers, wrongs: logits[:, 7] * float("nan")))


@pytest.mark.parametrize("metric", [name for name in METRICS if name.endswith("difference")])
def test_differences_need_a_wrong_answer(metric: str) -> None:
    with pytest.raises(BadInput, match="some prompts have no wrong answer; give one, or `metric` log-probability"):
        prompts(Prompt((1, 2), (1, 3), 5, NONE, {}, ""), metric=metric).readout()


def test_without_a_wrong_answer_the_rival_is_the_likeliest_other_token() -> None:
    model = constant_model(LOGITS)
    given = prompts(Prompt((1, 2), (1, 3), 5, NONE, {}, ""), Prompt((1, 2), (1, 3), 6, NONE, {}, ""), SINGLE)
    margins = Recordings(model, given.batch, given.margin()).scores().tolist()
    assert margins == pytest.approx([4 - 3, 1 - 4, 4 - 1])


def test_an_answer_of_several_tokens_counts_if_greedy_decoding_gives_it() -> None:
    """Wherever it stands, the constant model says 5, whose logit is 4; the next are 7 with 3 and 8 with 2."""
    model = constant_model(LOGITS)
    rows = [
        Prompt((1, 2), (1, 3), 5, NONE, {}, "", forced=(5, 5, 5)),
        Prompt((1, 2), (1, 3), 5, NONE, {}, "", forced=(5, 7)),
        Prompt((1, 2, 2), (1, 3, 3), 8, NONE, {}, "", forced=(8, 5)),
        Prompt((1, 2), (1, 3), 5, 7, {}, "", forced=(5, 8)),  # leads its wrong answer, and is not what is said
        SINGLE,
        Prompt((1, 2), (1, 3), 7, NONE, {}, ""),
    ]
    given = prompts(*rows, metric="log-probability")
    margins = Recordings(model, given.batch, given.margin()).scores().tolist()
    assert margins == pytest.approx([4 - 3, 3 - 4, 2 - 4, 2 - 4, 4 - 1, 3 - 4], **CLOSE)
    found = performance(model, given, rows=4)
    assert (found.accuracy, found.top1) == (pytest.approx(2 / 6), pytest.approx(2 / 6))
    assert found.logit_difference == pytest.approx(sum(margins) / 6, **CLOSE)


def test_intervals_of_few_prompts_say_how_little_is_known() -> None:
    values = torch.tensor([[1.0], [2.0]])
    low, high = means_interval(values)
    # Student's t at one degree of freedom is 12.706; the standard error of 1 and 2 is 0.5.
    assert (float(low), float(high)) == pytest.approx((1.5 - 12.706 * 0.5, 1.5 + 12.706 * 0.5), rel=1e-3)
    assert all(math.isnan(float(bound)) for bound in means_interval(values[:1]))

"""The instruments against naive twins (one hooked forward per row) and on a model whose backups are set by hand."""

import math

import pytest
import torch
from torch import Tensor

from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.explanations.induction_model import as_specimen, induction_model
from tests.intervene.twin import naive_logits
from tests.models import random_model, small_config
from vesalius.components import Component
from vesalius.errors import BadInput
from vesalius.explanations.laboratory import NaturalLab
from vesalius.explanations.laboratory.answers import Corrupted, token_means
from vesalius.explanations.natural.instruments import Instruments
from vesalius.intervene import Batch, Row, activations, component_values, zeros
from vesalius.intervene.probes import direct_logits
from vesalius.statistics import mean_apart_from_zero

#: Figures are rounded to four places.
CLOSE = 2e-4


@pytest.fixture(scope="module", params=["induction", "ioi"])
def tools(request: pytest.FixtureRequest) -> Instruments:
    """Five prompts of a random model; those of ioi have several lengths. It performs neither, so that shares of its
    score are not defined: effects are in logits.
    """
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS))
    lab = NaturalLab.draw(as_specimen(model, request.param), 5, seed=3, split="test")
    assert math.isnan(lab.scale)
    lab.scale = 1.0
    return Instruments(lab, piece=word_tokenizer().piece)


@pytest.fixture(scope="module")
def backups() -> Instruments:
    """A model with two induction heads of equal strength behind a norm: each covers for the other."""
    model = induction_model(word_tokenizer().size, strengths={0: 1.0, 1: 1.0}, norm="rms")
    return Instruments(NaturalLab.draw(as_specimen(model), 12, seed=1, split="test"), piece=word_tokenizer().piece)


def scores(lab: NaturalLab, rows: list[Row], values: object) -> list[float]:
    found = []
    for row in rows:
        logits = naive_logits(lab.model, lab.batch, row, values)  # type: ignore[arg-type]
        at = int(lab.prompts.position[row.prompt])
        found.append(float(logits[at, lab.prompts.correct[row.prompt]] - logits[at, lab.prompts.wrong[row.prompt]]))
    return found


def mean_effect(lab: NaturalLab, before: list[float], after: list[float]) -> float:
    return sum(b - a for b, a in zip(before, after, strict=True)) / len(before) / lab.scale


@pytest.mark.parametrize("how", ["zero", "resample", "token mean"])
@pytest.mark.parametrize("suppressed", [(), ("L0H3",)])
def test_replacing_a_set_at_a_role_is_the_naive_run(tools: Instruments, how: str, suppressed: tuple[str, ...]) -> None:
    lab, members = tools.lab, ["L0H1", "L1_MLP"]
    (found,) = tools.replace([members], how, at="end", suppressed=suppressed)  # type: ignore[arg-type]
    values = {"zero": zeros(lab.model), "resample": lab.runs.source_values, "token mean": token_means(lab.runs)}[how]
    table = values.stack(zeros(lab.model))

    def rows(parts: list[str]) -> list[Row]:
        return [
            Row(
                prompt,
                edits=dict.fromkeys(parts, 0 if how == "zero" else prompt) | dict.fromkeys(suppressed, len(values)),
                positions=[int(lab.prompts.position[prompt])],
            )
            for prompt in range(lab.n)
        ]

    before = scores(lab, rows([]), table)
    assert found["effect"][0] == pytest.approx(
        mean_effect(lab, before, scores(lab, rows(members), table)), rel=1e-3, abs=CLOSE
    )


def test_token_means_are_means_over_the_same_token_in_the_same_place(tools: Instruments) -> None:
    lab = tools.lab
    together = torch.cat([lab.runs.values.mlp[1], lab.runs.source_values.mlp[1]])
    tokens, real = torch.cat([lab.prompts.tokens, lab.prompts.counterfactual]), lab.prompts.mask.repeat(2, 1)
    aligned = len(set(lab.prompts.position.tolist())) == 1
    found = token_means(lab.runs).mlp[1]
    for prompt in range(lab.n):
        for at in range(int(lab.prompts.position[prompt]) + 1):
            same = (tokens == tokens[prompt, at]) & real
            if aligned:
                same &= torch.arange(tokens.shape[1]) == at
            assert torch.allclose(found[prompt, at], together[same].mean(0), atol=1e-5)


def _exchanged(lab: NaturalLab, place: Tensor) -> Tensor:
    """The prompts with another token at a place, one prompt after the other: the next prompt's that has another one;
    where the model's answer stays, six more values of the role, those at other roles of the prompt first.
    """
    tokens, values = lab.prompts.tokens.clone(), lab.prompts.tokens[torch.arange(lab.n), place].tolist()
    for prompt in range(lab.n):
        own, at = values[prompt], int(lab.prompts.position[prompt])
        following = [values[(prompt + step) % lab.n] for step in range(lab.n)]
        first = next(token for token in following if token != own)
        beside = [int(lab.prompts.tokens[prompt, where[prompt]]) for where in lab.prompts.roles.values()]
        further = [one for one in dict.fromkeys([*beside, *following]) if one in values and one not in (own, first)]
        for token in (first, *further[:6], first):
            tokens[prompt, place[prompt]] = token
            said = lab.model(tokens[[prompt]], mask=lab.prompts.mask[[prompt]])[0, at].argmax()
            if int(said) != int(lab.clean_answers.token[prompt]):
                break
    return tokens


def test_corrupting_a_role_patches_the_outputs_of_the_run_with_another_token_there(tools: Instruments) -> None:
    lab = tools.lab
    role = next(iter(lab.prompts.roles))
    place = lab.prompts.roles[role]
    source = Corrupted(lab.runs, role, place, lab.clean_answers)
    tokens = _exchanged(lab, place)
    expected = activations(lab.model, Batch(tokens, lab.prompts.mask))
    assert torch.allclose(source.outputs((), None).embed, expected.embed)
    if not bool(source.differs.any()):
        with pytest.raises(BadInput, match="no prompt's answer changes"):
            tools.corrupt([["L0H1"]], role)
        return
    (found,) = tools.corrupt([["L0H1", "L0_MLP"]], role)
    moved, switched = [], []
    for prompt in source.differs.nonzero()[:, 0].tolist():
        at, own, rival = (int(x[prompt]) for x in (lab.prompts.position, lab.clean_answers.token, source.whole.token))
        row = Row(prompt, edits={"L0H1": prompt, "L0_MLP": prompt}, positions=[at])
        clean, patched = (
            naive_logits(lab.model, lab.batch, one, expected)[at] for one in (Row(prompt, positions=[at]), row)
        )
        whole = lab.model(tokens[[prompt]], mask=lab.prompts.mask[[prompt]])[0, at]
        gain = [float(x[rival] - x[own]) for x in (clean, patched, whole)]
        moved.append((gain[1] - gain[0], gain[2] - gain[0]))
        switched.append(float(int(patched.argmax()) == rival))
    share, totals = sum(part for part, _ in moved) / sum(total for _, total in moved), [total for _, total in moved]
    if math.isnan(mean_apart_from_zero(torch.tensor(totals))):  # a share of it is not defined
        assert found["moved"][0] is None
    else:
        assert found["moved"][0] == pytest.approx(share, rel=1e-3, abs=CLOSE)
    assert found["switched"][0] == pytest.approx(sum(switched) / len(switched), rel=1e-3, abs=CLOSE)


@pytest.mark.parametrize("zeroed", [(), ("L0H3", "L0_MLP")])
@pytest.mark.parametrize("at_end", [True, False])
def test_outputs_by_values_are_those_of_a_run_that_is_given_the_clean_attention(
    tools: Instruments, zeroed: tuple[str, ...], at_end: bool
) -> None:
    """Twin: the run with another token, one head's attention, and the values at the end, overwritten by the clean
    run's; at the end that is what is read from other positions.
    """
    lab, head = tools.lab, Component(1, 2)
    role, place = next(iter(lab.prompts.roles.items()))
    first, at = [Component.parse(name) for name in zeroed], lab.prompts.position if at_end else None
    source = Corrupted(lab.runs, role, place, lab.clean_answers)
    name, z = "blocks.1.attn.hook_pattern", "blocks.1.attn.hook_z"
    where = (slice(None), slice(None)) if at is None else (torch.arange(lab.n), at)

    def zero(value, hook):
        value = value.clone()
        value[*where, 3] = 0.0
        return value

    def zero_mlp(value, hook):
        value = value.clone()
        value[where] = lab.model.blocks[0].mlp_bias
        return value

    hooks = [("blocks.0.attn.hook_z", zero), ("blocks.0.hook_mlp_out", zero_mlp)] if zeroed else []
    _, clean = lab.model.run_with_cache(lab.batch.tokens, mask=lab.batch.mask, fwd_hooks=hooks)

    def overwrite(pattern, hook):
        pattern = pattern.clone()
        pattern[:, head.head] = clean[name][:, head.head]
        return pattern

    tokens = source._batch.tokens
    assert bool((tokens != lab.batch.tokens).sum(1).eq(1).all())
    end = (torch.arange(lab.n), lab.prompts.position)

    def keep(values, hook):
        values = values.clone()
        values[end] = clean["blocks.1.attn.hook_v"][end]
        return values

    edits = [*hooks, (name, overwrite), ("blocks.1.attn.hook_v", keep)]
    _, twin = lab.model.run_with_cache(tokens, mask=lab.batch.mask, fwd_hooks=edits)
    found = source.outputs_by_values([head], first, at)
    assert torch.allclose(found.z[1][end][:, head.head], twin[z][end][:, head.head], atol=1e-5)
    # What earlier ones write is what they write in that run.
    assert torch.allclose(source.outputs(first, at).z[0][:, :, 0], twin["blocks.0.attn.hook_z"][:, :, 0], atol=1e-5)


def test_cutting_attention_takes_the_value_at_that_key_out_of_z(tools: Instruments) -> None:
    lab, head = tools.lab, Component(1, 2)
    role = next(iter(lab.prompts.roles))
    (found,) = tools.cut_attention([[head]], role)
    _, cache = lab.model.run_with_cache(lab.batch.tokens, mask=lab.batch.mask)
    z, value = cache["blocks.1.attn.hook_z"][:, :, 2].clone(), cache["blocks.1.attn.hook_v"]
    value = value[:, :, 2 // lab.model.config.queries_per_kv]
    for prompt in range(lab.n):
        at, key = int(lab.prompts.position[prompt]), int(lab.prompts.roles[role][prompt])
        z[prompt, at] -= cache["blocks.1.attn.hook_pattern"][prompt, 2, at, key] * value[prompt, key]
    values = component_values(lab.model, head, z)
    rows = [Row(prompt, edits={head: prompt}) for prompt in range(lab.n)]
    expected = mean_effect(lab, lab.clean_scores.tolist(), scores(lab, rows, values))
    assert found["effect"][0] == pytest.approx(expected, rel=1e-3, abs=CLOSE)


def test_what_all_components_add_to_the_logits_sums_to_the_logits(backups: Instruments) -> None:
    lab = backups.lab
    rows = torch.arange(lab.n)
    parts = [
        lab.runs.output_of(part, lab.runs.values)[rows, lab.prompts.position] for part in (None, *lab.model.components)
    ]
    total = torch.stack([direct_logits(lab.model, part, resid=lab.runs.final_resid) for part in parts]).sum(0)
    logits = lab.model(lab.batch.tokens, mask=lab.batch.mask)[rows, lab.prompts.position]
    assert torch.allclose(total, logits, atol=1e-3)


def test_an_induction_head_attends_to_the_answer_and_writes_it(backups: Instruments) -> None:
    attention = backups.attention(["L1H0", "L1H3"])
    assert attention["L1H0"]["B"]["top"] == 1.0
    assert attention["L1H0"]["B"]["mass"][0] > 0.9
    assert attention["L1H3"]["B"]["mass"][0] < 0.3
    lens = backups.lens(["L1H0", "L1H3"])
    assert lens["L1H0"]["rank"] == 1.0
    assert lens["L1H3"]["rank"] > 1.0
    assert [layer["answer_on_top"] for layer in backups.layers()][-1] == 1.0


def test_each_of_two_backups_matters_only_without_the_other(backups: Instruments) -> None:
    alone, other, both = backups.replace([["L1H0"], ["L1H1"], ["L1H0", "L1H1"]], "zero")
    assert alone["accuracy"] == other["accuracy"] == 1.0
    assert both["accuracy"] < 0.2
    found = backups.backup("L1H0", ["L1H1"], "zero")
    assert found["gain"][1] > 0
    assert found["gain_in_answers"] == [1.0, 1.0, 1.0]
    assert backups.backup("L1H3", ["L1H1"], "zero")["gain_in_answers"] == [0.0, 0.0, 0.0]
    (suppressed,) = backups.replace([["L1H0"]], "zero", suppressed=["L1H1"])
    assert suppressed["accuracy_before"] == 1.0
    assert suppressed["accuracy"] == both["accuracy"]
    (cut,) = backups.cut_attention([["L1H0", "L1H1"]], "B")
    assert cut["accuracy"] < 0.2


def test_pruning_keeps_one_of_two_backups_to_the_end(backups: Instruments) -> None:
    steps = backups.prune([f"L1H{i}" for i in range(4)], "zero")
    assert len(steps) == 4
    assert steps[-1]["replaced"] in ("L1H0", "L1H1")
    assert steps[-2]["accuracy"] == 1.0
    assert steps[-1]["accuracy"] < 0.2


def test_patching_the_heads_back_restores_the_answer(backups: Instruments) -> None:
    both, none = backups.restore([["L1H0", "L1H1"], ["L1H3"]], "end")
    assert both["effect_right"][0] > 0.0 > both["effect_wrong"][0] - both["effect_right"][0]
    assert backups.lens(["L1H0"])["L1H0"]["word"] == "mover"
    assert both["restored"][0] > 0.5
    assert abs(none["restored"][0]) < 0.1
    direct = backups.direct(["L1H0"])["L1H0"]
    assert direct["direct"][0] == pytest.approx(direct["total"][0], abs=0.05)
    path = backups.path("L0H0", "L1H0")
    assert path["inputs"]["k"][0] == pytest.approx(path["effect"][0], abs=0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda tools: tools.replace([]), "list of lists"),
        (lambda tools: tools.replace([[]]), "a set is empty"),
        (lambda tools: tools.replace([["L9H0"]]), "L9H0"),
        (lambda tools: tools.replace([["L0H0"]] * 65), "at most 64"),
        (lambda tools: tools.replace([["L0H0"]], "dropout"), "does not exist"),
        (lambda tools: tools.replace([["L0H0"]], at="verb"), "role 'verb' does not exist"),
        (lambda tools: tools.attention(["L0_MLP"]), "has no attention"),
        (lambda tools: tools.backup("L0H0", ["L0H0"]), "not itself"),
        (lambda tools: tools.path("L1H0", "L0H0"), "earlier sender"),
        (lambda tools: tools.lens(["L0H0"], k=0), "not a count"),
        (lambda tools: tools.examples(count="x"), "not a count"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(backups: Instruments, call: object, words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        call(backups)  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_role_with_one_token_in_all_prompts_cannot_be_corrupted() -> None:
    size = word_tokenizer().size
    model = random_model(small_config(d_vocab=size, d_vocab_out=size, n_ctx=48, bos_token=BOS))
    tools = Instruments(
        NaturalLab.draw(as_specimen(model, "ioi"), 4, seed=3, split="test"), piece=word_tokenizer().piece
    )
    with pytest.raises(BadInput, match="every prompt has the same token there"):
        tools.corrupt([["L0H0"]], "end")

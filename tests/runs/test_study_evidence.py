"""The figures of the AF1 study against plain hooks, the exhaustive study of `arithmetic` and the published tables."""

import itertools
import re
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import vesalius as ves
from vesalius.behaviours.behaviour import TooFewPrompts
from vesalius.components import Component
from vesalius.explanations.natural.instruments import Instruments
from vesalius.model.specimen import Specimen, TextVocabulary
from vesalius_bench.options import StudyOptions
from vesalius_bench.papers.published import printed
from vesalius_bench.study import measuring
from vesalius_bench.study.documents import Localisation
from vesalius_bench.study.evidence import CircuitEvidence, ComponentEvidence, component_figures
from vesalius_bench.study.measuring import measured_evidence, usable_prompts
from vesalius_bench.study.steps import with_groups, with_sums
from vesalius_truth.key.other_keys import established_roles

GROUP = ("L0H3", "L0H0", "L0H5")
NAMES = (*GROUP, "L2H3", "L2_MLP")
N, SEED = 24, 3


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return with_sums(ves.load("arithmetic"), None)


@pytest.fixture(scope="module")
def evidence(specimen: Specimen) -> CircuitEvidence:
    found = Localisation(source="given", how="", components=NAMES, backup_groups=(GROUP,))
    return measured_evidence(specimen, found, n=N, seed=SEED)


@pytest.fixture(scope="module")
def tools(specimen: Specimen) -> Instruments:
    return ves.instruments(specimen, n=N, seed=SEED)


def of(evidence: CircuitEvidence, name: str) -> ComponentEvidence:
    return next(one for one in evidence.components if one.component == name)


def plain_logits(tools: Instruments, tokens: Tensor, edits: dict[str, Any]) -> Tensor:
    """Logits at the last token of one run with outputs at that token replaced, by hooks alone."""
    model, end = tools.model, int(tools.prompts.position[0])

    def hook(part: Component, value: Any) -> tuple[str, Any]:
        def put(old: Tensor, _: Any) -> Tensor:
            old = old.clone()
            if part.head is None:
                old[:, end] = value
            else:
                old[:, end, part.head] = value
            return old

        return f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}", put

    with torch.no_grad():
        hooks = [hook(Component.parse(name), value) for name, value in edits.items()]
        return model.run_with_hooks(tokens, fwd_hooks=hooks)[:, end]


def plain_values(tools: Instruments, tokens: Tensor, name: str, zeroed: Sequence[str] = ()) -> Tensor:
    """What a component writes at the last token, others zeroed."""
    part, end, kept = Component.parse(name), int(tools.prompts.position[0]), {}
    place = f"blocks.{part.layer}.{'hook_mlp_out' if part.head is None else 'attn.hook_z'}"

    def hook(other: Component) -> tuple[str, Any]:
        def zero(old: Tensor, _: Any) -> Tensor:
            old = old.clone()
            old[:, end, other.head] = 0.0
            return old

        return f"blocks.{other.layer}.attn.hook_z", zero

    hooks = [hook(Component.parse(other)) for other in zeroed]
    keep = (place, lambda value, _: kept.update(out=value.clone()))
    with torch.no_grad():
        tools.model.run_with_hooks(tokens, fwd_hooks=[*hooks, keep])
    return kept["out"][:, end] if part.head is None else kept["out"][:, end, part.head]


def accuracy(tools: Instruments, logits: Tensor) -> float:
    return float((logits.argmax(1) == tools.prompts.correct).float().mean())


def test_backup_rows_are_those_of_every_subset(tools: Instruments, evidence: CircuitEvidence) -> None:
    """All seven subsets of the group zeroed by plain hooks: the whole study of these heads."""
    tokens = tools.prompts.tokens
    left = {
        subset: accuracy(tools, plain_logits(tools, tokens, dict.fromkeys(subset, 0.0)))
        for size in (1, 2, 3)
        for subset in itertools.combinations(GROUP, size)
    }

    def of_set(*names: str) -> float:
        return left[tuple(name for name in GROUP if name in names)]

    for place, name in enumerate(GROUP):
        one, others = of(evidence, name), [other for other in GROUP if other != name]
        assert one.zeroed == pytest.approx(of_set(name), abs=1e-4)
        assert one.once_others_zeroed == pytest.approx((of_set(*others), of_set(*GROUP)), abs=1e-4)
        assert [then.without for then in one.suppressed] == [GROUP[:count] for count in range(1, place + 1)]
        for then in one.suppressed:
            assert then.before == pytest.approx(of_set(*then.without), abs=1e-4)
            assert then.zeroed == pytest.approx(of_set(*then.without, name), abs=1e-4)


def test_cama_is_the_mean_over_prompts_with_the_same_token(tools: Instruments, evidence: CircuitEvidence) -> None:
    """At the last token all prompts have '=', so that the mean is over all of them and their counterfactuals."""
    prompts = tools.prompts
    for name in ("L0H3", "L2_MLP"):
        both = torch.cat([prompts.tokens, prompts.counterfactual])
        mean = plain_values(tools, both, name).mean(0)
        expected = accuracy(tools, plain_logits(tools, prompts.tokens, {name: mean}))
        assert of(evidence, name).cama_ablated == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("name", "without"), [("L2_MLP", ()), ("L0H0", ()), ("L0H0", ("L0H3",))])
def test_margins_and_gains_of_another_operand(
    tools: Instruments, evidence: CircuitEvidence, name: str, without: tuple[str, ...]
) -> None:
    """The output on the prompt with another B, patched by hooks; which B is the instrument's choice."""
    prompts, role = tools.prompts, "operand B"
    source = tools.lab.corrupted(role)
    other = plain_logits(tools, source.tokens, {}).argmax(1)
    clean, zeros = plain_logits(tools, prompts.tokens, {}).argmax(1), dict.fromkeys(without, 0.0)
    rows = (other != clean).nonzero()[:, 0]
    before = plain_logits(tools, prompts.tokens, zeros)
    value = plain_values(tools, source.tokens, name, without)
    after = plain_logits(tools, prompts.tokens, {**zeros, name: value})
    gain = float((after[rows, other[rows]] - before[rows, other[rows]]).mean())
    one = of(evidence, name)
    if without:
        then = next(then for then in one.suppressed if then.without == without)
        assert then.gain[role] == pytest.approx(gain, abs=2e-3)
        return
    assert one.gain[role] == pytest.approx(gain, abs=2e-3)
    margins = [float((run[rows, other[rows]] - run[rows, clean[rows]]).mean()) for run in (before, after)]
    assert one.margin[role] == pytest.approx(margins, abs=2e-3)
    assert one.switched[role] == pytest.approx(float((after.argmax(1) == other)[rows].float().mean()), abs=1e-4)


def test_the_lens_looks_numbers_up_as_answers(
    tools: Instruments, specimen: Specimen, evidence: CircuitEvidence
) -> None:
    """Logits of A - B, of A + C and of B by hand: written output, last norm's scale and weight, unembedding."""
    prompts, model = tools.prompts, specimen.model
    assert isinstance(specimen.vocabulary, TextVocabulary)
    token, end = specimen.vocabulary.tokenizer.token, int(prompts.position[0])
    with torch.no_grad():
        _, cache = model.run_with_cache(prompts.tokens)
    written, resid = cache["blocks.2.hook_mlp_out"][:, end], cache["blocks.2.hook_resid_post"][:, end]
    written = written - model.blocks[2].mlp_bias
    norm = model.ln_final
    assert norm.w is not None
    read = norm.share(written, norm.scale(resid))
    logits = read @ model.unembed_weight.T
    operands = [list(map(int, re.findall(r"\d+", text))) for text in prompts.texts]
    values = {
        "A-B": [a - b for a, b, _ in operands],
        "A+C": [a + c for a, _, c in operands],
        "B": [b for _, b, _ in operands],
    }
    one = of(evidence, "L2_MLP")
    assert one.target_prompts["the answer"] == N
    for name, numbers in values.items():
        rows = [
            (row, number)
            for row, (number, answer) in enumerate(zip(numbers, [a - b + c for a, b, c in operands], strict=True))
            if 0 <= number <= 99 and number != answer
        ]
        mean = sum(float(logits[row, token(str(number))]) for row, number in rows) / len(rows)
        assert one.target_prompts[name] == len(rows)
        assert one.target_logits[name] == pytest.approx(mean, abs=2e-3)
    answer = torch.nn.functional.cosine_similarity(read, model.unembed_weight[prompts.correct], dim=1)
    assert one.cosine_answer == pytest.approx(float(answer.mean()), abs=1e-3)
    before = cache["blocks.2.hook_resid_pre"][:, end] + cache["blocks.2.hook_attn_out"][:, end]
    cosine = torch.nn.functional.cosine_similarity(written, before, dim=1)
    assert one.cosine_residual == pytest.approx(float(cosine.mean()), abs=1e-3)
    rates = (one.lens_top_1, one.lens_top_3, one.lens_top_5)
    ranks = (logits > logits.gather(1, prompts.correct[:, None])).sum(1)
    assert rates == pytest.approx([float((ranks < k).float().mean()) for k in (1, 3, 5)], abs=1e-4)


def test_top_keys_and_operand_mass_add_up(evidence: CircuitEvidence) -> None:
    for name in GROUP:
        one = of(evidence, name)
        assert sum(one.top_key.values()) <= N  # a sign may get the most
        mass = sum(value for role, value in one.attention.items() if role.startswith("operand "))
        assert one.operand_mass == pytest.approx(mass, abs=1e-3)
    assert of(evidence, "L2_MLP").operand_mass is None


def test_controls_are_drawn_outside_the_circuit(evidence: CircuitEvidence) -> None:
    assert len(evidence.controls) == 8 + 2  # eight of the other heads, and both other MLPs
    assert not set(evidence.controls) & set(NAMES)


# The exhaustive study.


def test_a_given_circuit_has_the_backups_of_the_exhaustive_study(specimen: Specimen) -> None:
    """The key zeroed all sets of heads on 200 prompts; ours agree within three standard errors of both."""
    key, n = established_roles(), 99
    members = key["groups"]["B"]["members"]
    found = with_groups(specimen, Localisation(source="given", how="", components=tuple(members)), n=n, seed=0)
    (group,) = found.groups
    assert (group.operand, sorted(group.heads), group.joint) == ("operand B", sorted(members), "supported")
    assert group.heads[0] == "L0H3"  # the primary one, which costs most alone
    assert found.backup_groups == (group.heads,)
    # Each acts alone, so that none is a backup of another (docs/decisions/0067).
    assert group.standing["L0H0"] == "mutually redundant with L0H3 and L0H5"
    assert all(words.startswith("mutually redundant with") for words in group.standing.values())
    measured = measured_evidence(specimen, found, n=n, seed=0)

    def agrees(ours: float, theirs: float) -> bool:
        errors = [max(p * (1 - p), 0.02) / m for p, m in ((ours, n), (theirs, key["prompts"]["components and groups"]))]
        return abs(ours - theirs) < 3 * sum(errors) ** 0.5

    for one in measured.components:
        assert agrees(one.zeroed, key["components"][one.component]["accuracy"]["zeroed"])
        assert one.once_others_zeroed is not None
        assert agrees(one.once_others_zeroed[1], key["groups"]["B"]["accuracy zeroed"])
        assert agrees(one.attention["operand B"], key["components"][one.component]["attention"]["B"])


def test_heads_that_move_different_operands_are_no_group(specimen: Specimen) -> None:
    """L0H3 brings B and L0H1 brings C."""
    found = with_groups(specimen, Localisation(source="given", how="", components=("L0H1", "L0H3")), n=16, seed=0)
    assert (found.groups, found.backup_groups) == ((), ())


# Prompts.


def test_prompts_up_to_the_last_right_one_are_counted(specimen: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second answer is right: of the prompts for four right ones the seventh is the last."""
    module = sys.modules["vesalius.behaviours.performance"]  # the package has a function of that name
    monkeypatch.setattr(module, "answered_right", lambda _, prompts: torch.arange(len(prompts)) % 2 == 0)
    assert usable_prompts(specimen, 4, seed=0) == (4, 7)


def test_fewer_prompts_are_used_where_there_are_fewer(specimen: Specimen, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def drawn(behaviour: Any, model: Any, tokenizer: Any, n: int, **_: Any) -> tuple[range, int]:
        asked.append(n)
        if n > 20:
            raise TooFewPrompts("too few", 20 if n > 30 else 25)
        return range(n), 3 * n

    monkeypatch.setattr(measuring, "draw_counted", drawn)
    assert usable_prompts(specimen, 99, seed=0) == (20, 60)
    assert asked == [99, 20]

    def hardly_any(*_: Any, **__: Any) -> None:
        raise TooFewPrompts("few", 3)

    monkeypatch.setattr(measuring, "draw_counted", hardly_any)
    with pytest.raises(TooFewPrompts):
        usable_prompts(specimen, 99, seed=0)


def test_sums_that_are_read_by_several_tokens_have_no_targets(
    specimen: Specimen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no spelling of the answer is the token that is read, nothing is looked up, and it is said."""
    monkeypatch.setattr("vesalius_bench.study.targets.SPELLINGS", (str,))
    found = Localisation(source="given", how="", components=("L2_MLP",))
    evidence = measured_evidence(specimen, found, n=4, seed=0)
    assert set(evidence.components[0].target_logits) == {"the answer", "a random token"}
    assert evidence.no_targets.startswith("no spelling of the answer")


# The published tables.


def kind_of(row: str) -> str:
    """A row's name without which component and operand it is about."""
    text = row.partition(": ")[2]
    text = re.sub(r"L\d+(H\d+|_MLP)( and L\d+H\d+)*", "HEADS", text)
    text = re.sub(r"\b[ABC]\+[ABC]\b", "SUM", re.sub(r"(?<![+-])-?\b[ABC][+-][ABC]\b", "SUM", text))
    return re.sub(r"\b[ABC]\b|\boperand\b", "OPERAND", text)


@pytest.mark.parametrize("table", ["Table 13", "Table 14"])
def test_every_published_figure_has_its_counterpart(evidence: CircuitEvidence, table: str) -> None:
    """On a circuit with a group and an MLP; none is left without."""
    ours = {
        kind_of(f"{one.component}: {name}")
        for one in evidence.components
        for name, _ in component_figures(one, evidence)
    }
    assert {kind_of(row) for row in printed("hyve", table).rows} <= ours


def test_the_default_is_the_published_number_of_prompts() -> None:
    assert StudyOptions().n == 99

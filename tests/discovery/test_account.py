"""The account of a set: its figures against plain hooks, one run of the whole model for each of them."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import vesalius as ves
from tests.behaviours.word_tokenizer import BOS, word_tokenizer
from tests.model import references
from vesalius.behaviours.builtin import NAMES
from vesalius.behaviours.prompts import Prompts
from vesalius.components import Component
from vesalius.discovery.account import ALONE, NamedSet, choose_set, given_set, measure_account
from vesalius.discovery.shares import Shares
from vesalius.documents.account import BAR, Account, Effect
from vesalius.documents.explanation import Explanation
from vesalius.documents.metric import Metric
from vesalius.documents.view import Sheet
from vesalius.model.hooks import HookPoint
from vesalius.model.sources import from_transformers
from vesalius.model.specimen import Specimen

NAMED = tuple(map(Component.parse, ("L0H3", "L0H5", "L0_MLP", "L1_MLP", "L2_MLP", "L1H0")))


@pytest.fixture(scope="module")
def specimen() -> Specimen:
    return ves.load("arithmetic")


@pytest.fixture(scope="module")
def named(specimen: Specimen) -> NamedSet:
    return given_set(specimen, NAMED, n=8, seed=3)


@pytest.fixture(scope="module")
def account(specimen: Specimen, named: NamedSet) -> Account:
    return measure_account(specimen, named, suspects=specimen.model.components, seed=3)


class Twin:
    """Runs a model with plain hooks that put what components wrote on the counterfactual prompts in their place."""

    def __init__(self, specimen: Specimen, prompts: Prompts) -> None:
        self.model, self.prompts = specimen.model, prompts
        with torch.no_grad():
            _, self.other = self.model.run_with_cache(prompts.counterfactual, mask=prompts.mask)

    def answers(self, replaced: set[Component], where: Tensor | None = None) -> Float[Tensor, "prompt answer"]:
        """The logits of the right and of the wrong answer."""
        last, rows = self.last(replaced, where), torch.arange(len(self.prompts))
        return torch.stack([last[rows, self.prompts.correct], last[rows, self.prompts.wrong]], 1).double()

    def last(self, replaced: set[Component], where: Tensor | None = None) -> Float[Tensor, "prompt token"]:
        """All logits where the answer is read."""
        keep = torch.ones_like(self.prompts.mask) if where is None else where
        hooks = []
        for part in replaced:
            name = f"blocks.{part.layer}.attn.hook_z" if part.is_head else f"blocks.{part.layer}.hook_mlp_out"

            def edit(value: Tensor, hook: HookPoint, part: Component = part, name: str = name) -> Tensor:
                value = value.clone()
                if part.is_head:
                    value[:, :, part.head][keep] = self.other[name][:, :, part.head][keep]
                else:
                    value[keep] = self.other[name][keep]
                return value

            hooks.append((name, edit))
        with torch.no_grad():
            logits = self.model.run_with_hooks(self.prompts.tokens, mask=self.prompts.mask, fwd_hooks=hooks)
        return logits[torch.arange(len(self.prompts)), self.prompts.position]

    def right(self, replaced: set[Component]) -> float:
        """The share of prompts whose right answer is the likeliest token."""
        best = self.last(replaced).argmax(1)
        return float((best == self.prompts.correct).double().mean())

    def share(self, replaced: set[Component], where: Tensor | None = None) -> float:
        """What is left of the range: 1 with nothing replaced, 0 with everything."""
        every = set(self.model.components)
        own, full, nothing = (
            float((one[:, 0] - one[:, 1]).mean())
            for one in (self.answers(replaced, where), self.answers(set()), self.answers(every))
        )
        return (own - nothing) / (full - nothing)


def value(metric: Metric | None) -> float:
    assert metric is not None
    assert metric.value is not None
    return metric.value


@pytest.mark.slow
def test_what_a_set_keeps_and_leaves_is_what_plain_hooks_measure(
    specimen: Specimen, named: NamedSet, account: Account
) -> None:
    prompts = named.sets.report.prompts
    assert prompts is not None
    twin, every, inside = Twin(specimen, prompts), set(specimen.model.components), set(NAMED)
    mlps = {part for part in every if not part.is_head}
    assert value(account.kept) == pytest.approx(twin.share(every - inside), abs=1e-3)
    assert account.with_mlps is None  # all three are in the set
    assert value(account.left) == pytest.approx(twin.share(inside), abs=1e-3)
    kinds = {part.name: value(part.effect) for part in account.kinds}
    assert kinds["heads"] == pytest.approx(1 - twin.share(inside - mlps), abs=1e-3)
    assert kinds["MLPs"] == pytest.approx(1 - twin.share(mlps), abs=1e-3)
    layers = {part.name: value(part.effect) for part in account.layers}
    assert layers == {
        "layer 0 (2 heads, MLP)": pytest.approx(1 - twin.share({p for p in inside if p.layer == 0}), abs=1e-3),
        "layer 1 (1 head, MLP)": pytest.approx(1 - twin.share({p for p in inside if p.layer == 1}), abs=1e-3),
        "layer 2 (MLP)": pytest.approx(1 - twin.share({p for p in inside if p.layer == 2}), abs=1e-3),
    }
    ends = torch.zeros_like(prompts.mask).scatter_(1, prompts.position[:, None], True)
    places = {part.name: value(part.effect) for part in account.positions}
    assert places["end"] == pytest.approx(1 - twin.share(inside, ends), abs=1e-3)


def test_how_often_the_set_alone_says_the_answer_is_what_plain_hooks_measure(
    specimen: Specimen, named: NamedSet
) -> None:
    """With three of the six components it keeps a part of the score and says other answers."""
    few = given_set(specimen, NAMED[:3], n=8, seed=3)
    for one in (named, few):
        prompts, inside = one.sets.report.prompts, set(one.components)
        assert prompts is not None
        twin = Twin(specimen, prompts)
        says = Shares(specimen.model, one.sets.report).says(inside)
        assert says is not None
        for measured, replaced in ((says.alone, set(specimen.model.components) - inside), (says.model, set())):
            assert measured.value == pytest.approx(twin.right(replaced))
            assert measured.n == len(prompts)


@pytest.mark.slow
def test_the_share_with_all_mlps_is_that_of_plain_hooks(specimen: Specimen) -> None:
    named = given_set(specimen, NAMED[:2], n=8, seed=3)
    account = measure_account(specimen, named, seed=3)
    prompts = named.sets.report.prompts
    assert prompts is not None
    heads = {part for part in specimen.model.components if part.is_head}
    twin = Twin(specimen, prompts)
    assert value(account.with_mlps) == pytest.approx(twin.share(heads - set(NAMED[:2])), abs=1e-3)


def of_family(name: str) -> Specimen:
    """A small random model of a family, with rows on which replacing everything takes from the score: of all names the
    right answer is the one that loses most by the counterfactual, the wrong one that which gains most.
    """
    tokenizer, (kind, settings) = word_tokenizer(), references.MODELS[name]
    model = references.random_reference(kind, {**settings, "vocab_size": tokenizer.size, "bos_token_id": BOS})
    plain = from_transformers(model)
    names = [f" {one}" for one in NAMES if tokenizer.is_single(f" {one}")][:40]
    tokens = [tokenizer.token(one) for one in names]

    def logits(text: str) -> Float[Tensor, " name"]:
        with torch.no_grad():
            return plain(torch.tensor([[BOS, *tokenizer.encode(text)]]))[0, -1, tokens]

    rows = []
    for i in range(28):
        first, second, other = names[i], names[(7 * i + 3) % 40], names[(11 * i + 5) % 40]
        prompt, counterfactual = f"The{first}{second}{first}", f"The{other}{second}{first}"
        change = logits(prompt) - logits(counterfactual)
        right, wrong = names[int(change.argmax())], names[int(change.argmin())]
        rows.append({"prompt": prompt, "answer": right, "wrong": wrong, "counterfactual": counterfactual})
    return ves.load(model, tokenizer=tokenizer._backend, behaviour=rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", [one for one in references.MODELS if not one.startswith("rope-")])
def test_the_account_is_that_of_plain_hooks_in_every_family(name: str) -> None:
    pytest.importorskip("transformers")
    specimen = of_family(name)
    inside = set(map(Component.parse, ("L0H1", "L0_MLP", "L1H2")))
    named = given_set(specimen, inside, n=8, seed=3)
    account = measure_account(specimen, named, seed=3)
    prompts = named.sets.report.prompts
    assert prompts is not None
    twin, every = Twin(specimen, prompts), set(specimen.model.components)
    heads = {part for part in every if part.is_head}
    assert value(account.kept) == pytest.approx(twin.share(every - inside), abs=1e-3)
    assert value(account.with_mlps) == pytest.approx(twin.share(heads - inside), abs=1e-3)
    assert value(account.left) == pytest.approx(twin.share(inside), abs=1e-3)


@pytest.mark.slow
def test_every_component_outside_that_costs_more_than_the_bar_is_left_out(
    specimen: Specimen, named: NamedSet, account: Account
) -> None:
    prompts = named.sets.report.take(slice(0, ALONE)).prompts
    assert prompts is not None
    twin = Twin(specimen, prompts)
    costs = {part: 1 - twin.share({part}) for part in specimen.model.components}
    outside = {str(part) for part, cost in costs.items() if part not in NAMED and abs(cost) >= BAR}
    assert outside
    assert {one.id for one in account.omitted} == outside
    clean = twin.answers(set())
    for one in (*account.members, *account.omitted):
        part = Component.parse(one.id)
        assert one.effect == pytest.approx(costs[part], abs=1e-3)
        right, wrong = (clean - twin.answers({part})).mean(0).tolist()
        assert (one.effect_right, one.effect_wrong) == (
            pytest.approx(right, abs=1e-2),
            pytest.approx(wrong, abs=1e-2),
        )


@pytest.mark.slow
def test_a_set_that_is_chosen_grows_with_what_is_allowed(specimen: Specimen) -> None:
    """The whole circuit where one is found, else the strongest within the limit."""
    effects = {part: float(place) for place, part in enumerate(reversed(specimen.model.components))}
    small, large = (choose_set(specimen, effects, most=most, n=8) for most in (4, 21))
    assert (small.found, len(small.components)) == (False, 4)
    assert large.found
    assert 4 < len(large.components) < 21


def test_the_account_says_on_how_many_prompts_components_were_replaced_alone(account: Account) -> None:
    """Fewer than report the other figures, and every figure of it is a share of the range."""
    assert account.n_alone == ALONE < account.kept.n
    assert f"of the range or more alone, on {ALONE} prompts" in dict(account.lines())["left out"]
    titles = [part.title for part in account.sheets() if isinstance(part, Sheet)]
    assert titles
    assert all(title.endswith(f"alone, on {ALONE} prompts; effects are shares of the range") for title in titles)


def test_what_no_claim_was_made_about_is_listed(account: Account) -> None:
    described = account.described(["L0H3", "L2_MLP"])
    assert set(described.not_described) == {"L0H5", "L0_MLP", "L1_MLP", "L1H0"}
    lines = dict(described.lines())
    assert lines["in the set, not described"].startswith("4 of 6: ")
    assert account.described([one.id for one in account.members]).not_described == ()


def test_an_explanation_keeps_its_account_in_a_file(specimen: Specimen, account: Account) -> None:
    """What is computed of it, the answer, is not read back, but made again."""
    explanation = Explanation(
        specimen="arithmetic",
        behaviour=specimen.behaviour,
        scientist="builtin",
        components=(),
        information_flow="",
        task_description="Adds.",
        seconds=0.0,
        seed=0,
    )
    assert explanation.answer == {"verdict": "no", "text": "Adds."}
    whole = explanation.with_account(account)
    data = whole.as_data()
    assert data["answer"]["verdict"] in ("yes", "partly", "no")
    assert data["account"]["kept"] == account.kept.model_dump(mode="json", exclude={"baseline", "n_error"})
    assert Explanation.from_data(data) == whole
    assert [Effect.model_validate(one) for one in data["account"]["omitted"]] == list(account.omitted)

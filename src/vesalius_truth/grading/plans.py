"""How good a validation plan is, by experiment: would its programs have noticed a wrong hypothesis?

A plan was carried out, its programs gave an outcome, and the agent read the outcome as support. Here the same programs
run again where the hypothesis is wrong by construction. It is not the sentence that is changed but the model under it,
so that programs of any form can be tested:

    still      the component gives its mean output whatever the input
    swapped    another head of its layer stands in its place (attention heads)
    renamed    a token that the hypothesis quotes has changed places with one that it does not quote, and the
               component's output changes with that

and where it is as right as before:

    redrawn    the inputs that programs are handed are drawn anew
    alike      two tokens that the hypothesis does not quote have changed places, and all outputs stay the same

`still` and `swapped` are left out where the component's outputs hardly differ there from its own.

A plan that gives the outcome which was read as support also where the hypothesis is wrong showed a reader nothing to
refute it by. `plan_power` is the share of wrong hypotheses with another outcome, `plan_acceptance` that of right ones
with the same outcome. Outcomes are the same if every word and truth value is, no number of at most 1 in size (shares,
correlations) moved by more than a tenth, and no other number by more than half of what it was in the model itself.
Numbers in a text count as numbers. That is a convention: a reader may see more in an outcome, or less. A program that
fails there has neither refuted nor accepted (`plan_undecided`).

All programs of a trace run in one sandbox, which is handed weights, tokens and inputs as in an explanation. A world is
a few lines before the program that write the changed weights; nothing here reads the answer key.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.metric import Metric
from vesalius.documents.trace import Attempt, Trace
from vesalius.model.specimen import FiniteVocabulary, Specimen
from vesalius.model.transformer import Transformer
from vesalius_session import scope
from vesalius_session.session import Session

# Copies of a transformer whose weights were changed so that one thing about it is known to be different.


@torch.no_grad()
def component_output(
    model: Transformer, component: Component, tokens: Int[Tensor, "batch pos"], mask: Bool[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_model"]:
    """What a head or an MLP writes into the residual stream, a head without the bias that all share."""
    _, cache = model.run_with_cache(tokens, mask=mask)
    prefix = f"blocks.{component.layer}."
    if component.head is None:
        return cache[f"{prefix}hook_mlp_out"]
    return cache[f"{prefix}attn.hook_z"][:, :, component.head] @ model.blocks[component.layer].attn.W_O[component.head]


@torch.no_grad()
def with_constant(model: Transformer, component: Component, output: Float[Tensor, " d_model"]) -> Transformer:
    """The model with a head or an MLP that writes the same vector whatever it reads."""
    model = deepcopy(model)
    block = model.blocks[component.layer]
    if component.head is None:
        block.mlp.W_out.zero_()
        block.mlp.b_out.copy_(output)
    else:
        block.attn.W_O[component.head] = 0.0
        block.attn.b_O.add_(output)
    return model


@torch.no_grad()
def with_heads_swapped(model: Transformer, first: Component, second: Component) -> Transformer:
    """The model with two heads of a layer in each other's place; it computes what it computed. Heads that share keys
    and values cannot change places.
    """
    assert first.head is not None
    assert second.head is not None
    assert first.layer == second.layer
    model = deepcopy(model)
    attention, width = model.blocks[first.layer].attn, model.config.d_head
    order = torch.arange(model.config.n_heads)
    order[[first.head, second.head]] = order[[second.head, first.head]]
    places = (order[:, None] * width + torch.arange(width)).flatten()
    thirds = torch.cat([places + start for start in (0, *attention.ends[:2])])
    attention.qkv.copy_(attention.qkv[:, thirds].clone())
    attention.b_qkv.copy_(attention.b_qkv[thirds].clone())
    attention.output.copy_(attention.output[places].clone())
    return model


@torch.no_grad()
def with_tokens_swapped(model: Transformer, first: int, second: int) -> Transformer:
    """The model that takes each of two tokens, by their ids, for the other."""
    model = deepcopy(model)
    model.W_E[[first, second]] = model.W_E[[second, first]].clone()
    return model


World = Literal["still", "swapped", "renamed", "redrawn", "alike"]
Outcome = Literal["same", "changed", "failed"]
#: Inputs that outputs of a component are compared on, and their seed.
INPUTS, SEED = 128, 11_400_007
#: Of inputs with one of two tokens: a component's output depends on the names where exchanging them moves it by this
#: share of what independent inputs would, and does not depend where that is the second share at most.
DEPENDS, IGNORES = 0.25, 0.05
#: Outputs that are numbers and lie closer count as the same.
CLOSE = 0.05
#: Pairs of tokens that are tried for either.
MOST_PAIRS = 60
#: A number of an outcome has changed where it moved by more than this share of itself; one of at most 1 in size where
#: it moved by more than this.
SHARE, LEAST = 0.5, 0.1
#: Variance, as a share of the mean square, from which outputs differ from a constant by more than rounding.
VARIES = 1e-6
#: A number in a text that is no part of a name, and whether it is in per cent.
_NUMBER = re.compile(r"(?<![\w.])([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w]|\.\d)(\s?%)?")


class PlanTest(BaseModel):
    """What the programs of one plan gave in one world, beside what they gave in the model itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    component: str
    iteration: int
    world: World
    wrong: bool
    outcome: Outcome


class Planted(NamedTuple):
    """A world: its model, and what programs are handed as `inputs` where those differ."""

    world: World
    wrong: bool
    specimen: Specimen
    inputs: list[Any] | None = None


def try_plans(trace: Trace, specimen: Specimen, *, seed: int = 0, unsafe: bool = False) -> tuple[PlanTest, ...]:
    """Run the programs of every plan whose hypothesis an agent held to be supported by them, in every world.

    Plans by typed claims are left out: the engine decides those, with error rates that are known. `seed` is that of the
    explanation, `unsafe` runs programs even where they cannot be contained.
    """
    if not isinstance(specimen.vocabulary, FiniteVocabulary):
        return ()
    chosen = [
        (Component.parse(part.component), attempt)
        for part in trace.components
        for attempt in part.attempts
        if programs_of(attempt)
    ]
    if not chosen:
        return ()
    with Session.open(specimen, seed=seed, unsafe=unsafe) as session:
        return tuple(
            test for component, attempt in chosen for test in _tried(session, component, attempt, specimen, seed=seed)
        )


def programs_of(attempt: Attempt) -> list[str]:
    """The programs of a plan whose outcome was read as support by the agent itself."""
    if attempt.verdict != "supported" or attempt.decided_by != "model":
        return []
    return [one.code for one in attempt.executions if one.stage == "validate" and one.succeeded]


def plan_metrics(circuits: Iterable[Sequence[PlanTest]]) -> dict[str, Metric]:
    """`plan_power`, `plan_acceptance` and `plan_undecided` over circuits, with intervals; absent where nothing ran."""
    tested = list(circuits)
    metrics: dict[str, Metric] = {}
    figures: tuple[tuple[str, tuple[bool, ...], Outcome], ...] = (
        ("plan_power", (True,), "changed"),
        ("plan_acceptance", (False,), "same"),
        ("plan_undecided", (True, False), "failed"),
    )
    for name, wrong, told in figures:
        rows = [[one.outcome == told for one in each if one.wrong in wrong] for each in tested]
        if any(rows):
            metrics[name] = Metric.of_circuits([float(sum(row)) for row in rows], [len(row) for row in rows])
    return metrics


def _tried(
    session: Session, component: Component, attempt: Attempt, specimen: Specimen, *, seed: int
) -> Iterator[PlanTest]:
    """The tests of one plan; none where its programs do not run again in the model itself."""
    programs = programs_of(attempt)
    before = _outcomes(session, programs, "")
    if before is None:
        return
    for planted in planted_worlds(specimen, component, attempt.hypothesis, seed=seed):
        after = _outcomes(session, programs, _lines(planted, specimen.model))
        outcome: Outcome = "failed" if after is None else "same" if same_outcome(before, after) else "changed"
        yield PlanTest(
            component=str(component),
            iteration=attempt.iteration,
            world=planted.world,
            wrong=planted.wrong,
            outcome=outcome,
        )


def _outcomes(session: Session, programs: list[str], lines: str) -> list[Any] | None:
    """What programs give after these lines; None where one fails."""
    given = [session.workspace.execute(lines + code) for code in programs]
    return None if any(one.error is not None for one in given) else [one.result for one in given]


def _lines(planted: Planted, model: Transformer) -> str:
    """The lines that turn the sandbox's model and inputs into those of a world."""
    before = dict(model.named_parameters())
    changed = {
        name: value.tolist()
        for name, value in planted.specimen.model.named_parameters()
        if not torch.equal(value, before[name])
    }
    write = "model.get_parameter(_name).data.copy_(__import__('torch').tensor(_value))"
    lines = [f"for _name, _value in {changed!r}.items(): {write}"]
    if planted.inputs is not None:
        lines.append(f"inputs[:] = {planted.inputs!r}")
    return "\n".join([*lines, ""])


def same_outcome(before: Any, after: Any) -> bool:
    """Whether a reader of the first outcome would find the second one to say the same, by the rule of the module."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(same_outcome(before[name], after[name]) for name in before)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(same_outcome, before, after))
    if isinstance(before, str) and isinstance(after, str):
        (words, numbers), (other_words, other_numbers) = _taken_apart(before), _taken_apart(after)
        return words == other_words and all(map(same_outcome, numbers, other_numbers))
    if before == after:
        return True
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in (before, after)):
        return False
    if math.isnan(before) and math.isnan(after):
        return True
    return abs(before - after) <= (LEAST if abs(before) <= 1 else SHARE * abs(before))


def _taken_apart(text: str) -> tuple[list[str], list[float]]:
    """What stands between the numbers of a text, and the numbers, those in per cent as shares."""
    found = list(_NUMBER.finditer(text))
    numbers = [float(one[1]) / (100 if one[2] else 1) for one in found]
    return _NUMBER.sub("\0", text).split("\0"), numbers


# Worlds: copies of a specimen in which a hypothesis about one component is wrong, or as right as before.


def planted_worlds(specimen: Specimen, component: Component, hypothesis: str, *, seed: int = 0) -> list[Planted]:
    """The worlds that can be made for a hypothesis about a component; `seed` is the one that
    inputs for programs were drawn with."""
    worlds = [Planted("still", True, _with_model(specimen, stilled(specimen, component)))]
    if component.is_head and (other := _other_head(specimen, component)) is not None:
        worlds.append(
            Planted("swapped", True, _with_model(specimen, with_heads_swapped(specimen.model, component, other)))
        )
    worlds = [world for world in worlds if _differs(world.specimen, specimen, component)]
    worlds += _renamed(specimen, component, hypothesis)
    inputs = specimen.sample(scope.INPUTS, scope.INPUTS_SEED + seed + 1)
    return [*worlds, Planted("redrawn", False, specimen, inputs)]


def stilled(specimen: Specimen, component: Component) -> Transformer:
    """The model with a component that always gives its mean output."""
    return with_constant(
        specimen.model, component, outputs_of(specimen, component, specimen.sample(INPUTS, SEED)).mean(0)
    )


def _differs(changed: Specimen, specimen: Specimen, component: Component) -> bool:
    """Whether a component's outputs differ, up to a constant, by a share of what those of independent inputs would."""
    inputs = specimen.sample(INPUTS, SEED)
    own = outputs_of(specimen, component, inputs)
    change = _variance(outputs_of(changed, component, inputs) - own)
    return change > max(2 * DEPENDS * _variance(own), VARIES * float(own.square().sum(-1).mean()))


def _variance(outputs: Tensor) -> float:
    return float((outputs - outputs.mean(0)).square().sum(-1).mean())


def outputs_of(specimen: Specimen, component: Component, inputs: Sequence[Any]) -> Tensor:
    """What a component writes at every real position after BOS of inputs: `[positions, d_model]`."""
    tokens, lengths = specimen.tokenize(inputs), specimen.vocabulary.lengths(inputs)
    real = torch.arange(tokens.shape[1])[None] < torch.tensor(lengths)[:, None] + 1
    written = component_output(specimen.model, component, tokens, real)
    real[:, 0] = False
    return written[real]


def _other_head(specimen: Specimen, component: Component) -> Component | None:
    """A head of the same layer, outside the circuit where there is one; None where heads cannot change places."""
    config = specimen.model.config
    if config.n_kv_heads != config.n_heads:
        return None
    others = [Component(component.layer, head) for head in range(config.n_heads) if head != component.head]
    return min(others, key=lambda one: (one in specimen.components, one.head), default=None)


def _renamed(specimen: Specimen, component: Component, hypothesis: str) -> Iterator[Planted]:
    """Where one token takes another's place: the pair that the component tells apart best, of which one is quoted, and
    the pair of others that it and the outputs tell apart least.
    """
    vocabulary = specimen.vocabulary
    assert isinstance(vocabulary, FiniteVocabulary)
    tokens = vocabulary.tokens
    quoted = {place for place, token in enumerate(tokens) if _quotes(hypothesis, str(token))}
    inputs = specimen.sample(INPUTS, SEED)
    own = outputs_of(specimen, component, inputs)
    spread = 2 * _variance(own)
    moved: dict[bool, list[tuple[float, Specimen]]] = {True: [], False: []}
    for pair in combinations(range(len(tokens)), 2):
        wrong = len(quoted & set(pair)) == 1
        having = [row for row in inputs if tokens[pair[0]] in row or tokens[pair[1]] in row]
        if (not wrong and quoted & set(pair)) or not having or len(moved[wrong]) == MOST_PAIRS:
            continue
        other = _with_model(specimen, with_tokens_swapped(specimen.model, *pair))
        change = outputs_of(other, component, having) - outputs_of(specimen, component, having)
        moved[wrong].append((float(change.square().sum(-1).mean()) / spread if spread else 0.0, other))
    told, blind = max(moved[True], key=_first, default=None), min(moved[False], key=_first, default=None)
    if told is not None and told[0] >= DEPENDS:
        yield Planted("renamed", True, told[1])
    if blind is not None and blind[0] <= IGNORES and _answers_alike(blind[1], specimen, inputs):
        yield Planted("alike", False, blind[1])


def _answers_alike(first: Specimen, second: Specimen, inputs: Sequence[Any]) -> bool:
    """Whether two specimens give the same outputs; numbers may differ by less than programs are told counts as same."""
    answers = [[value for row in one.predict(inputs) for value in row] for one in (first, second)]
    return all(
        abs(a - b) < CLOSE if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(*answers, strict=True)
    )


def _quotes(hypothesis: str, token: str) -> bool:
    return re.search(rf"['\"‘“`]{re.escape(token)}['\"’”`]", hypothesis) is not None


def _first(pair: tuple[float, Specimen]) -> float:
    return pair[0]


def _with_model(specimen: Specimen, model: Transformer) -> Specimen:
    return replace(specimen, model=model)

"""What claims about natural models share: the instruments on a laboratory's prompts, controls, bars and verdicts."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar
from weakref import WeakKeyDictionary

from jaxtyping import Float
from torch import Tensor

from vesalius.components import Component
from vesalius.documents.explanation import Evidence, Verdict
from vesalius.errors import BadInput
from vesalius.explanations.claims import Lab
from vesalius.explanations.claims.ablation import MIN_EFFECT
from vesalius.explanations.claims.base import (
    Outcome,
    above,
    all_of,
    exceeds,
    join_names,
    mean_and_interval,
    mean_evidence,
    rounded,
)
from vesalius.explanations.natural.instruments import Instruments
from vesalius.explanations.natural.pool import Pool
from vesalius.model.specimen import TextVocabulary

#: Matched components that are looked at, and how many of them serve as controls: one that is strong itself does not.
CANDIDATES, CONTROLS = 6, 2
PerPrompt = Float[Tensor, " prompt"]
#: What is lost in score, and in right answers.
Losses = tuple[PerPrompt, PerPrompt]
Values = TypeVar("Values", Tensor, tuple[Tensor, Tensor])
LOSSES = ("effect", "right answers lost")
_INSTRUMENTS: WeakKeyDictionary[Lab, Instruments] = WeakKeyDictionary()


def instruments_of(lab: Lab, pool: Pool | None = None) -> Instruments:
    """The instruments on the laboratory's own prompts; made once for each. `pool` gives those prompts, already run."""
    if lab.finite:
        raise BadInput(f"claims about roles need a natural model with a behaviour, not {lab.specimen.name!r}")
    if lab not in _INSTRUMENTS:
        vocabulary = lab.specimen.vocabulary
        assert isinstance(vocabulary, TextVocabulary)
        own = Pool.draw(lab.specimen, lab.n, seed=lab.seed, split="test") if pool is None else pool
        readings = lab.readings if lab.reads_answers else None
        _INSTRUMENTS[lab] = Instruments(own, piece=vocabulary.tokenizer.piece, readings=readings)
    return _INSTRUMENTS[lab]


def given(suppressed: Sequence[str]) -> str:
    """The condition of a claim, as the end of its sentence."""
    return f" once {join_names(suppressed)} {'is' if len(suppressed) == 1 else 'are'} zeroed" if suppressed else ""


def parts_of(names: Sequence[str]) -> list[Component]:
    """Components from their names."""
    return [Component.parse(name) for name in names]


def weak_controls(
    lab: Lab, matched: Sequence[Component], measure: Callable[[list[Component]], Sequence[Values]]
) -> dict[Component, Values]:
    """The first matched components that are not strong themselves: no interval lies above the least that counts, by any
    measure. Only as many are measured as are needed.
    """
    weak: dict[Component, Values] = {}
    for start in range(0, len(matched), CONTROLS):
        some = list(matched[start : start + CONTROLS])
        for part, values in zip(some, measure(some), strict=True):
            measures = values if isinstance(values, tuple) else (values,)
            strong = any(mean_and_interval(one, 0.95, seed=lab.seed)[1] > MIN_EFFECT for one in measures)
            if len(weak) < CONTROLS and not strong:
                weak[part] = values
        if len(weak) == CONTROLS:
            break
    return weak


def bar_of(least: float, controls: Mapping[str, float | None]) -> tuple[float, str]:
    """What an effect must exceed, the least that counts or the strongest control, and the rule as evidence shows it."""
    bar = max([least, *(value or 0.0 for value in controls.values())])
    return bar, f"interval above {bar:.3f} ({'the least that counts' if bar == least else 'the strongest control'})"


def below(evidence: Evidence, bar: float) -> Verdict:
    """Supported if the whole interval lies below the bar, refuted if none of it does."""
    if evidence.low is None or evidence.high is None:
        return "untested"
    return "supported" if evidence.high < bar else "refuted" if evidence.low >= bar else "untested"


def either(
    lab: Lab,
    experiment: str,
    values: Losses,
    controls: Callable[[], Mapping[str, Losses]],
    *,
    least: float,
    level: float,
    measures: tuple[str, str] = LOSSES,
    before: tuple[Evidence, ...] = (),
) -> Outcome:
    """A loss shown by the score or by right answers, each at half the error; `before` must hold as well. `controls`
    are measured where one of the two exceeds the least that counts.
    """
    evidence, verdicts, half = [], [], 1 - (1 - level) / 2
    shows = any(exceeds(one, least, level=half, seed=lab.seed) for one in values)
    others = controls() if shows else {}
    for place, measure in enumerate(measures):
        reached = {name: rounded(pair[place].mean()) for name, pair in others.items()}
        bar, rule = bar_of(least, reached)
        one = mean_evidence(
            lab,
            experiment,
            measure=measure,
            values=values[place],
            level=half,
            rule=f"{rule}; one of the two decides",
            bar=bar,
            controls=reached,
        )
        evidence.append(one)
        verdicts.append(above(one, bar))
    shown: Verdict = (
        "supported" if "supported" in verdicts else "refuted" if set(verdicts) == {"refuted"} else "untested"
    )
    marks: dict[bool | None, Verdict] = {True: "supported", False: "refuted", None: "untested"}
    needed: list[Verdict] = [marks[one.passed] for one in before]
    return all_of(shown, *needed), (*before, *evidence)

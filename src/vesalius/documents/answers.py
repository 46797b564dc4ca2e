"""The rules that say Yes, Partly or No of figures that were measured: one rule for each question, their limits here.

A rule reads figures and their intervals only, so that every face of a result gives the same first line. The rules of a
circuit and of an explanation are those of `documents/whole.py`.
"""

from collections.abc import Sequence
from math import inf, sqrt

from vesalius.documents.claims import Evidence
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Contrast
from vesalius.documents.view import Answer, prompts
from vesalius.documents.whole import KEEP_LISTED, MORE, as_good_as_random, not_as_asked, shows_nothing, too_few

#: The chance that any of the effects of a sweep is called one by mistake.
ERROR = 0.05
#: Half the width of a 95 % interval in standard errors.
HALF_WIDTH = 1.959964
#: Effects that the sentence names.
NAMED = 3
#: From this share of heads on, the standard names describe a model's heads.
MOST_NAMED = 0.5

#: A component with its effect and the ends of its interval, which one prompt does not have.
Effect = tuple[str, float, float | None, float | None]


def beyond_chance(effects: Sequence[Effect], n: int) -> list[Effect]:
    """The effects that chance does not explain: beyond the quantile of Student's t at `ERROR`, shared out over all of
    them (Bonferroni). The standard error is read from the interval, which is wider than that of a normal
    distribution where prompts are few: then fewer pass. Of effects that are strongly skewed over the prompts, more do.
    None passes where the sign test cannot: scores in shares of outputs are often equal on a few prompts, and their
    interval then has no width.
    """
    from scipy.special import stdtrit

    if not effects or not one_sign_decides(n):
        return []
    limit = float(stdtrit(n - 1, 1 - ERROR / 2 / len(effects)))
    resampled = sqrt(n / (n - 1))  # a resampled mean varies that much less than the mean of a sample
    return [one for one in effects if _ratio(*one[1:]) > limit * resampled]


def one_sign_decides(n: int) -> bool:
    """Whether `n` prompts that all move one way are beyond chance, by the sign test: six are."""
    return 2.0 ** (1 - n) <= ERROR


def _ratio(effect: float, low: float | None, high: float | None) -> float:
    """An effect in standard errors; 0 without an interval."""
    if not effect or low is None or high is None:
        return 0.0
    return abs(effect) / (high - low) * 2 * HALF_WIDTH if high > low else inf


def effects_answer(
    effects: Sequence[Effect],
    subject: str,
    *,
    kind: str,
    n: int,
    what: str = "component",
    contrast: Contrast | None = None,
) -> Answer:
    """Which of many replacements, each made alone, change the score."""
    count = len(effects)
    of, on = f"of {count:,} {what}{'' if count == 1 else 's'}", f"({kind} ablation, {prompts(n)} of {subject})"
    clear = [one for one in effects if one[2] is not None and one[3] is not None and (one[2] > 0 or one[3] < 0)]
    if contrast is not None and not contrast.usable:
        return Answer(f"nothing can be said of {subject}: {contrast.doubt}", "no")
    if n < 2:
        return Answer(
            f"one prompt of {subject} gives no intervals ({kind} ablation); largest: {_named(effects)}", "partly"
        )
    if sure := beyond_chance(effects, n):
        change = "changes" if len(sure) == 1 else "change"
        return Answer(f"{len(sure):,} {of} {change} the score beyond chance {on}: {_named(sure)}", "yes")
    if clear:
        chance = f"{ERROR * count:.0f} would by chance" if ERROR * count >= 1 else "one may by chance"
        have = "has" if len(clear) == 1 else "have"
        return Answer(
            f"{len(clear)} {of} {have} an effect whose interval is clear of 0 {on}, but {chance}, and none is beyond "
            f"it: {_named(clear)}",
            "partly",
        )
    return Answer(f"none {of} changes the score beyond chance {on}; largest: {_named(effects)}", "no")


def _named(effects: Sequence[Effect]) -> str:
    strongest = sorted(effects, key=lambda one: -abs(one[1]))[:NAMED]
    parts = [effect_text(*one) for one in strongest if one[1]]
    return (", ".join(parts) or "all are 0") + (", ..." if len(effects) > NAMED and parts else "")


def effect_text(name: str, effect: float, low: float | None, high: float | None) -> str:
    """An effect as text, with its interval where it has one."""
    return f"{name} {effect:+.3g}" + ("" if low is None or high is None else f" [{low:+.3g}, {high:+.3g}]")


def replaced_answer(
    effect: Metric, before_and_after: str, subject: str, *, acts: str | None, contrast: Contrast | None
) -> Answer:
    """Whether one replacement changes the score; `acts` is which logits it moves, where that is clear."""
    figures = f"{before_and_after}, effect {effect.figures}"
    if effect.value is None or effect.low is None or effect.high is None:
        return Answer(
            f"replacing {subject} takes one prompt's score from {figures}; one prompt has no interval", "partly"
        )
    on = f"on {prompts(effect.n)}"
    if contrast is not None and not contrast.usable:
        return Answer(f"replacing {subject} takes the score from {figures} {on}, but {contrast.doubt}", "no")
    moved = f"; what is replaced {acts}" if acts else ""
    if effect.low <= 0 <= effect.high:
        return Answer(f"replacing {subject} shows no change, {figures} {on}{moved}", "no")
    change = "lowers" if effect.value > 0 else "raises"
    said = f"replacing {subject} {change} the score, {figures} {on}{moved}"
    if not one_sign_decides(effect.n):
        return Answer(f"{said}, but so few may agree by chance: {MORE}", "partly")
    return Answer(said, "yes")


def completion_answer(done: str, texts: str, divergence: float, control: Sequence[float], *, changed: bool) -> Answer:
    """Whether an intervention changes what a model writes after one prompt: Yes where the text changes and the next
    token moves further than under every random direction of the same length, Partly without such a comparison.
    """
    moved = f"KL of the next token {divergence:.3g} nats"
    if not changed:
        return Answer(f"{done} leaves what follows as it is, {texts}; {moved}", "no")
    said = f"{done} changes what follows, {texts}; {moved}"
    if not control:
        return Answer(f"{said}; one prompt has no interval", "partly")
    as_far = sum(one >= divergence for one in control)
    against = f"{as_far} of {len(control)} random directions of the same length move it as far"
    return Answer(f"{said}; {against}", "partly" if as_far else "yes")


def kept_answer(said: str, kept: Metric, *, keep: float, random: float | None, empty: str | None = None) -> Answer:
    """Whether a given set keeps a share of the behaviour: No where the contrast is `empty`, where the whole interval
    lies below the share and where it holds 0, Partly by the first condition that fails.
    """
    if kept.value is None:
        return Answer(said)
    if empty:
        return Answer(f"{said}, but {empty}", "no")
    if kept.value < keep and (kept.high is None or kept.high < keep):
        return Answer(f"{said}, less than {keep:g}", "no")
    if shows_nothing(kept):
        why = "that holds 0" if kept.low is not None else "that has no interval"
        return Answer(f"{said}, but {why}: {MORE} or another contrast", "no")
    doubt = too_few(kept) or not_as_asked(kept, keep)
    if doubt is None and random is not None and as_good_as_random(kept, random):
        doubt = f"as many at random keep {random:.2f}"
    return Answer(said, "yes") if doubt is None else Answer(f"{said}, but {doubt}", "partly")


def program_answer(said: str, agreement: Evidence | None, *, supported: int, components: int) -> Answer:
    """Whether a circuit is explained by a program that runs: Yes where it agrees with the model on fresh inputs and
    everything said of its components is supported, No where it does not agree or nothing is supported.
    """
    if not components:
        return Answer(said, "no")
    counted = f"supported: {supported} of {components} component{'s' * (components != 1)}"
    if agreement is None or agreement.value is None:
        return Answer(f"{said} No program was found that could be run; {counted}", "partly" if supported else "no")
    value, low, high = agreement.value, agreement.low, agreement.high
    figures = Metric(value=value, low=low, high=high, n=agreement.n).text(3, bars=(KEEP_LISTED,))
    text = f"{said} Its program agrees with the model on {figures} of {agreement.n:,} fresh inputs; {counted}"
    if not supported or (value if high is None else high) < KEEP_LISTED:
        return Answer(text, "no")
    return Answer(text, "yes" if supported == components and low is not None and low >= KEEP_LISTED else "partly")


def ranked_answer(said: str, *, empty: str | None, doubt: str) -> Answer:
    """What components with scores amount to where no circuit was searched among them: nothing where the contrast is
    `empty`, otherwise a part of the answer, for the reason in `doubt`.
    """
    return Answer(f"{said}, but {empty}", "no") if empty else Answer(f"{said}, but {doubt}", "partly")


def names_answer(said: str, named: int, heads: int, *, unmeasured: bool = False) -> Answer:
    """Whether standard names describe the heads of a model: Yes from half of them on, where everything that names
    follow from was measured; No where no head has one.
    """
    if not named:
        return Answer(said, "no")
    return Answer(said, "yes" if named >= MOST_NAMED * heads and not unmeasured else "partly")


def cells_answer(said: str, performed: int, cells: int) -> Answer:
    """Whether models perform behaviours: Yes where all do in every cell, No where none is known to."""
    return Answer(said, "yes" if cells and performed == cells else "partly" if performed else "no")


def groups_answer(said: str, n: int, *, groups: int, known: bool, complete: bool, empty: str | None) -> Answer:
    """Whether heads stand in for each other, where `groups` were confirmed by intervals that hold for all that was
    tested at once, on `n` other prompts: Partly where it is not `known` what they are to each other, and where so few
    prompts may agree by chance. A search that ended early showed nothing.
    """
    if empty:
        return Answer(f"nothing can be said: {empty}", "no")
    if not groups:
        return Answer(said if complete else f"{said} before the budget ended (--budget)", "no")
    if not one_sign_decides(n):
        return Answer(f"{said}, but so few may agree by chance: {MORE}", "partly")
    return Answer(said, "yes" if known else "partly")


def agreement_answer(said: str, agrees: bool | None, *, unreached: bool) -> Answer:
    """Whether a model computes what its authors' module does; Partly where no prompt reached a limit of the model.
    Where nothing was compared (`agrees` is None), nothing is known, and no rule decides.
    """
    if agrees is None:
        return Answer(said)
    return Answer(said, "no" if not agrees else "partly" if unreached else "yes")


#: From this share on, of pairs a place carries a variable, and of prompts an algorithm describes them.
CARRIED = 0.5


def alignment_answer(
    subject: str,
    algorithm: str,
    agreement: Metric,
    placed: Sequence[tuple[str, str | None, Metric]],
    given: Sequence[str] = (),
) -> Answer:
    """Whether the variables of an algorithm have places: each with where it is, or None, and its accuracy. Those that
    are `given`, at the embedding or the output, stand there whatever the model computes, and come last.
    """
    if agreement.value is None or agreement.value < CARRIED:
        return Answer(
            f"{algorithm} does not describe {subject}: it gives {agreement.text(bars=(CARRIED,))} of the answers", "no"
        )
    has = [f"{name} in {place} ({metric.text()})" for name, place, metric in placed if place is not None]
    lacks = [f"{name} (best {metric.text(bars=(CARRIED,))})" for name, place, metric in placed if place is None]
    ends = f"; by construction at the embedding or the output: {', '.join(given)}" if given else ""
    if has and lacks:
        return Answer(f"{subject} holds {'; '.join(has)}; no place carries {', '.join(lacks)}{ends}", "partly")
    if has:
        return Answer(f"{subject} holds {'; '.join(has)}{ends}", "yes")
    if lacks:
        return Answer(f"no place of {subject} carries {', '.join(lacks)}{ends}", "no")
    return Answer(f"no variable of {algorithm} has a place between the ends of {subject}{ends}", "partly")

"""Latents of sparse dictionaries in results: the smallest set of them that keeps a behaviour, and where each is active.

A set is a result by itself (`latents.json`), and stands in a discovery that was given dictionaries.
"""

from collections.abc import Iterator, Sequence

from vesalius.documents.answers import kept_answer
from vesalius.documents.base import FrozenList, Record
from vesalius.documents.circuit import Score
from vesalius.documents.metric import Metric
from vesalius.documents.view import Answer, Facts, Section, Sheet, Tokens, duration, join_first, prompts
from vesalius.documents.whole import bars


class Context(Record):
    """A passage of held-out text in which a latent is active, with its value at each token."""

    tokens: tuple[str, ...]
    values: tuple[float, ...]


class FeatureDetail(Record):
    """A latent, and where it is most active; the tokens whose logits its direction raises most."""

    id: str
    contexts: tuple[Context, ...]
    raises: tuple[str, ...] = ()


def passages(details: Sequence[FeatureDetail], title: str) -> Iterator[Section]:
    """Passages of held-out text in which latents are active, shaded by their values."""
    rows = [
        (f"{one.id} ({number})" if number > 1 else one.id, list(zip(said.tokens, said.values, strict=True)))
        for one in details
        for number, said in enumerate(one.contexts, 1)
    ]
    if rows:
        caption = "Passages of held-out text, shaded by the latent's value."
        yield Tokens(rows, title=title, caption=caption, pages_only=True)


class LatentSet(Record):
    """The smallest set found of latents, heads, MLPs without a dictionary and error terms (`L12.error`) that keeps the
    share `keep` of a behaviour, all other parts as on the counterfactual prompt.

    `components` are its parts with their attributions, means over `n` prompts, strongest first, out of `scored` parts
    that have one. `share_chosen` is the share on the prompts that they were chosen by, `share` the one on `n_held_out`
    others, with as many random parts as its baseline, `without_errors` that of the set without its error terms: what
    the dictionaries say by themselves. `details` say where the strongest latents are active, where that is known.
    """

    ABSENT_IF_DEFAULT = ("details",)

    components: FrozenList[Score]
    n: int
    n_held_out: int
    scored: int
    keep: float
    share_chosen: float
    share: Metric
    without_errors: Metric
    details: FrozenList[FeatureDetail] = ()
    unit: str
    forwards: float
    seconds: float

    @property
    def counts(self) -> dict[str, int]:
        """How many parts of each kind the set has."""
        kinds = [_kind(one.id) for one in self.components]
        return {kind: kinds.count(kind) for kind in ("latents", "heads", "MLPs", "error terms")}

    def said(self) -> str:
        """What is kept by how many parts, in words."""
        counted = ", ".join(f"{many} {kind}" for kind, many in self.counts.items() if many)
        without = self.without_errors.text(bars=(self.keep,))
        errors = f" ({without} without the error terms)" if self.counts["error terms"] else ""
        return f"{counted} keep {self.share.text(bars=bars(self.keep))} of the behaviour{errors}"

    def judged(self, empty: str | None) -> Answer:
        """Whether the set keeps its share on held-out prompts, more than as many parts at random, by what its latents
        say and not by what the dictionaries miss; `empty` says why there is nothing to keep, where that is so.
        """
        found = kept_answer(self.said(), self.share, keep=self.keep, random=self.share.baseline, empty=empty)
        if found.verdict in (None, "no"):
            return found
        if not self.counts["latents"]:
            return Answer(f"{self.said()}, but none of them is a latent", "no")
        rest, whole = self.without_errors, self.share.value
        if not self.counts["error terms"] or rest.value is None or whole is None:
            return found
        if rest.value < whole / 2:
            return Answer(f"{self.said()}: it rests on what the dictionaries miss", "no")
        if found.verdict == "yes" and rest.high is not None and rest.high < self.keep:
            return Answer(f"{self.said()}: less than {self.keep:g} by what the dictionaries say", "partly")
        return found

    def sections(self) -> Iterator[Section]:
        """How few parts keep how much, which they are, and where the strongest latents are active."""
        facts = [
            ("strongest", join_first([f"{one.id} {one.score:+.3g}" for one in self.components], 5)),
            ("parts", f"{len(self.components):,} of {self.scored:,} with an attribution"),
            ("held out", f"{self.share.figures} on {prompts(self.n_held_out)}; {self.share_chosen:.3f} where chosen"),
            ("as many at random", "–" if self.share.baseline is None else f"{self.share.baseline:.3f}"),
            ("without its error terms", self.without_errors.figures),
            ("cost", f"{self.forwards:.0f} passes of the prompts, {duration(self.seconds)}"),
        ]
        raised = {one.id: " ".join(map(repr, one.raises)) for one in self.details}
        yield Facts(facts)
        yield Sheet(
            ("part", "kind", "attribution", "its direction raises"),
            [(one.id, _kind(one.id), one.score, raised.get(one.id, "")) for one in self.components],
            title="The parts that are kept",
            caption=f"Attribution in {self.unit}: first order, mean over prompts.",
            signed=("attribution",),
        )
        yield from passages(self.details, "Where the strongest latents are active")


def _kind(name: str) -> str:
    """What a part is, by its name."""
    return (
        "error terms" if name.endswith(".error") else "MLPs" if "MLP" in name else "heads" if "H" in name else "latents"
    )

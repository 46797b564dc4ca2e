"""Circuits of single neurons and of latents of sparse dictionaries: `neurons.json`, `latents.json`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vesalius.components import Component
from vesalius.documents.answers import kept_answer
from vesalius.documents.base import Answered, FrozenList, Record, ResultDocument
from vesalius.documents.circuit import Score
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.view import (
    Answer,
    Chart,
    Facts,
    Section,
    Sheet,
    Tokens,
    View,
    duration,
    join_first,
    prompts,
    subject_of,
)
from vesalius.documents.whole import bars

NEURONS_FILE, NEURONS_PAGE = "neurons.json", "neurons.html"


class NeuronPoint(Record):
    """The share of the behaviour that `size` neurons keep on held-out prompts, with its 95 % interval (None on one
    prompt), and what as many neurons keep that were ranked by how much their replacement changes what they write
    (`magnitude`) or at random.
    """

    size: int
    share: float
    low: float | None
    high: float | None
    magnitude: float
    random: float


class NeuronDetail(Record):
    """What one of the strongest neurons does.

    `low` and `high` are the 95 % interval of its score over the prompts (None for one prompt). `raises` and `lowers`
    are the tokens whose logits its output direction moves most where its activation is positive; an expert has no fixed
    direction, and one number as an output has no tokens. `tokens` are the prompt on which it fires most, `activations`
    its activation at each of them (of an expert, the length of what it adds).
    """

    id: str
    score: float
    low: float | None
    high: float | None
    raises: tuple[str, ...]
    lowers: tuple[str, ...]
    tokens: tuple[str, ...]
    activations: tuple[float, ...]


class NeuronCircuit(Answered, ResultDocument, kind="neurons"):
    """The smallest set of neurons found that keeps the share `keep` of a behaviour, all other neurons resampled.

    `components` are the neurons with their scores, means over `n` prompts, strongest first, out
    of `n_neurons`. `share_chosen` is the share on the prompts that they were chosen by, `share` the one on held-out
    prompts, with random neurons of the same number as its baseline; `curve` has other sizes. `details` say more about
    the strongest. `unit` is what scores are measured in, `forwards` the cost in forward passes of all prompts.
    """

    FILE = NEURONS_FILE
    RANK = 40
    COMMAND = VERB = "neurons"
    REMEDY = "run `vesalius neurons` again"
    PAGE = NEURONS_PAGE
    ABSENT_IF_DEFAULT = ("performance", "directory")

    request: Request
    components: FrozenList[Score]
    n: int
    size: int
    n_neurons: int
    keep: float
    share_chosen: float
    share: Metric
    curve: tuple[NeuronPoint, ...]
    details: tuple[NeuronDetail, ...] = ()
    unit: str
    forwards: float
    seconds: float
    performance: Performance | None = None
    directory: str | None = None

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.request.specimen, self.request.behaviour)}, {self.request.method}"

    def view(self) -> View:
        """How many neurons are needed, where they are, and what the strongest do."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        request, on = self.request, f" on {prompts(self.n)}"
        facts = [
            ("scored by", f"{request.method}{on}, seed {request.seed}"),
            ("on the prompts they were chosen by", f"{self.share_chosen:.3f}"),
        ]
        if self.performance:
            facts += self.performance.facts()
        return View(
            f"{subject}: circuit of neurons",
            self.answered(),
            [
                Facts([("strongest", join_first([repr(one) for one in self.components], 5))]),
                Facts([*facts, ("cost", f"{self.forwards:.1f} forward-equivalents, {duration(self.seconds)}")]),
                self._chart(),
                Sheet(
                    ("size", "share", "low", "high", "magnitude", "random"),
                    [tuple(point.model_dump().values()) for point in self.curve],
                    title="Share kept by number of neurons",
                    caption="Share of the behaviour kept on held-out prompts while all other neurons take their values "
                    "on the counterfactual prompt; heads stay. Intervals are 95 %, over these prompts. Magnitude: "
                    "ranked by how much the replacement changes the activation, times the length of the output "
                    "weights.",
                ),
                self._layers(),
                *(self._strongest() if self.details else ()),
            ],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{NEURONS_PAGE}",
            note="neurons.json has these figures, circuit.json the neurons as nodes.",
        )

    def answered(self) -> Answer:
        """Whether they keep their share on held-out prompts, and what to do next."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        kept = self.share.text(3, bars=bars(self.keep))
        said = kept_answer(
            f"{self.size:,} of {self.n_neurons:,} neurons keep {kept} of {subject} on "
            f"{self.share.n} held-out prompts, all others resampled (chosen to keep {self.keep:g}; as many at random "
            f"keep {self.share.baseline or 0.0:.3f})",
            self.share,
            keep=self.keep,
            random=self.share.baseline,
            empty=self.performance.empty if self.performance else None,
        )
        if said.verdict == "yes":
            return replace(said, then=self.request.followed_by("explain"))
        if said.verdict is None or (self.performance and self.performance.empty):
            return replace(said, then=self.request.followed_by("behaviours") if self.request.behaviour else None)
        return replace(said, then=self.request.on_more_prompts(min(self.n, self.share.n)))

    def _chart(self) -> Chart:
        rankings = {"by score": "share", "most changed": "magnitude", "random": "random"}
        curves = {
            name: [
                (size / self.n_neurons, value, f"{size:,} kept ({size / self.n_neurons:.1%}): {value:.3f}")
                for size, value in ((0, 0.0), *((point.size, getattr(point, field)) for point in self.curve))
            ]
            for name, field in rankings.items()
        }
        return Chart(
            curves,
            x="share of neurons kept",
            y="faithfulness: share of the behaviour kept",
            title="How many neurons are needed",
        )

    def _layers(self) -> Sheet:
        """How many neurons of each layer are in the set, and their part of all magnitudes."""
        parts = [(Component.parse(row.id).layer, abs(row.score)) for row in self.components]
        count, total = Counter(layer for layer, _ in parts), sum(size for _, size in parts) or 1.0
        rows = [
            (layer, count[layer], sum(size for own, size in parts if own == layer) / total) for layer in sorted(count)
        ]
        return Sheet(
            ("layer", "neurons kept", "share of all score magnitudes"), rows, title="Where they are", terminal=0
        )

    def _strongest(self) -> tuple[Sheet, Tokens]:
        """The strongest neurons with the tokens that they write, and where they fire."""
        rows = [
            (one.id, one.score, one.low, one.high, *(" ".join(map(repr, some)) for some in (one.raises, one.lowers)))
            for one in self.details
        ]
        return (
            Sheet(
                ("neuron", f"score ({self.unit})", "low", "high", "raises", "lowers"),
                rows,
                title="The strongest",
                terminal=0,
                caption="Scores are means over the prompts that the neurons were chosen by, and so are their "
                "intervals; positive where the neuron helps. The tokens are those whose logits the neuron's output "
                "direction raises and lowers most where its activation is positive (where it is negative, the other "
                f"way round); what later layers make of it is not in them. Of {self.size:,} neurons the "
                f"{len(rows)} strongest are described.",
            ),
            Tokens(
                [(one.id, list(zip(one.tokens, one.activations, strict=True))) for one in self.details],
                title="Where they fire",
                caption="The prompt with the neuron's largest activation. The shade grows with the activation, blue "
                "where it is positive and red where it is negative; the number stands behind each token.",
            ),
        )


# Latents of sparse dictionaries in results: the smallest set of them that keeps a behaviour, and where each is active.
#
# A set is a result by itself (`latents.json`), and stands in a discovery that was given dictionaries.


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

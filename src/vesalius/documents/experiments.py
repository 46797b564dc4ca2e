"""Results of single experiments: a model on one prompt, components replaced, a prompt continued, a circuit alone, a
claim tested again.
"""

from dataclasses import replace
from typing import Any, Literal

from pydantic import computed_field

from vesalius.documents.answers import completion_answer, kept_answer, replaced_answer
from vesalius.documents.base import Answered, FrozenMap, Line, Record, ResultDocument
from vesalius.documents.claims import ClaimRecord, Claims
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Contrast
from vesalius.documents.request import Request
from vesalius.documents.sweep import SIDES
from vesalius.documents.view import Answer, Facts, Sheet, View, cut_text, join_first, prompts, subject_of
from vesalius.documents.whole import KEEP, bars, shows_nothing, too_few

WHAT_IF_FILE = "what_if.json"
#: Prompts that a terminal shows.
SHOWN = 8


class Likely(Record):
    """A token and its probability."""

    token: str
    probability: float


class WhatIfRow(Record):
    """One prompt: what the model says clean and edited, whether that has changed, and its scores. Natural models
    also have the likeliest next tokens of both.
    """

    ABSENT_IF_DEFAULT = ("clean_likely", "edited_likely")

    prompt: str
    clean: Any
    edited: Any
    clean_score: float
    edited_score: float
    changed: bool
    clean_likely: tuple[Likely, ...] = ()
    edited_likely: tuple[Likely, ...] = ()


class WhatIf(Answered, ResultDocument, kind="what_if"):
    """Components replaced together on some prompts: `effect` is the clean minus the edited score, `changed` the share
    of prompts whose output is another one. One prompt has no interval. `contrast` says whether replacing everything
    lowers the score, where values come from a behaviour's counterfactual prompts.

    Where the score compares a right with a wrong answer, `effect_right`, `effect_wrong` and `effect_rest` are clean
    minus edited of their logits and of the mean of all others, and `acts` says which of them is clear.
    """

    FILE = WHAT_IF_FILE
    RANK = 60
    COMMAND, VERB = "what-if", "what_if"
    REMEDY = "run `vesalius what-if` again"
    ABSENT_IF_DEFAULT = ("contrast", *(f"effect_{side}" for side in SIDES), "acts")

    request: Request
    unit: str
    clean: Metric
    edited: Metric
    effect: Metric
    changed: Metric
    rows: tuple[WhatIfRow, ...]
    forwards: float
    seconds: float
    contrast: Contrast | None = None
    effect_right: Metric | None = None
    effect_wrong: Metric | None = None
    effect_rest: Metric | None = None
    acts: str | None = None

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.request.specimen, self.request.behaviour)}, {'+'.join(self.request.components or ())}"

    def view(self) -> View:
        """The score before and after, then every prompt, those whose output changed first."""
        request, (subject, parts, how) = self.request, self._replaced()
        changed = [row for row in self.rows if row.changed]
        flips = [f"{cut_text(row.prompt, 40)!r}: {row.clean!r} -> {row.edited!r}" for row in changed]
        return View(
            f"{subject}: what if {parts} is replaced ({how})",
            self.answered(),
            [
                Facts([("outputs changed", f"{len(flips)} of {len(self.rows)}; {join_first(flips, 2) or 'none'}")]),
                Facts(
                    [
                        ("clean", f"{self.clean.figures} {self.unit}, {prompts(self.effect.n)}"),
                        ("edited", f"{self.edited.figures} {self.unit}"),
                        ("effect (clean minus edited)", self.effect.figures),
                        *self._signed(),
                        *self.request.remarks(),
                        *([] if self.contrast is None else self.contrast.facts()),
                        *(self._likely() if len(self.rows) == 1 else ()),
                    ],
                ),
                Sheet(
                    ("prompt", "clean", "edited", "clean_score", "edited_score", "changed"),
                    [
                        (row.prompt, row.clean, row.edited, row.clean_score, row.edited_score, row.changed)
                        for row in sorted(self.rows, key=lambda row: not row.changed)
                    ],
                    title="Prompts, those whose output changed first",
                    terminal=SHOWN,
                ),
            ],
            command=request.command_line(),
        )

    def _replaced(self) -> tuple[str, str, str]:
        """Of what, what, and by which values at which place."""
        kind, at = (self.request.options.get(name) for name in ("kind", "at"))
        subject = subject_of(self.request.specimen, self.request.behaviour)
        return subject, join_first(self.request.components or (), 6), f"{kind}{f' at {at}' if at is not None else ''}"

    def answered(self) -> Answer:
        """Whether the replacement changes the score, and what to do next."""
        subject, parts, how = self._replaced()
        scores, what = f"{self.clean.figures} -> {self.edited.figures} {self.unit}", f"{parts} of {subject} ({how})"
        said = replaced_answer(self.effect, scores, what, acts=self.acts, contrast=self.contrast)
        if said.verdict == "yes":
            return replace(said, then=self.request.followed_by("explain"))
        if said.verdict == "partly":
            return replace(said, then=self.request.on_more_prompts(self.effect.n))
        usable = self.contrast is None or self.contrast.usable
        return replace(said, then=self.request.followed_by("sweep" if usable else "behaviours"))

    def _signed(self) -> list[tuple[str, str]]:
        """Which logits moved, where the score is a difference of two."""
        names = {"right": "of the answer's logit", "wrong": "of the wrong one's", "rest": "of the other logits, mean"}
        figures = {names[side]: getattr(self, f"effect_{side}") for side in SIDES}
        lines = [(name, metric.figures) for name, metric in figures.items() if metric is not None]
        return lines

    def _likely(self) -> list[tuple[str, str]]:
        """The likeliest next tokens before and after, where one prompt was asked about."""
        row = self.rows[0]
        sides = {"clean next": row.clean_likely, "edited next": row.edited_likely}
        return [
            (name, ", ".join(f"{one.token!r} {one.probability:.3f}" for one in tokens))
            for name, tokens in sides.items()
            if tokens
        ]


class Look(ResultDocument):
    """One prompt: its tokens (BOS included where the model has one), the output at every token, and, of a natural
    model, the likeliest next tokens.
    """

    specimen: str
    prompt: str
    tokens: tuple[str, ...]
    outputs: tuple[Any, ...]
    likely: tuple[Likely, ...] = ()

    def view(self) -> View:
        """The tokens, and what comes next."""
        after = ", ".join(f"{one.token!r} {one.probability:.3f}" for one in self.likely)
        said = join_first(map(repr, self.tokens), 12)
        return View(
            f"{self.specimen} on a prompt",
            Answer(f"{self.specimen} on {len(self.tokens)} tokens: {said}"),
            [Facts([("next", after)]), Sheet(("position", "token"), list(enumerate(self.tokens)))],
        )


class HeadAttention(Record):
    """The attention of one head: `pattern[query][key]`, rounded."""

    head: str
    pattern: tuple[tuple[float, ...], ...]


class AttentionLook(ResultDocument):
    """Where the heads of one layer look on one prompt."""

    specimen: str
    layer: int
    tokens: tuple[str, ...]
    heads: tuple[HeadAttention, ...]

    def view(self) -> View:
        """Every head's attention, query by query."""
        rows = [
            (one.head, self.tokens[q], self.tokens[k], row[k])
            for one in self.heads
            for q, row in enumerate(one.pattern)
            for k in range(q + 1)
        ]
        layer = f"layer {self.layer} of {self.specimen}"
        return View(
            f"Attention of {layer}",
            Answer(f"Attention of {len(self.heads)} heads of {layer}, {len(self.tokens)} tokens"),
            [Sheet(("head", "query", "key", "attention"), rows)],
        )


class LensLook(ResultDocument):
    """What components write at each position: the tokens whose logits gain most, and by how much (against the mean
    logit).
    """

    specimen: str
    tokens: tuple[str, ...]
    components: FrozenMap[str, tuple[tuple[tuple[str, float], ...], ...]]

    def view(self) -> View:
        """What each component adds to which tokens, position by position."""
        rows = [
            (name, self.tokens[at], ", ".join(f"{token!r} {gain:+.2f}" for token, gain in top))
            for name, places in self.components.items()
            for at, top in enumerate(places)
        ]
        named = join_first(self.components, 4)
        return View(
            f"Logit lens of {self.specimen}",
            Answer(f"Logit lens of {named} of {self.specimen} on {len(self.tokens)} tokens"),
            [Sheet(("component", "token", "gains"), rows)],
        )


FAITHFULNESS_FILE = "faithfulness.json"


class Faithfulness(Answered, ResultDocument, kind="faithfulness"):
    """The faithfulness of a circuit of `size` out of `candidates` components or edges: 0 with everything ablated
    (`ablated`, a mean score), 1 for the whole model (`full`).

    `random` is the mean of `random_circuits` circuits of the same size. `heads_only`: the circuit is one of heads, and
    the MLPs are kept throughout. `forwards` the cost in forward passes of all
    prompts.
    """

    FILE = FAITHFULNESS_FILE
    RANK = 70
    COMMAND = VERB = "faithfulness"
    REMEDY = "run `vesalius faithfulness` again"

    request: Request
    by: Literal["components", "edges"]
    size: int
    candidates: int
    heads_only: bool = False
    faithfulness: Metric
    random: Metric
    random_circuits: int
    unit: str
    score: float
    full: float
    ablated: float
    forwards: float
    seconds: float

    @property
    def keep(self) -> float:
        """The share that counts as kept, as it was asked for."""
        asked = self.request.options.get("keep")
        return float(asked) if isinstance(asked, int | float) else KEEP

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{subject_of(self.request.specimen, self.request.behaviour)}, {self.size} {self.by}"

    def view(self) -> View:
        """The figure of the circuit beside that of random ones, and the scores behind them."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        figures = {"circuit": self.faithfulness, "random circuits of its size": self.random}
        rows = [(name, self.size, one.value, one.low, one.high, one.n) for name, one in figures.items()]
        return View(
            f"{subject}: faithfulness of a circuit",
            self.answered(),
            [
                Facts(
                    [
                        (f"{self.random_circuits} random circuits of that size", self.random.figures),
                        (
                            "",
                            f"score {self.score:.4g} of the circuit, {self.full:.4g} of the model, {self.ablated:.4g} "
                            f"with everything ablated ({self.unit})",
                        ),
                    ]
                ),
                Sheet(("circuit", "size", "faithfulness", "low", "high", "n"), rows, terminal=0),
                Facts([("again", self.request.command_line())], terminal_only=True),
            ],
            command=self.request.command_line(),
        )

    def answered(self) -> Answer:
        """Whether the circuit keeps the behaviour, and what to do next."""
        subject = subject_of(self.request.specimen, self.request.behaviour)
        kept = self.faithfulness.text(3, bars=bars(self.keep))
        said = kept_answer(
            f"{self.size} of {self.candidates} {self.by} keep{'s' * (self.size == 1)} {kept} of {subject} on "
            f"{prompts(self.faithfulness.n)} (faithfulness)",
            self.faithfulness,
            keep=self.keep,
            random=self.random.value,
        )
        if said.verdict == "yes":
            named = None if self.request.components is None else ",".join(self.request.components)
            given = {"--components": named, "--circuit": self.request.circuit}
            options = [word for name, value in given.items() if value is not None for word in (name, value)]
            return replace(said, then=self.request.followed_by("explain", *options))
        below = self.faithfulness.high is not None and self.faithfulness.high < self.keep
        few = not below and (too_few(self.faithfulness) or shows_nothing(self.faithfulness))
        more = self.request.on_more_prompts(self.faithfulness.n) if few else None
        return replace(said, then=more or self.request.followed_by("discover"))


RETEST_FILE = "retest.json"


class Retest(ResultDocument, kind="retest"):
    """The claim numbered `claim` about a component, as the explanation has it (`before`, on inputs of `before_seed`)
    and as the same experiment decides it on inputs of the request's seed (`after`).
    """

    FILE = RETEST_FILE
    RANK = 75
    COMMAND = VERB = "retest"
    REMEDY = "run `vesalius retest` again"

    request: Request
    specimen: str
    behaviour: str | None = None
    component: str
    claim: int
    before: ClaimRecord
    before_seed: int
    after: ClaimRecord
    seconds: float

    @computed_field
    @property
    def same(self) -> bool:
        """Whether both verdicts are equal."""
        return self.before.verdict == self.after.verdict

    def listed(self) -> Line:
        """What a list of results says of it: the verdicts of both seeds."""
        title = f"{subject_of(self.specimen, self.behaviour)}, {self.component} {self.before.kind}"
        figures = f"seed {self.before_seed}: {self.before.verdict}, seed {self.request.seed}: {self.after.verdict}"
        return Line(title, figures, seconds=self.seconds)

    def view(self) -> View:
        """Both verdicts, and the evidence of each."""
        seed = self.request.seed
        names = ("experiment", "measure", "value", "low", "high", "n", "mark")
        sides = {self.before_seed: self.before, seed: self.after}
        rows = [(own, *(getattr(one, name) for name in names)) for own, side in sides.items() for one in side.evidence]
        verdicts = f"seed {self.before_seed}: {self.before.verdict}; seed {seed}: {self.after.verdict}"
        again = [Facts([("again", self.request.command_line())], terminal_only=True)] if self.request.specimen else []
        return View(
            f"{subject_of(self.specimen, self.behaviour)}: a claim about {self.component} tested again",
            Answer(
                f"the verdict {'holds' if self.same else 'does not hold'} on other inputs ({verdicts}): "
                f"{cut_text(self.before.text, 200)} ({self.before.kind})",
                "yes" if self.same else "no",
            ),
            [
                Sheet(("seed", *names), rows, title="Evidence"),
                Claims(self.component, (self.before,), title=f"Seed {self.before_seed}"),
                Claims(self.component, (self.after,), title=f"Seed {seed}"),
                *again,
            ],
            command=self.request.command_line() if self.request.specimen else None,
        )


# A prompt continued with and without interventions: `completion.json`.

COMPLETION_FILE = "completion.json"


class NextToken(Record):
    """A token that may follow the prompt, with its probability before and after the intervention."""

    token: str
    clean: float
    edited: float


class Completion(Answered, ResultDocument, kind="completion"):
    """One prompt and what the model writes after it, the likeliest token each time: as it is (`clean`) and under the
    interventions (`edited`).

    `next` are the likeliest first tokens of both, with their probabilities in both, `divergence` is KL(clean || edited)
    of that first token in nats. A steered prompt has `control`, the divergences of random directions of the same
    length at the same site, and `length`, the Euclidean length of what was added.
    """

    FILE = COMPLETION_FILE
    RANK = 62
    COMMAND, VERB = "complete", "complete"
    REMEDY = "run `vesalius complete` again"
    ABSENT_IF_DEFAULT = ("control", "length")

    request: Request
    prompt: str
    clean: str
    edited: str
    clean_tokens: tuple[str, ...]
    edited_tokens: tuple[str, ...]
    next: tuple[NextToken, ...]
    divergence: float
    control: tuple[float, ...] = ()
    length: float | None = None
    seconds: float

    @property
    def changed(self) -> str:
        """What was done to the model, in words."""
        options = self.request.options
        edits, steer = options.get("edits"), options.get("steer")
        steered = f"steering {steer} by {options.get('strength', 1.0):g}" if steer else ""
        return " and ".join(filter(None, (f"{options.get('kind')} at {edits}" if edits else "", steered)))

    def listed_as(self) -> str:
        """What it is a result of, as lists of results name it."""
        return f"{self.request.specimen}, {self.changed}"

    def view(self) -> View:
        """Both texts, then the next token before and after."""
        control = []
        if self.control:
            drawn = ", ".join(f"{one:.3g}" for one in sorted(self.control, reverse=True))
            control = [("the same of random directions of that length", drawn), ("length added", f"{self.length:.4g}")]
        return View(
            f"{self.request.specimen}: a prompt continued under {self.changed}",
            self.answered(),
            [
                Facts(
                    [
                        ("prompt", self.prompt),
                        ("clean", repr(self.clean)),
                        ("edited", repr(self.edited)),
                        ("KL of the next token, clean against edited", f"{self.divergence:.4g} nats"),
                        *control,
                        *self.request.remarks(),
                    ]
                ),
                Sheet(
                    ("token", "clean", "edited"),
                    [(repr(one.token), one.clean, one.edited) for one in self.next],
                    title="The next token: probabilities",
                    caption="The likeliest of both, one prompt: there is no interval.",
                ),
            ],
            command=self.request.command_line(),
        )

    def answered(self) -> Answer:
        """Whether the text changes, and whether a random direction would have done as much."""
        clean, edited = (repr(cut_text(text, 60)) for text in (self.clean, self.edited))
        said = completion_answer(
            f"{self.changed} of {self.request.specimen}",
            f"{clean} -> {edited}",
            self.divergence,
            self.control,
            changed=self.clean_tokens != self.edited_tokens,
        )
        return replace(said, then=self._stronger()) if said.verdict == "no" else said

    def _stronger(self) -> str | None:
        """The same with twice the strength, where a direction was added."""
        strength = self.request.options.get("strength", 1.0)
        if "steer" not in self.request.options or not isinstance(strength, int | float):
            return None
        return self.request.with_options(strength=2.0 * strength)

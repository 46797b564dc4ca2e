"""What this package writes: the tables of MechRL on one model (`mechrl-MODE.json`), and sets of heads (`sets.json`)."""

from collections.abc import Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, computed_field, model_validator

from vesalius.documents.answers import groups_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenList, FrozenMap, Record, ShownDocument
from vesalius.documents.circuit import Score
from vesalius.documents.metric import Figure
from vesalius.documents.performance import Performance
from vesalius.documents.request import PromptedDocument, Request
from vesalius.documents.view import Answer, Facts, Sheet, Text, View, join_first, join_names, made, prompts, subject_of

Mode = Literal["paper", "corrected"]
#: Steps after which the published preliminary version had collapsed.
COLLAPSED = 2_000


class Gap(Record):
    """Table 1: the best reward that a policy finds in an episode, the best there is, and the difference."""

    task: str
    held_out: bool
    method: str
    policy: Figure
    oracle: Figure
    gap: Figure


class InductionRank(Record):
    """Table 2: the rank of a canonical head of the first training task, in each seed's policy and by mean reward."""

    head: str
    method: str
    policy_ranks: tuple[float, ...]
    oracle_rank: float


class GroupOverlap(Record):
    """Table 3: how many of a category's `size` heads are among the ten most picked, for each seed.

    `members` are its heads in this model; None, and no overlap, where only path patching could identify them.
    """

    group: str
    size: int
    method: str
    overlap: tuple[float, ...]
    members: tuple[str, ...] | None = None


class PickedHead(Record):
    """A head and in how many episodes it was picked."""

    head: str
    count: int


class Picks(Record):
    """The ten heads that one policy picks most often on a training task, in order.

    `tied_with_last` is the number of heads beyond them that were picked as often as the last one: with it above 0,
    which is tenth is decided by the order of the model (published: by which was picked first), not by preference.
    """

    task: str
    method: str
    seed: int
    episodes: int
    heads: tuple[PickedHead, ...]
    tied_with_last: int


class Transfer(Record):
    """Table 4: the best reward found on a task that no policy was trained on."""

    task: str
    condition: str
    method: str
    found: Figure


class MethodRegret(Record):
    """Mean regret of one strategy at each budget, with a 95 % interval over seeds (none for one seed)."""

    method: str
    budgets: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None
    seeds: tuple[tuple[float, ...], ...]


class TaskRegret(Record):
    """Every strategy on one task; `oracle` is the mean best reward."""

    task: str
    unit: str
    episodes: int
    seeds: int
    oracle: float
    methods: tuple[MethodRegret, ...]


class PolicyVerdict(Record):
    """Whether the best learned policy beats the best other strategy (`rival`) at a budget, seed by seed."""

    task: str
    held_out: bool
    budget: float
    policy: str
    rival: str
    policy_regret: float
    rival_regret: float
    difference: Figure
    result: Literal["wins", "draw", "loses"]


class FirstPick(Record):
    """How undecided a policy is about its first pick, in nats, after so many steps of training."""

    step: int
    entropy: float


class MechrlStudy(ShownDocument, kind="mechrl"):
    """The published tables (`table1` to `table4`), the regret of every strategy by budget, and who wins where.

    `mode` says whether quirks of the publication are reproduced; `quirks` explains them. `control` is the ordinary text
    of the reward; `canonical` says where the heads of `table2` and `table3` come from; `picks` are the most picked
    heads. `batches` says whether episodes have fresh prompts or draw from a pool, `episode_picks` how long they are;
    `entropy` is how undecided each kind of policy is about its first pick while it learns. `curves` holds the learning
    curves of each kind of policy, one per seed; `numbers` and `pictures` say where the files are.
    """

    FILE = "mechrl-MODE.json"
    RANK = None
    SCHEMA = 1
    REMEDY = "run `vesalius bench mechrl` again"

    schema_version: Literal[1] = Field(default=1, alias="schema")
    benchmark: Literal["mechrl"] = "mechrl"
    request: Request
    specimen: str
    mode: Mode
    unit: str
    seeds: int
    steps: int
    episodes: int
    heads: int
    rows_per_episode: int
    training_tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    control: str = "factbook"
    canonical: FrozenMap[str, str] = Field(default_factory=FrozenDict)
    table1: tuple[Gap, ...]
    table2: tuple[InductionRank, ...]
    table3: tuple[GroupOverlap, ...]
    table4: tuple[Transfer, ...]
    picks: tuple[Picks, ...] = ()
    batches: Literal["fresh", "pooled"] = "pooled"
    episode_picks: int = 50
    entropy: FrozenMap[str, tuple[tuple[FirstPick, ...], ...]] = Field(default_factory=FrozenDict)
    regret: tuple[TaskRegret, ...]
    verdicts: tuple[PolicyVerdict, ...]
    curves: FrozenMap[str, tuple[tuple[FrozenMap[str, Any], ...], ...]]
    quirks: FrozenMap[str, str]
    numbers: str
    pictures: tuple[str, ...]

    def save(self, directory: Path | str) -> Path:
        """Write the document into a directory and return its path."""
        path = made(directory) / f"mechrl-{self.mode}.json"
        self.model_copy(update={"numbers": str(path)}).write(path)
        return path

    def conclusions(self) -> list[str]:
        """One line per task: at which budgets a learned policy wins, draws and loses, and against whom."""
        lines = []
        for task in dict.fromkeys(row.task for row in self.verdicts):
            rows = [row for row in self.verdicts if row.task == task]
            parts = []
            for result in ("wins", "draw", "loses"):
                at = [f"{row.budget:g} ({row.policy} / {row.rival})" for row in rows if row.result == result]
                parts += [f"{result} at {', '.join(at)}"] if at else []
            lines.append(f"{task}{' (held out)' if rows[0].held_out else ''}: RL {'; '.join(parts)}")
        return lines

    def view(self) -> View:
        """The tables of the paper, and what follows from them."""
        counts = {name: sum(row.result == name for row in self.verdicts) for name in ("wins", "draw", "loses")}
        results = ", ".join(f"{count} {name}" for name, count in counts.items()) if self.verdicts else "not compared"
        canonical = self.canonical
        return View(
            f"MechRL on {self.specimen}",
            Answer(
                f"MechRL on {self.specimen}, {self.mode}: {self.heads} heads, {self.seeds} seeds, {self.steps} steps"
            ),
            [
                Facts(
                    [
                        ("tasks", join_first([row.task for row in self.regret], 6)),
                        ("learned policies against searches", results),
                        ("an episode", f"{self.episode_picks} picks on {self.rows_per_episode} {self.batches} prompts"),
                    ]
                ),
                Sheet.of(
                    [
                        {"task": row.task, "method": method.method}
                        | {f"{b:g}": m for b, m in zip(method.budgets, method.mean, strict=True)}
                        for row in self.regret
                        for method in row.methods
                    ],
                    title="Regret against queries paid",
                ),
                Sheet(
                    ("task", "method", "policy", "oracle", "gap"),
                    [
                        (
                            f"{row.task} (held-out)" if row.held_out else row.task,
                            row.method,
                            *(_interval(getattr(row, name)) for name in ("policy", "oracle", "gap")),
                        )
                        for row in self.table1
                    ],
                    title="Table 1: best reward found and the best there is",
                ),
                Sheet(
                    ("head", "method", "policy rank (each seed)", "oracle rank"),
                    [
                        (row.head, row.method, self._ranks(row.policy_ranks), f"{row.oracle_rank:g}")
                        for row in self.table2
                    ],
                    title="Table 2: rank of the canonical heads",
                ),
                Sheet(
                    ("category", "heads", "method", "overlap (each seed)"),
                    [
                        (
                            row.group,
                            row.size,
                            row.method,
                            ", ".join(f"{part:.3g}" for part in row.overlap) or "not told by attention",
                        )
                        for row in self.table3
                    ],
                    title="Table 3: categories among the ten most picked heads",
                ),
                Sheet(
                    ("task", "method", "condition", "best reward found"),
                    [(row.task, row.method, row.condition, _interval(row.found)) for row in self.table4],
                    title="Table 4: transfer to tasks never trained on",
                ),
                Sheet(
                    ("task", "method", "seed", "heads", "tied with the last"),
                    [
                        (
                            row.task,
                            row.method,
                            row.seed,
                            ", ".join(f"{pick.head} {pick.count}/{row.episodes}" for pick in row.heads),
                            row.tied_with_last,
                        )
                        for row in self.picks
                    ],
                    title="Most picked heads (in how many episodes)",
                ),
                *self._collapse(),
                Text([f"{name.capitalize()}, heads: {source}" for name, source in canonical.items() if source]),
                Text([f"reward in {self.unit}; control text: {self.control}", *self.conclusions()]),
            ],
            files=[("numbers", str(self.numbers)), *(("picture", str(one)) for one in self.pictures)],
        )

    def first_picks(self) -> list[tuple[str, int, FirstPick, FirstPick]]:
        """Of every kind of policy and seed: how undecided it is about its first pick near 2,000 steps, where the paper
        saw a single environment collapse, and at the end of its training.
        """
        return [
            (name, seed, min(run, key=lambda point: abs(point.step - COLLAPSED)), run[-1])
            for name, runs in self.entropy.items()
            for seed, run in enumerate(runs, 1)
        ]

    def _collapse(self) -> list[Sheet]:
        if not self.entropy:
            return []
        rows = [
            (name, seed, early.step, early.entropy, last.step, last.entropy)
            for name, seed, early, last in self.first_picks()
        ]
        columns = ("policy", "seed", "step", "entropy", "last step", "entropy then")
        title = f"How undecided a policy is about its first pick (nats; any head alike: {log(self.heads):.2f})"
        return [Sheet(columns, rows, title=title)]

    def _ranks(self, ranks: Sequence[float]) -> str:
        beyond = self.heads if self.mode == "paper" else float("inf")
        return ", ".join("-" if rank > beyond else f"{rank:g}" for rank in ranks)


def _interval(figure: Figure) -> str:
    if figure.low is None:
        return f"{figure.value:.3f}"
    return f"{figure.value:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


# Heads that matter together and stand in for each other, as a file: `sets.json`.

SETS_FILE = "sets.json"
#: Groups that the first line names.
NAMED = 2


class MeasuredSet(Record):
    """The effect of ablating some heads together, with its 95 % interval over the prompts; `value` is the effect less
    the price of each head.
    """

    heads: tuple[str, ...]
    effect: float
    low: float
    high: float
    value: float


class HeadEffect(Record):
    """The effect of ablating one head, with its 95 % interval."""

    id: str
    effect: float
    low: float
    high: float


class Related(Record):
    """What some heads are to each other, on held-out prompts. `redundant`: together they cost more than the sum, and
    each of them acts alone or none does; `backup_of`: the `backups` act only once those that `acts` names are gone;
    `together`: they cost more than the sum, and who acts alone is `open`, or none was shown to stand in; `opposed`: the
    sum is low since one of them works against the answer. None where the synergy is not positive, and in old files.
    """

    ABSENT_IF_DEFAULT = ("relation", "acts", "backups", "open")

    heads: tuple[str, ...]
    relation: Literal["redundant", "backup_of", "together", "opposed"] | None = None
    acts: tuple[str, ...] = ()
    backups: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The relation as a phrase about the heads, which it names."""
        heads = join_names(self.heads)
        if self.relation == "redundant":
            return f"{heads} are mutually redundant ({'each acts' if self.acts else 'none acts'} alone)"
        if self.relation == "backup_of":
            backups = f"{'is a backup' if len(self.backups) == 1 else 'are backups'} of {join_names(self.acts)}"
            return f"{join_names(self.backups)} {backups}"
        if self.relation == "opposed":
            return f"{heads} only seem to stand in for each other: one of them works against the answer"
        alone = "" if not self.open else f" (whether {join_names(self.open)} {_act(self.open)} alone is open)"
        return f"{heads} matter together{alone}"


def _act(names: Sequence[str]) -> str:
    return "acts" if len(names) == 1 else "act"


class SetSynergy(Related):
    """The effect of a set beyond the sum of its single effects, with an interval that holds for all sets at once."""

    synergy: float
    low: float
    high: float
    verdict: Literal["backup", "series", "none"]


class BackupGroup(Related):
    """Heads that stand in for each other, on held-out prompts: the effect of all, of each alone, the surplus over their
    sum (`synergy`), and the sets inside the group that show it (`links`).
    """

    effect: float
    low: float
    high: float
    alone: tuple[HeadEffect, ...]
    sum_alone: float
    synergy: float
    links: tuple[SetSynergy, ...]


class HeadSets(Answered, PromptedDocument, kind="sets"):
    """What a search of sets of heads found, and what of it held on other prompts.

    `components` have the largest effect of ablating a head in addition to some other set, `sets` are the best that were
    measured, `backup_groups` those confirmed on held-out prompts, `tested` all that were tested there, `synergies` the
    pairs with one on the prompts of the search (only where all pairs were measured). `price` is what a head costs and
    `least_synergy` the smallest synergy that counts, in the metric's unit; `complete` is False where the budget ended
    first. `pool` are the heads that were searched, `budget` the sets that could be measured.
    """

    FILE = SETS_FILE
    RANK = 80
    SCHEMA = 1
    COMMAND, VERB = "sets", "discover_sets"
    REMEDY = "run `vesalius sets` again"
    ABSENT_IF_DEFAULT = ("directory", "picture")

    components: FrozenList[Score]
    sets: tuple[MeasuredSet, ...]
    backup_groups: tuple[BackupGroup, ...]
    tested: tuple[SetSynergy, ...]
    synergies: tuple[SetSynergy, ...]
    metrics: FrozenMap[str, int | float]
    unit: str
    price: float
    least_synergy: float
    complete: bool
    forwards: float
    seconds: float
    performance: Performance | None = None
    schema_version: Literal[1] = Field(default=1, alias="schema")
    pool: tuple[str, ...]
    budget: int
    directory: str | None = None
    picture: str | None = None

    @model_validator(mode="after")
    def _whole_numbers(self) -> Self:
        """Refuse options that are not numbers when a file is read, not when it is shown."""
        _ = self.n, self.least
        return self

    @computed_field
    @property
    def method(self) -> str:
        """Always `sets`."""
        return "sets"

    @computed_field
    @property
    def search(self) -> str:
        """How sets were chosen: growth, group, greedy, beam, prune, rl or pairs."""
        return str(self.request.options.get("search", "group"))

    @computed_field
    @property
    def kind(self) -> str:
        """What heads are replaced by: zero, mean, resample or value-bias."""
        return str(self.request.options.get("kind", "mean"))

    @computed_field
    @property
    def least(self) -> float:
        """The smallest synergy that counts, as a share of the clean score."""
        return float(str(self.request.options.get("least", 0.0)))

    def view(self) -> View:
        """Who stands in for whom, the best sets, and what the search cost."""
        best, metrics = self.sets[0] if self.sets else None, self.metrics
        subject = subject_of(self.specimen, self.behaviour)
        strongest = [("best set", f"{join_first(best.heads, 6)}, effect {best.effect:+.3g}")] if best else []
        spent = "" if self.complete else " (budget spent)"
        return View(
            f"{subject}: sets of heads, {self.kind} ablation",
            self.answered(),
            [
                Facts([*strongest, *self._opposed()]),
                *self._groups(),
                Sheet(
                    ("heads", "effect", "low", "high", "value"),
                    [("+".join(one.heads), one.effect, one.low, one.high, one.value) for one in self.sets],
                    title=f"Sets: effect in {self.unit}",
                    caption=f"clean {metrics['clean']:.3f} {self.unit}; effect = clean minus edited, value = effect "
                    f"less {self.price:.3g} per head",
                    signed=("effect", "value"),
                    terminal=5,
                ),
                Facts(
                    [
                        (
                            f"{self.search} search",
                            f"{metrics['queries']} of {self.budget} queries{spent}, {metrics['queries_to_confirm']} to "
                            f"confirm; all pairs: {metrics['all_pairs']}; {self.forwards:.1f} forward-equivalents, "
                            f"{self.seconds:.1f} s",
                        )
                    ]
                ),
            ],
            command=self.request.command_line(),
            files=[
                (name, str(place))
                for name, place in (("picture", self.picture), ("directory", self.directory))
                if place is not None
            ],
        )

    def answered(self) -> Answer:
        """Do heads stand in for each other? The groups by what they are to each other, and the command to run next."""
        subject, groups = subject_of(self.specimen, self.behaviour), self.backup_groups
        on = f"({self.kind} ablation, {prompts(self.n)} of {subject}, confirmed on others)"
        more = f"; {len(groups) - NAMED} more" if len(groups) > NAMED else ""
        said = "; ".join(group.said for group in groups[:NAMED]) + more
        empty = self.performance.empty if self.performance else None
        answer = groups_answer(
            f"{said or 'no heads were shown to stand in for each other'} {on}",
            self.n,
            groups=len(groups),
            known=any(group.relation in ("redundant", "backup_of") for group in groups),
            complete=self.complete,
            empty=empty,
        )
        if empty:
            return replace(answer, then=self.request.followed_by("behaviours"))
        if groups:
            return replace(answer, then=self.request.followed_by("explain", "--components", ",".join(groups[0].heads)))
        larger = None if self.complete else self.request.with_options(budget=2 * self.budget)
        return replace(answer, then=larger or self.request.on_more_prompts(self.n))

    def _opposed(self) -> list[tuple[str, str]]:
        """Sets that a head which works against the answer makes seem to stand in for each other."""
        opposed = ["+".join(one.heads) for one in self.tested if one.relation == "opposed"]
        return [("only seem to stand in", f"{join_first(opposed, 5)}: one works against the answer")] if opposed else []

    def _groups(self) -> list[Sheet]:
        if not self.backup_groups:
            return []
        columns = ("group", "what they are", "together", "low", "high", "alone", "sum alone", "synergy")
        rows = [
            (
                "+".join(group.heads),
                group.said,
                group.effect,
                group.low,
                group.high,
                " ".join(f"{member.effect:+.3f}" for member in group.alone),
                group.sum_alone,
                group.synergy,
            )
            for group in self.backup_groups
        ]
        links = [
            ("+".join(link.heads), link.said, link.synergy, link.low, link.high)
            for group in self.backup_groups
            for link in group.links
            if link.heads != group.heads
        ]
        inside = Sheet(
            ("heads", "what they are", "synergy", "low", "high"),
            links,
            title="Inside the groups",
            signed=("synergy",),
            pages_only=True,
        )
        signed = ("together", "sum alone", "synergy")
        groups = Sheet(columns, rows, title="Heads that stand in for each other", signed=signed)
        return [groups, *([inside] if links else [])]

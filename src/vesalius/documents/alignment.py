"""Variables of an algorithm aligned with places of a model, as a file: `alignment.json`."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from vesalius.documents.answers import alignment_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenMap, Record, ResultDocument
from vesalius.documents.difference import Compared, ComponentDifference
from vesalius.documents.metric import Metric
from vesalius.documents.request import Request
from vesalius.documents.view import Answer, Code, Facts, Grid, Group, Section, Sheet, Text, View, duration, title_of

ALIGNMENT_FILE, ALIGNMENT_PAGE = "alignment.json", "alignment.html"
NO_PLACE = "no place"
#: The places before the first layer and after the last, in words.
EMBEDDING, OUTPUT = "the embedding", "the output"
#: What a place does: more than half of the pairs come out as predicted; fewer, but more than with any control; neither.
Verdict = Literal["carries", "in part", "no"]
VERDICTS: tuple[Verdict, ...] = ("carries", "in part", "no")


class KindShare(Record):
    """One kind of sources: what is predicted of the output, and the share of pairs in which it comes out so."""

    kind: str
    predicted: Literal["changes", "stays"]
    share: Metric


class AlignedPlace(Record):
    """A variable at a place, on held-out pairs.

    `accuracy` is the share of pairs as predicted in the worst kind in which the output changes, `kept` in the worst
    kind in which it stays. `fitted` is the accuracy on the pairs that chose the place. `controls` are the same
    exchange with a source that does not differ, at another position, and for a subspace within random directions and
    directions trained on shuffled targets; `control` is the largest of them. `first_layer` to `last_layer` are the
    layers before which the residual stream there carries the variable, on the pairs that chose the place. `site` is the
    place as `what-if` and `sweep --sites` take it. `inputs` are the roles, of a place of several, at which the inputs
    of the variable stand each by itself: it carries these, and not the variable.
    """

    ABSENT_IF_DEFAULT = ("site", "directions", "how", "inputs", "first_layer", "last_layer")

    place: str
    site: str = ""
    words: str
    accuracy: Metric
    kept: Metric
    fitted: Metric
    control: Metric
    controls: FrozenMap[str, Metric]
    kinds: tuple[KindShare, ...]
    verdict: Verdict
    first_layer: int | None = None
    last_layer: int | None = None
    directions: int | None = None
    how: str | None = None
    inputs: FrozenMap[str, str] = Field(default_factory=FrozenDict)

    @property
    def carries(self) -> bool:
        """Whether it carries the variable, by rule."""
        return self.verdict == "carries"

    @property
    def given(self) -> bool:
        """Whether it is the embedding or the output: inputs stand in the one and answers in the other, whatever the
        model computes in between.
        """
        return self.place.startswith("resid0@") or f"{OUTPUT} " in self.words


class Carriers(Record):
    """What brings a variable to a place: these components' outputs there, exchanged together, alone (`share`), beside
    all components of the layers in which it arrives (`every`) and those without these (`others`), on held-out pairs.
    """

    place: str
    layers: tuple[int, int]
    components: tuple[str, ...]
    share: Metric
    every: Metric
    others: Metric


class AlignedVariable(Record):
    """One variable: its first place (None: no place carries it), with accuracy and control there, or those of the best
    place that was tried. `map` is the share as predicted at each role before each of the alignment's `layers`, on the
    pairs that choose places: the smaller of accuracy and kept.
    """

    name: str
    reads: tuple[str, ...] = ()
    place: str | None
    best: str
    accuracy: Metric
    control: Metric
    tried: int
    places: tuple[AlignedPlace, ...]
    carriers: tuple[Carriers, ...] = ()
    map: FrozenMap[str, tuple[float | None, ...]] = Field(default_factory=FrozenDict)

    @property
    def carried(self) -> list[AlignedPlace]:
        """The places that carry it, if only in part, whole ones, in order of layers."""
        whole = [one for one in self.places if one.verdict != "no" and one.directions is None]
        return sorted(whole, key=lambda one: (one.first_layer is None, one.first_layer or 0))

    @property
    def between(self) -> AlignedPlace | None:
        """The first place between the embedding and the output that carries it."""
        return next((one for one in self.places if one.carries and not one.given and one.directions is None), None)

    def path(self) -> str:
        """Where it is from layer to layer, and what brings it there."""
        bring = {one.place: one for one in self.carriers}
        parts = []
        for one in self.carried:
            if (by := bring.get(one.place)) is not None and by.components:
                parts.append(f"by {' + '.join(by.components)} ({by.share.text()}) to")
            part = "" if one.carries else " in part"
            parts.append(f"{_where(one)}{part} {one.accuracy.text()}")
        none = "" if self.place is not None else f"{NO_PLACE} carries it (best {self.accuracy.text()} at {self.best})"
        if (apart := next((one for one in self.places if one.inputs), None)) is not None:
            stand = ", ".join(f"{name} at {role}" for name, role in apart.inputs.items())
            none += f"; {apart.place} holds its inputs apart ({stand}), which is no place of what is computed from them"
        return "; ".join(filter(None, [none, " ".join(parts)]))


class RivalAt(Record):
    """Two algorithms at one place, on the pairs where their predictions differ: the share that comes out as each says.
    The rival's variable is the one that does best there.
    """

    place: str
    variable: str
    rival_variable: str
    ours: Metric
    theirs: Metric


class RivalAlgorithm(Record):
    """The algorithm that it was compared with, and the share of prompts whose answer it gives."""

    algorithm: str
    program: str
    agreement: Metric
    places: tuple[RivalAt, ...]


class Alignment(Answered, ResultDocument, kind="alignment"):
    """Where a model holds the variables of an algorithm.

    `agreement` is the share of held-out prompts that the model answers as the algorithm says. `kinds` say how sources
    differ from their bases, `layers` and `roles` which residual streams were tried. Places are chosen on `pairs`
    pairs and graded on `held_out` pairs of other templates and words; where the rows of a file are not divided into
    splits, `shared` prompts do both. Variables of one group of `alike` have the same predictions for every pair: no
    place tells them apart. Of the passes of one prompt (`forwards`), `search_forwards` follow the map.
    """

    FILE = ALIGNMENT_FILE
    RANK = 46
    COMMAND = VERB = "align"
    REMEDY = "run `vesalius align` again"
    PAGE = ALIGNMENT_PAGE
    ABSENT_IF_DEFAULT = ("directory", "against", "shared", "alike", "search_forwards")
    RECOGNISED_BY = ("algorithm", "agreement", "variables")

    request: Request
    algorithm: str
    program: str
    agreement: Metric
    variables: tuple[AlignedVariable, ...]
    kinds: FrozenMap[str, str]
    roles: tuple[str, ...]
    layers: tuple[int, ...]
    pairs: int
    held_out: int
    shared: int = 0
    alike: tuple[tuple[str, ...], ...] = ()
    against: RivalAlgorithm | None = None
    notes: tuple[str, ...] = ()
    forwards: float
    search_forwards: float = 0.0
    seconds: float
    directory: str | None = None

    def variable(self, name: str) -> AlignedVariable:
        """One variable by name."""
        return next(one for one in self.variables if one.name == name)

    def compared(self, other: "Alignment") -> Compared:
        """How another alignment differs: variables with another place there."""
        ours, theirs = ({one.name: one.place or NO_PLACE for one in each.variables} for each in (self, other))
        names = list(dict.fromkeys([*ours, *theirs]))
        moved = [
            ComponentDifference(component=name, what="place", a=ours.get(name), b=theirs.get(name))
            for name in names
            if ours.get(name) != theirs.get(name)
        ]
        return Compared(
            components_moved=moved,
            components_same=len(names) - len(moved),
            rule="a variable has another place, or none",
        )

    def answered(self) -> Answer:
        """Whether the variables have places between the embedding and the output, and which."""
        found = [
            (self._named(one), None if (at := one.between) is None else at.words, (at or one).accuracy)
            for one in self.variables
            if (one.between is not None or one.place is None) and one.name not in self._said_before
        ]
        given = [
            self._named(one)
            for one in self.variables
            if one.between is None and one.place is not None and one.name not in self._said_before
        ]
        return alignment_answer(self._subject(), self.algorithm, self.agreement, found, given)

    def _named(self, variable: AlignedVariable) -> str:
        """A variable with those that no source separates from it."""
        group = next((names for names in self.alike if variable.name in names), ())
        return f"{' or '.join(group)} (no source separates them)" if group else variable.name

    @property
    def _said_before(self) -> set[str]:
        """Of variables that no source separates all but the first."""
        return {name for group in self.alike for name in group[1:]}

    def _subject(self) -> str:
        return f"{self.request.specimen}, {title_of(self.request.behaviour or '')}"

    def view(self) -> View:
        """The variables with their places, the path of each, maps, kinds, the rival and the program."""
        return View(
            f"{self._subject()}: {self.algorithm}",
            self.answered(),
            [
                Facts(self._facts()),
                self._sheet(),
                Text(
                    [f"{one.name}: {one.path()}." for one in self.variables],
                    bullets=True,
                    title="From place to place",
                    caption="Before which layers the residual stream carries a variable, and which components' "
                    "outputs, exchanged alone, bring it there (the share that they reach). Figures are of "
                    f"{self._of()}; the layers are those of the pairs that chose the places.",
                ),
                *self._maps(),
                *self._carriers(),
                *self._rival(),
                *self._details(),
                Sheet(
                    ("kind", "how the source differs from its base"),
                    list(self.kinds.items()),
                    title="Kinds of sources",
                    terminal=0,
                ),
                Code(self.program, title="The algorithm", terminal=0),
                *([Text(notes, title="Notes", quiet=True)] if (notes := [*self._not_separated(), *self.notes]) else []),
            ],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{ALIGNMENT_PAGE}",
            note="alignment.json has all figures; docs/how-to/align.md says what each is.",
        )

    def _not_separated(self) -> list[str]:
        return [
            f"No source separates {' and '.join(names)}: their predictions are the same, and so are their places."
            for names in self.alike
        ]

    def _facts(self) -> list[tuple[str, str]]:
        graded = "pairs of held-out templates and words"
        if self.shared:
            graded = f"pairs; {self.shared} of their prompts chose places too: give the rows a column `split`"
        after = f" ({self.search_forwards:.0f} after the map)" if self.search_forwards else ""
        return [
            ("algorithm", f"{self.algorithm}; it gives the model's answer on {self.agreement.text()} of the prompts"),
            ("places chosen on", f"{self.pairs} pairs; graded on {self.held_out} {graded}"),
            ("cost", f"{self.forwards:.0f} forward passes of one prompt{after}, {duration(self.seconds)}"),
        ]

    def _of(self) -> str:
        """The pairs that places are graded on: held out only where no prompt chose them too."""
        return "the pairs that grade" if self.shared else "held-out pairs"

    def _sheet(self) -> Sheet:
        rows = [
            (
                one.name,
                place.place if place.carries else f"{place.place}, in part",
                *place.accuracy.ends,
                place.accuracy.n,
                place.kept.value,
                place.control.value,
            )
            for one in self.variables
            for place in one.places
            if place.verdict != "no"
        ]
        none = [
            (
                one.name,
                f"{NO_PLACE} (best of {one.tried}: {one.best})",
                *one.accuracy.ends,
                one.accuracy.n,
                None,
                one.control.value,
            )
            for one in self.variables
            if one.place is None
        ]
        return Sheet(
            ("variable", "place", "as predicted", "low", "high", "n", "stays", "control"),
            [*rows, *none],
            title="Variables and their places",
            caption=f"As predicted: the share of {self._of()} whose output is what the algorithm says after the "
            "variable is taken from the source, in the worst kind of sources; stays: the same where the output should "
            "not move; control: the best of the controls. resid19@S2 is the residual stream before layer 19 at S2.",
        )

    def _maps(self) -> Iterator[Section]:
        grids = [
            Grid(
                [list(shares) for shares in one.map.values()],
                list(one.map),
                [str(layer) for layer in self.layers],
                f"{one.name}: the share as predicted at each role before each layer; highest "
                f"{max((share or 0.0 for shares in one.map.values() for share in shares), default=0.0):.2f}.",
                title=one.name,
                pictured=number == 0,
            )
            for number, one in enumerate(self.variables)
            if one.map
        ]
        if grids:
            yield Group(
                [Group(grids, side_by_side=True)],
                title="Layer by position",
                caption="Residual stream before each layer (columns), at each role (rows), on the pairs that choose "
                "places: the smaller of the shares of the outputs that change and that stay as predicted.",
                pages_only=True,
            )

    def _carriers(self) -> Iterator[Section]:
        rows = [
            (
                one.name,
                by.place,
                f"{by.layers[0]} to {by.layers[1]}",
                " + ".join(by.components) or "none",
                *by.share.ends,
                by.every.value,
                by.others.value,
            )
            for one in self.variables
            for by in one.carriers
        ]
        if rows:
            yield Sheet(
                ("variable", "to", "layers", "components", "as predicted", "low", "high", "all of them", "the others"),
                rows,
                title="What brings a variable to a place",
                caption="Outputs at the place's role, exchanged together and alone; beside them all heads and MLPs of "
                "the layers in which the variable arrives, and all but the named ones.",
            )

    def _rival(self) -> Iterator[Section]:
        if self.against is None:
            return
        rows = [
            (one.place, one.variable, one.rival_variable, one.ours.n, *one.ours.ends, one.theirs.value)
            for one in self.against.places
        ]
        yield Sheet(
            ("place", "variable", "rival's variable", "pairs", self.algorithm, "low", "high", self.against.algorithm),
            rows,
            title=f"Against {self.against.algorithm}",
            caption="The share of the pairs in which the two predictions differ whose output is as each says. "
            f"{self.against.algorithm} gives the model's answer on {self.against.agreement.text()} of the prompts.",
        )

    def _details(self) -> Iterator[Group]:
        """Every place that was graded, with its kinds and controls."""
        groups = []
        for one in self.variables:
            rows = [
                (
                    place.place,
                    place.verdict,
                    kind.kind,
                    kind.predicted,
                    *kind.share.ends,
                    kind.share.n,
                )
                for place in one.places
                for kind in place.kinds
            ]
            controls = [
                (place.place, name, *metric.ends, metric.n)
                for place in one.places
                for name, metric in place.controls.items()
            ]
            groups.append(
                Group(
                    [
                        Sheet(("place", "verdict", "kind", "predicted", "share", "low", "high", "n"), rows, terminal=0),
                        Sheet(("place", "control", "share", "low", "high", "n"), controls, terminal=0),
                    ],
                    title=one.name,
                )
            )
        yield Group(groups, title="Kind by kind", pages_only=True)


def _where(one: AlignedPlace) -> str:
    if one.first_layer is None or one.last_layer is None:
        return one.place
    _, _, roles = one.place.partition("@")
    layers = (
        f"layer {one.first_layer}"
        if one.first_layer == one.last_layer
        else (f"layers {one.first_layer} to {one.last_layer}")
    )
    return f"{roles} before {layers}"

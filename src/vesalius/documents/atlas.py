"""The atlas of a model, as a file: `atlas.json`. What every head and MLP is by standard tests and by its weights."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from pydantic import Field

from vesalius.components import Component
from vesalius.documents.answers import names_answer
from vesalius.documents.base import Answered, FrozenDict, FrozenList, FrozenMap, Record, ResultDocument
from vesalius.documents.difference import Compared, ComponentDifference
from vesalius.documents.request import Request
from vesalius.documents.running import DEPENDS, POSITION_ONLY, PROGRAM, AttentionProgram
from vesalius.documents.view import (
    Answer,
    Facts,
    Group,
    HeadMap,
    Section,
    Sheet,
    Text,
    View,
    duration,
)

ATLAS_FILE, ATLAS_PAGE = "atlas.json", "atlas.html"
#: The figures that have a map of their own, and what it is called.
MAPS = {
    "copying": "What heads do to the token that they read",
    "induction": "Prefix matching",
    "previous": "Previous token",
    "duplicate": "Duplicate tokens",
}
#: Names that a terminal lists heads under, and tokens of a list.
SHOWN_TOKENS = 5
NO_NAME = "no standard name"
#: The figures of a head that names follow from, and what each is.
FIGURES = {
    "previous": "attention on the previous token",
    "duplicate": "attention on earlier copies of the current token",
    "induction": "attention on the tokens after earlier copies (prefix matching)",
    "current": "attention on its own position",
    "bos": "attention on BOS, or on the first token where there is none",
    "positional": "share of the pattern that is the same whatever the tokens are, the first position left out",
    "copying": "standardised logit of the token that it reads in what it writes, from weights (effective embedding)",
    "copying_in_run": "the same in a run, of the tokens that it attends to, weighted by its attention",
}


class OnText(Record):
    """A head's attention on plain text. `classes` is its attention on each class of tokens."""

    previous: float
    duplicate: float
    induction: float
    current: float
    bos: float
    copying_in_run: float | None = None
    classes: FrozenMap[str, float] = Field(default_factory=FrozenDict)


class Written(Record):
    """The tokens that a head raises and lowers most where it reads a token."""

    token: str
    raises: tuple[str, ...]
    lowers: tuple[str, ...]


class Part(Record):
    """The part that a component has in an explanation of a behaviour: its role there, and where that lies."""

    behaviour: str
    role: str
    verdict: str
    directory: str


class AtlasHead(Record):
    """One head: its figures on repeated random tokens (None where one cannot be measured), and its name by rule.

    `copying` is the standardised logit of the token that it reads in what it writes there, mean over a sample of
    tokens, with the effective embedding (of the first layer: the embedding alone); `copying_rank` the share of tokens
    that are raised more, median; `copying_embedding` and `copying_embedding_rank` the same with the embedding alone.
    `names` are all that hold, `name` is the first of them. `attention` is the program of where it looks, on text and on
    random tokens, with the word that its figures give (None: the specimen has inputs of its own).
    """

    ABSENT_IF_DEFAULT = ("attention",)

    id: str
    name: str
    names: tuple[str, ...] = ()
    previous: float
    duplicate: float
    induction: float
    current: float
    bos: float
    positional: float
    copying: float | None = None
    copying_rank: float | None = None
    copying_embedding: float | None = None
    copying_embedding_rank: float | None = None
    copying_in_run: float | None = None
    text: OnText | None = None
    attention: AttentionProgram | None = None
    writes: tuple[Written, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def looks(self) -> str:
        """Where it looks, in its word, with the program where it is one."""
        one = self.attention
        return "" if one is None else f"{one.word}: {one.program}" if one.word == PROGRAM else one.word

    @property
    def figures(self) -> dict[str, float | None]:
        """The figures that names follow from."""
        return {name: getattr(self, name) for name in FIGURES}

    def said(self) -> str:
        """Its name with the figures that say most, in one line."""
        names = ", also ".join(self.names) if self.names else self.name
        return f"{names}; " + ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in self._leading())

    def _leading(self) -> Iterator[tuple[str, float]]:
        """The largest masses, and what it does to the tokens that it reads."""
        masses = {name: getattr(self, name) for name in ("previous", "duplicate", "induction", "current", "bos")}
        for name in sorted(masses, key=lambda name: -masses[name])[:2]:
            yield name, masses[name]
        if self.copying is not None:
            yield "copying", self.copying


class AtlasNeuron(Record):
    """A neuron. `selectivity` is the share of its activity (by size) on the hundredth of all tokens where it is
    largest, `tokens` the texts of the first of those; `largest` the standardised logit of the token that it moves
    most, `raises` and `lowers` the tokens of the whole vocabulary that its output direction moves most.
    """

    id: str
    selectivity: float
    tokens: tuple[str, ...]
    largest: float | None = None
    raises: tuple[str, ...] = ()
    lowers: tuple[str, ...] = ()


class AtlasMlp(Record):
    """One MLP: the neurons with the most selective `inputs` and those with the most selective `outputs`. Both are empty
    where it is made of experts.
    """

    id: str
    inputs: tuple[AtlasNeuron, ...] = ()
    outputs: tuple[AtlasNeuron, ...] = ()
    parts: tuple[Part, ...] = ()


class Atlas(Answered, ResultDocument, kind="atlas"):
    """What every head and MLP of a model is.

    `model` is the digest of shape and weights that it belongs to. `chance` gives what uniform attention has of each
    figure, and figures from tokens by chance; `chance_on_text` the same of the text. `rules` are the bars of the names.
    Figures come from `rows` prompts of random tokens, `text_rows` passages and a `sample` of tokens.
    """

    FILE = ATLAS_FILE
    RANK = 45
    COMMAND = VERB = "atlas"
    REMEDY = "run `vesalius atlas` again"
    PAGE = ATLAS_PAGE
    ABSENT_IF_DEFAULT = ("directory",)
    RECOGNISED_BY = ("heads", "mlps", "rules", "chance")

    request: Request
    model: str
    layers: int
    heads_per_layer: int
    heads: FrozenList[AtlasHead]
    mlps: FrozenList[AtlasMlp] = ()
    chance: FrozenMap[str, float]
    chance_on_text: FrozenMap[str, float] = Field(default_factory=FrozenDict)
    rules: FrozenMap[str, str]
    rows: int
    text_rows: int
    sample: int
    notes: tuple[str, ...] = ()
    forwards: float
    seconds: float
    directory: str | None = None

    def head(self, name: str | Component) -> AtlasHead:
        """One head by name."""
        return next(head for head in self.heads if head.id == str(name))

    @property
    def counts(self) -> Counter[str]:
        """How many heads have each name."""
        return Counter(head.name for head in self.heads)

    @property
    def words(self) -> dict[str, int]:
        """How many heads have each word for where they look; empty where none was measured."""
        found = Counter(head.attention.word for head in self.heads if head.attention is not None)
        return {word: found[word] for word in (PROGRAM, POSITION_ONLY, DEPENDS)} if found else {}

    def compared(self, other: "Atlas") -> Compared:
        """How another atlas differs: heads with another name there."""
        ours, theirs = ({head.id: head.name for head in one.heads} for one in (self, other))
        names = list(dict.fromkeys([*ours, *theirs]))
        moved = [
            ComponentDifference(component=name, what="name", a=ours.get(name), b=theirs.get(name))
            for name in names
            if ours.get(name) != theirs.get(name)
        ]
        return Compared(
            components_moved=moved,
            components_same=len(names) - len(moved),
            rule="a head has another name by the rules of the atlas",
        )

    def summary(self) -> str:
        """How many heads have which name, in one line."""
        named = sum(bool(head.names) for head in self.heads)
        kinds = [
            f"{many} {name}{'s' if many > 1 else ''}" for name, many in self.counts.most_common() if name != NO_NAME
        ]
        return f"{named} of {len(self.heads)} heads have a standard name: {', '.join(kinds) or 'none'}"

    def answered(self) -> Answer:
        """Whether standard names describe the heads; then the behaviours of a text model, or the explanation of what
        has inputs of its own.
        """
        named = sum(bool(head.names) for head in self.heads)
        said = names_answer(self.summary(), named, len(self.heads), unmeasured=bool(self.notes))
        return replace(said, then=self.request.followed_by("behaviours" if self.sample else "explain"))

    def view(self) -> View:
        """The map of the model, each head with its figures, and the neurons of its MLPs."""
        subject = str(self.request.specimen or "")
        # Every head with its figures, random tokens before text.
        looks = bool(self.words)
        rows = [(head.id, head.name, *([head.looks] * looks), *head.figures.values()) for head in self.heads]
        columns = ("head", "name", *(["looks at"] * looks), *(name.replace("_", " ") for name in FIGURES))
        return View(
            f"{subject}: atlas",
            self.answered(),
            [
                Facts(self._facts()),
                self._named(),
                *self._maps(),
                self._rules(),
                Sheet(columns, rows, title="Every head", terminal=0, signed=("copying", "copying in run")),
                *self._details(),
                *self._neurons(),
                *([Text(self.notes, title="Not measured")] if self.notes else []),
            ],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{ATLAS_PAGE}",
            note="atlas.json has all figures; docs/how-to/atlas.md says what each is.",
        )

    def _facts(self) -> list[tuple[str, str]]:
        material = f"{self.rows} prompts of random tokens repeated once" if self.sample else f"{self.rows} own inputs"
        text = f", {self.text_rows} passages of plain text" if self.text_rows else ""
        tokens = f", a sample of {self.sample} tokens" if self.sample else ""
        said = {part.behaviour for one in (*self.heads, *self.mlps) for part in one.parts}
        behaviours = [("explained for", ", ".join(sorted(said)))] if said else []
        words = self.words
        counted = ", ".join(f"{many} {word} ({many / len(self.heads):.0%})" for word, many in words.items())
        return [
            ("measured on", material + text + tokens),
            *([("where heads look", counted)] if words else []),
            *behaviours,
            ("cost", f"{self.forwards:.0f} forward passes of one prompt, {duration(self.seconds)}"),
        ]

    def _named(self) -> Sheet:
        """The heads that have a name, in the order of the rules; within a name those that have most of its figure."""
        order = [name for name in self.rules if name in self.counts]
        named = [head for name in order for head in self._ranked(name)]
        figures = [name for name in FIGURES if any(getattr(head, name) is not None for head in self.heads)]
        rows = [(head.id, head.name, *(getattr(head, name) for name in figures)) for head in named]
        chance = [("(chance)", "", *(self.chance.get(name) for name in figures))]
        return Sheet(
            ("head", "name", *(name.replace("_", " ") for name in figures)),
            [*chance, *rows],
            title="Heads with a standard name",
            signed=("copying", "copying in run"),
            caption="Attention is measured on repeated random tokens; its chance level is that of uniform attention. "
            "Copying: what the head does to the logit of the token that it reads, in standard deviations over tokens: "
            "from weights, and in the run.",
        )

    def _ranked(self, name: str) -> list["AtlasHead"]:
        """The heads of a name, the clearest first: by the first figure of its rule."""
        figure = self.rules[name].split(" ")[0]
        return sorted(
            (head for head in self.heads if head.name == name), key=lambda head: -abs(getattr(head, figure) or 0.0)
        )

    def _maps(self) -> Iterator[Section]:
        lines = {head.id: f"{head.id}: {head.said()}" for head in self.heads}
        for figure, title in MAPS.items():
            values = {head.id: value for head in self.heads if (value := getattr(head, figure)) is not None}
            if values:
                yield HeadMap(
                    values,
                    self.layers,
                    self.heads_per_layer,
                    unit=FIGURES[figure],
                    title=title,
                    lines=lines,
                    negative="it writes against the token that it reads",
                    pictured=figure == "copying",
                )

    def _rules(self) -> Sheet:
        rows = [(name, rule, self.counts.get(name, 0)) for name, rule in self.rules.items()]
        return Sheet(
            ("name", "rule", "heads"),
            rows,
            title="Names by rule",
            terminal=0,
            caption="The first rule that holds is the name of a head. "
            + " ".join(f"{name.replace('_', ' ')}: {what}." for name, what in FIGURES.items()),
        )

    def _details(self) -> Iterator[Group]:
        """One group for each head, which the maps lead to."""
        groups = [
            Group(self._of_head(head), title=head.id, caption=head.said(), name=head.id, pages_only=True)
            for head in self.heads
        ]
        yield Group(groups, title="Head by head", pages_only=True)

    def _of_head(self, head: "AtlasHead") -> list[Section]:
        """The figures of a head beside chance and text, what it writes, and its part in behaviours."""
        text = head.text
        rows = [
            (
                name,
                getattr(head, name),
                self.chance.get(name),
                getattr(text, name, None),
                self.chance_on_text.get(name) if text is not None else None,
            )
            for name in FIGURES
        ]
        sections: list[Section] = [Sheet(("figure", "random tokens", "chance", "text", "chance on text"), rows)]
        if head.copying_rank is not None and head.copying_embedding is not None:
            sections.append(
                Text(
                    [
                        f"Of all tokens {head.copying_rank:.0%} are raised more than the one that it reads (median). "
                        f"With the embedding alone: {head.copying_embedding:+.2f}, "
                        f"{head.copying_embedding_rank or 0.0:.0%}."
                    ],
                    quiet=True,
                )
            )
        if (looks := head.attention) is not None:
            sections.append(_looks(looks))
        if text is not None and text.classes:
            classes = sorted(text.classes.items(), key=lambda one: self.chance_on_text.get(one[0], 0.0) - one[1])
            said = (f"{kind} {mass:.2f} ({self.chance_on_text.get(kind, 0.0):.2f})" for kind, mass in classes)
            sections.append(Text([f"Attention on text by class of token, with chance: {', '.join(said)}."], quiet=True))
        if head.writes:
            written = [(repr(one.token), _tokens(one.raises), _tokens(one.lowers)) for one in head.writes]
            sections.append(Sheet(("where it reads", "it raises", "it lowers"), written))
        if head.parts:
            sections.append(_parts(head.parts))
        return sections

    def _neurons(self) -> Iterator[Section]:
        rows = [
            (
                one.id,
                what,
                one.selectivity,
                _tokens(one.tokens),
                one.largest,
                _tokens(one.raises),
                _tokens(one.lowers),
            )
            for mlp in self.mlps
            for what, some in (("inputs", mlp.inputs), ("outputs", mlp.outputs))
            for one in some
        ]
        if rows:
            yield Sheet(
                ("neuron", "selective", "share on few tokens", "fires on", "largest", "raises", "lowers"),
                rows,
                title="Neurons with the most selective inputs and outputs",
                terminal=0,
                caption="Share: of its activity, by size, on the hundredth of all tokens where it is largest (0.01 if "
                "it were even). Largest: the logit that its output direction moves most, in standard deviations over "
                "tokens. Where the activation is negative, raised and lowered change places.",
            )
        parts = [(mlp.id, part.behaviour, part.role, part.directory) for mlp in self.mlps for part in mlp.parts]
        if parts:
            yield Sheet(
                ("MLP", "behaviour", "role there", "explanation"), parts, title="MLPs in behaviours", terminal=0
            )


def _looks(one: AttentionProgram) -> Sheet:
    """The best program of a head beside what needs no tokens, on prompts that it was not fitted to."""
    return Sheet(
        ("on", "program", "position mean", "BOS"),
        [(grade.on, grade.overlap, grade.position_mean, grade.bos) for grade in one.grades],
        caption=f"Where it looks: {one.word}. The best program: {one.program}. Overlap with its attention, decided on "
        f"{one.decided_on}.",
    )


def _parts(parts: tuple[Part, ...]) -> Sheet:
    rows = [(part.behaviour, part.role, part.verdict, part.directory) for part in parts]
    return Sheet(("behaviour", "role there", "verdict", "explanation"), rows)


def _tokens(tokens: tuple[str, ...]) -> str:
    return " ".join(map(repr, tokens[:SHOWN_TOKENS]))


def _short(value: float) -> str:
    return f"{value:+.2f}" if value < 0 else f"{value:.2f}"

"""The smallest connected circuit that keeps a stated share of a behaviour, and the rule that says what it amounts to.

The rule reads figures that were measured on prompts which chose nothing. It is the only place where Yes, Partly and No
are decided for a circuit, of components or of neurons; its limits are the constants below, and `benchmarks/answers.py`
counts how often it is right on circuits whose truth is known. Where the contrast is empty, or the interval of what is
kept holds 0, the answer is No: nothing was shown, and the answer says what to do about it.
"""

from vesalius.documents.base import Record
from vesalius.documents.metric import Metric, figure_apart
from vesalius.documents.view import Answer, Chart, Facts, Section, Sheet, Text, prompts

#: The share that is asked for where the user says nothing, and that of a specimen with a listed vocabulary.
KEEP, KEEP_LISTED = 0.8, 0.95
#: A circuit is looked for up to this share of the components, and up to this many at least.
MOST_SHARE, LEAST_MOST = 0.2, 10
#: A circuit that keeps more than this much of the model's score has left out what hinders: it is another mechanism.
TOO_MUCH = 1.2
#: A circuit of more than this share of the model says little about it, whatever it keeps.
MOST_OF_MODEL = 0.5
#: How far the interval, and the figure on other templates, may lie from what is asked for.
INTERVAL_SLACK, TEMPLATE_SLACK = 0.1, 0.2
#: Random circuits of the same make-up must stay below this, and halves of the prompts must agree this far.
MOST_RANDOM, LEAST_STABLE = 0.3, 0.5
#: Fewer prompts cannot be halved, or report a share: eight that all keep everything leave 0.69 possible (exact, 95 %).
LEAST_RANKING, LEAST_REPORTING = 4, 8
#: In the place of a method's name: the components were given, not searched for.
GIVEN = "given"
#: What every figure of a circuit rests on: what happens to the rest of the model.
REPLACED = "replaced from the counterfactual prompts"
#: What helps where prompts are too few: a behaviour of own rows has no more prompts than rows.
MORE = "use more prompts (--n, or more rows of your own)"


class Tried(Record):
    """One way to rank components: the smallest circuit it gave on the choosing prompts (None: none within the limit),
    and how much that keeps there.
    """

    method: str
    size: int | None
    kept: float | None
    passes: float


class Point(Record):
    """What the first `size` components of the ranking keep on the choosing prompts."""

    size: int
    kept: float
    low: float | None
    high: float | None


class WithMLPs(Record):
    """How many heads are enough where every MLP is kept, and what they keep on the reported prompts."""

    heads: int
    kept: Metric

    def text(self) -> str:
        """The heads and what they keep, in words."""
        one = self.heads == 1
        return f"{self.heads} head{'' if one else 's'} keep{'s' if one else ''} {self.kept.text()}"


class Says(Record):
    """On which share of the reported prompts the right answer is said, the likeliest of all tokens: by the circuit
    `alone`, with the rest of the model replaced, and by the whole `model`.
    """

    alone: Metric
    model: Metric

    def text(self) -> str:
        """Both shares in one clause; the first has its interval."""
        whole = "-" if self.model.value is None else f"{self.model.value:.2f}"
        alone = f"alone they say the right answer on {self.alone.text()} of the prompts"
        return f"{alone}, the whole model on {whole}"


class Wording(Record):
    """What a circuit keeps of the reported prompts of one wording, of which `prompt` is one."""

    prompt: str
    kept: Metric

    def text(self) -> str:
        """The share and the prompt, in words."""
        return f"{self.kept.text()} of the {self.kept.n} prompts such as {self.prompt!r}"


class WholeCircuit(Record):
    """A circuit, what it keeps and how it was found.

    `method` ranked the components, `tried` lists all that were asked. `keep` is the share asked for and `most` the
    largest size looked at; `found` says whether a circuit of at most that size kept it on the choosing prompts, and
    `reached` which larger size did, where none of them does. `kept` is measured on the reported prompts with every
    component outside resampled, `wired` with every edge outside resampled as well, `elsewhere` on other templates;
    `says` is how often the right answer is said there (None: it was not counted, or one of many is right), `least` the
    wording of which least is kept, where a file has several (None: it has one),
    `random` is the mean of random circuits of as many heads and MLPs. `stable` is the similarity (Jaccard) of the
    circuits that two halves of the ranking prompts give. `kept_anyway` components were not searched and are always
    kept. `shared` says why the three sets of prompts are not apart, where they are not.
    """

    ABSENT_IF_DEFAULT = ("says", "least")

    method: str
    tried: tuple[Tried, ...]
    keep: float
    most: int
    candidates: int
    found: bool
    reached: int | None = None
    components: tuple[str, ...]
    kept_anyway: int = 0
    edges: tuple[str, ...] = ()
    connected: bool
    kept: Metric
    says: Says | None = None
    least: Wording | None = None
    wired: Metric | None = None
    elsewhere: Metric | None = None
    random: Metric | None = None
    with_mlps: WithMLPs | None = None
    stable: float | None = None
    curve: tuple[Point, ...]
    n_rank: int
    n_choose: int
    shared: str | None = None
    forwards: float
    seconds: float

    @property
    def size(self) -> int:
        """How many components it has."""
        return len(self.components)

    @property
    def n_edges(self) -> int:
        """How many edges it has."""
        return len(self.edges)


def shows_nothing(kept: Metric) -> bool:
    """Whether it is open that anything is kept at all: the interval holds 0, or there is none."""
    return kept.low is None or kept.high is None or kept.low <= 0


def bars(keep: float) -> tuple[float, ...]:
    """Every bar that what is kept, and the ends of its interval, are compared with."""
    return keep, keep - INTERVAL_SLACK, TOO_MUCH, TOO_MUCH + INTERVAL_SLACK


def answer(whole: WholeCircuit, subject: str, *, weak: str | None = None, empty: str | None = None) -> Answer:
    """Yes, Partly or No, by the first rule that applies, and how often the circuit alone says the right answer; `weak`
    is what is wrong with the behaviour as it was asked, if anything, and `empty` why its contrast can show nothing,
    where it cannot.
    """
    if empty:
        return Answer(f"nothing can be said of {subject}: {empty}", "no")
    said = _verdict(whole, subject, weak)
    return said if whole.says is None else Answer(f"{said.text}; {whole.says.text()}", said.verdict)


def _verdict(whole: WholeCircuit, subject: str, weak: str | None) -> Answer:
    """The rules of the answer, first to last, with the figure that decides."""
    figures = whole.kept.text(bars=bars(whole.keep))
    of = f"of {whole.candidates} {'heads' if whole.kept_anyway else 'components'}"
    kept, rest = f"{figures} of {subject}", f"the rest {REPLACED}"
    if whole.kept.low is None:  # before what was found: by one prompt nothing is
        text = f"it cannot be said that {whole.size} {of} keep anything of {subject}: {figures} on"
        return Answer(f"{text} {prompts(whole.kept.n)} has no interval, {rest}; {MORE}", "no")
    if not whole.found:
        instead = f"; {whole.reached} do" if whole.reached else ""
        enough = whole.kept.value is not None and whole.kept.value >= whole.keep  # only where nothing was chosen
        sure = " for certain where it is chosen" if enough else ""
        where = f" on {prompts(whole.kept.n)} that chose nothing" if enough else ""
        text = f"no circuit of up to {whole.most} {of} keeps {whole.keep:g} of {subject}{sure} ({whole.size} keep"
        return Answer(f"{text} {figures}{where}{instead}), {rest}", "no")
    if whole.kept.high is not None and whole.kept.high < whole.keep:
        chosen = f"that kept {whole.keep:g} of {subject} where they were chosen"
        chosen = f"given for {subject}" if whole.method == GIVEN else chosen
        text = f"the {whole.size} {of} {chosen} keep"
        return Answer(f"{text} {figures} on {whole.kept.n} other prompts, {rest}", "no")
    if shows_nothing(whole.kept):
        text = f"it cannot be said that {whole.size} {of} keep anything of {subject}: {figures} on"
        return Answer(f"{text} {prompts(whole.kept.n)} holds 0, {rest}; {MORE} or another contrast", "no")
    # Who gave the components may have seen these prompts, and where all sets of prompts are one, they chose.
    unseen = "" if whole.method == GIVEN or whole.shared else " that chose nothing"
    said = f"{whole.size} {of} keep{'s' * (whole.size == 1)} {kept} on {prompts(whole.kept.n)}{unseen}, {rest}"
    if doubt := first_doubt(whole) or weak:
        return Answer(f"{said}, but {doubt}{_second(whole)}", "partly")
    if whole.elsewhere is not None:
        said += f", {whole.elsewhere.text(bars=template_bars(whole.keep))} on other templates"
    return Answer(said, "yes")


def first_doubt(whole: WholeCircuit) -> str | None:
    """The first condition of a Yes that fails, with its figure; None where all hold."""
    if whole.shared:
        return whole.shared
    if few := too_few(whole.kept):
        return few
    if whole.n_rank < LEAST_RANKING and whole.method != GIVEN:
        return f"{prompts(whole.n_rank)} {_are(whole.n_rank)} too few to rank by ({LEAST_RANKING} wanted): {MORE}"
    if outside := not_as_asked(whole.kept, whole.keep):
        return outside
    if whole.least is not None and (high := whole.least.kept.high) is not None and high < whole.keep - TEMPLATE_SLACK:
        return f"it keeps {whole.least.text()}"
    there, (least, most) = None if whole.elsewhere is None else whole.elsewhere.value, template_bars(whole.keep)
    if there is not None and not least <= there <= most:
        return f"it keeps {figure_apart(there, least if there < least else most)} on other templates"
    if whole.random is not None and as_good_as_random(whole.kept, whole.random.value):
        return f"random circuits of the same make-up keep {whole.random.text(bars=(MOST_RANDOM,))}"
    if whole.stable is not None and whole.stable < LEAST_STABLE:
        return f"halves of the prompts give other circuits (similarity {figure_apart(whole.stable, LEAST_STABLE)})"
    if whole.size > MOST_OF_MODEL * whole.candidates:
        return "that is more than half of the model"
    return None


def template_bars(keep: float) -> tuple[float, float]:
    """Between what the figure on other templates must lie."""
    return keep - TEMPLATE_SLACK, TOO_MUCH + TEMPLATE_SLACK


def too_few(kept: Metric) -> str | None:
    """Why what is kept cannot be reported on so few prompts."""
    if kept.n is None or kept.n >= LEAST_REPORTING:
        return None
    return f"{prompts(kept.n)} {_are(kept.n)} too few to report it on ({LEAST_REPORTING} wanted): {MORE}"


def as_good_as_random(kept: Metric, random: float | None) -> bool:
    """Whether what is kept could be had at random: random sets keep much, or as much as the interval leaves possible,
    which happens where little is asked for.
    """
    return random is not None and (random >= MOST_RANDOM or (kept.low is not None and kept.low <= random))


def _are(n: int) -> str:
    return "is" if n == 1 else "are"


def not_as_asked(kept: Metric, keep: float) -> str | None:
    """Why what is kept is not the share asked for: its figure, or its interval, lies outside."""
    low_most, high_most = keep - INTERVAL_SLACK, TOO_MUCH + INTERVAL_SLACK
    assert kept.value is not None
    if kept.value < keep:
        return f"that is less than {keep:g}"
    if kept.value > TOO_MUCH:
        return f"more than {TOO_MUCH:g} means that something which hinders was left out"
    if kept.low is None or kept.high is None:
        return "it has no interval"
    if kept.low < low_most or kept.high > high_most:
        return f"the interval is too wide (wanted inside [{low_most:g}, {high_most:g}]): {MORE}"
    return None


def _second(whole: WholeCircuit) -> str:
    """The answer with all MLPs kept, which often is shorter."""
    if whole.with_mlps is None:
        return ""
    return f"; with all MLPs kept, {whole.with_mlps.text()}"


def sections(whole: WholeCircuit) -> list[Section]:
    """What the circuit keeps and beside what, how the size was chosen, and what each ranking gave."""
    apart = "that ranked and chose as well" if whole.shared else "that had no part in ranking or choosing"
    facts = [("kept", f"{whole.kept.text(bars=bars(whole.keep))} on {prompts(whole.kept.n)} {apart}")]
    if whole.says is not None:
        facts.append(("says it", whole.says.text()))
    if whole.least is not None:
        facts.append(("least by wording", whole.least.text()))
    if whole.wired is not None:
        facts.append(("with its edges only", f"{whole.wired.text()}, {whole.n_edges:,} edges"))
    if whole.elsewhere is not None:
        facts.append(("on other templates", f"{whole.elsewhere.text()} on {whole.elsewhere.n} prompts"))
    if whole.random is not None:
        facts.append(("random circuits of the same make-up", whole.random.text()))
    if whole.with_mlps is not None:
        facts.append(("with all MLPs kept", whole.with_mlps.text()))
    if whole.stable is not None:
        facts.append(("halves of the prompts", f"similarity {whole.stable:.2f} of the circuits they give"))
    facts.append(("prompts", f"{whole.n_rank} rank, {whole.n_choose} choose the size, {whole.kept.n} report"))
    sheet = Sheet(
        ("ranked by", "size", "keeps where chosen", "passes"),
        [(one.method, one.size, one.kept, one.passes) for one in whole.tried],
        title="Which ranking gives the smallest circuit",
    )
    share = whole.candidates
    points = [(one.size / share, one.kept, f"{one.size} components: {_point(one)}") for one in whole.curve]
    chart = Chart(
        {whole.method: points},
        x="share of the components kept",
        y="share of the behaviour kept",
        caption=f"What the strongest components by {whole.method} keep on the choosing prompts.",
    )
    return [Facts(facts), chart, sheet, Text([f"components: {', '.join(whole.components)}"])]


def _point(point: Point) -> str:
    return f"{point.kept:.2f}" + ("" if point.low is None else f" [{point.low:.2f}, {point.high:.2f}]")

"""What this package writes: what trained transcoders keep of the model (`transcoders.json`), and circuits of latents
(`latents.json`).
"""

from collections.abc import Iterator
from statistics import median

from vesalius.documents.base import Answered, FrozenList, Record, ResultDocument
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import FeatureDetail, LatentSet, passages
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.view import (
    Answer,
    Facts,
    Section,
    Sheet,
    View,
    duration,
    subject_of,
)
from vesalius.documents.whole import TOO_MUCH

TRANSCODERS_FILE, TRANSCODERS_PAGE = "transcoders.json", "transcoders.html"
LATENTS_FILE, LATENTS_PAGE = "latents.json", "latents.html"
#: Shares from which on the first line says Yes, and below which it says No.
YES, NO = 0.8, 0.2


class Splice(Record):
    """The model with MLPs of some layers replaced: by their transcoders, by their mean over text, by nothing.

    `loss_...` is the loss of the next token on held-out text, `kept_...` the share of the behaviour that survives (1:
    the model as it is, 0: every component resampled), where one was asked for.
    """

    ABSENT_IF_DEFAULT = ("kept_spliced", "kept_mean", "kept_zero")

    loss_spliced: Metric
    loss_mean: Metric
    loss_zero: Metric
    kept_spliced: Metric | None = None
    kept_mean: Metric | None = None
    kept_zero: Metric | None = None

    def recovered(self, intact: Metric, guess: float) -> float | None:
        """The part of what the mean costs that the transcoder does not cost; a loss above that of a guess among all
        tokens counts as the guess, since a model without its MLPs may be as wrong as it likes.
        """
        spliced, mean, whole = self.loss_spliced.value, self.loss_mean.value, intact.value
        if spliced is None or mean is None or whole is None or min(mean, guess) <= whole:
            return None
        return 1 - (spliced - whole) / (min(mean, guess) - whole)


class LayerTranscoder(Record):
    """One layer's transcoder on held-out text: the share of the variance of what the MLP writes that it explains,
    latents that were never active, active ones a token, and the model with it in its MLP's place.
    """

    layer: int
    explained: float
    dead: int
    active: float
    spliced: Splice


class Transcoders(Answered, ResultDocument, kind="transcoders"):
    """Transcoders of some layers, and what they keep.

    `intact` is the loss of the model as it is on `tokens` held-out tokens, `guess` that of a guess among all tokens,
    `together` all layers spliced at once.
    `trained_on` are the tokens of the text that were trained on; each step saw `batch` of them. `details` are the
    latents that are active most, of each layer.
    """

    FILE = TRANSCODERS_FILE
    RANK = 42
    COMMAND, VERB = "transcoders", "train_transcoders"
    REMEDY = "run `vesalius transcoders` again"
    PAGE = TRANSCODERS_PAGE
    ABSENT_IF_DEFAULT = ("directory", "details")

    request: Request
    text: str
    trained_on: int
    tokens: int
    latents: int
    k: int
    steps: int
    batch: int
    intact: Metric
    guess: float
    layers: FrozenList[LayerTranscoder]
    together: Splice
    details: FrozenList[FeatureDetail] = ()
    forwards: float
    seconds: float
    directory: str | None = None

    def answered(self) -> Answer:
        """Whether the model still does, with transcoders in the place of all these MLPs, what it does."""
        share, doubt = self._share(), self._doubt()
        said = self._said() if doubt is None else f"{self._said()}, {doubt}"
        if doubt is not None or share is None or share < NO:
            return Answer(said, "no")
        kept = self.together.kept_spliced
        if share > TOO_MUCH:
            return Answer(f"{said}, but more than {TOO_MUCH:g} means that they leave out what hinders", "partly")
        if kept is not None and kept.low is None:
            return Answer(f"{said}, but one prompt has no interval", "partly")
        where = self.directory or "DIR"
        then = self.request.followed_by("sweep", "--sites", "features", "--features", where)
        return Answer(said, "yes" if share >= YES else "partly", then if self.request.behaviour else None)

    def _doubt(self) -> str | None:
        """Why these transcoders are shown to keep nothing of their own, where that is so: the MLPs' means, which say
        nothing of the prompt, keep as much, or cost nothing.
        """
        kept, means = self.together.kept_spliced, self.together.kept_mean
        if kept is None:
            return "as their means cost no loss on this text" if self._share() is None else None
        if means is None or means.value is None or kept.low is None or kept.low > means.value:
            return None
        return f"no more than the MLPs' means do ({means.value:.2f})"

    def _share(self) -> float | None:
        kept = self.together.kept_spliced
        return self.together.recovered(self.intact, self.guess) if kept is None else kept.value

    def _said(self) -> str:
        explained = [one.explained for one in self.layers]
        middle = median(explained)
        layers = f"{len(explained)} layer{'s' * (len(explained) > 1)}"
        said = f"transcoders of {layers} explain {middle:.2f} of the variance (median)"
        if (kept := self.together.kept_spliced) is not None:
            return f"{said}; spliced together they keep {kept.text()} of the behaviour"
        if (share := self._share()) is None:
            return f"{said}; what spliced together they keep of what these MLPs add cannot be said"
        return f"{said}; spliced together they keep {share:.2f} of what these MLPs add"

    def _subject(self) -> str:
        return subject_of(self.request.specimen, self.request.behaviour)

    def view(self) -> View:
        """Each layer's figures, all layers together, and where the most active latents are active."""
        return View(
            f"{self._subject()}: transcoders",
            self.answered(),
            [Facts(self._facts()), self._layers(), self._together(), *self._details()],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{TRANSCODERS_PAGE}",
            note="The directory is what --features takes. docs/how-to/features.md says what each figure is.",
        )

    def _facts(self) -> list[tuple[str, str]]:
        seen = self.steps * self.batch
        return [
            ("text", self.text),
            ("trained on", f"{self.trained_on:,} tokens, {seen / max(1, self.trained_on):.1f} times"),
            ("held out", f"{self.tokens:,} tokens of other articles"),
            ("latents", f"{self.latents:,} a layer, {self.k} active at a token"),
            ("loss of the model as it is", f"{self.intact.figures}; of a guess {self.guess:.2f}"),
            ("time", duration(self.seconds)),
        ]

    def _layers(self) -> Sheet:
        told = self.together.kept_spliced is not None
        columns = ["layer", "explained", "dead", "active", "loss spliced", "loss mean", "loss zero"]
        columns += ["kept spliced", "low", "high", "kept mean"] * told
        rows = []
        for one in self.layers:
            cut = one.spliced
            row = [one.layer, one.explained, one.dead, one.active]
            row += [cut.loss_spliced.value, cut.loss_mean.value, cut.loss_zero.value]
            if told and cut.kept_spliced is not None and cut.kept_mean is not None:
                row += [*cut.kept_spliced.ends, cut.kept_mean.value]
            rows.append(row)
        return Sheet(
            columns,
            rows,
            title="Layer by layer",
            caption="Explained: share of the variance of what the MLP writes, on held-out text without BOS. Dead: "
            "latents that are active nowhere in it. Loss: of the next token, with this MLP alone replaced by its "
            "transcoder, by its mean, by nothing. Kept: the share of the behaviour that survives.",
        )

    def _together(self) -> Sheet:
        cut, rows = self.together, []
        for kind, word in {"spliced": "transcoders", "mean": "their means", "zero": "nothing"}.items():
            kept: Metric | None = getattr(cut, f"kept_{kind}")
            rows.append((word, getattr(cut, f"loss_{kind}").figures, "–" if kept is None else kept.figures))
        return Sheet(("in the place of these MLPs", "loss", "behaviour kept"), rows, title="All layers together")

    def _details(self) -> Iterator[Section]:
        yield from passages(self.details, "Where the most active latents are active")


class LatentCircuit(Answered, LatentSet, ResultDocument, kind="latents"):
    """The smallest set of latents, heads, MLPs without a dictionary and error terms that keeps a share of a behaviour,
    as a file: `LatentSet` says what its figures are.
    """

    FILE = LATENTS_FILE
    RANK = 41
    COMMAND = VERB = "latents"
    REMEDY = "run `vesalius latents` again"
    PAGE = LATENTS_PAGE
    ABSENT_IF_DEFAULT = ("performance", "directory", "details")

    request: Request
    performance: Performance | None = None
    directory: str | None = None

    def part(self) -> LatentSet:
        """The set without what was asked, as it stands in another result."""
        return LatentSet(**{name: getattr(self, name) for name in LatentSet.model_fields})

    def answered(self) -> Answer:
        """Whether the set keeps its share, and why there may be none."""
        contrast = None if self.performance is None else self.performance.contrast
        return self.judged(None if contrast is None or contrast.usable else contrast.doubt)

    def view(self) -> View:
        """How few parts keep how much, which they are, and where the strongest latents are active."""
        remarks = self.request.remarks()
        return View(
            f"{subject_of(self.request.specimen, self.request.behaviour)}: circuit of latents",
            self.answered(),
            [*([Facts(remarks)] if remarks else []), *self.sections()],
            command=self.request.command_line(),
            place=self.directory and f"{self.directory}/{LATENTS_PAGE}",
            note="docs/how-to/features.md says how they are chosen.",
        )

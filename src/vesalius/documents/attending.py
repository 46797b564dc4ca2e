"""Why a head attends from one token to another, and what it carries: a sum over what was written upstream."""

from vesalius.documents.base import Record, ResultDocument
from vesalius.documents.view import Answer, Facts, Grid, Sheet, View

#: Sources that the picture shows at the query and at the key.
PICTURED = 8


class PairTerm(Record):
    """What a source at the query and one at the key add to the score together. `patched` is the same by path patching:
    both taken out of the head's query and key input, norms run again; None where it was not measured, and of biases.
    """

    ABSENT_IF_DEFAULT = ("patched",)

    query: str
    key: str
    value: float
    patched: float | None = None


class SourceTerm(Record):
    """What a source adds to the score with all sources of the other side."""

    source: str
    value: float


class CarriedTerm(Record):
    """What a source wrote at the key, as the head moves it to the query: its share of all that is moved from there
    (along the sum, so that shares add up to 1), and the tokens whose logits gain most from it directly.
    """

    source: str
    share: float
    tokens: tuple[tuple[str, float], ...] = ()


class AttendingLook(ResultDocument):
    """One head on one prompt: its attention score from `query` to `key` (before a soft cap) as a sum over pairs of
    upstream sources. A source is the token, the position, a head, an MLP, or all biases; norms divide by what they
    divide by in the run. `pairs` are the leading ones of `n_pairs`, `rest` is the sum of the others; `by_query` and
    `by_key` add up to the score. `agreement` is Pearson's correlation of `n_confirmed` leading pairs with path
    patching; where contributions were replaced by those on another prompt, of what that changes, and `patched` is
    absent. `carries` says what of the key's position is moved, `writes` the tokens that the whole of it raises.
    """

    specimen: str
    head: str
    tokens: tuple[str, ...]
    query: int
    key: int
    weight: float
    score: float
    pairs: tuple[PairTerm, ...]
    n_pairs: int
    rest: float
    by_query: tuple[SourceTerm, ...]
    by_key: tuple[SourceTerm, ...]
    agreement: float | None
    n_confirmed: int
    carries: tuple[CarriedTerm, ...]
    writes: tuple[tuple[str, float], ...] = ()

    def view(self) -> View:
        """The leading pairs as a table and a picture, and what is carried."""
        where = f"{self._place(self.query)} to {self._place(self.key)}"
        lead = self.pairs[0] if self.pairs else None
        first = (
            "" if lead is None else f"; most by {lead.query} at the query with {lead.key} at the key {lead.value:+.2f}"
        )
        agreed = "not measured" if self.agreement is None else f"correlation {self.agreement:.3f}"
        return View(
            f"{self.specimen}: why {self.head} attends from {where}",
            Answer(
                f"{self.head} of {self.specimen} attends from {where} with {self.weight:.3f}, score {self.score:+.2f}"
                f"{first}"
            ),
            [
                Facts(
                    [
                        ("sum", f"{len(self.pairs)} of {self.n_pairs} pairs shown, the others add {self.rest:+.3f}"),
                        ("path patching", f"{agreed}, {self.n_confirmed} leading pairs"),
                        *([("it writes", _tokens(self.writes))] if self.writes else []),
                    ]
                ),
                Sheet(
                    ("at the query", "at the key", "adds", "patched"),
                    [(one.query, one.key, one.value, one.patched) for one in self.pairs],
                    title="Pairs that make the score",
                    caption="Patched: what the score loses by both together, but by neither alone, when they are taken "
                    "out of the head's query and key input.",
                    signed=("adds", "patched"),
                ),
                *self._picture(),
                Sheet(
                    ("source", "adds as query", "adds as key"),
                    [(one.source, one.value, self._as_key(one.source)) for one in self.by_query],
                    title="By source",
                    signed=("adds as query", "adds as key"),
                ),
                Sheet(
                    ("source", "share", "raises"),
                    [(one.source, one.share, _tokens(one.tokens)) for one in self.carries],
                    title=f"What it carries from {self._place(self.key)}",
                    signed=("share",),
                ),
            ],
        )

    def _as_key(self, source: str) -> float | None:
        """What the same source adds at the key; the token there is another one."""
        kind = source.split(" ")[0]
        return next((one.value for one in self.by_key if one.source.split(" ")[0] == kind), None)

    def _picture(self) -> list[Grid]:
        rows = list(dict.fromkeys(one.query for one in self.pairs))[:PICTURED]
        columns = list(dict.fromkeys(one.key for one in self.pairs))[:PICTURED]
        value = {(one.query, one.key): one.value for one in self.pairs}
        high = max((abs(one.value) for one in self.pairs), default=0.0)
        if not high:
            return []
        return [
            Grid(
                [[value.get((row, column)) for column in columns] for row in rows],
                rows,
                columns,
                f"Leading pairs of sources at the query (rows) and at the key (columns) of {self.head}",
                low=0.0,
                high=high,
                title="Where the score comes from",
            )
        ]

    def _place(self, at: int) -> str:
        return f"{at} {self.tokens[at]!r}"


def _tokens(given: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{token!r} {gain:+.2f}" for token, gain in given)

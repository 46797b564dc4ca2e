"""Blind annotation on the disk: the texts of several runs, and every rating of every rater.

`annotation.json` says what is rated; `events.jsonl` holds every rating, withdrawal and import in the order in which
they were made (`ledger`: on the disk before the rater is told, whole or not at all, one process at a time). The last
rating of a rater counts. A directory goes on with the same texts only: a text that has changed since is refused.
"""

import re
import secrets
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from vesalius.api.door import directory_for, require_place
from vesalius.circuits.specimens import benchmark_cards
from vesalius.errors import BadInput, quoted
from vesalius.options import Out
from vesalius.runs.directory import (
    EVENTS,
)
from vesalius.runs.ledger import Ledger, Record, read_ledger
from vesalius_bench.ratings.collecting import annotation_name, collect_texts
from vesalius_bench.ratings.documents import (
    ANNOTATION_FILE,
    AnnotatedText,
    Annotation,
    ImportedRatings,
    RaterProgress,
    RatingCard,
    Rubric,
)
from vesalius_bench.ratings.reading import Rating, item_fields, item_text, placed_ratings, read_csv_or_json
from vesalius_bench.ratings.texts import CandidateText, in_order_of, rubric
from vesalius_truth.grading.ratings import MEASURES, ratings_csv

#: Characters of a text that are shown, of a comment, and of a rater's name.
MOST_SHOWN, MOST_COMMENT, MOST_NAME = 20_000, 4_000, 60
RATING, UNDO, IMPORT = "rating", "undo", "import"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
Key = tuple[str, str, str]  # run, agent, item


class GivenScore(NamedTuple):
    """What a rater has said of a text so far."""

    score: int | None = None
    comment: str = ""


NOTHING = GivenScore()


class Annotating:
    """An open annotation, held by this process alone until it is closed; threads may share it."""

    def __init__(self, directory: Path, texts: Sequence[CandidateText], *, reference: bool) -> None:
        self.directory, self.texts, self.reference = directory, list(texts), reference
        self._by_key: dict[Key, CandidateText] = {text.key: text for text in texts}
        self._examples = _examples({text.item.specimen for text in texts})
        self._turn = threading.RLock()
        self.ledger = Ledger(directory / EVENTS)
        try:
            self._secret = self._agree()
            self._state = RatingState(self.ledger.records)
            if gone := [key for given in self._state.given.values() for key in given if key not in self._by_key]:
                raise BadInput(
                    f"{directory}: holds ratings of {' '.join(gone[0])}, which is not among these texts; give the"
                    " same runs or choose another `out`"
                )
        except BadInput:
            self.ledger.close()
            raise
        self._orders: dict[str, list[tuple[str, CandidateText]]] = {}

    def close(self) -> None:
        """Release the directory for other processes."""
        self.ledger.close()

    def __enter__(self) -> "Annotating":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def rubrics(self) -> tuple[Rubric, ...]:
        """What raters are asked, for every kind of text there is."""
        return tuple(rubric(name) for name in MEASURES if any(text.item.measure == name for text in self.texts))

    def raters(self) -> list[RaterProgress]:
        """Everybody who has rated, with how far they are."""
        with self._turn:
            return [self.progress(rater) for rater in sorted(self._state.given)]

    def progress(self, rater: str) -> RaterProgress:
        """How far one rater is."""
        rater = rater_name(rater)
        with self._turn:
            given = self._state.given.get(rater, {})
            left = [
                number
                for number, (_, text) in enumerate(self._order(rater), 1)
                if given.get(text.key, NOTHING).score is None
            ]
        total = len(self.texts)
        return RaterProgress(rater=rater, rated=total - len(left), total=total, next=left[0] if left else None)

    def card(self, rater: str, number: int) -> RatingCard:
        """One text as the rater sees it, by its number in their order, from 1."""
        rater = rater_name(rater)
        order = self._order(rater)
        if not 1 <= number <= len(order):
            raise BadInput(f"text {number}: there are {len(order)}; give a number from 1 to {len(order)}")
        name, text = order[number - 1]
        shown = text.blind(text.text)
        with self._turn:
            given = self._state.given.get(rater, {}).get(text.key, NOTHING)
        return RatingCard(
            id=name,
            number=number,
            total=len(order),
            measure=text.item.measure,
            specimen=text.item.specimen,
            component=text.item.component,
            text=shown[:MOST_SHOWN],
            cut=max(0, len(shown) - MOST_SHOWN),
            given=None if text.given is None else text.blind(text.given)[:MOST_SHOWN],
            outcome=None if text.outcome is None else text.blind(text.outcome)[:MOST_SHOWN],
            tag=text.tag,
            reference=text.reference,
            reference_tag=text.reference_tag,
            task=text.task,
            parts=text.parts,
            examples=self._examples.get(text.item.specimen, ()),
            score=given.score,
            comment=given.comment,
        )

    def rate(self, rater: str, id: str, score: int | None, comment: str = "") -> RatingCard:
        """Keep a score, or take it back with None; it is on the disk when this returns. The last one counts."""
        rater = rater_name(rater)
        number, text = self._named(rater, id)
        best = MEASURES[text.item.measure].best
        if score is not None and not 0 <= score <= best:
            raise BadInput(f"score {score}: this text takes a whole number from 0 to {best}")
        given = GivenScore(score, clean_comment(comment))
        with self._turn:
            if given != self._state.given.get(rater, {}).get(text.key, NOTHING):
                self._state.add(self.ledger.append(RATING, **_fields(rater, text.key, given)))
            return self.card(rater, number)

    def undo(self, rater: str) -> RatingCard | None:
        """Take back what the rater did last, and return that text; None where there is nothing to take back."""
        rater = rater_name(rater)
        with self._turn:
            key = self._state.last(rater)
            if key is None:
                return None
            self._state.add(self.ledger.append(UNDO, rater=rater))
            names = [text.key for _, text in self._order(rater)]
            return self.card(rater, names.index(key) + 1)

    def ratings(self) -> list[Rating]:
        """Every score that counts, by rater and text."""
        with self._turn:
            return self._state.ratings()

    def csv(self) -> str:
        """All ratings as the text of one CSV file, which names the authors."""
        return csv_of(self.ratings())

    @property
    def finished(self) -> bool:
        """Whether somebody has rated, and everybody who has begun has rated everything."""
        raters = self.raters()
        return bool(raters) and all(one.next is None for one in raters)

    def csv_for(self, rater: str | None) -> str:
        """What a rater may see as a CSV file: everything after they have rated everything, before that their own
        ratings. Somebody without a name sees everything once everybody has finished.
        """
        with self._turn:
            if self.finished or (rater is not None and self.progress(rater).next is None):
                return self.csv()
            if rater is None:
                raise BadInput("ratings: not everybody has finished; name a rater, to see theirs")
            own = rater_name(rater)
            return csv_of(one for one in self.ratings() if one.rater == own)

    def import_ratings(
        self,
        text: str,
        *,
        source: str = "import",
        replace: bool = False,
        csv_text: bool = True,
        by: str | None = None,
    ) -> ImportedRatings:
        """Add the ratings of a CSV (or JSON) file, all or none. Where a rater has said something else here the file is
        refused, unless `replace` lets it win.

        `by` is the rater who imports (empty: nobody in particular). They may add ratings of their own and of raters who
        have none here; others are refused whatever their scores are, so that an answer says nothing of them.
        """
        own = None if by is None else rater_name(by) if by else ""
        rows = placed_ratings(text, source, csv_text=csv_text)
        with self._turn:
            changed, conflicts, unchanged = [], [], 0
            for where, row in rows:
                key = row.run, row.explainer, item_text(row.item)
                if key not in self._by_key:
                    raise BadInput(f"{where}: run, agent and item are not of a text that is rated here; correct them")
                try:
                    rater, given = rater_name(row.rater), GivenScore(row.score, clean_comment(row.comment))
                except BadInput as error:
                    raise BadInput(f"{where}: {error}") from None
                if own is not None and rater != own and rater in self._state.given:
                    raise BadInput(
                        f"{where}: {rater} rates here, and only they add to their ratings; import under that name, or "
                        "start the server with --import"
                    )
                before = self._state.given.get(rater, {}).get(key, NOTHING)
                if before == given:
                    unchanged += 1
                    continue
                changed.append(_fields(rater, key, given))
                if before != NOTHING:
                    said = f"{rater} has given {key[2]} {_said(before)} here and {_said(given)} in the file"
                    conflicts.append(f"{where}: {said}")
            if conflicts and not replace:
                more = f"; {len(conflicts)} rows conflict" if len(conflicts) > 1 else ""
                raise BadInput(f"{conflicts[0]}{more}; correct the file, or let it replace what is here")
            if changed:
                self._state.add(self.ledger.append(IMPORT, ratings=changed))
        replaced = len(conflicts)
        return ImportedRatings(added=len(changed) - replaced, replaced=replaced, unchanged=unchanged)

    def _named(self, rater: str, id: str) -> tuple[int, CandidateText]:
        for number, (name, text) in enumerate(self._order(rater), 1):
            if name == id:
                return number, text
        raise BadInput("this text is not one that is rated here; load the page again")

    def _order(self, rater: str) -> list[tuple[str, CandidateText]]:
        with self._turn:
            if rater not in self._orders:
                if len(self._orders) > 100:
                    self._orders.clear()
                self._orders[rater] = in_order_of(rater, self.texts, self._secret)
            return self._orders[rater]

    def _agree(self) -> str:
        """Write down what is rated, or check it against what was rated here before; the secret stays the same."""
        path = self.directory / ANNOTATION_FILE
        texts = tuple(
            AnnotatedText(run=text.run, agent=text.agent, item=item_text(text.item), digest=text.digest)
            for text in self.texts
        )
        secret = secrets.token_hex(16)
        if path.exists():
            before = Annotation.read(path)
            if before.reference != self.reference:
                shown = "with" if before.reference else "without"
                raise BadInput(
                    f"{self.directory}: was rated {shown} reference texts; repeat that or choose another `out`"
                )
            now = {(text.run, text.agent, text.item): text.digest for text in texts}
            for text in before.texts:
                if now.get((text.run, text.agent, text.item), text.digest) != text.digest:
                    raise BadInput(
                        f"{self.directory}: the text of {text.run} {text.item} has changed since; choose another `out`"
                    )
            secret = before.secret
        elif self.ledger.records:
            raise BadInput(
                f"{self.directory}: has {EVENTS} but no {ANNOTATION_FILE}; put it back or choose another `out`"
            )
        Annotation(reference=self.reference, secret=secret, texts=texts).write(path)
        with suppress(OSError):
            path.chmod(0o600)
        return secret


class RatingState:
    """What the events of an annotation come to."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.given: dict[str, dict[Key, GivenScore]] = {}
        self._undoable: dict[str, list[tuple[Key, GivenScore]]] = {}
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """One more event."""
        if record["event"] == RATING:
            rater, key, given = _read(record)
            before = self.given.setdefault(rater, {}).get(key, NOTHING)
            self._undoable.setdefault(rater, []).append((key, before))
            self.given[rater][key] = given
        elif record["event"] == IMPORT:
            for one in record["ratings"]:
                rater, key, given = _read(one)
                self.given.setdefault(rater, {})[key] = given
                self._undoable[rater] = [step for step in self._undoable.get(rater, []) if step[0] != key]
        elif record["event"] == UNDO and self._undoable.get(record["rater"]):
            key, before = self._undoable[record["rater"]].pop()
            self.given[record["rater"]][key] = before

    def last(self, rater: str) -> Key | None:
        """The text that an undo would change."""
        steps = self._undoable.get(rater)
        return steps[-1][0] if steps else None

    def ratings(self) -> list[Rating]:
        """Every score that counts."""
        kept = []
        for rater in sorted(self.given):
            for (run, agent, item), given in sorted(self.given[rater].items()):
                if given.score is not None:
                    fields = item_fields(item, "annotation")
                    row = {**fields, "rater": rater, "explainer": agent, "run": run}
                    kept.append(Rating.model_validate({**row, "score": given.score, "comment": given.comment}))
        return kept


def is_annotation(directory: Path) -> bool:
    """Whether a directory holds an annotation."""
    return (directory / ANNOTATION_FILE).is_file()


def read_annotation(directory: Path) -> list[Rating]:
    """The ratings of an annotation that may be open elsewhere."""
    Annotation.read(directory / ANNOTATION_FILE)
    return RatingState(read_ledger(directory / EVENTS)).ratings()


def csv_of(ratings: Iterable[Rating]) -> str:
    """Ratings as the text of one CSV file."""
    return ratings_csv(
        (one.run, one.explainer, one.rater, item_text(one.item), one.score, one.comment) for one in ratings
    )


def rater_name(given: str) -> str:
    """A rater's name: one line without odd characters."""
    name = " ".join(_CONTROL.sub(" ", given).split())
    if not name or len(name) > MOST_NAME:
        raise BadInput(f"rater {quoted(given, 40)}: give a name of 1 to {MOST_NAME} characters")
    return name


def clean_comment(given: str) -> str:
    """A comment that any file can hold."""
    text = _CONTROL.sub("", given.replace("\r\n", "\n").replace("\r", "\n")).strip()
    if len(text) > MOST_COMMENT:
        raise BadInput(f"comment: has {len(text)} characters; write at most {MOST_COMMENT}")
    return text


def _said(given: GivenScore) -> str:
    score = "no score" if given.score is None else str(given.score)
    return f"{score} ({quoted(given.comment, 40)})" if given.comment else score


def _fields(rater: str, key: Key, given: GivenScore) -> dict[str, Any]:
    run, agent, item = key
    return {"rater": rater, "run": run, "agent": agent, "item": item, **given._asdict()}


def _read(record: Mapping[str, Any]) -> tuple[str, Key, GivenScore]:
    key = str(record["run"]), str(record["agent"]), str(record["item"])
    return str(record["rater"]), key, GivenScore(record["score"], str(record["comment"]))


def _examples(specimens: set[str]) -> dict[str, tuple[tuple[Any, Any], ...]]:
    """Inputs and outputs of benchmark circuits, which raters see beside a text."""
    return {
        name: tuple((one["input"], one["output"]) for one in card.examples[:5])
        for card in benchmark_cards()
        for name in (card.id, card.name)
        if name in specimens
    }


__all__ = ["Annotating", "annotate"]


def annotate(
    runs: str | Path | Iterable[str | Path],
    *,
    reference: bool | None = None,
    ids: Iterable[str] | None = None,
    ratings: Iterable[str | Path] = (),
    out: Out = True,
) -> Annotating:
    """Open the texts of runs for blind rating; close it, or use it in a `with` block: notes and task descriptions, and
    where there is a trace also hypotheses beside their observations, and plans beside their hypotheses.

    `runs` are finished or unfinished runs of `vesalius bench circuits` and directories made by `explain`. `reference`
    lets raters see the reference texts and tags, which are those of the answer key for benchmark circuits; None shows
    them for runs of the protocol `paper`, as in the published study, and not for others. `ids` keeps some
    specimens; "human-subset" names ten circuits with 17 components. `ratings` are CSV files to import. The directory
    is `out`, or one under `vesalius-runs` that the same choice finds again.
    """
    directories = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    if not directories:
        raise BadInput("annotation: no run is named; give one or more")
    require_place(out)
    chosen = None if ids is None else [ids] if isinstance(ids, str) else list(ids)
    texts, shown = collect_texts(directories, reference=reference, ids=chosen)
    files = [read_csv_or_json(path, "ratings") for path in ratings]
    place = directory_for(out, annotation_name(directories, reference=shown, ids=chosen))
    opened = Annotating(place, texts, reference=shown)
    try:
        for path, text in files:
            opened.import_ratings(text, source=str(path), csv_text=path.suffix.lower() == ".csv")
    except BadInput:
        opened.close()
        raise
    return opened

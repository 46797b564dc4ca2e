"""What the annotation view asks: the texts of one rater, scores, undo, and one CSV out and in.

While texts are rated the server answers nothing else, because results say who wrote them. No answer but the export
names a run or an agent; before a rater has finished, it holds their own ratings alone.
"""

from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from vesalius_bench.ratings.annotation import Annotating

Rater = Annotated[str, Field(min_length=1, max_length=200)]


class RatingQuestion(BaseModel):
    """A score of one text, or none to take it back, with a comment."""

    model_config = ConfigDict(extra="forbid")

    rater: Rater
    id: Annotated[str, Field(max_length=40)]
    score: Annotated[int, Field(ge=0, le=2)] | None
    comment: Annotated[str, Field(max_length=10_000)] = ""


class UndoQuestion(BaseModel):
    """Whose last rating is taken back."""

    model_config = ConfigDict(extra="forbid")

    rater: Rater


class ImportQuestion(BaseModel):
    """The text of a CSV file, who imports it, and whether it may replace what they rated here."""

    model_config = ConfigDict(extra="forbid")

    csv: str
    rater: Annotated[str, Field(max_length=200)] = ""
    replace: bool = False


def routes(app: FastAPI, annotating: Annotating) -> None:
    """The requests of the annotation view."""

    @app.get("/api/annotation")
    def annotation() -> dict[str, Any]:
        rubrics = {rubric.measure: rubric.as_data() for rubric in annotating.rubrics()}
        raters = [progress.as_data() for progress in annotating.raters()]
        about = {"total": len(annotating.texts), "reference": annotating.reference, "finished": annotating.finished}
        return {**about, "rubrics": rubrics, "raters": raters}

    @app.get("/api/annotation/text")
    def text(
        rater: Annotated[str, Query(max_length=200)], number: Annotated[int | None, Query(ge=1, le=10**6)] = None
    ) -> dict[str, Any]:
        progress = annotating.progress(rater)
        return _shown(annotating, rater, annotating.card(rater, number or progress.next or 1))

    @app.post("/api/annotation/rate")
    def rate(asked: RatingQuestion) -> dict[str, Any]:
        return _shown(annotating, asked.rater, annotating.rate(asked.rater, asked.id, asked.score, asked.comment))

    @app.post("/api/annotation/undo")
    def undo(asked: UndoQuestion) -> dict[str, Any]:
        return _shown(annotating, asked.rater, annotating.undo(asked.rater))

    @app.post("/api/annotation/import")
    def import_ratings(asked: ImportQuestion) -> dict[str, Any]:
        return annotating.import_ratings(asked.csv, replace=asked.replace, by=asked.rater).as_data()

    @app.get("/api/annotation/ratings.csv")
    def export(rater: Annotated[str | None, Query(max_length=200)] = None) -> Response:
        headers = {"content-disposition": 'attachment; filename="ratings.csv"'}
        return Response(annotating.csv_for(rater), media_type="text/csv; charset=utf-8", headers=headers)


def _shown(annotating: Annotating, rater: str, card: Any) -> dict[str, Any]:
    progress = annotating.progress(rater).as_data()
    if card is None:
        return {"text": None, "progress": progress}
    return {"text": card.as_data(), "progress": progress}

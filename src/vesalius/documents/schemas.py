"""JSON Schema of every document, as its file holds it: what `vesalius schema NAME` prints."""

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from vesalius.documents.circuit import CIRCUIT_FILE, Circuit
from vesalius.documents.difference import DIFFERENCE_FILE, Difference
from vesalius.documents.discovery import DISCOVERY_FILE, Discovery
from vesalius.documents.explanation import EXPLANATION_FILE, Explanation
from vesalius.documents.faithfulness import FAITHFULNESS_FILE, Faithfulness
from vesalius.documents.listing import ResultList
from vesalius.documents.neurons import NEURONS_FILE, NeuronCircuit
from vesalius.documents.plan import Plan
from vesalius.documents.request import Request
from vesalius.documents.retest import RETEST_FILE, Retest
from vesalius.documents.scorecard import SCORECARD_FILE, Scorecard
from vesalius.documents.sweep import SWEEP_FILE, Sweep
from vesalius.documents.trace import TRACE_FILE, Trace
from vesalius.documents.what_if import WHAT_IF_FILE, WhatIf
from vesalius.errors import BadInput, choices
from vesalius_bench.claims.documents import CLAIM_FILE, VERDICT_FILE, ClaimVerdict, Registration
from vesalius_bench.league.documents import LEAGUE_FILE, ROW_FILE, SUBMISSION_FILE, League, LeagueRow, LeagueSubmission
from vesalius_bench.mib.documents import MibScore, MibSubmission
from vesalius_bench.papers.documents import PaperContents, PaperPlan, PaperTable
from vesalius_bench.ratings.documents_annotation import ANNOTATION_FILE, Annotation
from vesalius_bench.ratings.documents_ratings import RATINGS_FILE, Ratings
from vesalius_bench.study.documents import STUDY_FILE, Study
from vesalius_bench.survey.documents import SURVEY_FILE, Survey
from vesalius_functions.documents.reliability import RELIABILITY_FILE, Reliability
from vesalius_functions.documents.unit_tests import UNIT_TESTS_FILE, UnitTests
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.sets.document import SETS_FILE, HeadSets

DIALECT = "https://json-schema.org/draft/2020-12/schema"
#: Every document by name: its class, and its file where it has one.
DOCUMENTS: dict[str, tuple[type[BaseModel], str | None]] = {
    "request": (Request, None),
    "sweep": (Sweep, SWEEP_FILE),
    "what_if": (WhatIf, WHAT_IF_FILE),
    "circuit": (Circuit, CIRCUIT_FILE),
    "discovery": (Discovery, DISCOVERY_FILE),
    "faithfulness": (Faithfulness, FAITHFULNESS_FILE),
    "sets": (HeadSets, SETS_FILE),
    "neurons": (NeuronCircuit, NEURONS_FILE),
    "explanation": (Explanation, EXPLANATION_FILE),
    "retest": (Retest, RETEST_FILE),
    "registration": (Registration, CLAIM_FILE),
    "verdict": (ClaimVerdict, VERDICT_FILE),
    "trace": (Trace, TRACE_FILE),
    "scorecard": (Scorecard, SCORECARD_FILE),
    "survey": (Survey, SURVEY_FILE),
    "study": (Study, STUDY_FILE),
    "mechrl": (MechrlStudy, "mechrl-MODE.json"),
    "reliability": (Reliability, RELIABILITY_FILE),
    "unit_tests": (UnitTests, UNIT_TESTS_FILE),
    "difference": (Difference, DIFFERENCE_FILE),
    "ratings": (Ratings, RATINGS_FILE),
    "annotation": (Annotation, ANNOTATION_FILE),
    "league": (League, LEAGUE_FILE),
    "submission": (LeagueSubmission, SUBMISSION_FILE),
    "row": (LeagueRow, ROW_FILE),
    "mib_submission": (MibSubmission, None),
    "mib_score": (MibScore, None),
    "paper_table": (PaperTable, "PAPER-TABLE.json"),
    "paper_contents": (PaperContents, None),
    "paper_plan": (PaperPlan, None),
    "results": (ResultList, None),
    "plan": (Plan, None),
}


class _OfFields(GenerateJsonSchema):
    """Serializers that leave absent fields out do not change which fields there are."""

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        return None if schema["type"] == "function-wrap" else super().ser_schema(schema)


def schema_names() -> list[str]:
    """The documents that have a schema."""
    return list(DOCUMENTS)


def schema(name: str) -> dict[str, Any]:
    """JSON Schema of a document by name, such as "explanation"."""
    if name not in DOCUMENTS:
        raise BadInput(f"document {name!r} does not exist; choose one of {choices(DOCUMENTS)}")
    kind, _ = DOCUMENTS[name]
    body = kind.model_json_schema(mode="serialization", by_alias=True, schema_generator=_OfFields)
    absent = getattr(kind, "ABSENT_IF_EMPTY", ())
    required = [field for field in body.get("required", ()) if field not in absent]
    return {"$schema": DIALECT, **body, "required": required}

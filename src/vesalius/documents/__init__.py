"""The documents that pass between rooms and onto the disk, as frozen types with a schema version.

| document      | file               | made by             |
|---------------|--------------------|---------------------|
| `Sweep`       | `sweep.json`       | `vesalius sweep`    |
| `Circuit`     | `circuit.json`     | `vesalius discover` |
| `Discovery`   | `discovery.json`   | `vesalius discover` |
| `Explanation` | `explanation.json` | `vesalius explain`  |
| `Trace`       | `trace.json`       | `vesalius explain --scientist hyve` |
| `Scorecard`   | `scorecard.json`   | `vesalius bench`    |
| `Survey`      | `survey.json`      | `vesalius survey`   |

Each holds the `Request` that made it. Nothing here imports torch.
"""

from vesalius.documents.base import Document, Record
from vesalius.documents.checks import Checks
from vesalius.documents.circuit import Circuit, Member, Score
from vesalius.documents.discovery import Discovery
from vesalius.documents.explanation import (
    ClaimRecord,
    ComponentExplanation,
    Evidence,
    Executable,
    Explanation,
    Tag,
    Verdict,
)
from vesalius.documents.metric import Metric
from vesalius.documents.performance import Performance
from vesalius.documents.request import Request
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.survey import Survey, SurveyCell
from vesalius.documents.sweep import Sweep, SweepRow
from vesalius.documents.trace import Trace

__all__ = [
    "Checks",
    "Circuit",
    "ClaimRecord",
    "ComponentExplanation",
    "Discovery",
    "Document",
    "Evidence",
    "Executable",
    "Explanation",
    "Member",
    "Metric",
    "Performance",
    "Record",
    "Request",
    "Score",
    "Scorecard",
    "Survey",
    "SurveyCell",
    "Sweep",
    "SweepRow",
    "Tag",
    "Trace",
    "Verdict",
]

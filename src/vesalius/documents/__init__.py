"""The documents that pass between rooms and onto the disk, as frozen types with a schema version.

| document      | file               | made by             |
|---------------|--------------------|---------------------|
| `Sweep`       | `sweep.json`       | `vesalius sweep`    |
| `Circuit`     | `circuit.json`     | `vesalius discover` |
| `Discovery`   | `discovery.json`   | `vesalius discover` |
| `Faithfulness` | `faithfulness.json` | `vesalius faithfulness` |
| `HeadSets`    | `sets.json`        | `vesalius sets`                   |
| `NeuronCircuit` | `neurons.json`   | `vesalius neurons`  |
| `Explanation` | `explanation.json` | `vesalius explain`  |
| `Retest`      | `retest.json`      | `vesalius retest`   |
| `Registration` | `claim.json`      | `vesalius claims register` |
| `ClaimVerdict` | `verdict.json`    | `vesalius claims verify` |
| `Trace`       | `trace.json`       | `vesalius explain --scientist hyve` |
| `Scorecard`   | `scorecard.json`   | `vesalius bench`    |
| `Survey`      | `survey.json`      | `vesalius survey`   |
| `Study`       | `study.json`       | `vesalius study`    |
| `League`      | `league.json`      | `vesalius league make` |
| `LeagueSubmission` | `submission.json` | `vesalius league submit` |
| `LeagueRow`   | `rows/NAME.json`   | `vesalius league score` |
| `MechrlStudy` | `mechrl-MODE.json` | `vesalius bench mechrl` |

Each holds the `Request` that made it. What commands print without a file of its own is here as well: `Plan`,
`SurveyPlan`, the listings of `catalogue`, `RunUsage`, `TrainedSpecimen`, `TrainedSpecimens` and `GeneratedTasks`.
Nothing here imports torch.
"""

from vesalius.documents.base import Document, Record
from vesalius.documents.catalogue import SpecimenDescription
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
from vesalius.documents.faithfulness import Faithfulness
from vesalius.documents.metric import Metric
from vesalius.documents.neurons import NeuronCircuit
from vesalius.documents.performance import Performance
from vesalius.documents.plan import Plan, SurveyPlan
from vesalius.documents.request import Request
from vesalius.documents.retest import Retest
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.sweep import Sweep, SweepRow
from vesalius.documents.trace import Trace
from vesalius.documents.training import GeneratedTasks, TrainedSpecimen, TrainedSpecimens
from vesalius_bench.claims.documents import ClaimVerdict, Registration
from vesalius_bench.league.documents import League, LeagueRow, LeagueSubmission, LeagueTable
from vesalius_bench.study.documents import Study
from vesalius_bench.survey.documents import Survey, SurveyCell
from vesalius_mechrl.documents import MechrlStudy
from vesalius_mechrl.sets.document import HeadSets

__all__ = [
    "Checks",
    "Circuit",
    "ClaimRecord",
    "ClaimVerdict",
    "ComponentExplanation",
    "Discovery",
    "Document",
    "Evidence",
    "Executable",
    "Explanation",
    "Faithfulness",
    "GeneratedTasks",
    "HeadSets",
    "League",
    "LeagueRow",
    "LeagueSubmission",
    "LeagueTable",
    "MechrlStudy",
    "Member",
    "Metric",
    "NeuronCircuit",
    "Performance",
    "Plan",
    "Record",
    "Registration",
    "Request",
    "Retest",
    "Score",
    "Scorecard",
    "SpecimenDescription",
    "Study",
    "Survey",
    "SurveyCell",
    "SurveyPlan",
    "Sweep",
    "SweepRow",
    "Tag",
    "Trace",
    "TrainedSpecimen",
    "TrainedSpecimens",
    "Verdict",
]

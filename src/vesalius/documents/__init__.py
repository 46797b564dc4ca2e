"""The documents that pass between rooms and onto the disk, as frozen types with a schema version.

| document      | file               | made by             |
|---------------|--------------------|---------------------|
| `Sweep`       | `sweep.json`       | `vesalius sweep`    |
| `Circuit`     | `circuit.json`     | `vesalius discover` |
| `Discovery`   | `discovery.json`   | `vesalius discover` |
| `Faithfulness` | `faithfulness.json` | `vesalius faithfulness` |
| `NeuronCircuit` | `neurons.json`   | `vesalius neurons`  |
| `Alignment`   | `alignment.json`   | `vesalius align`    |
| `Atlas`       | `atlas.json`       | `vesalius atlas`    |
| `Explanation` | `explanation.json` | `vesalius explain`  |
| `Retest`      | `retest.json`      | `vesalius retest`   |
| `Ladder`      | `ladder.json`      | `vesalius ladder`   |
| `Trace`       | `trace.json`       | `vesalius explain --scientist hyve` |
| `Scorecard`   | `scorecard.json`   | `vesalius bench`    |
| `Difference`  | `difference.json`  | `vesalius diff`     |

The packages beside this one and plug-ins bring further kinds (`kinds`). Each holds the `Request` that made it. What
commands print without a file of its own is here as well: `Plan`,
`SurveyPlan`, the listings of `catalogue`, `RunUsage`, `TrainedSpecimen`, `TrainedSpecimens` and `GeneratedTasks`.
Nothing here imports torch.
"""

from vesalius.documents.alignment import Alignment
from vesalius.documents.atlas import Atlas
from vesalius.documents.base import Document, Record
from vesalius.documents.catalogue import SpecimenDescription
from vesalius.documents.checks import Checks
from vesalius.documents.circuit import Circuit, Member, Score
from vesalius.documents.difference import Difference
from vesalius.documents.discovery import Discovery
from vesalius.documents.experiments import Completion, Faithfulness, Retest, WhatIf
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
from vesalius.documents.neurons import NeuronCircuit
from vesalius.documents.performance import Performance
from vesalius.documents.printed import GeneratedTasks, Plan, ResultList, SurveyPlan, TrainedSpecimen, TrainedSpecimens
from vesalius.documents.request import Request
from vesalius.documents.running import Ladder
from vesalius.documents.scorecard import Scorecard
from vesalius.documents.sweep import Sweep, SweepRow
from vesalius.documents.trace import Trace

__all__ = [
    "Alignment",
    "Atlas",
    "Checks",
    "Circuit",
    "ClaimRecord",
    "Completion",
    "ComponentExplanation",
    "Difference",
    "Discovery",
    "Document",
    "Evidence",
    "Executable",
    "Explanation",
    "Faithfulness",
    "GeneratedTasks",
    "Ladder",
    "Member",
    "Metric",
    "NeuronCircuit",
    "Performance",
    "Plan",
    "Record",
    "Request",
    "ResultList",
    "Retest",
    "Score",
    "Scorecard",
    "SpecimenDescription",
    "SurveyPlan",
    "Sweep",
    "SweepRow",
    "Tag",
    "Trace",
    "TrainedSpecimen",
    "TrainedSpecimens",
    "Verdict",
    "WhatIf",
]

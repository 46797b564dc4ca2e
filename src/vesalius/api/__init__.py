"""The one composer: everything that the command line and the other faces can do, as functions.

| to                                        | call                                                                    |
|-------------------------------------------|-------------------------------------------------------------------------|
| find something to study                   | `specimens`, `load`, `show`, `predict`, `behaviours`, `models`, `check` |
| measure, find a circuit, explain, grade   | `plan`, `sweep`, `what_if`, `discover`, `neurons`, `explain`, ...       |
| look closer                               | `atlas`, `align`, `look`, `attention`, `lens`, `complete`, ...          |
| compare models and behaviours             | `survey`, `survey_plan`                                                 |
| repeat a published study                  | `study`, `study_plan`                                                   |
| run a benchmark and use finished runs     | `bench`, `replay`, `compare`, `diff`, `results`, `watch`                |
| let people rate texts blind, and compare  | `annotate`, `ratings`, `rating_sheets`                                  |
| register a claim before its test, verify  | `register_claim`, `verify_claim`, `check_verdict`, `show_claim`, ...    |
| score on fresh circuits, with a sealed key| `make_league`, `submit_league`, `score_league`, `league_table`          |
| submit circuits to the MIB benchmark      | `write_mib`, `check_mib`, `score_mib`                                   |
| submit variables to it                    | `align_mib`, `interchange_mib`                                          |
| repeat a result from its request          | `rerun`                                                                 |
| make specimens and see black boxes        | `train`, `generate`, `sample_functions`                                 |

Functions that take long accept `progress`: None shows a bar or plain lines, False is silent, a function is called with
(step, done, total). Those that write files accept `out`, a directory that is checked before the work begins.

Some are functions of the packages beside the core (`study`, `survey`, `ratings`, ...) or of plug-ins, found by entry
points. Modules are imported when a name of theirs is first used, so that loading and sweeping never open the answer
key's door.
"""

from typing import TYPE_CHECKING, Any

from vesalius.api.homes import OFFERED, named
from vesalius.plugins import VERBS, all_names

if TYPE_CHECKING:
    from vesalius.api.alignments import align
    from vesalius.api.atlases import atlas
    from vesalius.api.benchmarks import bench
    from vesalius.api.catalogue import behaviours, bos_text, next_tokens, predict, show
    from vesalius.api.continuing import complete
    from vesalius.api.discoveries import discover, neurons
    from vesalius.api.explanations import explain, ladder, retest
    from vesalius.api.kept_circuits import explained_circuit, faithfulness
    from vesalius.api.knockouts import save_what_if, what_if
    from vesalius.api.listing import models, specimens
    from vesalius.api.loading import check, load
    from vesalius.api.looking import attention, instruments, lens, look, why_attends
    from vesalius.api.plans import plan
    from vesalius.api.plugin_listing import plugins
    from vesalius.api.runs import diff, replay, report, rerun, results, what_if_again
    from vesalius.api.sweeps import sweep, sweep_report
    from vesalius.documents.attribution_graph import convert
    from vesalius.documents.kinds import schema, schema_names


def __getattr__(name: str) -> Any:
    """What no module of this package defines is a verb of another: an entry point of the group `vesalius.verbs`."""
    return named(name, of=__name__, beside=OFFERED)


def __dir__() -> list[str]:
    return sorted(all_names(VERBS, OFFERED))

"""The one composer: everything that the command line and the other faces can do, as functions.

| to                                        | call                                                                    |
|-------------------------------------------|-------------------------------------------------------------------------|
| find something to study                   | `specimens`, `load`, `show`, `predict`, `behaviours`, `models`, `check` |
| measure, find a circuit, explain, grade   | `plan`, `sweep`, `what_if`, `discover`, `neurons`, `explain`, ...       |
| look closer                               | `look`, `attention`, `lens`, `instruments`                              |
| compare models and behaviours             | `survey`, `survey_plan`                                                 |
| repeat a published study                  | `study`, `study_plan`                                                   |
| run a benchmark and use finished runs     | `bench`, `replay`, `compare`, `diff`, `results`, `watch`                |
| let people rate texts blind, and compare  | `annotate`, `ratings`, `rating_sheets`                                  |
| register a claim before its test, verify  | `register_claim`, `verify_claim`, `check_verdict`, `show_claim`, ...    |
| score on fresh circuits, with a sealed key| `make_league`, `submit_league`, `score_league`, `league_table`          |
| submit circuits to the MIB benchmark      | `write_mib`, `check_mib`, `score_mib`                                   |
| repeat a result from its request          | `rerun`                                                                 |
| make specimens and see black boxes        | `train`, `generate`, `sample_functions`                                 |

Functions that take long accept `progress`: None shows a bar or plain lines, False is silent, a function is called with
(step, done, total). Those that write files accept `out`, a directory that is checked before the work begins.

Modules are imported when a name of theirs is first used, so that loading and sweeping never open the answer key's door.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vesalius.api.benchmarks import bench, bench_circuits, bench_discovery, bench_functions
    from vesalius.api.catalogue import behaviours, bos_text, next_tokens, predict, show
    from vesalius.api.circuit_formats import convert
    from vesalius.api.discoveries import discover
    from vesalius.api.explanations import explain
    from vesalius.api.families import check, check_document
    from vesalius.api.kept_circuits import explained_circuit, faithfulness
    from vesalius.api.knockouts import save_what_if, what_if
    from vesalius.api.listing import models, specimens
    from vesalius.api.loading import load
    from vesalius.api.looking import attention, lens, look
    from vesalius.api.measuring import instruments
    from vesalius.api.neuron_circuits import neurons
    from vesalius.api.pages import report
    from vesalius.api.plans import plan
    from vesalius.api.plugin_listing import plugins
    from vesalius.api.requests import rerun, what_if_again
    from vesalius.api.retesting import retest
    from vesalius.api.sweeps import sweep, sweep_report
    from vesalius.api.training import generate, train
    from vesalius.api.watching import watch
    from vesalius.documents.kinds import schema, schema_names
    from vesalius.grading import grade
    from vesalius_bench.claims.registered import check_verdict, register_claim, show_claim, signing_key, verify_claim
    from vesalius_bench.league.files import read_passphrase
    from vesalius_bench.league.making import make_league
    from vesalius_bench.league.scoring import league_table, score_league
    from vesalius_bench.league.submissions import submit_league
    from vesalius_bench.mib.submissions import check_mib, score_mib, write_mib
    from vesalius_bench.papers.paper_runs import paper_plan, paper_run
    from vesalius_bench.papers.papers import paper_contents, paper_table
    from vesalius_bench.papers.runs import compare, diff, replay, results
    from vesalius_bench.ratings.api_annotating import annotate
    from vesalius_bench.ratings.api_rating_files import rating_sheets, ratings
    from vesalius_bench.study.studies import study
    from vesalius_bench.study.study_plans import study_plan
    from vesalius_bench.survey.surveys import survey, survey_plan
    from vesalius_functions.bench.function_studies import export_unit_tests, function_reliability, unit_tests
    from vesalius_functions.bench.functions import evaluator_data, sample_functions, serve_functions
    from vesalius_mechrl.api import bench_mechrl
    from vesalius_mechrl.api_sets import discover_sets

#: Where each name is defined.
_HOMES = {
    "annotate": "vesalius_bench.ratings.api_annotating",
    "attention": "vesalius.api.looking",
    "behaviours": "vesalius.api.catalogue",
    "bench": "vesalius.api.benchmarks",
    "bench_circuits": "vesalius.api.benchmarks",
    "bench_discovery": "vesalius.api.benchmarks",
    "bench_functions": "vesalius.api.benchmarks",
    "bench_mechrl": "vesalius_mechrl.api",
    "bos_text": "vesalius.api.catalogue",
    "check": "vesalius.api.families",
    "check_document": "vesalius.api.families",
    "check_mib": "vesalius_bench.mib.submissions",
    "check_verdict": "vesalius_bench.claims.registered",
    "compare": "vesalius_bench.papers.runs",
    "convert": "vesalius.api.circuit_formats",
    "diff": "vesalius_bench.papers.runs",
    "discover": "vesalius.api.discoveries",
    "discover_sets": "vesalius_mechrl.api_sets",
    "evaluator_data": "vesalius_functions.bench.functions",
    "explain": "vesalius.api.explanations",
    "explained_circuit": "vesalius.api.kept_circuits",
    "export_unit_tests": "vesalius_functions.bench.function_studies",
    "faithfulness": "vesalius.api.kept_circuits",
    "function_reliability": "vesalius_functions.bench.function_studies",
    "generate": "vesalius.api.training",
    "grade": "vesalius.grading",
    "instruments": "vesalius.api.measuring",
    "league_table": "vesalius_bench.league.scoring",
    "lens": "vesalius.api.looking",
    "load": "vesalius.api.loading",
    "look": "vesalius.api.looking",
    "make_league": "vesalius_bench.league.making",
    "models": "vesalius.api.listing",
    "neurons": "vesalius.api.neuron_circuits",
    "next_tokens": "vesalius.api.catalogue",
    "paper_contents": "vesalius_bench.papers.papers",
    "paper_plan": "vesalius_bench.papers.paper_runs",
    "paper_run": "vesalius_bench.papers.paper_runs",
    "paper_table": "vesalius_bench.papers.papers",
    "plan": "vesalius.api.plans",
    "plugins": "vesalius.api.plugin_listing",
    "predict": "vesalius.api.catalogue",
    "rating_sheets": "vesalius_bench.ratings.api_rating_files",
    "ratings": "vesalius_bench.ratings.api_rating_files",
    "read_passphrase": "vesalius_bench.league.files",
    "register_claim": "vesalius_bench.claims.registered",
    "replay": "vesalius_bench.papers.runs",
    "report": "vesalius.api.pages",
    "rerun": "vesalius.api.requests",
    "results": "vesalius_bench.papers.runs",
    "retest": "vesalius.api.retesting",
    "sample_functions": "vesalius_functions.bench.functions",
    "save_what_if": "vesalius.api.knockouts",
    "schema": "vesalius.documents.kinds",
    "schema_names": "vesalius.documents.kinds",
    "score_league": "vesalius_bench.league.scoring",
    "score_mib": "vesalius_bench.mib.submissions",
    "serve_functions": "vesalius_functions.bench.functions",
    "show": "vesalius.api.catalogue",
    "show_claim": "vesalius_bench.claims.registered",
    "signing_key": "vesalius_bench.claims.registered",
    "specimens": "vesalius.api.listing",
    "study": "vesalius_bench.study.studies",
    "study_plan": "vesalius_bench.study.study_plans",
    "submit_league": "vesalius_bench.league.submissions",
    "survey": "vesalius_bench.survey.surveys",
    "survey_plan": "vesalius_bench.survey.surveys",
    "sweep": "vesalius.api.sweeps",
    "sweep_report": "vesalius.api.sweeps",
    "train": "vesalius.api.training",
    "unit_tests": "vesalius_functions.bench.function_studies",
    "verify_claim": "vesalius_bench.claims.registered",
    "watch": "vesalius.api.watching",
    "what_if": "vesalius.api.knockouts",
    "what_if_again": "vesalius.api.requests",
    "write_mib": "vesalius_bench.mib.submissions",
}
__all__ = [
    "annotate",
    "attention",
    "behaviours",
    "bench",
    "bench_circuits",
    "bench_discovery",
    "bench_functions",
    "bench_mechrl",
    "bos_text",
    "check",
    "check_document",
    "check_mib",
    "check_verdict",
    "compare",
    "convert",
    "diff",
    "discover",
    "discover_sets",
    "evaluator_data",
    "explain",
    "explained_circuit",
    "export_unit_tests",
    "faithfulness",
    "function_reliability",
    "generate",
    "grade",
    "instruments",
    "league_table",
    "lens",
    "load",
    "look",
    "make_league",
    "models",
    "neurons",
    "next_tokens",
    "paper_contents",
    "paper_plan",
    "paper_run",
    "paper_table",
    "plan",
    "plugins",
    "predict",
    "rating_sheets",
    "ratings",
    "read_passphrase",
    "register_claim",
    "replay",
    "report",
    "rerun",
    "results",
    "retest",
    "sample_functions",
    "save_what_if",
    "schema",
    "schema_names",
    "score_league",
    "score_mib",
    "serve_functions",
    "show",
    "show_claim",
    "signing_key",
    "specimens",
    "study",
    "study_plan",
    "submit_league",
    "survey",
    "survey_plan",
    "sweep",
    "sweep_report",
    "train",
    "unit_tests",
    "verify_claim",
    "watch",
    "what_if",
    "what_if_again",
    "write_mib",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'vesalius.api' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

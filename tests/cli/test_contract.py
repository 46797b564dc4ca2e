"""The JSON each command prints keeps its fields, and stdout holds nothing else."""

import hashlib
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text
from typer.core import TyperGroup

import vesalius as ves
from tests.cli.conftest import Vesalius
from tests.closeness import assert_same_document
from vesalius.cli import app
from vesalius.documents.circuit import Circuit
from vesalius.documents.request import Request
from vesalius.errors import BadInput
from vesalius.version import __version__

#: Those of the core, then those of the packages beside it.
COMMANDS = [
    *("specimens", "show", "predict", "look", "behaviours", "models", "check"),
    *("sweep", "what-if", "complete", "discover", "explain", "report", "atlas", "align", "neurons"),
    *("faithfulness", "retest", "ladder", "improve"),
    *("train", "generate", "replay", "diff", "runs", "schema", "convert", "plugins"),
    *("compare", "mcp", "open", "paper", "ratings", "sets", "study", "survey", "transcoders", "latents"),
]
BENCHMARKS = ["circuits", "discovery", "functions", "mechrl", "natural"]
CLAIMS = ["register", "verify", "show", "key"]
LEAGUE = ["make", "submit", "score", "table"]
MIB = ["write", "check", "score", "align", "interchange"]
FUNCTIONS = ["sample", "serve", "reliability", "unit-tests", "evaluator-data", "evaluator-train"]
GROUPS = {"bench": BENCHMARKS, "functions": FUNCTIONS, "claims": CLAIMS, "league": LEAGUE, "mib": MIB}
ALL = [*COMMANDS, *(f"{group} {name}" for group, names in GROUPS.items() for name in names)]

#: Runs in a fresh interpreter: every help text, then the modules that are loaded.
HELP = """
import sys
from vesalius.cli import main
for command in sys.argv[1:]:
    sys.argv = ["vesalius", *command.split(), "--help"]
    try:
        main()
    except SystemExit as left:
        assert not left.code, command
heavy = {"torch", "numpy", "matplotlib", "safetensors", "tokenizers", "huggingface_hub", "gguf"} & set(sys.modules)
sys.exit(f"loaded: {heavy}" if heavy else 0)
"""


def test_no_help_text_loads_torch() -> None:
    helped = subprocess.run(
        [sys.executable, "-c", HELP, " ", "bench", "functions", *ALL], capture_output=True, text=True, check=False
    )
    assert helped.returncode == 0, helped.stderr
    for command in ALL:
        assert f"vesalius {command}" in helped.stdout
    assert helped.stdout.count("Example: vesalius") == len(ALL)


def test_every_command_has_a_help_text_here(vesalius: Vesalius) -> None:
    listed = vesalius("--help").out
    offered = typer.main.get_group(app).commands
    groups = {name: list(group.commands) for name, group in offered.items() if isinstance(group, TyperGroup)}
    names = [name for name in offered if name not in groups]
    assert sorted(names) == sorted(COMMANDS)  # `--help` orders them by groups
    assert all(name in listed for name in [*names, *groups])
    assert groups == GROUPS


def test_brackets_in_help_texts_are_printed() -> None:
    """Help texts are markup: `vesalius[sealing]` loses its brackets unless they are escaped."""
    offered = list(typer.main.get_group(app).commands.values())
    members = [member for group in offered if isinstance(group, TyperGroup) for member in group.commands.values()]
    for command in [*offered, *members]:
        options = [getattr(parameter, "help", None) for parameter in command.params]
        for text in filter(None, [command.help, *options]):
            printed = Text.from_markup(text).plain
            assert all(part in printed for part in re.findall(r"\[(?!/?bold\])[^\]]*\]", text)), text


def test_version(vesalius: Vesalius) -> None:
    assert vesalius("--version").out == f"{__version__}\n"


def test_python_dash_m_is_the_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "vesalius", "--version"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout.strip(), shown.stderr) == (0, __version__, "")


def test_specimens(vesalius: Vesalius) -> None:
    rows = json.loads(vesalius("specimens", "--json").out)
    smollm = next(row for row in rows if row["id"] == "smollm2-135m")
    assert smollm["components"][:2] == ["L0H0", "L0H1"]
    assert len(smollm["components"]) == 30 * (9 + 1)
    assert {k: smollm[k] for k in ("name", "kind", "layers", "heads", "d_model")} == {
        "name": "smollm2-135m",
        "kind": "natural",
        "layers": 30,
        "heads": 9,
        "d_model": 576,
    }
    assert "smollm2-135m" in vesalius("specimens").out


def test_show(vesalius: Vesalius, tiny: Path) -> None:
    shown = json.loads(vesalius("show", tiny, "--behaviour", "ioi", "--json").out)
    assert {k: shown[k] for k in ("id", "name", "kind", "layers", "heads", "d_model", "max_len")} == {
        "id": "tiny",
        "name": "tiny",
        "kind": "natural",
        "layers": 2,
        "heads": 4,
        "d_model": 12,
        "max_len": 47,
    }
    assert shown["components"] == [f"L{i}{part}" for i in (0, 1) for part in ("H0", "H1", "H2", "H3", "_MLP")]
    assert shown["vocab"]["size"] > 100
    assert len(shown["examples"]) == 5
    assert all(set(example) == {"input", "output"} for example in shown["examples"])
    assert all(example["output"] in example["input"] for example in shown["examples"])
    assert "2 layers x 4 heads, d_model 12" in vesalius("show", tiny).out


def test_predict(vesalius: Vesalius, tiny: Path) -> None:
    given = '["Then, Alice", [" went", " to", " the"], " the"]'
    outputs = json.loads(vesalius("predict", tiny, "--input", given, "--json").out)["outputs"]
    assert [len(row) for row in outputs] == [3, 3, 1]
    assert all(isinstance(token, str) for row in outputs for token in row)
    alone = json.loads(vesalius("predict", tiny, "--input", '[" the"]', "--json").out)["outputs"]
    assert alone == [outputs[2]]
    (tiny.parent / "inputs.json").write_text(given, encoding="utf-8")
    assert json.loads(vesalius("predict", tiny, "-i", "@inputs.json", "--json").out)["outputs"] == outputs


def test_behaviours(vesalius: Vesalius, tiny: Path) -> None:
    listed = json.loads(vesalius("behaviours", "--json").out)
    assert {"induction", "ioi", "docstring", "greater-than"} <= {row["name"] for row in listed}


@pytest.mark.parametrize("kind", ["zero", "mean", "resample", "value-bias"])
def test_sweep(vesalius: Vesalius, tiny: Path, kind: str) -> None:
    # Random weights have no contrast, which a sweep by counterfactual values would refuse.
    got = vesalius("sweep", tiny, "-b", "induction", "--kind", kind, "--n", 4, "--force", "--out", "here", "--json")
    assert got.code == 0, got.err
    swept = json.loads(got.out)
    assert {"baseline", "components", "forwards", "seconds"} <= set(swept)
    rows = swept["components"]
    assert sorted(row["id"] for row in rows) == sorted(
        f"L{i}{part}" for i in (0, 1) for part in ("H0", "H1", "H2", "H3", "_MLP")
    )
    signed = [f"effect_{side}{end}" for side in ("right", "wrong", "rest") for end in ("", "_low", "_high")]
    assert all(
        {"id", "effect", "ci_low", "ci_high", *signed}
        <= set(row)
        <= {"id", "effect", "ci_low", "ci_high", *signed, "acts"}
        for row in rows
    )
    assert all(row["ci_low"] - 1e-5 <= row["effect"] <= row["ci_high"] + 1e-5 for row in rows)
    assert [row["effect"] for row in rows] == sorted((row["effect"] for row in rows), reverse=True)
    assert swept["baseline_low"] <= swept["baseline"] <= swept["baseline_high"]
    # 1 clean pass and, of 10 replacements in 2 layers, no more than a pass each.
    assert 1 < swept["forwards"] < 11
    assert json.loads(Path("here/sweep.json").read_text(encoding="utf-8")) == swept
    assert Path(swept["heatmap"]).read_bytes().startswith(b"\x89PNG")


def test_sweep_of_pairs_and_of_named_components(vesalius: Vesalius, tiny: Path) -> None:
    options = ["sweep", tiny, "-b", "induction", "--n", 3, "-c", "1.2, m0,a0.h1", "--force", "--json"]
    alone, together = (json.loads(vesalius(*options, *more).out) for more in ([], ["--pairs"]))
    assert sorted(row["id"] for row in alone["components"]) == ["L0H1", "L0_MLP", "L1H2"]
    assert sorted(row["id"] for row in together["components"]) == ["L0_MLP+L0H1", "L1H2+L0H1", "L1H2+L0_MLP"]
    assert alone["baseline"] == pytest.approx(together["baseline"], abs=1e-5)
    assert "heatmap" in alone
    assert "heatmap" not in together


def test_the_table_for_people(vesalius: Vesalius, tiny: Path) -> None:
    got = vesalius("sweep", tiny, "-b", "induction", "--n", 2, "--top", 3, "--force")
    assert got.code == 0
    assert "10 components, 2 prompts" in got.out
    assert sum(line.strip().startswith(("L0", "L1")) for line in got.out.splitlines()) == 3
    digits = hashlib.sha256(str(tiny.resolve()).encode()).hexdigest()[:6]
    assert Path(f"vesalius-runs/sweep-tiny-{digits}-induction-resample-n2-seed0/heatmap.png").exists()
    assert "heatmap.png" in got.out


@pytest.mark.parametrize("method", ["sweep", "eap", "eap-ig", "relp", "acdc"])
def test_discover(vesalius: Vesalius, tiny: Path, method: str) -> None:
    options = ["-b", "induction", "--method", method, "--n", 3, "--out", "here", "--force"]
    got = vesalius("discover", tiny, *options, "--json")
    assert got.code == 0, got.err
    found = json.loads(got.out)
    assert {"method", "components", "metrics", "forwards", "seconds"} <= set(found)
    assert found["method"] == method
    assert all(set(row) == {"id", "score"} for row in found["components"])
    assert {row["id"] for row in found["components"]} == {
        f"L{i}{part}" for i in (0, 1) for part in ("H0", "H1", "H2", "H3", "_MLP")
    }
    assert {"cmd", "cpr"} <= set(found["metrics"])
    assert "nothing to compare with" in found["checks"]["missing"]["detectors"]
    assert found["performance"]["performs"] is False
    assert "does not perform induction" in got.err
    assert "jaccard" in found["metrics"]
    assert ("edge_cmd" in found["metrics"]) == (method != "sweep")
    assert found["checks_forwards"] > 0
    assert set(found["checks"]) >= {"faithfulness", "stability", "specificity", "detectors", "known_heads", "missing"}
    assert ("edges" in found) == (method != "sweep")
    assert set(json.loads(Path("here/circuit.json").read_text(encoding="utf-8"))) == {"schema", "cfg", "nodes", "edges"}
    told = vesalius("discover", tiny, *options).out
    assert "circuit.json" in told
    assert "checks: 12 held-out prompts, circuit of " in told
    pictures = {"heads.png", "heads.svg", "curve.svg", *(() if method == "sweep" else ("circuit.svg",))}
    assert pictures | {"discovery.html"} <= {path.name for path in Path("here").iterdir()}
    assert json.loads(vesalius("report", "here", "--json").out) == {"page": "here/discovery.html"}


def test_discover_lists_the_strongest_of_very_many_edges(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--method", "eap", "--n", 4, "--quick", "--json", "--out", "here"]
    whole = json.loads(vesalius("discover", "frac_prevs", *options).out)
    assert len(whole["edges"]) == whole["n_edges"] == 110
    monkeypatch.setattr("vesalius.documents.discovery.MAX_LISTED_EDGES", 109)
    monkeypatch.setattr("vesalius.documents.discovery.LISTED_EDGES", 5)
    found = json.loads(vesalius("discover", "frac_prevs", *options).out)
    assert (found["edges"], found["n_edges"]) == (whole["edges"][:5], 110)
    assert len(Circuit.read(Path("here/circuit.json")).edge_scores) == 110


@pytest.mark.parametrize("method", ["bandit", "rl"])
def test_a_search_is_checked_on_heads(vesalius: Vesalius, method: str) -> None:
    got = vesalius("discover", "frac_prevs", "-m", method, "--n", 4, "--seeds", 2, "--budget", 8, "--json")
    found = json.loads(got.out)
    assert "edges" not in found
    assert found["metrics"]["seeds_jaccard"] == 1.0
    assert found["metrics"]["cmd"] == pytest.approx(1 / 16)
    assert Path(f"vesalius-runs/discover-frac_prevs-{method}-budget8-seeds2-n4-seed0/discovery.html").exists()


def test_python_returns_the_checks_that_the_command_prints(vesalius: Vesalius) -> None:
    printed = json.loads(vesalius("discover", "frac_prevs", "--n", 4, "--json", "--out", "here").out)
    discovery = ves.discover("frac_prevs", n=4, progress=False)
    assert discovery.checks is not None
    assert_same_document(discovery.checks.model_dump(mode="json"), printed["checks"])
    for name, figure in discovery.checks.metrics.items():
        assert discovery.metrics[name] == pytest.approx(figure)
        assert printed["metrics"][name] == pytest.approx(figure, abs=1e-5)
    assert list(inspect.signature(ves.explain).parameters)[:2] == ["specimen", "components"]


def test_discover_without_checks(vesalius: Vesalius) -> None:
    got = vesalius("discover", "frac_prevs", "--n", 4, "--quick", "--json", "--out", "here")
    found = json.loads(got.out)
    assert found["checks"] is None
    assert set(found["metrics"]) == {"auroc", "node_auroc"}
    page = Path("here/discovery.html").read_text(encoding="utf-8")
    assert "Can it be trusted?" not in page
    assert "--quick" in page


def test_discover_sets(vesalius: Vesalius, tiny: Path) -> None:
    options = ["-b", "induction", "--n", 8, "--pool", "L0H0,L0H1,L1H0", "--force"]
    for search in ("group", "pairs"):
        got = vesalius("sets", tiny, *options, "--search", search, "--out", search, "--json")
        assert got.code == 0, got.err
        found = json.loads(got.out)
        assert {"method", "components", "metrics", "forwards", "seconds", "sets", "backup_groups"} <= set(found)
        assert (found["method"], found["search"], found["budget"]) == ("sets", search, 6)
        assert [row["id"] for row in sorted(found["components"], key=lambda row: row["id"])] == found["pool"]
        assert {"heads", "effect", "low", "high", "value"} == set(found["sets"][0])
        assert json.loads(Path(search, "sets.json").read_text(encoding="utf-8")) == found
    command = Request.model_validate(found["request"]).command_line()
    again = json.loads(vesalius(*shlex.split(command)[1:], "--out", "again", "--json").out)
    assert_same_document([again["sets"], again["request"]], [found["sets"], found["request"]])
    assert found["metrics"]["queries"] == 6
    assert found["forwards"] > 1
    assert Path("pairs/synergy.png").stat().st_size > 1000
    assert "synergy.png" in vesalius("sets", tiny, *options, "--search", "pairs", "--out", "pairs").out


@pytest.mark.parametrize("method", ["bandit", "rl"])
def test_discover_by_search(vesalius: Vesalius, tiny: Path, method: str) -> None:
    options = ["-b", "induction", "--method", method, "--n", 3, "--budget", 6, "--seeds", 2, "--force", "--json"]
    got = vesalius("discover", tiny, *options)
    assert got.code == 0, got.err
    found = json.loads(got.out)
    assert {"method", "components", "metrics", "forwards", "seconds"} <= set(found)
    assert {row["id"] for row in found["components"]} == {f"L{i}H{j}" for i in (0, 1) for j in range(4)}
    assert 0 <= found["metrics"]["seeds_jaccard"] <= 1
    assert "jaccard" not in found["metrics"], "searches are not resampled"
    assert found["checks"]["stability"] is None
    assert found["forwards"] > 4


def test_paper_mode_says_which_quirks(vesalius: Vesalius) -> None:
    got = vesalius("discover", "frac_prevs", "--method", "rl", "--n", 4, "--paper", "--steps", 64, "--json")
    assert got.code == 0, got.err
    assert "hidden candidates" in json.loads(got.out)["quirks"]
    assert "hidden candidates" in got.err


def test_discover_is_graded_where_there_is_a_key(vesalius: Vesalius) -> None:
    found = json.loads(vesalius("discover", "frac_prevs", "--method", "eap", "--n", 8, "--json").out)
    assert found["metrics"]["auroc"] == found["metrics"]["node_auroc"] == 1.0
    assert 0.9 <= found["metrics"]["edge_auroc"] <= 1


@pytest.mark.slow
def test_bench_discovery(vesalius: Vesalius) -> None:
    options = ["--methods", "sweep,eap", "--ids", "3,8", "--n", 8, "--jobs", 1]
    got = vesalius("bench", "discovery", *options, "--json")
    assert got.code == 0, got.err
    card = json.loads(got.out)
    assert list(card["methods"]) == ["sweep", "eap"]
    for figures in card["methods"].values():
        assert {"node_auroc", "edge_auroc", "forwards", "seconds", "n", "n_error"} <= set(figures)
        assert (figures["n"], figures["n_error"]) == (2, 0)
        assert figures["node_auroc"]["value"] == figures["node_auroc_mean"]["value"] == 1.0
    assert card["methods"]["sweep"]["edge_auroc"] is None
    assert "edge_auroc" in vesalius("bench", "discovery", *options).out


def test_models(vesalius: Vesalius) -> None:
    rows = json.loads(vesalius("models", "--json").out)
    assert all(row.keys() == {"family", "model_types", "exact"} for row in rows)
    assert {"gpt2", "gpt_neox", "gemma3", "qwen3_moe", "olmo3"} <= {row["family"] for row in rows}
    assert "gemma3_text" in vesalius("models").out


def test_check(vesalius: Vesalius, tiny: Path) -> None:
    document = json.loads(vesalius("check", tiny, "--json").out)
    assert {"family", "dtype", "device", "compared_with", "max_difference", "n"} <= document.keys()
    assert (document["family"], document["dtype"], document["n"]) == ("gpt2", "float32", 8)
    if document["compared_with"] is not None:
        assert document["max_difference"] <= 1e-4
        printed = vesalius("check", tiny, "--n", 2).out
        assert re.match(
            r"Yes: gpt2: agrees to \S+ \(float32, 2 prompts\)\nnext: vesalius behaviours \S*tiny\n", printed
        )
        assert document["answer"]["verdict"] == "yes"
        assert document["summary"] in document["answer"]["text"]
    refused = vesalius("check", tiny, "--dtype", "int3")
    assert refused.code == 2
    assert "dtype 'int3' does not exist" in refused.err


def test_a_sweep_in_half_precision(vesalius: Vesalius, tiny: Path) -> None:
    options = ("--behaviour", "induction", "--n", 2, "--device", "cpu", "--force", "--json")
    half, whole = (
        json.loads(vesalius("sweep", tiny, *options, "--out", dtype, "--dtype", dtype).out)
        for dtype in ("bfloat16", "float32")
    )
    # Scores of the tiny model are of size 1, and eight bits of mantissa are kept.
    assert half["baseline"] == pytest.approx(whole["baseline"], abs=0.2)


def test_a_behaviour_the_tokenizer_cannot_say_does_not_hide_the_others(
    vesalius: Vesalius, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vesalius.api import catalogue

    real = catalogue.measure

    def measure(one: Any, *arguments: Any, **options: Any) -> Any:
        if one.name == "ioi":
            raise BadInput("behaviour ioi: no single-token words")
        return real(one, *arguments, **options)

    monkeypatch.setattr(catalogue, "measure", measure)
    rows = {row["name"]: row for row in json.loads(vesalius("behaviours", tiny, "--n", "4", "--json").out)}
    assert rows["ioi"] == {"name": "ioi", "performs": None, "reason": "behaviour ioi: no single-token words"}
    assert rows["induction"]["n"] == 4
    text = vesalius("behaviours", tiny, "--n", "4").out
    assert "not measured" in text
    assert "behaviour ioi: no single-token words" in text.splitlines()

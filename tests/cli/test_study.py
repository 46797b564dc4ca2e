"""The AF1 study on the arithmetic model: circuit, roles, ratings, the published table, refusals and resuming."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import vesalius as ves
from tests.api.scientist import NAME as SILENT
from tests.cli.conftest import Vesalius
from tests.cli.test_bad_input import refused
from tests.runs.models import PRICES
from vesalius.api.workloads import read_shape
from vesalius.discovery.known_heads import AF1_COMPONENTS, is_llama_3_8b
from vesalius.documents import Circuit, Plan
from vesalius.documents.base import FrozenDict
from vesalius.documents.circuit import Member
from vesalius.documents.kinds import schema
from vesalius.runs.ledger import read_ledger
from vesalius_bench.ratings.reading import majority
from vesalius_bench.study import steps
from vesalius_bench.study import study as verbs
from vesalius_bench.study.documents import Localisation, Study
from vesalius_bench.study.evidence import ComponentEvidence, evidence_table
from vesalius_bench.study.measuring import measured_evidence
from vesalius_bench.study.roles import read_roles
from vesalius_bench.study.run import StudySettings, interchange_of
from vesalius_bench.study.steps import localise
from vesalius_truth.grading.keys import known_roles
from vesalius_truth.key.other_keys import af1_roles, established_roles

STEPS = ["performed", "localised", "measured", "explained"]
NAMED = ("L0H3", "L1H0", "L2_MLP")
ROOT = Path(ves.__file__).parents[1]
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "torch_dtype": "bfloat16",
}
SCALED = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SETTINGS = StudySettings("af1", "m", None, None, None, n=8, top=24, seed=0, quick=True, dtype="auto")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Three components, named: nothing has to be discovered."""
    out = tmp_path_factory.mktemp("study") / "s"
    return ves.study("af1", "arithmetic", circuit=NAMED, n=4, out=out, progress=False)


@pytest.fixture
def copy(study: Study, tmp_path: Path) -> Path:
    """The finished study, free to be added to."""
    assert study.directory is not None
    return Path(shutil.copytree(study.directory, tmp_path / "copy"))


def again(out: Path, **options: Any) -> Study:
    return ves.study("af1", "arithmetic", circuit=NAMED, n=4, out=out, progress=False, **options)


def test_a_circuit_is_discovered_explained_and_set_beside_the_published_rows(
    vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "POOL", 6)  # fewer sets to measure
    command = ["study", "af1", "--model", "arithmetic", "--n", 8, "--top", 4, "--quick", "--out", "s"]
    got = vesalius(*command, "--json")
    assert got.code == 0, got.err
    data = json.loads(got.out)
    jsonschema = pytest.importorskip("jsonschema")
    assert list(jsonschema.Draft202012Validator(schema("study")).iter_errors(data)) == []
    study = Study.read("s/study.json")
    assert json.loads(json.dumps(study.as_data())) == data
    found = study.localisation
    assert found.source == "discovered"
    # Resampling an MLP costs three times what any head costs, on any prompts.
    assert {"L0_MLP", "L1_MLP", "L2_MLP"} <= set(found.components)
    backups = {head for group in found.backup_groups for head in group}
    assert backups <= set(found.components)
    assert len(set(found.components) - backups) <= 4
    assert study.performance.top1 > 0.95
    assert study.behaviour.endswith("keep=right")
    assert [(row.agent, row.correct, row.partial, row.wrong) for row in study.table_4] == [
        ("GPT-5.4", 6, 3, 1),
        ("Claude-Sonnet-4.6", 8, 2, 0),
        ("Gemini-3.1-Pro", 1, 2, 7),
        ("builtin", None, None, None),
    ]
    ours = study.table_4[-1]
    assert (ours.source, ours.n, ours.not_rated) == ("measured", len(found.components), len(found.components))
    assert [role.component for role in study.explainers[0].roles] == list(found.components)
    assert set(study.references) | set(study.not_localised) == set(established_roles()["components"])
    assert {"report.html", "rating-sheet.csv", "discovery", "sets"} <= {path.name for path in Path("s").iterdir()}
    printed = vesalius(*command).out
    assert "Not rated: give the scores of three raters with --ratings, or name judges with --judge." in printed
    assert "Our rows are about another model (arithmetic)" in printed


def test_the_document_shows_itself(study: Study, tmp_path: Path) -> None:
    assert study.directory is not None
    assert Study.read(Path(study.directory) / "study.json") == study
    assert "3 components (given): L0H3, L1H0, L2_MLP\nbuiltin not rated (3 components)" in repr(study)
    assert study.localisation.how == "named by the caller"
    assert study.request.circuit == f"{study.directory}/circuit.json"
    assert list(map(str, Circuit.read(study.request.circuit).chosen())) == list(NAMED)
    page = Path(ves.report(study.directory)).read_text(encoding="utf-8")
    assert study.page(tmp_path).read_text(encoding="utf-8") == page
    for text in ("Claude-Sonnet-4.6", "nobody rated it", study.references["L0H3"].split(".")[0]):
        assert text in page


# Interventions at the last token.


def test_the_evidence_shows_which_operand_a_head_moves(study: Study) -> None:
    """L0H3 brings B, and neither A nor C (the established roles); MLPs have no attention."""
    mover, _, writer = study.evidence.components
    assert study.evidence.n == 4
    assert mover.moved["operand B"] > 0.1 > max(abs(mover.moved["operand A"]), abs(mover.moved["operand C"]))
    assert max(mover.attention, key=lambda role: mover.attention[role]) == "operand B"
    assert 0 < sum(mover.attention.values()) <= 1 + 1e-3  # four decimals are kept
    assert set(mover.cut) == {"BOS", "operand A", "operand B", "operand C", "itself"}
    assert (dict(writer.attention), dict(writer.cut), writer.once_others_zeroed) == ({}, {}, None)
    assert writer.lens_top_5 > mover.lens_top_5
    assert {step.component for step in study.evidence.pruning} == {"L0H3", "L1H0"}


def test_every_role_stands_beside_what_its_component_carries_by_interchange(study: Study) -> None:
    one = ComponentEvidence(
        component="L0H1",
        zeroed=0.5,
        lens_answer=0.0,
        lens_top_5=0.0,
        switched=FrozenDict({"operand A": 0.25, "operand B": 0.75}),
        exchanged=FrozenDict({"operand A": 8, "operand B": 12}),
    )
    carried = interchange_of(one)
    assert carried is not None
    assert (carried.operand, carried.accuracy.value, carried.accuracy.n, carried.others) == ("B", 0.75, 12, 0.25)
    assert interchange_of(one.model_copy(update={"exchanged": FrozenDict({})})) is None
    evidence = {part.component: part for part in study.evidence.components}
    for explainer in study.explainers:
        for role in explainer.roles:
            if evidence[role.component].exchanged:
                assert role.interchange is not None
                assert role.interchange.accuracy.value == pytest.approx(
                    max(evidence[role.component].switched.values()), abs=0.05
                )


def test_a_backup_group_is_zeroed_without_each_and_as_a_whole() -> None:
    specimen = ves.load("arithmetic")
    group = ("L0H1", "L0H2", "L0H4")
    found = Localisation(source="given", how="", components=group, backup_groups=(group,))
    evidence = measured_evidence(specimen, found, n=8, seed=1)
    whole = ves.instruments(specimen, n=8, seed=1).replace([group], how="zero", at="end")[0]["accuracy"]
    for part in evidence.components:
        assert part.others == tuple(head for head in group if head != part.component)
        assert part.once_others_zeroed is not None
        assert part.once_others_zeroed[1] == pytest.approx(whole)
    columns, rows = evidence_table(evidence)
    assert columns == [
        *("component", "zeroed", "mean", "CAMA", "attends to", "cut"),
        *("moved A", "moved B", "moved C", "lens", "backups gone"),
    ]
    assert [row[0] for row in rows] == list(group)
    assert all(row[4].startswith("C 0.") for row in rows)


def test_a_study_costs_the_sum_of_its_steps(
    vesalius: Vesalius, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Any]] = []

    def planned(command: str, model: Any, *, components: Any = None, n: int, **_: Any) -> Plan:
        asked.append((command, components))
        figures: dict[str, Any] = {"forwards": 100.0, "seconds": 10.0, "checks_forwards": 0.0}
        if command == "discover":
            figures = {"forwards": 15.0, "seconds": 2.0, "checks_forwards": 5.0}
        fixed = {"peak_bytes": 2, "weight_bytes": 1, "timed": "", "tokens": 7, "device": "cpu", "fits": True}
        return Plan(command=command, n=n, **figures, **fixed)

    monkeypatch.setattr(verbs, "plan", planned)
    got = vesalius("study", "af1", "--model", "arithmetic", "--n", 4, "--top", 10, "--plan", "--json")
    assert got.code == 0, got.err
    plan = json.loads(got.out)
    # 100 to explain, 11 * 10 + 55 + 7 * 45 for interventions, 15 to sweep, 18 heads and their 153 pairs for the sets.
    assert plan["forwards"] == pytest.approx(100 + 480 + 15 + 171)
    assert plan["checks_forwards"] == 5.0
    # A pass of the explanation takes 0.1 s, one of the sweep 2 / 20 s.
    assert plan["seconds"] == pytest.approx(10 + 48 + 2 + 17.1)
    assert not Path("vesalius-runs").exists()
    shape(tmp_path)  # Llama-3-8B without weights: nothing to discover; 7 of 10 are heads, 110 + 28 + 7 * 21 passes
    asked.clear()
    assert verbs.study_plan("af1", tmp_path, n=4, progress=False).forwards == pytest.approx(385)
    assert asked == [("explain", tuple(map(str, AF1_COMPONENTS)))]
    refused(vesalius, ["study", "af1", "--model", "arithmetic", "--plan", "--judge", "a:b"], "--plan: how often")


# The model that the publication studied, told by its shape.


def shape(tmp_path: Path, **changes: Any) -> Any:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    found = read_shape(tmp_path, dtype="auto")
    assert found is not None
    return found.model


def test_llama_3_8b_is_told_by_its_shape(tmp_path: Path) -> None:
    model = shape(tmp_path)
    assert is_llama_3_8b(model.config)
    found = localise(SimpleNamespace(model=model), None, SETTINGS, tmp_path, lambda *_: None)  # type: ignore[arg-type]
    assert found.source == "published"
    assert found.components == (
        *("L15H3", "L15H13", "L15H31", "L16H1", "L16H21"),
        *("L20_MLP", "L26H3", "L28H18", "L29_MLP", "L31_MLP"),
    )
    assert "the shape of Llama-3-8B" in found.how


@pytest.mark.parametrize(
    "changes",
    [
        {"max_position_embeddings": 131072, "rope_scaling": SCALED},  # Llama-3.1-8B
        {"vocab_size": 32000},
        {"num_hidden_layers": 28},
        {"hidden_size": 2048},
    ],
)
def test_other_shapes_are_not_taken_for_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert not is_llama_3_8b(shape(tmp_path, **changes).config)


def test_every_published_component_has_a_reference_role_that_only_grading_sees() -> None:
    key = af1_roles()["components"]
    assert set(key) == set(map(str, AF1_COMPONENTS))
    references = known_roles("Llama-3-8B")
    assert references is not None
    assert references.roles.keys() == key.keys()
    secrets = [part["note"] for part in key.values()]
    others = [
        path
        for path in ROOT.glob("vesalius*/**/*")
        if path.suffix in (".py", ".json", ".md", ".toml") and path.is_file()
    ]
    for path in others:
        if path.name != "af1.json":
            text = path.read_text(encoding="utf-8")
            assert not [note for note in secrets if note in text], path


# Ratings.


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([2, 2, 0], 2),
        ([0, 1, 0], 0),
        ([1, 1, 1], 1),
        ([0, 1, 2], None),  # three raters, three opinions
        ([2, 2], None),  # too few raters
        ([], None),
        ([2, 2, 1, 1], None),  # half is not most
        ([2, 2, 2, 0, 1], 2),
    ],
)
def test_the_majority_of_raters(scores: list[int], expected: int | None) -> None:
    assert majority(scores) == expected


def rate(sheet: Path, scores: dict[str, tuple[int, int, int]]) -> Path:
    """Fill the sheet in: the scores of three raters by component."""
    with sheet.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["score"] = str(scores[row["component"]][int(row["rater"][-1]) - 1])
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return sheet


def test_two_raters_are_too_few_and_the_study_says_so(copy: Path) -> None:
    sheet = copy / "rating-sheet.csv"
    header, *rows = rate(sheet, {"L0H3": (2, 2, 1), "L1H0": (0, 0, 0), "L2_MLP": (0, 1, 2)}).read_text().splitlines()
    sheet.write_text("\n".join([header, *(row for row in rows if "rater 3" not in row)]))
    rated = again(copy, ratings=sheet)
    assert rated.table_4[-1].not_rated == 3
    assert rated.rated_by == "2 raters (rater 1, rater 2; fewer than 3: nothing is rated)"


def test_the_sheet_filled_in_gives_the_row_of_the_table(copy: Path) -> None:
    """Correct by two of three, wrong by all, and no majority: 1, 0, 1 and one that is not rated."""
    sheet = rate(copy / "rating-sheet.csv", {"L0H3": (2, 2, 1), "L1H0": (0, 0, 0), "L2_MLP": (0, 1, 2)})
    filled = sheet.read_text()
    rated = again(copy, ratings=sheet)
    row = rated.table_4[-1]
    assert (row.agent, row.n, row.correct, row.partial, row.wrong, row.not_rated) == ("builtin", 3, 1, 0, 1, 1)
    by_component = {role.component: role for role in rated.explainers[0].roles}
    assert by_component["L2_MLP"].unrated == "no majority of the raters"
    assert by_component["L0H3"].votes == {"rater 1": 2, "rater 2": 2, "rater 3": 1}
    # Raters 1 and 2 agree on two of three; 1 and 3 on one.
    agreement = {one.raters: one.agreement for one in rated.agreement}
    assert agreement["rater 1", "rater 2"] == pytest.approx(2 / 3)
    assert agreement["rater 1", "rater 3"] == pytest.approx(1 / 3)
    assert rated.rated_by == "3 raters (rater 1, rater 2, rater 3; the majority counts)"
    assert sheet.read_text() == filled  # people's work is not written over
    assert "How far the raters agree" in (copy / "report.html").read_text()


def test_judges_rate_and_are_asked_once(copy: Path, tmp_path: Path) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text('def reply(request):\n    return {"json": {"reason": "", "score": 1}}\n')
    first = again(copy, judge=[f"scripted:{judge}"])
    judge.write_text("def reply(request):\n    raise AssertionError\n")
    rated = again(copy, judge=[f"scripted:{judge}"])
    assert rated.explainers == first.explainers
    row = rated.table_4[-1]
    assert (row.correct, row.partial, row.wrong, row.not_rated) == (0, 3, 0, 0)
    assert (copy / "judged" / "builtin.json").is_file()
    assert "judges; the lowest score counts" in (rated.rated_by or "")


def test_another_explainer_joins_and_what_it_leaves_out_is_wrong(copy: Path, tmp_path: Path) -> None:
    """The scientist says nothing, so that its judges have nothing to be asked about."""
    judge = tmp_path / "judge.py"
    judge.write_text('def reply(request):\n    return {"json": {"reason": "", "score": 2}}\n')
    joined = again(copy, scientist=SILENT, judge=[f"scripted:{judge}"])
    counts = [(row.agent, row.correct, row.partial, row.wrong) for row in joined.table_4[3:]]
    assert counts == [("builtin", 3, 0, 0), (SILENT, 0, 0, 3)]
    # Asked without it, it is still in the directory and in the table.
    assert [one.name for one in again(copy).explainers] == ["builtin", SILENT]
    with (copy / "rating-sheet.csv").open(newline="") as file:
        assert {row["explainer"] for row in csv.DictReader(file)} == {"builtin", SILENT}


def test_roles_of_ones_own(copy: Path, tmp_path: Path) -> None:
    for name, text in (
        ("roles.csv", 'component,role\nL0H3,brings B\n a1.h0 ,"brings A, sometimes"\n'),
        ("roles.json", '{"L0H3": "brings B", "L1H0": "brings A, sometimes"}'),
    ):
        (tmp_path / name).write_text(text)
        study = again(copy, roles=tmp_path / name)
        assert study.references == {"L0H3": "brings B", "L1H0": "brings A, sometimes"}
        assert study.explainers[0].roles[2].unrated == "no reference role"
        assert str(tmp_path / name) in study.request.command_line()


def test_roles_of_another_circuit_are_refused(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "roles.json").write_text('{"L9H9": "brings B"}')
    with pytest.raises(ves.BadInput, match="names none of the components of the circuit; it has L"):
        again(copy, roles=tmp_path / "roles.json")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.txt", "", "the kind .txt is not known; give a .csv or .json file"),
        ("a.csv", "component\nL0H3\n", "header: lacks component or role"),
        ("a.csv", "component,role\n", "holds no roles"),
        ("a.csv", "component,role\nL0H3,\n", "L0H3 has no role; write what it does"),
        ("a.csv", "component,role\nhead five,x\n", "head five"),
        ("a.json", "[]", "is not an object"),
        ("a.json", '{"L0H3": "x", "a0.h3": "y"}', "L0H3 is there twice"),
        ("a.json", '{"L0H3": 5}', "L0H3 has no role"),
    ],
)
def test_a_slip_in_roles_is_refused(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ves.BadInput, match=complaint):
        read_roles(tmp_path / name, task="")


# Refusals, and going on.


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["af2", "--model", "arithmetic"], "study 'af2' does not exist; there is af1"),
        (["af1"], "Missing option '--model'"),
        (["af1", "--model", "nosuch"], "specimen 'nosuch' is not known"),
        (["af1", "--model", "frac_prevs"], "model 'frac_prevs' is not a natural model"),
        (["af1", "--model", "arithmetic"], "a circuit is discovered on at least 8 prompts"),
        (["af1", "--model", "arithmetic", "-b", "ioi"], "behaviour 'ioi': the study is about addition"),
        (
            ["af1", "--model", "arithmetic", "-b", "addition:signs=++,high=49,answers=0..99,shots=0"],
            "model 'arithmetic' does not add: prefers the right answer",
        ),
        (["af1", "--model", "arithmetic", "--circuit", "no.json"], "circuit no.json: there is no such file"),
        (["af1", "--model", "arithmetic", "--scientist", "hyve"], "--scientist hyve needs a language model"),
        (["af1", "--model", "arithmetic", "--ratings", "no.csv"], "ratings no.csv: cannot be read"),
        (["af1", "--model", "arithmetic", "--ratings", "bad.csv"], "ratings bad.csv, row 2: score 'good'"),
        (["af1", "--model", "arithmetic", "--roles", "no.csv"], "roles no.csv: cannot be read"),
        (["af1", "--model", "arithmetic", "--judge", "nobody:x"], "backbone 'nobody:x': no such provider"),
        (["af1", "--model", "arithmetic", "--circuit", "unknown.json"], "unknown.json: component L9H0 is not in"),
        (["af1", "--model", "arithmetic", "--circuit", "other.json"], "other.json: of a model with 2 layers"),
    ],
)
def test_refusals_leave_nothing_behind(vesalius: Vesalius, arguments: list[str], reason: str) -> None:
    Path("bad.csv").write_text("specimen,component,rater,measure,score\narithmetic,L0H3,a,description_quality,good\n")
    shape = {"n_layers": 3, "n_heads": 6, "d_model": 192}
    circuit = {"cfg": shape, "nodes": {"a9.h0": {"in_graph": True}}, "edges": {}}
    Path("unknown.json").write_text(json.dumps(circuit))
    other = Circuit(n_layers=2, n_heads=6, d_model=192, nodes={AF1_COMPONENTS[0].parse("L0H0"): Member()}, edges={})
    other.write("other.json")
    refused(vesalius, ["study", *arguments, "--n", 4], reason)
    assert not Path("vesalius-runs").exists() or not list(Path("vesalius-runs").iterdir())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"specimen": "other"}, "specimen 'other' is not the one of this study; write 'arithmetic'"),
        ({"explainer": "hyve"}, "explainer 'hyve' is not in this study; write builtin"),
        ({"component": "L0H4"}, "component L0H4 is not in the circuit of this study; it has L0H3, L1H0, L2_MLP"),
        ({"measure": "grounding"}, "none of 1 is of description_quality"),
    ],
)
def test_ratings_of_something_else_are_refused(copy: Path, change: dict[str, str], complaint: str) -> None:
    row = {"specimen": "arithmetic", "component": "L0H3", "rater": "a", "measure": "description_quality", "score": 1}
    (copy / "r.json").write_text(json.dumps([row | change]))
    with pytest.raises(ves.BadInput, match=complaint):
        again(copy, ratings=copy / "r.json")


def test_an_interrupted_study_continues(vesalius: Vesalius, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Circuit(
        n_layers=3, n_heads=6, d_model=192, nodes={AF1_COMPONENTS[0].parse("L2_MLP"): Member(score=1.0)}, edges={}
    )
    names.write("circuit.json")
    command = ["study", "af1", "--model", "arithmetic", "--circuit", "circuit.json", "--n", 4, "--out", "s"]

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(verbs, "explain", interrupt)
        left = vesalius(*command)
    assert left.code == 130
    assert "the same command continues" in left.err
    assert [record["event"] for record in read_ledger(Path("s/events.jsonl"))] == STEPS[:3]
    monkeypatch.setattr(verbs, "required_performance", interrupt)
    assert vesalius(*command).code == 0
    assert [record["event"] for record in read_ledger(Path("s/events.jsonl"))] == STEPS
    monkeypatch.setattr(verbs, "loaded", interrupt)  # nothing is left to measure
    assert vesalius(*command).code == 0
    other = vesalius(*command[:-4], "--n", 8, "--out", "s")
    assert other.code == 2
    assert "holds a run with n 4, not 8" in other.err


def test_a_language_model_is_named_and_keeps_its_options(copy: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("[]")
    joined = again(copy, scientist=SILENT, backbone=f"scripted:{script}", max_tokens=99)
    agent = joined.explainers[1]
    assert (agent.name, agent.backbone) == (f"{SILENT} scripted:{script}", f"scripted:{script}")
    assert [role.component for role in agent.roles] == list(NAMED)
    assert joined.request.command_line().count("--max-tokens 99") == 1
    with pytest.raises(ves.BadInput, match=r"explained with \{'max_tokens': 99\}, not the usual ones"):
        again(copy, scientist=SILENT, backbone=f"scripted:{script}")


def test_one_cap_holds_for_judges_and_explainers(copy: Path, tmp_path: Path) -> None:
    judge = tmp_path / "judge.py"
    judge.write_text('def reply(request):\n    return {"json": {"reason": "", "score": 1}}\n')
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps(PRICES))  # a dollar for a thousand tokens
    asked: dict[str, Any] = {"judge": [f"scripted:{judge}"], "prices": prices}
    with pytest.raises(ves.Failed, match="raise the cap"):  # a reply may have 4096 tokens
        again(copy, max_cost=1.0, **asked)
    assert again(copy, max_cost=1000.0, **asked).table_4[-1].partial == 3
    with pytest.raises(ves.Failed, match="other calls of the study have spent"):
        again(copy, scientist=SILENT, backbone=f"scripted:{judge}", prices=prices, max_cost=0.01)

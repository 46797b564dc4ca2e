"""A survey of a model made by hand for induction and of a random one: the table, the page, failures, kills."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

import vesalius as ves
from tests.behaviours.word_tokenizer import word_tokenizer
from tests.cli.conftest import Vesalius
from tests.closeness import FIGURES, assert_same_document
from tests.explanations.induction_model import as_specimen, induction_model
from tests.forked import forked
from vesalius.documents import Request, Sweep
from vesalius.documents.kinds import schema
from vesalius.documents.metric import Figure
from vesalius.documents.sweep import SweepRow
from vesalius.documents.view import Sheet
from vesalius.runs.ledger import read_ledger
from vesalius_bench.survey.documents import CellSweep, Survey, SurveyCell

QUICK = ("--n", 4, "--out", "s")
#: Runs in another process: the command, which kills itself once so many cells are in the ledger.
KILLED = """
import os, signal, sys
from vesalius.cli import main
from vesalius_bench.survey import run as survey

cells, note = [], survey.SurveyRun._note

def note_and_die(self, event, case, **fields):
    note(self, event, case, **fields)
    cells.append(case)
    if len(cells) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

survey.SurveyRun._note = note_and_die
main()
"""


@pytest.fixture(scope="session")
def inducer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of heads, of which L0H0 and L1H0 do induction and nothing else does anything."""
    directory = tmp_path_factory.mktemp("models") / "inducer"
    as_specimen(induction_model(word_tokenizer().size)).save(directory)
    return directory


@pytest.fixture(scope="session")
def random_model(_tiny: Path) -> Path:
    """A random GPT-2, which performs nothing."""
    return _tiny


@pytest.fixture(scope="session")
def surveyed(inducer: Path, random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Survey:
    out = tmp_path_factory.mktemp("survey") / "s"
    return ves.survey([inducer, random_model], ["induction", "ioi"], n=8, out=out, progress=False)


def test_who_performs_what(surveyed: Survey, inducer: Path, random_model: Path) -> None:
    statuses = {(Path(cell.model).name, cell.behaviour): cell.status for cell in surveyed.cells}
    assert statuses == {
        ("inducer", "induction"): "performed",
        ("inducer", "ioi"): "not performed",
        ("tiny", "induction"): "not performed",
        ("tiny", "ioi"): "not performed",
    }
    cell = surveyed.cell(str(inducer), "induction")
    assert cell.performance is not None
    assert cell.metric is not None
    assert cell.performance.accuracy == 1.0
    assert cell.metric.value == pytest.approx(cell.performance.logit_difference, abs=1e-4)
    assert surveyed.cell(str(random_model), "ioi").sweep is None


def test_which_components_and_how_stable(surveyed: Survey, inducer: Path) -> None:
    """The two heads that were set by hand matter, each for everything; the rest is a hundredth of that."""
    swept = surveyed.cell(str(inducer), "induction").sweep
    assert swept is not None
    assert swept.agreement is not None
    first, second, third = swept.strongest(3)
    assert {first.id, second.id} == {"L0H0", "L1H0"}
    for row in (first, second):
        assert row.ci_low is not None
        assert row.ci_low > 0.8 * swept.baseline.value
    assert abs(third.effect) < 0.05 * swept.baseline.value
    assert set(swept.beyond_chance()) >= {"L0H0", "L1H0"}
    # Three of ten components are compared, and two of them are the same in any half: at least 2 of 4.
    assert (swept.agreement.top, swept.agreement.items, swept.agreement.half) == (3, 10, 4)
    assert swept.agreement.jaccard_low >= 0.5
    assert swept.agreement.rank_low <= swept.agreement.rank_correlation <= swept.agreement.rank_high


def test_heads_have_the_names_of_the_atlas(surveyed: Survey, inducer: Path) -> None:
    names = surveyed.cell(str(inducer), "induction").names
    assert "previous-token head" in names["L0H0"]
    assert "induction head" in names["L1H0"]
    assert not surveyed.cell(str(inducer), "ioi").names  # nothing was replaced there


def test_one_head_in_many_behaviours() -> None:
    """L1H0 is beyond chance in both behaviours and comes first, with its name and its part in each; L0H0 in one."""

    def row(id: str, effect: float, half: float, acts: str | None = None) -> SweepRow:
        return SweepRow(id=id, effect=effect, ci_low=effect - half, ci_high=effect + half, acts=acts)

    def cell(behaviour: str, *rows: SweepRow) -> SurveyCell:
        swept = CellSweep(
            baseline=Figure(value=4.0, low=3.0, high=5.0, n=32),
            unit="logits",
            components=rows,
            agreement=None,
            layers=2,
            heads=1,
            forwards=1.0,
        )
        names = {"L1H0": ("induction head",)}
        return SurveyCell(id=behaviour, model="m", behaviour=behaviour, status="performed", sweep=swept, names=names)

    cells = (
        cell("induction", row("L0H0", 2.0, 0.1), row("L1H0", 3.0, 0.2, "raises the answer")),
        cell("ioi", row("L0H0", 0.12, 0.3), row("L1H0", -1.0, 0.1, "lowers the wrong answer")),
    )
    asked = Request(command="survey", options={"models": ["m"], "behaviour": ["induction", "ioi"]})
    sections = list(Survey(request=asked, cells=cells).view().all_sections())
    sheet = next(one for one in sections if isinstance(one, Sheet) and one.title.endswith("in each behaviour"))
    assert sheet.columns == ("component", "by the atlas", "induction", "ioi")
    assert list(sheet.rows) == [
        ("L1H0", "induction head", "+0.75* raises the answer", "-0.25* lowers the wrong answer"),
        ("L0H0", "", "+0.50*", "+0.03"),
    ]
    assert not sheet.pages_only


def test_the_sweep_is_that_of_the_command(surveyed: Survey, inducer: Path, tmp_path: Path) -> None:
    swept = surveyed.cell(str(inducer), "induction").sweep
    assert swept is not None
    ves.sweep(inducer, behaviour="induction", kind="resample", n=8, out=tmp_path, progress=False)
    alone = Sweep.read(tmp_path / "sweep.json")
    ours, theirs = ({row.id: row.effect for row in rows} for rows in (swept.components, alone.components))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_the_document(surveyed: Survey, tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert surveyed.directory is not None
    data = json.loads((Path(surveyed.directory) / "survey.json").read_text())
    assert list(jsonschema.Draft202012Validator(schema("survey")).iter_errors(data)) == []
    assert Survey.read(surveyed.save(tmp_path)).cells == surveyed.cells
    assert len(repr(surveyed)) < 500
    assert "2 models x 2 behaviours: 1 performed, 3 not performed" in repr(surveyed)
    assert len(surveyed.view().sheet().rows) == 4
    assert surveyed.plot().axes
    words = surveyed.request.command_line().split()
    assert words[:2] == ["vesalius", "survey"]
    assert words[4:8] == ["--behaviour", "induction", "--behaviour", "ioi"]


def test_the_page(surveyed: Survey, tmp_path: Path) -> None:
    page = surveyed.page(tmp_path).read_text()
    assert "inducer performs induction." in page
    assert page.count('class="headmap"') == 1
    assert "http" not in page.replace("http://www.w3.org", "").replace("http-equiv", "")
    assert surveyed.directory is not None
    assert Path(ves.report(surveyed.directory)).read_text() == page


def test_one_screen_and_the_exit_code(vesalius: Vesalius, inducer: Path) -> None:
    """A model that does not load is a line of the table; the others go on, and the same command tries it again."""
    got = vesalius("survey", inducer, "nowhere.gguf", "-b", "induction", *QUICK)
    assert got.code == 1
    assert "2 cells: 1 performed, 1 failed" in got.out
    assert "failed: nowhere.gguf, induction: nowhere.gguf" in got.out
    assert len(got.out.splitlines()) < 24
    again = vesalius("survey", inducer, "nowhere.gguf", "-b", "induction", *QUICK, "--json")
    assert again.code == 1
    data = json.loads(again.out)
    assert data["n_failed"] == 1
    assert [cell["status"] for cell in data["cells"]] == ["performed", "failed"]
    events = [record["event"] for record in read_ledger(Path("s/events.jsonl"))]
    assert events == ["measured", "failed", "failed"]


def test_a_behaviour_that_does_not_fit_the_tokenizer(vesalius: Vesalius, inducer: Path) -> None:
    Path("own.jsonl").write_text('{"prompt": "Zwölf Boxkämpfer", "answer": " jagen", "wrong": " Viktor"}\n')
    got = vesalius("survey", inducer, "-b", "own.jsonl", "-b", "induction", *QUICK, "--json")
    assert got.code == 1
    data = json.loads(got.out)
    assert [cell["status"] for cell in data["cells"]] == ["failed", "performed"]
    assert data["cells"][0]["error_kind"] == "refused"
    assert "cannot be used with this model" in data["cells"][0]["error"]


def test_after_a_kill(vesalius: Vesalius, inducer: Path, random_model: Path, surveyed: Survey) -> None:
    """Killed in the middle, the same command measures what is missing and ends with the same cells."""
    arguments = ["survey", inducer, random_model, "-b", "induction", "-b", "ioi", "--n", 8, "--out", "s"]
    killed = subprocess.run(forked("-c", KILLED, *arguments), capture_output=True, text=True, check=False)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, ""), killed.stderr
    assert vesalius(*arguments).code == 0
    cases = [record["case"] for record in read_ledger(Path("s/events.jsonl")) if record["event"] == "measured"]
    assert len(cases) == len(set(cases)) == 4
    assert_same_cells(Survey.read("s/survey.json"), surveyed)


def assert_same_cells(one: Survey, other: Survey) -> None:
    """The same cells, up to rounding. Effects that are equal up to rounding may come in another order, and which of
    them two halves compare may change with it.
    """
    assert [(cell.id, cell.status) for cell in one.cells] == [(cell.id, cell.status) for cell in other.cells]
    for ours, theirs in zip(one.cells, other.cells, strict=True):
        assert ours.performance is not None
        assert theirs.performance is not None
        assert_same_document(ours.performance.model_dump(), theirs.performance.model_dump())
        tables = [
            {row.id: (row.effect, row.ci_low, row.ci_high) for row in cell.sweep.components} if cell.sweep else {}
            for cell in (ours, theirs)
        ]
        assert tables[0].keys() == tables[1].keys()
        for name, figures in tables[0].items():
            assert figures == pytest.approx(tables[1][name], abs=FIGURES)


def test_a_discovery_in_every_performed_cell(vesalius: Vesalius, inducer: Path) -> None:
    got = vesalius("survey", inducer, "-b", "induction", "--discover", "eap", *QUICK, "--json")
    found = json.loads(got.out)["cells"][0]["discovery"]
    assert {row["id"] for row in found["components"][:2]} == {"L0H0", "L1H0"}
    assert (Path("s") / found["directory"] / "discovery.html").is_file()
    assert f'href="{found["directory"]}/discovery.html"' in Path("s/report.html").read_text()


def test_plan(vesalius: Vesalius, inducer: Path) -> None:
    got = vesalius("survey", inducer, "nowhere.gguf", "-b", "induction", "--n", 4, "--plan", "--json")
    plan = json.loads(got.out)
    alone = json.loads(
        vesalius("sweep", inducer, "-b", "induction", "--n", 4, "-k", "resample", "--plan", "--json").out
    )
    assert [cell["error"] is None for cell in plan["cells"]] == [True, False]
    assert plan["forwards"] == pytest.approx(alone["forwards"] + alone["contrast_forwards"])
    assert plan["seconds"] > 0
    assert not Path("vesalius-runs").exists()
    assert "2 cells, at most about" in vesalius("survey", inducer, "nowhere.gguf", "-b", "ioi", "--plan").out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["{m}"], "a survey of no behaviours says nothing; name at least one, such as --behaviour induction"),
        (["{m}", "{m}", "-b", "ioi"], "is given twice; leave one out"),
        (["{m}", "{m}/../inducer", "-b", "ioi"], "is given twice (as "),
        (["{m}", "-b", "ioi", "-b", "ioi"], "behaviour 'ioi' is given twice"),
        (["{m}", "-b", "nonsense"], "behaviour 'nonsense' does not exist; choose one of"),
        (["{m}", "-b", "none.jsonl"], "none.jsonl: no such file"),
        (["{m}", "", "-b", "ioi"], "model '' is not a name"),
        (["{m}", "-b", "ioi", "--kind", "noise"], "kind 'noise' does not exist"),
        (["{m}", "-b", "ioi", "--discover", "magic"], "method 'magic' does not exist"),
        (["{m}", "-b", "ioi", "--metric", "magic"], "metric 'magic' does not exist"),
        (["{m}", "-b", "ioi", "--engine", "slurm"], "engine 'slurm' does not exist; use local, ray"),
        (["{m}", "-b", "ioi", "--out", "{m}/model.safetensors"], "cannot be used as a directory"),
        (["{m}", "-b", "ioi", "--out", "/proc/here"], "--out /proc/here: cannot be"),
    ],
)
def test_wrong_inputs(vesalius: Vesalius, inducer: Path, arguments: list[str], reason: str) -> None:
    got = vesalius("survey", *(word.replace("{m}", str(inducer)) for word in arguments))
    assert (got.code, got.out) == (2, "")
    assert reason in got.err
    assert len(got.err.splitlines()) == 1
    assert not Path("vesalius-runs").exists()


@pytest.mark.parametrize("command", ["sweep", "discover", "explain"])
def test_other_commands_take_an_engine(vesalius: Vesalius, inducer: Path, command: str) -> None:
    got = vesalius(command, inducer, "-b", "induction", "--engine", "slurm", "--jobs", 3)
    assert (got.code, got.out) == (2, "")
    assert "engine 'slurm' does not exist; use local, ray" in got.err
    cut = vesalius(command, "frac_prevs", "--jobs", 3)
    assert cut.code == 2
    assert "parts of the work are run elsewhere for natural models only" in cut.err


def test_sets_have_no_parts(vesalius: Vesalius, inducer: Path) -> None:
    got = vesalius("sets", inducer, "-b", "induction", "--jobs", 2)
    assert (got.code, "--jobs" in got.err) == (2, True)


def test_a_directory_of_another_survey(vesalius: Vesalius, inducer: Path) -> None:
    assert vesalius("survey", inducer, "-b", "ioi", *QUICK).code == 0
    got = vesalius("survey", inducer, "-b", "ioi", "--n", 6, "--out", "s")
    assert (got.code, got.out) == (2, "")
    assert "s: holds a run with n 4, not 6; repeat its command or choose another --out" in got.err


def test_a_model_in_memory_is_refused(inducer: Path) -> None:
    with pytest.raises(ves.BadInput, match=r"Specimen cannot be found again .*\.save\(directory\)"):
        ves.survey([ves.load(inducer)], ["ioi"])
    with pytest.raises(ves.BadInput, match="a survey of no models says nothing"):
        ves.survey([], ["ioi"])

"""`open --annotate`, `ratings` and `compare --ratings` as a user gives them; what cannot be is refused in one line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius
from tests.runs.annotated import write_runs
from vesalius_bench.ratings.annotation import annotate

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


def test_ratings_and_compare_take_the_directory(vesalius: Vesalius, tmp_path: Path) -> None:
    runs = write_runs(tmp_path, ("3",))
    with annotate(runs, out=tmp_path / "rated") as texts:
        for rater in ("ann", "ben"):
            for number in range(1, 7):
                texts.rate(rater, texts.card(rater, number).id, 1, "=1")
    printed = json.loads(vesalius("ratings", tmp_path / "rated", "--csv", "all.csv", "--json").out)
    assert [(pair["measure"], pair["kappa"], pair["agreement"]) for pair in printed["pairs"]] == [
        ("description_quality", None, 1.0),
        ("task_accuracy", None, 1.0),
    ]
    assert vesalius("ratings", "all.csv", "--json").out.replace("all.csv", str(tmp_path / "rated")) == (
        vesalius("ratings", tmp_path / "rated", "--json").out
    )
    subset = json.loads(vesalius("ratings", "all.csv", "--ids", "human-subset", "--json").out)
    assert subset["items"] == printed["items"]
    assert ",'=1\n" in (tmp_path / "all.csv").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--reference"], "add --annotate"),
        (["--ids", "3"], "add --annotate"),
        (["one", "two"], "one run, specimen or directory is opened; add --annotate to rate several"),
        (["--annotate"], "no run is named"),
        (["none", "--annotate"], "run none: no run there"),
        (["run-one", "--annotate", "--ids", "hist"], "no explanation of these --ids"),
        (["run-one", "--annotate", "--import", "none.csv"], "ratings none.csv: cannot be read"),
        (["run-one", "--annotate", "--import", "bad.csv"], "ratings bad.csv, row 2: score '9'"),
        (["run-one", "--annotate", "--host", "0.0.0.0"], "it needs a password; give --password-file FILE"),
        (
            ["run-one", "--host", "no.such.host.invalid", "--password-file", "password"],
            "--host no.such.host.invalid: is not",
        ),
        (["run-one", "--host", "127.0.0.1", "--password-file", "none"], "--password-file none: cannot be read"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_line(
    options: list[str], message: str, vesalius: Vesalius, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VESALIUS_PASSWORD", raising=False)
    write_runs(tmp_path, ("3",))
    (tmp_path / "password").write_text("correct horse")
    (tmp_path / "password").chmod(0o600)
    row = "run-one,openai:model-a,ann,task_accuracy:3,9,"
    (tmp_path / "bad.csv").write_text(f"run,agent,rater,item,score,comment\n{row}\n")
    got = vesalius("open", *options, "--no-browser")
    assert (got.code, got.out) == (2, "")
    assert message in got.err
    assert got.err.count("\n") == 1

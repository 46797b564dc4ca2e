"""A league from the command line: made of trained specimens, submitted to by a scripted agent, scored; offline."""

import json
import tarfile
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius

pytest.importorskip("cryptography")
ROOT = Path(__file__).parents[2]
#: Generated tasks of four components together; L0_MLP, L0H0, and both of them.
CIRCUITS = ("generated_62001_000", "generated_62001_002", "generated_62001_006")


@pytest.mark.slow
def test_a_scripted_agent_in_a_league_of_three_circuits(vesalius: Vesalius, tmp_path: Path) -> None:
    """The agent tags heads AGGREGATOR and MLPs MAPPER, which is the guess by kind: it earns the baseline, no more."""
    with tarfile.open(ROOT / "benchmarks" / "fresh_62001.tgz") as archive:
        members = [one for one in archive.getmembers() if any(part in CIRCUITS for part in Path(one.name).parts)]
        archive.extractall(tmp_path / "trained", members, filter="data")
    (tmp_path / "secret.txt").write_text("a long passphrase\n")
    sealed = ("--passphrase-file", "secret.txt")
    made = vesalius("league", "make", "--specimens", "trained", "--circuits", 3, *sealed, "--out", "league", "--json")
    assert made.code == 0, made.err
    assert [one["id"] for one in json.loads(made.out)["circuits"]] == ["c01", "c02", "c03"]
    backbone = f"scripted:{ROOT / 'examples' / 'league_agent.py'}"
    submitted = vesalius(
        *("league", "submit", "league", "--scientist", "hyve", "--backbone", backbone, "--name", "scripted", "--json")
    )
    assert submitted.code == 0, submitted.err
    assert (json.loads(submitted.out)["cases"], json.loads(submitted.out)["errors"]) == (["c01", "c02", "c03"], [])
    scored = vesalius("league", "score", "league", "scripted", *sealed, "--json")
    assert scored.code == 0, scored.err
    row = json.loads(scored.out)
    assert (row["name"], row["n"], row["n_error"], row["backbone"]) == ("scripted", 3, 0, "scripted:league_agent.py")
    tags = row["metrics"]["tag_accuracy"]
    assert (tags["n"], tags["value"]) == (4, tags["baseline"])
    assert row["metrics"]["power"]["value"] == 0.0
    assert row["metrics"]["coverage"]["n"] > 0  # the engine's figures of necessity, measured again
    again = vesalius("league", "score", "league", "scripted", *sealed)
    assert (again.code, "has a row already" in again.err) == (2, True)

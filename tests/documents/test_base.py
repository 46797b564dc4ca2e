"""Documents: frozen, with a schema version; damaged ones and those of other schemas are refused in one line."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from vesalius.documents import Request, Sweep, SweepRow
from vesalius.documents.experiments import WhatIf
from vesalius.errors import BadInput

ROW = SweepRow(id="L0H1", effect=0.5, ci_low=0.25, ci_high=0.75)
SWEEP = Sweep(
    request=Request(command="sweep", specimen="frac_prevs", options={"kind": "mean", "n": 4}, seed=1),
    unit="share of outputs",
    baseline=1.0,
    baseline_low=0.5,
    baseline_high=1.0,
    components=(ROW,),
    forwards=2.5,
    seconds=0.1,
)


def test_a_document_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    SWEEP.write(tmp_path / "sweep.json")
    assert Sweep.read(tmp_path / "sweep.json") == SWEEP
    data = json.loads((tmp_path / "sweep.json").read_text())
    assert (data["schema"], data["specimen"], data["kind"], data["n"], data["seed"]) == (2, "frac_prevs", "mean", 4, 1)
    assert data["components"] == [{"id": "L0H1", "effect": 0.5, "ci_low": 0.25, "ci_high": 0.75}]


def test_a_document_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SWEEP.unit = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 3}, "schema 3 is newer than 2, the latest that this version reads"),
        ({"schema": 1}, "schema 1 is older than 2, the only one that this version reads"),
        ({"unit": 4}, "unit: Input should be a valid string"),
        ({"banana": 1}, "banana: Extra inputs are not permitted"),
        ({"components": [{"id": "L0H1"}]}, "components.0.effect: Field required"),
    ],
)
def test_damaged_documents_are_refused_in_one_line(change: dict, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps({**SWEEP.as_data(), **change}))
    with pytest.raises(BadInput) as refused:
        Sweep.read(path)
    assert str(refused.value) == f"{path}: {reason}; run `vesalius sweep` again"


def test_a_document_of_another_kind_is_called_one() -> None:
    with pytest.raises(BadInput, match=r"schema 2 is newer than 1, .*; or it is not a WhatIf, since it has no 'clean'"):
        WhatIf.from_data(SWEEP.as_data())

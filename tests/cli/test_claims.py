"""`vesalius claims`: from a TOML file to a verdict, exit codes, and a tampered file in one line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius

TOML = """
specimen = "frac_prevs"
n = 64
prediction = "{prediction}"

[claim]
kind = "necessary"
component = "L0_MLP"
replacement = "resample"
"""


def test_register_verify_and_show(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML.format(prediction="supported"))
    registered = vesalius("claims", "register", "mine.toml")
    assert registered.code == 0
    assert "test it: vesalius claims verify claim.json" in registered.out
    verified = vesalius("claims", "verify", "claim.json")
    assert (verified.code, verified.out.splitlines()[0]) == (0, "PASS: predicted supported, found supported")
    assert vesalius("claims", "show", "claim.verdict.json").out.startswith("PASS: ")
    assert vesalius("claims", "verify", "claim.json", "--verdict", "claim.verdict.json").code == 0
    shown = vesalius("claims", "show", "claim.json", "--json")
    assert (shown.code, json.loads(shown.out)["document"]) == (0, "registered claim")
    text = (tmp_path / "claim.json").read_text()
    (tmp_path / "claim.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    for command in ("verify", "show"):
        tampered = vesalius("claims", command, "claim.json")
        assert (tampered.code, tampered.out.splitlines()[0]) == (
            1,
            "TAMPERED: digest: the fields do not give the digest of the seal: one of them was altered",
        )
    document = vesalius("claims", "verify", "claim.json", "--json")
    assert (document.code, json.loads(document.out)["result"]) == (1, "TAMPERED")


def test_a_prediction_that_fails(vesalius: Vesalius, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(TOML.format(prediction="refuted"))
    assert vesalius("claims", "register", "mine.toml", "--out", "other.json").code == 0
    verified = vesalius("claims", "verify", "other.json", "--out", "said.json")
    assert (verified.code, verified.out.splitlines()[0]) == (1, "FAIL: predicted refuted, found supported")
    assert json.loads((tmp_path / "said.json").read_text())["result"] == "FAIL"


def test_a_key_signs(vesalius: Vesalius, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    made = json.loads(vesalius("claims", "key", "laboratory.pem", "--json").out)
    (tmp_path / "mine.toml").write_text(TOML.format(prediction="supported"))
    vesalius("claims", "register", "mine.toml", "--key", "laboratory.pem")
    assert vesalius("claims", "show", "claim.json", "--signer", made["signer"]).code == 0
    assert vesalius("claims", "show", "claim.json", "--signer", "0" * 64).code == 1
    assert vesalius("claims", "key", "laboratory.pem").code == 2


@pytest.mark.parametrize("command", [("register", "no.json"), ("verify", "no.json"), ("show", "no.json")])
def test_a_missing_file_is_bad_input(vesalius: Vesalius, command: tuple[str, ...]) -> None:
    got = vesalius("claims", *command)
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith("vesalius: no.json: ")

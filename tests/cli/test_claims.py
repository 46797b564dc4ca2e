"""`vesalius claims`: from a TOML file to a verdict, exit codes, and a tampered file in one line."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Vesalius
from vesalius import api
from vesalius.errors import Failed

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
    assert "proven: the test was run here" in verified.out
    assert "proven: not that the claim is as it was registered" in verified.out
    for command in (("show", "claim.verdict.json"), ("verify", "claim.json", "--verdict", "claim.verdict.json")):
        said = vesalius("claims", *command)
        assert said.code == 5
        assert said.out.startswith("UNSIGNED: the file says PASS, and nobody signed it")
    shown = vesalius("claims", "show", "claim.json", "--json")
    assert (shown.code, json.loads(shown.out)["document"]) == (0, "registered claim")
    text = (tmp_path / "claim.json").read_text()
    (tmp_path / "claim.json").write_text(text.replace('"seed": 0', '"seed": 1'))
    for command in ("verify", "show"):
        tampered = vesalius("claims", command, "claim.json")
        assert (tampered.code, tampered.out.splitlines()[0]) == (
            3,
            "ALTERED: digest: the fields do not give the digest of the seal: one of them was altered",
        )
    document = vesalius("claims", "verify", "claim.json", "--json")
    assert (document.code, json.loads(document.out)["result"]) == (3, "ALTERED")


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
    assert vesalius("claims", "show", "claim.json", "--signer", "0" * 64).code == 3
    vesalius("claims", "verify", "claim.json", "--key", "laboratory.pem")
    check = ("claims", "verify", "claim.json", "--verdict", "claim.verdict.json")
    assert vesalius(*check).code == 6
    trusted = vesalius(*check, "--signer", made["signer"])
    assert trusted.code == 0
    assert trusted.out.startswith("PASS: ")
    assert f"proven: the verdict was signed by {made['signer']}, the key that you named" in trusted.out
    bare = json.loads((tmp_path / "claim.json").read_text())
    (tmp_path / "claim.json").write_text(json.dumps({**bare, "seal": {**bare["seal"], "signature": None}}))
    assert vesalius("claims", "show", "claim.json").code == 4
    del bare["seal"]
    (tmp_path / "claim.json").write_text(json.dumps(bare))
    assert vesalius("claims", "show", "claim.json").out.startswith("STRIPPED: ")
    assert vesalius("claims", "key", "laboratory.pem").code == 2


@pytest.mark.parametrize("command", [("register", "no.json"), ("verify", "no.json"), ("show", "no.json")])
def test_a_missing_file_is_bad_input(vesalius: Vesalius, command: tuple[str, ...]) -> None:
    got = vesalius("claims", *command)
    assert (got.code, got.out) == (2, "")
    assert got.err.startswith("vesalius: no.json: ")


def test_a_test_that_could_not_be_run_has_no_result(
    vesalius: Vesalius, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its exit code is that of FAIL, so the help says what a script has to read."""

    def fail(*arguments: object, **options: object) -> None:
        raise Failed("model org/tiny could not be fetched")

    monkeypatch.setattr(api, "verify_claim", fail)
    for option in ((), ("--json",)):
        got = vesalius("claims", "verify", "claim.json", *option)
        assert (got.code, got.out) == (1, "")
        assert got.err.startswith("vesalius: model org/tiny could not be fetched")
    told = " ".join(vesalius("claims", "verify", "--help").out.split())
    assert "could not be run also ends with 1" in told
    assert "scripts read `result` from --json" in told
